"""Encode entities: the counterpart of :mod:`.reading`.

A writer is compiled once per class. Adjacent fields of fixed width are packed together.
"""

import struct
import uuid
from collections.abc import Callable
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Any, Final

from quorate_protocol.errors import ArrayTooLong, StringTooLong

from .schema import (
    ARRAY_ELEMENTS_MAX,
    EPOCH,
    FIXED_FORMATS,
    MILLISECOND,
    STRING_SIZE_BYTES_MAX,
    UUID_ZERO_BYTES,
    EntityClass,
    FieldSchema,
    schema_of,
)

Writer = Callable[[bytearray, Any], None]
"""(buffer to append to, value)"""
LengthWriter = Callable[[bytearray, int], None]

ERROR_TEXT: Final = "error_message"
"""The field of responses with a text for people, which often quotes a request: it is cut to what fits."""


def write_unsigned_varint(buffer: bytearray, value: int) -> None:
    """Append an unsigned number, seven bits per byte, low bits first."""
    while value > 0x7F:
        buffer.append(value & 0x7F | 0x80)
        value >>= 7
    buffer.append(value)


def _uuid_bytes(value: uuid.UUID | None) -> bytes:
    return UUID_ZERO_BYTES if value is None else value.bytes


def _milliseconds(value: timedelta) -> int:
    return value // MILLISECOND


def _timestamp(value: datetime | None) -> int:
    return -1 if value is None else (value - EPOCH) // MILLISECOND


_CONVERTERS: Final[dict[str, Callable[[Any], Any]]] = {
    "uuid": _uuid_bytes,
    "timedelta_i32": _milliseconds,
    "timedelta_i64": _milliseconds,
    "datetime_i64": _timestamp,
}


def _write_compact_length(buffer: bytearray, length: int) -> None:
    write_unsigned_varint(buffer, length + 1)


def _fixed_length_writer(number_format: str) -> LengthWriter:
    pack = struct.Struct(number_format).pack

    def write(buffer: bytearray, length: int) -> None:
        buffer += pack(length)

    return write


_write_short_length = _fixed_length_writer(">h")
_write_long_length = _fixed_length_writer(">i")


def _cut(encoded: bytes) -> bytes:
    """Return the characters of a text that fit, and dots for the rest."""
    return encoded[: STRING_SIZE_BYTES_MAX - 3].decode(errors="ignore").encode() + b"..."


def _string_writer(field: FieldSchema, *, is_flexible: bool) -> Writer:
    is_text = field.kafka_type == "string"
    is_compact = is_flexible and not field.is_legacy_string
    write_fixed_length = _write_short_length if is_text else _write_long_length
    write_length = _write_compact_length if is_compact else write_fixed_length
    is_nullable, name = field.is_nullable and not field.is_array, field.name

    def write(buffer: bytearray, value: Any) -> None:
        if value is None:
            assert is_nullable, f"{name} can't be null"
            write_length(buffer, -1)
            return
        encoded = value.encode() if is_text else value
        size_bytes = len(encoded)
        if size_bytes > STRING_SIZE_BYTES_MAX and is_text:
            if name != ERROR_TEXT:
                raise StringTooLong(
                    f"{name} has {size_bytes} bytes, at most {STRING_SIZE_BYTES_MAX} are allowed"
                )
            encoded = _cut(encoded)
            size_bytes = len(encoded)
        write_length(buffer, size_bytes)
        buffer += encoded

    return write


def _fixed_writer(fields: list[FieldSchema]) -> Callable[[bytearray, list[Any]], None]:
    """Writes the values of adjacent fields of fixed width."""
    pack = struct.Struct(">" + "".join(FIXED_FORMATS[field.kafka_type or ""] for field in fields)).pack
    converters = [
        (index, _CONVERTERS[kind])
        for index, field in enumerate(fields)
        if (kind := field.kafka_type) in _CONVERTERS
    ]

    def write(buffer: bytearray, values: list[Any]) -> None:
        for index, convert in converters:
            values[index] = convert(values[index])
        buffer += pack(*values)

    return write


def _element_writer(field: FieldSchema, *, is_flexible: bool) -> Writer:
    if field.struct is not None:
        write_struct = entity_writer(field.struct)
        return _nullable_struct_writer(write_struct) if field.is_nullable_struct else write_struct
    if field.kafka_type in FIXED_FORMATS:
        write_fixed = _fixed_writer([field])
        return lambda buffer, value: write_fixed(buffer, [value])
    return _string_writer(field, is_flexible=is_flexible)


def _nullable_struct_writer(write_struct: Writer) -> Writer:
    """Writes a struct after its presence byte (KIP-893)."""

    def write(buffer: bytearray, value: Any) -> None:
        if value is None:
            buffer.append(0xFF)
        else:
            buffer.append(1)
            write_struct(buffer, value)

    return write


