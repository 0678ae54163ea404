"""Describes configs, quotas and credentials."""

from typing import TYPE_CHECKING

from quorate_admin.errors import ErrorCode, ServerError, UnsupportedByServerError
from quorate_admin.types.quotas import ClientQuotaFilter, ClientQuotaFilterComponent
from quorate_protocol.kafka.enums import CLIENT_ID, IP, USER, ConfigResourceType

from quorate.console.java_text import hash_order
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
    from quorate_admin.client import AdminClient

QUOTA_TYPES = {USERS: USER, CLIENTS: CLIENT_ID, IPS: IP}


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
    resources = {one: resource_of(entity_type, one) for one in names}
    results = await admin.describe_configs(resources.values(), include_synonyms=True)
    return [
        DescribedEntity(
            name=one,
            entries=select_entries(entity_type, one, results[resource], describe_all=describe_all),
        )
        for one, resource in resources.items()
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
