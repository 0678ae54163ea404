"""Users: their credentials, ACLs and quotas as brokers describe them, and the requests that change them."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from quorate_admin.client import AdminClient
from quorate_admin.errors import ErrorCode, ServerError
from quorate_admin.types.acls import (
    AccessControlEntryFilter,
    AclBinding,
    AclBindingFilter,
)
from quorate_admin.types.credentials import UserScramCredentialDeletion, UserScramCredentialUpsertion
from quorate_admin.types.quotas import (
    ClientQuotaAlteration,
    ClientQuotaEntity,
    ClientQuotaFilter,
    ClientQuotaFilterComponent,
)
from quorate_protocol.kafka.enums import USER, ScramMechanism

from quorate_operator.entities.users import (
    AddAcls,
    AlterQuotas,
    DeleteCredentials,
    RemoveAcls,
    SetCredentials,
)

UserChange = SetCredentials | DeleteCredentials | AddAcls | RemoveAcls | AlterQuotas


@dataclass(frozen=True, slots=True, kw_only=True)
class UsersFacts:
    """What brokers report: mechanisms by user, ACLs by principal (None without an authorizer), quotas by user."""

    mechanisms: Mapping[str, frozenset[str]]
    acls: Mapping[str, frozenset[AclBinding]] | None
    quotas: Mapping[str, Mapping[str, float]]


async def observe_users(
    client: AdminClient, users: Collection[str] | None, principals: Collection[str]
) -> UsersFacts:
    """Return credentials, ACLs and quotas of users and principals, with one request for each of the three.

    With `users` None, all users are described. For one principal, only its ACLs are requested; for several, all ACLs.

    Raises:
        AdminError: no broker answered, or a request was refused.
    """
    described = await client.describe_user_scram_credentials(users or ())
    described.raise_any({ErrorCode.resource_not_found})
    strict = ClientQuotaFilter.contains_only([ClientQuotaFilterComponent(entity_type=USER)])
    quotas = await client.describe_client_quotas(strict)
    return UsersFacts(
        mechanisms={
            user: frozenset(info.mechanism.mechanism_name for info in description.credentials)
            for user, description in described.values.items()
        },
        acls=await _acls(client, principals),
        quotas={str(entity.names[USER]): values for entity, values in quotas.items() if entity.names[USER]},
    )


async def _acls(
    client: AdminClient, principals: Collection[str]
) -> Mapping[str, frozenset[AclBinding]] | None:
    """Return the ACLs by principal: with one request, whatever their number."""
    asked = None
    if len(principals) == 1:
        (only,) = principals
        asked = AclBindingFilter(entry=AccessControlEntryFilter(principal=only))
    try:
        bindings = await client.describe_acls(asked)
    except ServerError as error:
        if error.error_code is ErrorCode.security_disabled:
            return None
        raise
    found: dict[str, set[AclBinding]] = defaultdict(set)
    for binding in bindings:
        found[binding.entry.principal].add(binding)
    return {principal: frozenset(of) for principal, of in found.items()}


async def change_user(client: AdminClient, change: UserChange) -> None:
    """Make one change; one that was made already is no error.

    Raises:
        ServerError: it was refused.
        AdminError: no broker answered.
    """
    match change:
        case SetCredentials():
            upsertion = UserScramCredentialUpsertion(
                user=change.user, mechanism=_mechanism(change.mechanism), password=change.password
            )
            (await client.alter_user_scram_credentials([upsertion])).raise_any()
        case DeleteCredentials():
            # One request for each: a request for several is refused as a whole if one of them is gone already.
            for mechanism in change.mechanisms:
                deletion = UserScramCredentialDeletion(user=change.user, mechanism=_mechanism(mechanism))
                deleted = await client.alter_user_scram_credentials([deletion])
                deleted.raise_any({ErrorCode.resource_not_found})
        case AddAcls():
            (await client.create_acls(change.bindings)).raise_any()
        case RemoveAcls():
            removed = await client.delete_acls(map(AclBindingFilter.of, change.bindings))
            removed.raise_any()
            for matches in removed.values.values():
                for match in matches:
                    if match.error is not None:
                        raise match.error
        case AlterQuotas():
            alteration = ClientQuotaAlteration(
                entity=ClientQuotaEntity.of({USER: change.user}), values=change.values
            )
            (await client.alter_client_quotas([alteration])).raise_any()


def _mechanism(name: str) -> ScramMechanism:
    return ScramMechanism[name.replace("-", "_")]
