"""/image/acls, /image/scram and /image/delegationToken. Secrets are shown, as Kafka's shell shows them."""

from typing import Any

from quorate_protocol.image import AccessControlEntry, DelegationToken, ImageState, ScramCredential
from quorate_protocol.kafka.enums import (
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourceType,
    ScramMechanism,
)
from quorate_protocol.uuids import uuid_from_text, uuid_to_text

from quorate.tools.metadata_shell.tree.nodes import Directory, Leaf, Node, fixed


def acls(image: ImageState) -> Directory:
    """ACLs by their ids."""
    return fixed({"byId": lambda: _acls_by_id(image)})


def _acls_by_id(image: ImageState) -> Directory:
    def child(name: str) -> Node | None:
        try:
            acl = image.acls.get(uuid_from_text(name))
        except ValueError:
            return None
        return Leaf(lambda: acl_text(acl), lambda: _acl_data(acl)) if acl else None

    return Directory(lambda: map(uuid_to_text, image.acls), child)


def acl_text(acl: AccessControlEntry) -> str:
    """As StandardAcl.toString."""
    return f"StandardAcl[{', '.join(f'{name}={part}' for name, part in _acl_data(acl).items())}]"


def _acl_data(acl: AccessControlEntry) -> dict[str, str]:
    return {
        "resourceType": ResourceType(acl.resource_type).name,
        "resourceName": acl.resource_name,
        "patternType": PatternType(acl.pattern_type).name,
        "principal": acl.principal,
        "host": acl.host,
        "operation": AclOperation(acl.operation).name,
        "permissionType": AclPermissionType(acl.permission_type).name,
    }


_MECHANISMS = {
    mechanism.mechanism_name: mechanism
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
}


def scram(image: ImageState) -> Directory:
    """Credentials by mechanism and user; both mechanisms are always there."""

    def child(name: str) -> Node | None:
        mechanism = _MECHANISMS.get(name)
        return None if mechanism is None else _users(image, mechanism)

    return Directory(lambda: _MECHANISMS, child)


def _users(image: ImageState, mechanism: ScramMechanism) -> Directory:
    def child(user: str) -> Node | None:
        credential = image.scram.get((mechanism, user))
        return Leaf(lambda: _scram_text(credential), lambda: _scram_data(credential)) if credential else None

    return Directory(lambda: (user for one, user in image.scram if one is mechanism), child)


def _scram_text(credential: ScramCredential) -> str:
    return f"ScramCredentialData({', '.join(f'{k}={v}' for k, v in _scram_data(credential).items())})"


def _scram_data(credential: ScramCredential) -> dict[str, Any]:
    return {
        "salt": credential.salt.hex(),
        "storedKey": credential.stored_key.hex(),
        "serverKey": credential.server_key.hex(),
        "iterations": credential.iterations,
    }


def delegation_tokens(image: ImageState) -> Directory:
    """Tokens by their ids."""

    def child(token_id: str) -> Node | None:
        token = image.delegation_tokens.get(token_id)
        return Leaf(lambda: token_text(token), lambda: _token_data(token)) if token else None

    return Directory(lambda: image.delegation_tokens, child)


def token_text(token: DelegationToken) -> str:
    """As DelegationTokenDataNode prints it, whose parentheses do not match."""
    return (
        f"DelegationTokenDatatokenId={token.token_id}(owner={token.owner}(tokenRequester={token.requester}"
        f"(renewers={' '.join(token.renewers)}, issueTimestamp={token.issue_timestamp_ms}, "
        f"maxTimestamp={token.max_timestamp_ms}), expiryTimestamp={token.expiration_timestamp_ms}"
    )


def _token_data(token: DelegationToken) -> dict[str, Any]:
    return {
        "tokenId": token.token_id,
        "owner": token.owner,
        "tokenRequester": token.requester,
        "renewers": list(token.renewers),
        "issueTimestamp": token.issue_timestamp_ms,
        "maxTimestamp": token.max_timestamp_ms,
        "expiryTimestamp": token.expiration_timestamp_ms,
    }
