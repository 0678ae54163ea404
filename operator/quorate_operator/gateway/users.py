"""Users: their credentials, ACLs and quotas as brokers describe them, and the requests that change them."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from quorate_admin.client import AdminClient
from quorate_admin.errors import AdminError, ErrorCode, ServerError
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
from quorate_operator.gateway.batches import Errors, Request, first_error, make_changes

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


async def change_users(client: AdminClient, changes: Sequence[UserChange]) -> Errors:
    """Make changes of different users; one that was made already is no error."""
    return await make_changes(client, changes, _REQUESTS)


async def _set_credentials(client: AdminClient, changes: Sequence[SetCredentials]) -> Errors:
    altered = await client.alter_user_scram_credentials(
        [
            UserScramCredentialUpsertion(
                user=change.user, mechanism=_mechanism(change.mechanism), password=change.password
            )
            for change in changes
        ]
    )
    return [altered.error_of(change.user) for change in changes]


async def _delete_credentials(client: AdminClient, changes: Sequence[DeleteCredentials]) -> Errors:
    # One mechanism of each user at a time: if one of several is gone already, none of them is deleted.
    errors: dict[str, AdminError] = {}
    for number in range(max(len(change.mechanisms) for change in changes)):
        deletions = [
            UserScramCredentialDeletion(user=change.user, mechanism=_mechanism(change.mechanisms[number]))
            for change in changes
            if number < len(change.mechanisms)
        ]
        deleted = await client.alter_user_scram_credentials(deletions)
        for deletion in deletions:
            error = deleted.error_of(deletion.user, {ErrorCode.resource_not_found})
            if error is not None:
                errors.setdefault(deletion.user, error)
    return [errors.get(change.user) for change in changes]


async def _add_acls(client: AdminClient, changes: Sequence[AddAcls]) -> Errors:
    created = await client.create_acls([binding for change in changes for binding in change.bindings])
    return [first_error(map(created.error_of, change.bindings)) for change in changes]


async def _remove_acls(client: AdminClient, changes: Sequence[RemoveAcls]) -> Errors:
    filters = [list(map(AclBindingFilter.of, change.bindings)) for change in changes]
    removed = await client.delete_acls([acl_filter for of_change in filters for acl_filter in of_change])
    return [
        first_error(
            error
            for acl_filter in of_change
            for error in (
                removed.error_of(acl_filter),
                *(match.error for match in removed.values.get(acl_filter, ())),
            )
        )
        for of_change in filters
    ]


async def _alter_quotas(client: AdminClient, changes: Sequence[AlterQuotas]) -> Errors:
    entities = [ClientQuotaEntity.of({USER: change.user}) for change in changes]
    altered = await client.alter_client_quotas(
        [
            ClientQuotaAlteration(entity=entity, values=change.values)
            for entity, change in zip(entities, changes, strict=True)
        ]
    )
    return [altered.error_of(entity) for entity in entities]


_REQUESTS = {
    SetCredentials: Request(_set_credentials),
    DeleteCredentials: Request(_delete_credentials),
    AddAcls: Request(_add_acls, lambda change: len(change.bindings)),
    RemoveAcls: Request(_remove_acls, lambda change: len(change.bindings)),
    AlterQuotas: Request(_alter_quotas),
}


def _mechanism(name: str) -> ScramMechanism:
    return ScramMechanism[name.replace("-", "_")]
