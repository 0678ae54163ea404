"""Map an entity of one version to the class of another.

The rest of the code uses one class per message: that of the highest version, the canonical one. A message of an
older version is converted up when it arrives, and down before it is sent to an older peer. Fields are matched by
name. A field that the target lacks is dropped if it has its default or if Kafka's schema allows it. Fields that
Kafka replaced by others are translated by ``REPLACEMENTS``.
"""

from collections.abc import Callable
from dataclasses import MISSING
from operator import attrgetter
from typing import Any, Final, TypeVar

from quorate_protocol.errors import UnsupportedVersion
from quorate_protocol.kafka.enums import UpgradeType
from quorate_protocol.kafka.generated.api_keys import ApiKey
from quorate_protocol.kafka.generated.ignorable_fields import IGNORABLE_FIELDS
from quorate_protocol.kafka.metadata_log import METADATA_TOPIC, METADATA_TOPIC_ID
from quorate_protocol.plain_data import dataclass

from .schema import EntityClass, FieldSchema, implicit_default, schema_of

Entity = TypeVar("Entity")
Converter = Callable[[Any], Any]
Getter = Callable[[Any], Any]


Translation = Callable[[Any, FieldSchema], Any]
"""(value of the source's field, schema of the target's field) -> value for the target"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """A field of older versions and the field that replaced it, in one struct of one API."""

    api_key: int
    struct: str
    old: str
    new: str
    to_new: Translation
    to_old: Translation


def _topic_names_to_topics(names: Any, field: FieldSchema) -> Any:
    assert field.struct is not None
    return tuple(field.struct(name=name, topic_id=None) for name in names)


def _topics_to_topic_names(topics: Any, _: FieldSchema) -> Any:
    if any(topic.name is None for topic in topics):
        raise UnsupportedVersion("topics can't be deleted by id before DeleteTopics version 6")
    return tuple(topic.name for topic in topics)


def _topic_id_of(name: Any, _: FieldSchema) -> Any:
    # Only the metadata topic is fetched from a controller, and its id never changes.
    return METADATA_TOPIC_ID if name == METADATA_TOPIC else None


def _topic_name_of(topic_id: Any, _: FieldSchema) -> Any:
    return METADATA_TOPIC if topic_id == METADATA_TOPIC_ID else ""


def _ids_to_structs(id_field: str) -> Translation:
    def translate(ids: Any, field: FieldSchema) -> Any:
        assert field.struct is not None
        others = {"broker_epoch": -1} if id_field == "broker_id" else {"candidate_directory_id": None}
        return tuple(field.struct(**{id_field: number}, **others) for number in ids)

    return translate


def _structs_to_ids(id_field: str) -> Translation:
    return lambda structs, _: tuple(getattr(struct, id_field) for struct in structs)


def _replica_id_to_state(replica_id: Any, field: FieldSchema) -> Any:
    assert field.struct is not None
    return field.struct(replica_id=replica_id)


REPLACEMENTS: Final = (
    Replacement(
        api_key=ApiKey.FETCH,
        struct="FetchRequest",
        old="replica_id",
        new="replica_state",
        to_new=_replica_id_to_state,
        to_old=lambda state, _: state.replica_id,
    ),
    *(
        Replacement(
            api_key=ApiKey.FETCH,
            struct=struct,
            old="topic",
            new="topic_id",
            to_new=_topic_id_of,
            to_old=_topic_name_of,
        )
        for struct in ("FetchTopic", "ForgottenTopic", "FetchableTopicResponse")
    ),
    Replacement(
        api_key=ApiKey.DELETE_TOPICS,
        struct="DeleteTopicsRequest",
        old="topic_names",
        new="topics",
        to_new=_topic_names_to_topics,
        to_old=_topics_to_topic_names,
    ),
    Replacement(
        api_key=ApiKey.END_QUORUM_EPOCH,
        struct="PartitionData",
        old="preferred_successors",
        new="preferred_candidates",
        to_new=_ids_to_structs("candidate_id"),
        to_old=_structs_to_ids("candidate_id"),
    ),
    Replacement(
        api_key=ApiKey.ALTER_PARTITION,
        struct="PartitionData",
        old="new_isr",
        new="new_isr_with_epochs",
        to_new=_ids_to_structs("broker_id"),
        to_old=_structs_to_ids("broker_id"),
    ),
    Replacement(
        api_key=ApiKey.UPDATE_FEATURES,
        struct="FeatureUpdateKey",
        old="allow_downgrade",
        new="upgrade_type",
        to_new=lambda is_allowed, _: UpgradeType.SAFE_DOWNGRADE if is_allowed else UpgradeType.UPGRADE,
        to_old=lambda upgrade_type, _: upgrade_type != UpgradeType.UPGRADE,
    ),
)


def convert(entity: object, target: type[Entity]) -> Entity:
    """Return ``entity`` as an instance of ``target``, the class of another version of the same message.

    A field that only the target has gets its default.

    Raises:
        UnsupportedVersion: a field that only the source has is set, and Kafka's schema does not allow to drop it.
    """
    source = type(entity)
    if source is target:
        return entity  # type: ignore[return-value]
    converted: Entity = (_converters.get((source, target)) or _converter(source, target))(entity)
    return converted


def _missing_value(field: FieldSchema) -> object:
    return field.default if field.default is not MISSING else implicit_default(field)


_converters: Final[dict[tuple[EntityClass, EntityClass], Converter]] = {}


def _converter(source: EntityClass, target: EntityClass) -> Converter:
    converter = _converters.get((source, target))
    if converter is None:
        converter = _converters[source, target] = _compile(source, target)
    return converter


def _compile(source: EntityClass, target: EntityClass) -> Converter:
    if source is target:
        return lambda entity: entity
    source_fields = {field.name: field for field in schema_of(source)}
    target_fields = {field.name: field for field in schema_of(target)}
    copied: list[tuple[str, Getter, Converter | None]] = [
        (name, attrgetter(name), _value_converter(source_fields[name], field))
        for name, field in target_fields.items()
        if name in source_fields
    ]
    replaced = _replaced_fields(source, source_fields, target_fields)
    copied += [(new, attrgetter(old), translate) for old, new, translate in replaced]
    set_names = {name for name, _, _ in copied}
    added = {name: _missing_value(field) for name, field in target_fields.items() if name not in set_names}
    lost = []
    if target.__version__ < source.__version__:
        kept = {*target_fields, *(old for old, _, _ in replaced)}
        lost = [
            (name, _missing_value(field))
            for name, field in source_fields.items()
            if name not in kept and not _is_ignorable(source, name)
        ]

    def convert_entity(entity: Any) -> Any:
        for name, default in lost:
            if getattr(entity, name) != default:
                value = getattr(entity, name)
                raise UnsupportedVersion(f"{source.__name__} v{target.__version__} has no {name}: {value!r}")
        arguments = dict(added)
        for name, get_value, convert_value in copied:
            value = get_value(entity)
            arguments[name] = value if convert_value is None else convert_value(value)
        return target(**arguments)

    return convert_entity


def _is_ignorable(entity_type: EntityClass, field_name: str) -> bool:
    """Whether Kafka's schema marks a field ``"ignorable": true``: a version that lacks it may drop it."""
    names = IGNORABLE_FIELDS.get(getattr(entity_type, "__api_key__", -1), set())
    return f"{entity_type.__name__}.{field_name.removesuffix('_ms')}" in names


