"""Map an entity of one version to the class of another.

The rest of the code uses one class per message: that of the highest version, the canonical one. A message of an
older version is converted up when it arrives, and down before it is sent to an older peer. Fields are matched by
name. A field that the target lacks is dropped if it has its default or if Kafka's schema allows it. Fields that
Kafka replaced by others are translated by :mod:`.replacements`.
"""

from collections.abc import Callable
from dataclasses import MISSING
from operator import attrgetter
from typing import Any, Final, TypeVar

from quorate_protocol.errors import UnsupportedVersion
from quorate_protocol.kafka.generated.ignorable_fields import IGNORABLE_FIELDS

from .replacements import REPLACEMENTS, Translation
from .schema import EntityClass, FieldSchema, implicit_default, schema_of

Entity = TypeVar("Entity")
Converter = Callable[[Any], Any]
Getter = Callable[[Any], Any]


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
