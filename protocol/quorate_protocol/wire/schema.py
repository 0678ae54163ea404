"""The wire format that an entity class declares.

Fields of the generated classes have ``kafka_type`` and ``tag`` metadata. This module turns a class into
``FieldSchema`` values, from which the functions of :mod:`.codec` are made.
"""

import struct
import types
import typing
from dataclasses import MISSING, Field, fields
from functools import lru_cache
from typing import Any, Final

from quorate_protocol.kafka.field_types import ZEROS
from quorate_protocol.plain_data import dataclass

UUID_ZERO_BYTES: Final = bytes(16)

FIXED_FORMATS: Final = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint8": "B",
    "uint16": "H",
    "uint32": "I",
    "uint64": "Q",
    "float64": "d",
    "uuid": "16s",
    "error_code": "h",
    "timedelta_i32": "i",
    "timedelta_i64": "q",
    "datetime_i64": "q",
}
"""Types of fixed width -> their ``struct`` format."""

STRING_SIZE_BYTES_MAX: Final = 0x7FFF
"""The most bytes of a string, compact or not: Kafka neither writes nor reads a longer one (MessageDataGenerator)."""

ARRAY_ELEMENTS_MAX: Final = 1_000_000
TAGGED_FIELDS_MAX: Final = 10_000
"""The most elements of an array and the most tagged fields that Kafka reads, from 4.4 on (MessageUtil).

Kafka 4.3 reads more, as long as there are as many bytes.
"""

EntityClass = type[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldSchema:
    """One field of an entity, as it is written on the wire."""

    name: str
    kafka_type: str | None
    """Kafka's name of the primitive type, or None for a struct."""
    struct: EntityClass | None
    """The class of a nested struct."""
    is_array: bool
    is_nullable: bool
    tag: int | None
    default: object
    """The value of an absent field; ``MISSING`` if the field is required."""
    is_legacy_string: bool = False
    """Whether the string has the 16-bit length of old versions even in a flexible one."""

    @property
    def is_nullable_struct(self) -> bool:
        """Whether the field is a struct after a presence byte (KIP-893)."""
        return self.struct is not None and self.is_nullable and not self.is_array

    @property
    def is_fixed(self) -> bool:
        """Whether every value takes the same number of bytes."""
        return not self.is_array and self.kafka_type in FIXED_FORMATS


def _without_none(annotation: Any) -> tuple[Any, bool]:
    """Split ``X | None`` into (X, True)."""
    if typing.get_origin(annotation) not in (types.UnionType, typing.Union):
        return annotation, False
    members = [member for member in typing.get_args(annotation) if member is not types.NoneType]
    assert len(members) == 1, f"only a union with None has a wire format: {annotation}"
    return members[0], True


def _default_of(
    field: Field[Any], kafka_type: str | None, nested: EntityClass | None, *, is_array: bool
) -> object:
    if field.default is not MISSING:
        return field.default
    if "tag" not in field.metadata:
        return MISSING
    return _zero(kafka_type, nested, is_array=is_array, is_nullable=False)


def _zero(kafka_type: str | None, nested: EntityClass | None, *, is_array: bool, is_nullable: bool) -> object:
    if is_array:
        return ()
    if nested is not None:
        return None if is_nullable else zero_entity(nested)
    assert kafka_type is not None
    return ZEROS[kafka_type]


def zero_entity(entity_type: EntityClass) -> Any:
    """Return an entity with each field at its default or, without one, at its type's zero."""
    return entity_type(
        **{
            field.name: implicit_default(field) if field.default is MISSING else field.default
            for field in schema_of(entity_type)
        }
    )


def implicit_default(field: FieldSchema) -> object:
    """Return Kafka's default for a field without a stated one: zero, false, empty; a struct of such."""
    return _zero(field.kafka_type, field.struct, is_array=field.is_array, is_nullable=field.is_nullable)


_schemas: Final[dict[EntityClass, tuple[FieldSchema, ...]]] = {}


def schema_of(entity_type: EntityClass) -> tuple[FieldSchema, ...]:
    """Return the fields of an entity class in wire order."""
    return _schemas.get(entity_type) or _schemas.setdefault(entity_type, _declared(entity_type))


def _declared(entity_type: EntityClass) -> tuple[FieldSchema, ...]:
    # Kafka keeps this string in the old format, so that any broker can read the header of any version.
    is_header = entity_type.__name__ == "RequestHeader"
    schema = []
    for field in fields(entity_type):
        annotation, is_nullable = _without_none(field.type)
        is_array = typing.get_origin(annotation) is tuple
        if is_array:
            annotation, _ = _without_none(typing.get_args(annotation)[0])
        kafka_type = field.metadata.get("kafka_type")
        nested = annotation if kafka_type is None else None
        schema.append(
            FieldSchema(
                name=field.name,
                kafka_type=kafka_type,
                struct=nested,
                is_array=is_array,
                is_nullable=is_nullable,
                tag=field.metadata.get("tag"),
                default=_default_of(field, kafka_type, nested, is_array=is_array),
                is_legacy_string=is_header and field.name == "client_id",
            )
        )
    return tuple(schema)


def field_of(entity_type: EntityClass, name: str) -> FieldSchema:
    """Return the field of an entity class with this name."""
    return next(field for field in schema_of(entity_type) if field.name == name)


def element_class(entity_type: EntityClass, array: str) -> EntityClass:
    """Return the class of the structs in an array."""
    struct_type = field_of(entity_type, array).struct
    assert struct_type is not None, f"{entity_type.__name__}.{array} is not an array of structs"
    return struct_type


def runs_of(fields: list[FieldSchema]) -> list[list[FieldSchema]]:
    """Split fields into runs that are read and written at once: adjacent ones of fixed width, or a single other."""
    runs: list[list[FieldSchema]] = []
    for field in fields:
        if field.is_fixed and runs and runs[-1][-1].is_fixed:
            runs[-1].append(field)
        else:
            runs.append([field])
    return runs


_struct_of_format: Final = lru_cache(maxsize=None)(struct.Struct)


def struct_of(fields: list[FieldSchema]) -> struct.Struct:
    """Return what packs and unpacks adjacent fields of fixed width together."""
    return _struct_of_format(">" + "".join(FIXED_FORMATS[field.kafka_type or ""] for field in fields))


def size_bytes_min(field: FieldSchema, *, is_flexible: bool) -> int:
    """Return the fewest bytes that an element of an array, or the value of another field, takes on the wire."""
    if field.struct is not None:
        fields = [each for each in schema_of(field.struct) if each.tag is None]
        tags = 1 if is_flexible else 0
        return tags + sum(
            1 if each.is_array or each.is_nullable_struct else size_bytes_min(each, is_flexible=is_flexible)
            for each in fields
        )
    if field.kafka_type in FIXED_FORMATS:
        return struct.calcsize(">" + FIXED_FORMATS[field.kafka_type])
    return 1 if is_flexible else 2