def _replaced_fields(
    source: EntityClass, source_fields: dict[str, FieldSchema], target_fields: dict[str, FieldSchema]
) -> list[tuple[str, str, Converter]]:
    """Return (field of the source, field of the target, translation) for fields that replaced each other."""
    api_key = getattr(source, "__api_key__", None)
    found: list[tuple[str, str, Converter]] = []
    for replacement in REPLACEMENTS:
        if (replacement.api_key, replacement.struct) != (api_key, source.__name__):
            continue
        for name, other, translate in (
            (replacement.old, replacement.new, replacement.to_new),
            (replacement.new, replacement.old, replacement.to_old),
        ):
            if name in source_fields and name not in target_fields and other in target_fields:
                found.append((name, other, _bind(translate, target_fields[other])))
    return found


def _bind(translate: Translation, field: FieldSchema) -> Converter:
    return lambda value: translate(value, field)


def _value_converter(source: FieldSchema, target: FieldSchema) -> Converter | None:
    """Return the conversion of a field that both versions have; None if the value stays the same."""
    absent = None if target.is_nullable or target.kafka_type == "uuid" else _missing_value(target)
    if source.struct is None or target.struct is None or source.struct is target.struct:
        if source.is_nullable and absent is not None:
            # Older versions have an empty value where newer ones have null.
            return lambda value: absent if value is None else value
        return None
    convert_struct = _converter(source.struct, target.struct)
    if source.is_array:
        return lambda values: absent if values is None else tuple(convert_struct(value) for value in values)
    return lambda value: absent if value is None else convert_struct(value)
