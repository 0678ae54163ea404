"""/image/acls, /image/scram and /image/delegationToken. Secrets are shown, as Kafka's shell shows them."""

from functools import partial
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

from quorate.tools.metadata_shell.tree.nodes import Directory, Node, by_key, fixed, record


def acls(image: ImageState) -> Directory:
    """ACLs by their ids."""
    acl = partial(record, acl_text, _acl_data)
    return fixed({"byId": lambda: by_key(image.acls, acl, uuid_from_text, uuid_to_text)})


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
    return by_key(_MECHANISMS, lambda mechanism: _users(image, mechanism))


def _users(image: ImageState, mechanism: ScramMechanism) -> Directory:
    def child(user: str) -> Node | None:
        credential = image.scram.get((mechanism, user))
        return record(_scram_text, _scram_data, credential) if credential else None

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
    return by_key(image.delegation_tokens, partial(record, token_text, _token_data))


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