def _array_writer(field: FieldSchema, *, is_flexible: bool) -> Writer:
    write_length = _write_compact_length if is_flexible else _write_long_length
    write_element = _element_writer(field, is_flexible=is_flexible)
    number_format = FIXED_FORMATS.get(field.kafka_type or "")
    is_plain = number_format is not None and field.kafka_type not in _CONVERTERS
    is_uuid = field.kafka_type == "uuid"

    def write(buffer: bytearray, values: Any) -> None:
        if values is None:
            assert field.is_nullable, f"{field.name} can't be null"
            write_length(buffer, -1)
            return
        if len(values) > ARRAY_ELEMENTS_MAX:
            raise ArrayTooLong(
                f"{field.name} has {len(values)} elements, at most {ARRAY_ELEMENTS_MAX} are allowed"
            )
        write_length(buffer, len(values))
        if is_plain:
            buffer += struct.pack(f">{len(values)}{number_format}", *values)
            return
        if is_uuid:
            buffer += b"".join([_uuid_bytes(value) for value in values])
            return
        for value in values:
            write_element(buffer, value)

    return write


def _field_writer(field: FieldSchema, *, is_flexible: bool) -> Writer:
    build = _array_writer if field.is_array else _element_writer
    return build(field, is_flexible=is_flexible)


def _fixed_step(fields: list[FieldSchema]) -> Writer:
    """Writes adjacent fields of fixed width at once."""
    write_values = _fixed_writer(fields)
    get_values = attrgetter(*(field.name for field in fields))
    if len(fields) == 1:
        return lambda buffer, entity: write_values(buffer, [get_values(entity)])
    return lambda buffer, entity: write_values(buffer, list(get_values(entity)))


def _single_step(field: FieldSchema, *, is_flexible: bool) -> Writer:
    write = _field_writer(field, is_flexible=is_flexible)
    get_value = attrgetter(field.name)
    return lambda buffer, entity: write(buffer, get_value(entity))


def _compile_steps(fields: list[FieldSchema], *, is_flexible: bool) -> list[Writer]:
    steps: list[Writer] = []
    pending: list[FieldSchema] = []
    for field in fields:
        if field.is_fixed:
            pending.append(field)
            continue
        if pending:
            steps.append(_fixed_step(pending))
            pending = []
        steps.append(_single_step(field, is_flexible=is_flexible))
    if pending:
        steps.append(_fixed_step(pending))
    return steps


def _tags_step(fields: list[FieldSchema], *, is_flexible: bool) -> Writer:
    """Writes the tagged fields that differ from their default, in the order of their tags (KIP-482)."""
    tagged = [
        (field.tag, attrgetter(field.name), field.default, _field_writer(field, is_flexible=is_flexible))
        for field in sorted(fields, key=lambda field: field.tag or 0)
    ]

    def write(buffer: bytearray, entity: Any) -> None:
        present = []
        for tag, get_value, default, write_value in tagged:
            value = get_value(entity)
            if value != default:
                encoded = bytearray()
                write_value(encoded, value)
                present.append((tag, encoded))
        write_unsigned_varint(buffer, len(present))
        for tag, encoded in present:
            write_unsigned_varint(buffer, tag or 0)
            write_unsigned_varint(buffer, len(encoded))
            buffer += encoded

    return write


_writers: Final[dict[EntityClass, Writer]] = {}


def entity_writer(entity_type: EntityClass) -> Writer:
    """Return the writer of an entity class, compiled at the first call."""
    writer = _writers.get(entity_type)
    if writer is None:
        writer = _writers[entity_type] = _compile(entity_type)
    return writer


def _compile(entity_type: EntityClass) -> Writer:
    is_flexible: bool = entity_type.__flexible__
    schema = schema_of(entity_type)
    steps = _compile_steps([field for field in schema if field.tag is None], is_flexible=is_flexible)
    if is_flexible:
        steps.append(
            _tags_step([field for field in schema if field.tag is not None], is_flexible=is_flexible)
        )

    def write(buffer: bytearray, entity: Any) -> None:
        for step in steps:
            step(buffer, entity)

    return write


def write_entity(buffer: bytearray, entity: object) -> None:
    """Append an entity, encoded in the format of its class.

    Raises:
        ValueTooLong: a string or an array is longer than Kafka's readers accept. Here and below.
    """
    entity_writer(type(entity))(buffer, entity)


def around_elements(entity: object, array: str, count: int) -> tuple[bytearray, bytearray]:
    """Encode an entity without the elements of one of its arrays, which are written elsewhere.

    Returns:
        what precedes them, their number included, and what follows them.
    """
    schema = schema_of(type(entity))
    is_flexible: bool = type(entity).__flexible__  # type: ignore[attr-defined]
    before, after = bytearray(), bytearray()
    buffer = before
    for field in schema:
        if field.tag is not None:
            continue
        if field.name != array:
            _single_step(field, is_flexible=is_flexible)(buffer, entity)
            continue
        if count > ARRAY_ELEMENTS_MAX:
            raise ArrayTooLong(f"{array} has {count} elements, at most {ARRAY_ELEMENTS_MAX} are allowed")
        (_write_compact_length if is_flexible else _write_long_length)(before, count)
        buffer = after
    if is_flexible:
        _tags_step([field for field in schema if field.tag is not None], is_flexible=is_flexible)(
            after, entity
        )
    return before, after


def encode(entity: object) -> bytes:
    """Encode an entity in the format of its class."""
    buffer = bytearray()
    entity_writer(type(entity))(buffer, entity)
    return bytes(buffer)
