"""The output of `quorate configs`: Kafka's text, and JSON."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from quorate_admin.errors import ErrorCode
from quorate_admin.results import Results
from quorate_admin.types.configs import ConfigEntry, ConfigResource
from quorate_admin.types.credentials import UserScramCredentialsDescription
from quorate_admin.types.quotas import ClientQuotaEntity
from quorate_protocol.kafka.enums import CLIENT_ID, IP, USER, ConfigResourceType, ConfigSource
from quorate_protocol.plain_data import dataclass

from quorate.console.java_text import double_text, hash_order, map_hash_code, null_text
from quorate.tools.configs.entities import (
    BROKER_LOGGERS,
    BROKERS,
    CLIENT_METRICS,
    DEFAULT_NAME,
    GROUPS,
    TOPICS,
    Entities,
    singular,
)

RESOURCE_TYPES = {
    TOPICS: ConfigResourceType.TOPIC,
    BROKERS: ConfigResourceType.BROKER,
    BROKER_LOGGERS: ConfigResourceType.BROKER_LOGGER,
    CLIENT_METRICS: ConfigResourceType.CLIENT_METRICS,
    GROUPS: ConfigResourceType.GROUP,
}

_DYNAMIC_SOURCES = {
    TOPICS: ConfigSource.DYNAMIC_TOPIC_CONFIG,
    BROKERS: ConfigSource.DYNAMIC_BROKER_CONFIG,
    CLIENT_METRICS: ConfigSource.DYNAMIC_CLIENT_METRICS_CONFIG,
    GROUPS: ConfigSource.DYNAMIC_GROUP_CONFIG,
}
_QUOTA_WORDS = {USER: "user-principal", CLIENT_ID: "client-id", IP: "ip"}


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedEntity:
    """The configs of a topic, node, group or subscription. The default has no name."""

    name: str
    entries: tuple[ConfigEntry, ...]


def select_entries(
    entity_type: str, name: str, entries: Iterable[ConfigEntry], *, describe_all: bool
) -> tuple[ConfigEntry, ...]:
    """The entries of the entity itself, or all, sorted by name. For loggers it is always all."""
    source = _DYNAMIC_SOURCES.get(entity_type)
    if entity_type == BROKERS and name == DEFAULT_NAME:
        source = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    wanted = (entry for entry in entries if describe_all or source is None or entry.source is source)
    return tuple(sorted(wanted, key=lambda entry: entry.name))


def configs_text(entity_type: str, described: Iterable[DescribedEntity], *, describe_all: bool) -> str:
    """A heading for each entity and a line for each of its configs."""
    lines = []
    for entity in described:
        if entity.name == DEFAULT_NAME:
            lines.append(f"Default configs for {entity_type} in the cluster are:")
        else:
            which = "All" if describe_all else "Dynamic"
            lines.append(f"{which} configs for {singular(entity_type)} {entity.name} are:")
        lines += map(_entry_line, entity.entries)
    return _lines(lines)


def _entry_line(entry: ConfigEntry) -> str:
    synonyms = ", ".join(
        f"{synonym.source}:{synonym.name}={null_text(synonym.value)}" for synonym in entry.synonyms
    )
    sensitive = str(entry.is_sensitive).lower()
    return f"  {entry.name}={null_text(entry.value)} sensitive={sensitive} synonyms={{{synonyms}}}"


def missing_text(entity_type: str, name: str) -> str:
    """The text for an entity that does not exist."""
    return f"The {singular(entity_type)} '{name}' doesn't exist and doesn't have dynamic config.\n"


def configs_json(entity_type: str, described: Iterable[DescribedEntity]) -> dict[str, Any]:
    """The same as JSON; the name of the default is null."""
    return {
        "configs": [
            {
                "entityType": entity_type,
                "entityName": entity.name or None,
                "entries": [_entry_json(entry) for entry in entity.entries],
            }
            for entity in described
        ]
    }


def _entry_json(entry: ConfigEntry) -> dict[str, Any]:
    return {
        "name": entry.name,
        "value": entry.value,
        "source": entry.source.name,
        "isSensitive": entry.is_sensitive,
        "isReadOnly": entry.is_read_only,
        "synonyms": [
            {"name": synonym.name, "value": synonym.value, "source": synonym.source.name}
            for synonym in entry.synonyms
        ],
    }


Quotas = Mapping[ClientQuotaEntity, Mapping[str, float]]


def quotas_text(quotas: Quotas) -> str:
    """A line for each entity that has quotas, in the order of Kafka's tool."""
    in_order = hash_order(
        quotas, capacity=len(quotas), hash_code=lambda entity: 31 + map_hash_code(entity.names)
    )
    return _lines(_quota_line(entity, quotas[entity]) for entity in in_order)


def _sorted_entities(quotas: Quotas) -> list[ClientQuotaEntity]:
    return sorted(
        quotas, key=lambda entity: [(kind, name is not None, name or "") for kind, name in entity.entries]
    )


def _quota_line(entity: ClientQuotaEntity, values: Mapping[str, float]) -> str:
    names = entity.names
    whose = ", ".join(
        f"the default {word}" if names[kind] is None else f"{word} '{names[kind]}'"
        for kind, word in _QUOTA_WORDS.items()
        if kind in names
    )
    in_order = hash_order(values, capacity=len(values))
    return f"Quota configs for {whose} are {', '.join(f'{name}={double_text(values[name])}' for name in in_order)}"


def scram_text(users: Results[str, UserScramCredentialsDescription]) -> str:
    """A line for each user with credentials."""
    lines = []
    for user, description in users.values.items():
        mechanisms = ", ".join(
            f"{credential.mechanism.mechanism_name}=iterations={credential.iterations}"
            for credential in description.credentials
        )
        lines.append(f"SCRAM credential configs for user-principal '{user}' are {mechanisms}")
    lines += [
        f"Error retrieving SCRAM credential configs for user-principal '{user}': {error}"
        for user, error in users.errors.items()
        if error.error_code is not ErrorCode.resource_not_found  # has none
    ]
    return _lines(lines)


def quotas_json(
    quotas: Quotas, users: Results[str, UserScramCredentialsDescription] | None
) -> dict[str, Any]:
    """Quotas and credentials as JSON; the name of a default is null."""
    content: dict[str, Any] = {
        "quotas": [
            {"entity": entity.names, "values": dict(sorted(quotas[entity].items()))}
            for entity in _sorted_entities(quotas)
        ]
    }
    if users is not None:
        content["scramCredentials"] = [
            {
                "user": user,
                "credentials": [
                    {"mechanism": credential.mechanism.mechanism_name, "iterations": credential.iterations}
                    for credential in description.credentials
                ],
            }
            for user, description in users.values.items()
        ]
    return content


def updated_text(entities: Entities) -> str:
    """The text after an alteration."""
    if entities.name:
        return f"Completed updating config for {singular(entities.type)} {entities.name}.\n"
    return f"Completed updating default config for {entities.type} in the cluster.\n"


def updated_json(entities: Entities, set_: Sequence[str], deleted: Sequence[str]) -> dict[str, Any]:
    """The same as JSON: names without values, which may be passwords."""
    return {
        "entities": [
            {"entityType": entity_type, "entityName": name or None}
            for entity_type, name in zip(entities.types, entities.names, strict=True)
        ],
        "set": list(set_),
        "deleted": list(deleted),
    }


def _lines(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def resource_of(entity_type: str, name: str) -> ConfigResource:
    """How a request names an entity."""
    return ConfigResource(RESOURCE_TYPES[entity_type], name)
