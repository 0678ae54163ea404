"""Describes and alters configs, quotas and credentials."""

from typing import TYPE_CHECKING

from quorate_admin.errors import ErrorCode, ServerError, UnsupportedByServerError
from quorate_admin.types.configs import AlterConfigOp
from quorate_admin.types.quotas import (
    ClientQuotaAlteration,
    ClientQuotaEntity,
    ClientQuotaFilter,
    ClientQuotaFilterComponent,
)
from quorate_protocol.kafka.enums import CLIENT_ID, IP, USER, ConfigOpType, ConfigResourceType

from quorate.console import CommandError
from quorate.console.java_text import hash_order
from quorate.tools.configs.changes import (
    Changes,
    changes_credentials,
    check_changes,
    credential_alterations,
    quota_values,
)
from quorate.tools.configs.entities import (
    BROKER_LOGGERS,
    BROKERS,
    CLIENT_METRICS,
    CLIENTS,
    DEFAULT_NAME,
    GROUPS,
    IPS,
    TOPICS,
    USERS,
    Entities,
)
from quorate.tools.configs.text import DescribedEntity, Quotas, resource_of, select_entries

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from quorate_admin.client import AdminClient


QUOTA_TYPES = {USERS: USER, CLIENTS: CLIENT_ID, IPS: IP}
ALTER_TIMEOUT_MS = 30_000


async def describe_entities(
    admin: "AdminClient", entity_type: str, name: str | None, *, describe_all: bool
) -> list[DescribedEntity] | None:
    """The configs of an entity, or of all entities of a type; None if the entity does not exist.

    With `describe_all` there is no separate request for its existence: the response with its configs shows it.
    """
    if name is None:
        names = await _existing(admin, entity_type)
        if entity_type == BROKERS:
            names.append(DEFAULT_NAME)
    elif not describe_all and not await _exists(admin, entity_type, name):
        return None
    else:
        names = [name]
    resources = {entity: resource_of(entity_type, entity) for entity in names}
    results = await admin.describe_configs(resources.values(), include_synonyms=True)
    return [
        DescribedEntity(
            name=entity,
            entries=select_entries(entity_type, entity, results[resource], describe_all=describe_all),
        )
        for entity, resource in resources.items()
    ]


async def _exists(admin: "AdminClient", entity_type: str, name: str) -> bool:
    if entity_type in {BROKERS, BROKER_LOGGERS} and name == DEFAULT_NAME:
        return True
    return name in await _existing(admin, entity_type)


async def _existing(admin: "AdminClient", entity_type: str) -> list[str]:
    """The existing entities of a type, in the order of Kafka's tool."""
    if entity_type == TOPICS:
        return hash_order(await admin.list_topics(list_internal=True))
    if entity_type in {BROKERS, BROKER_LOGGERS}:
        nodes = (await admin.describe_cluster()).nodes
        return [str(node_id) for node_id in hash_order(node.node_id for node in nodes)]
    if entity_type == CLIENT_METRICS:
        listed = await admin.list_config_resources([ConfigResourceType.CLIENT_METRICS])
        return [resource.name for resource in listed]
    assert entity_type == GROUPS
    groups = hash_order(group.group_id for group in await admin.list_groups())
    return list(dict.fromkeys([*groups, *await _groups_with_configs(admin)]))


async def _groups_with_configs(admin: "AdminClient") -> list[str]:
    """The groups with configs, which may be without members. Older servers do not list them, or not for everyone."""
    try:
        listed = await admin.list_config_resources([ConfigResourceType.GROUP])
    except UnsupportedByServerError:
        return []
    except ServerError as error:
        if error.error_code is ErrorCode.cluster_authorization_failed:
            return []
        raise
    return [resource.name for resource in listed]


async def describe_quotas(admin: "AdminClient", entities: Entities) -> Quotas:
    """The quotas of the entities of exactly these types; a type without a name matches all of its entities."""
    names = (*entities.names, *(None for _ in entities.types))
    return await admin.describe_client_quotas(
        ClientQuotaFilter.contains_only(
            ClientQuotaFilterComponent(entity_type=QUOTA_TYPES[entity_type])
            if name is None
            else ClientQuotaFilterComponent.of_entity(QUOTA_TYPES[entity_type], name or None)
            for entity_type, name in zip(entities.types, names, strict=False)
        )
    )


def has_credentials(entities: Entities) -> bool:
    """Whether the description includes credentials: only users have them, and their default has none."""
    return entities.type == USERS and not entities.has_any(CLIENTS) and not entities.has_default


def alteration(entities: Entities, changes: Changes) -> "Callable[[AdminClient], Awaitable[None]]":
    """The alteration of the options. Raises UsageError for changes that these entities do not support."""
    check_changes(entities, changes)
    if entities.type not in QUOTA_TYPES:
        return lambda admin: _alter_configs(admin, entities, changes)
    if changes_credentials(changes):
        alterations = credential_alterations(entities.names[0], changes)

        async def alter_credentials(admin: "AdminClient") -> None:
            (await admin.alter_user_scram_credentials(alterations)).raise_any()

        return alter_credentials
    values = quota_values(changes)
    return lambda admin: _alter_quotas(admin, entities, changes, values)


async def _alter_configs(admin: "AdminClient", entities: Entities, changes: Changes) -> None:
    resource = resource_of(entities.type, entities.names[0])
    if entities.type == BROKER_LOGGERS:
        known = {entry.name for entry in (await admin.describe_configs([resource]))[resource]}
        unknown = [name for name in changes.names if name not in known]
        if unknown:
            raise CommandError(
                f"Invalid broker logger(s): {','.join(unknown)}; there are {', '.join(sorted(known))}"
            )
    operations = [
        *(AlterConfigOp(name=name, operation=ConfigOpType.DELETE) for name in changes.to_delete),
        *(AlterConfigOp(name=name, value=value) for name, value in changes.to_set.items()),
    ]
    results = await admin.incremental_alter_configs({resource: operations}, timeout_ms=ALTER_TIMEOUT_MS)
    results.raise_any()


async def _alter_quotas(
    admin: "AdminClient", entities: Entities, changes: Changes, values: dict[str, float | None]
) -> None:
    if changes.to_delete:
        quotas = await describe_quotas(admin, entities)
        present = {name for values_of_one in quotas.values() for name in values_of_one}
        missing = [name for name in changes.to_delete if name not in present]
        if missing:
            raise CommandError(
                f"Invalid config(s): {','.join(missing)}; the entity has no such quota to delete"
            )
    entity = ClientQuotaEntity.of(
        {
            QUOTA_TYPES[entity_type]: name or None
            for entity_type, name in zip(entities.types, entities.names, strict=True)
        }
    )
    results = await admin.alter_client_quotas([ClientQuotaAlteration(entity=entity, values=values)])
    results.raise_any()
