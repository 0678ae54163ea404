"""/image/configs, /image/clientQuotas, /image/features, /image/producerIds and /image/provenance.

Sensitive configs are shown, as in Kafka's shell. Kafka's shell leaves out the default parts in the name of a quota
entity. It may list `user(alice)` twice or an empty name, can't open either, and ends `find` with an exception. Here a
default part is `user(<default>)`, as in Kafka's other tools.
"""

from datetime import UTC, datetime, timedelta
from functools import cache

from quorate_protocol import features as levels
from quorate_protocol.image import ConfigResource, ImageState, Provenance, QuotaEntity
from quorate_protocol.kafka.enums import ConfigResourceType

from quorate.console.java_text import double_text
from quorate.tools.metadata_shell.tree.nodes import Directory, Leaf, Node, by_key, fixed, value

_ENTITY_WORDS = {"client-id": "clientId", "ip": "ip", "user": "user"}
"""Entity type to its word, in the order of the name (ClientQuotasImageNode)."""
_DEFAULT_ENTITY = "<default>"
_FINALIZED = "finalized_"
_METADATA_VERSION = "metadataVersion"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def configs(image: ImageState) -> Directory:
    """`TYPE:name`, or `TYPE` for the defaults of all resources of that type."""

    def child(name: str) -> Node | None:
        type_name, _, resource_name = name.partition(":")
        resource_type = ConfigResourceType.__members__.get(type_name)
        if resource_type is None:
            return None
        resource = (int(resource_type), resource_name)
        return by_key(image.configs[resource], value) if resource in image.configs else None

    return Directory(lambda: map(_resource_text, image.configs), child)


def _resource_text(resource: ConfigResource) -> str:
    number, resource_name = resource
    type_name = ConfigResourceType(number).name
    return f"{type_name}:{resource_name}" if resource_name else type_name


def client_quotas(image: ImageState) -> Directory:
    """One directory for each entity that has quotas."""

    @cache
    def entities() -> dict[str, QuotaEntity]:
        return {entity_name(entity): entity for entity in image.client_quotas}

    def child(name: str) -> Node | None:
        entity = entities().get(name)
        return None if entity is None else by_key(image.client_quotas[entity], _quota)

    return Directory(lambda: entities().keys(), child)


def entity_name(entity: QuotaEntity) -> str:
    """For instance `clientId(c)_user(<default>)`."""
    parts = dict(entity)
    words = {kind: word for kind, word in _ENTITY_WORDS.items() if kind in parts}
    others = {kind: kind for kind in sorted(parts) if kind not in words}
    return "_".join(f"{word}({_escaped(parts[kind])})" for kind, word in (words | others).items())


def _escaped(name: str | None) -> str:
    if name is None:
        return _DEFAULT_ENTITY
    return name.replace("\\", "\\\\").replace("(", "\\(").replace(")", "\\)")


def _quota(number: float) -> Leaf:
    return Leaf(lambda: double_text(number), lambda: number)


def features(image: ImageState) -> Directory:
    """Finalized levels (FeaturesImageNode); metadata.version by its name."""

    def finalized() -> dict[str, int]:
        return {name: level for name, level in image.features.items() if name != levels.METADATA_VERSION}

    def child(name: str) -> Node | None:
        if name == _METADATA_VERSION:
            return _metadata_version(image.metadata_version)
        if name.startswith(_FINALIZED):
            return value(finalized().get(name.removeprefix(_FINALIZED), 0))
        return None

    return Directory(lambda: (_METADATA_VERSION, *(_FINALIZED + name for name in finalized())), child)


def _metadata_version(level: int) -> Leaf:
    known = levels.METADATA_VERSIONS.get(level)
    if known is None:
        return Leaf(lambda: "Optional.empty", lambda: None)
    return Leaf(lambda: f"Optional[{known.name}]", lambda: known.name)


def producer_ids(image: ImageState) -> Directory:
    """The next producer id to be allocated."""
    return fixed({"nextProducerId": lambda: value(image.next_producer_id)})


def provenance(where: Provenance) -> Leaf:
    """The last record that the image contains."""
    last_offset = where.end_offset - 1
    return Leaf(
        lambda: f"offset {last_offset}, epoch {where.epoch}, time {_zoned(where.timestamp_ms)}",
        lambda: {"offset": last_offset, "epoch": where.epoch, "timestampMs": where.timestamp_ms},
    )


def _zoned(timestamp_ms: int) -> str:
    """As DateTimeFormatter.ISO_ZONED_DATE_TIME: no fraction where there is none."""
    time = _EPOCH + timedelta(milliseconds=timestamp_ms)
    fraction = f".{timestamp_ms % 1000:03}".rstrip("0").rstrip(".")
    return f"{time:%Y-%m-%dT%H:%M:%S}{fraction}Z[UTC]"
