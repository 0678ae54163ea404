"""Writers made of closures, one for each field: the counterpart of :mod:`.closure_readers`."""

import struct
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, Final

from quorate_protocol.wire.schema import (
    FIXED_FORMATS,
    EntityClass,
    FieldSchema,
    runs_of,
    schema_of,
    struct_of,
)

from .write_values import (
    SharedArray,
    Writer,
    elements_writer,
    milliseconds,
    timestamp,
    uuid_bytes,
    write_content,
    write_count,
    write_null,
    write_tags,
)

Writers = Mapping[EntityClass, Writer]

_CONVERTERS: Final[dict[str, Callable[[Any], Any]]] = {
    "uuid": uuid_bytes,
    "timedelta_i32": milliseconds,
    "timedelta_i64": milliseconds,
    "datetime_i64": timestamp,
}


def closure_writer(entity_type: EntityClass, writers: Writers) -> Writer:
    """Return the writer of an entity class. Structs are written by what ``writers`` has for their class by then."""
    is_flexible: bool = entity_type.__flexible__
    schema = schema_of(entity_type)
    runs = runs_of([field for field in schema if field.tag is None])
    steps = [fields_writer(run, writers, is_flexible=is_flexible) for run in runs]
    if is_flexible:
        steps.append(tags_writer([field for field in schema if field.tag is not None], writers))

    def write(buffer: bytearray, entity: Any) -> None:
        for step in steps:
            step(buffer, entity)

    return write


def fields_writer(fields: list[FieldSchema], writers: Writers, *, is_flexible: bool) -> Writer:
    """Return what writes adjacent fields of fixed width, or a single other field, of an entity."""
    if not fields[0].is_fixed:
        write = _field_writer(fields[0], writers, is_flexible=is_flexible)
        get_value = attrgetter(fields[0].name)
        return lambda buffer, entity: write(buffer, get_value(entity))
    write_values = _fixed_writer(fields)
    names = [field.name for field in fields]
    return lambda buffer, entity: write_values(buffer, [getattr(entity, name) for name in names])


def _fixed_writer(fields: list[FieldSchema]) -> Callable[[bytearray, list[Any]], None]:
    """Writes the values of adjacent fields of fixed width."""
    pack = struct_of(fields).pack
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


def tags_writer(fields: list[FieldSchema], writers: Writers) -> Writer:
    """Return what writes the tagged fields of an entity that differ from their default."""
    tagged = [
        (
            field.tag or 0,
            attrgetter(field.name),
            field.default,
            _field_writer(field, writers, is_flexible=True),
        )
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
        write_tags(buffer, present)

    return write


def _field_writer(field: FieldSchema, writers: Writers, *, is_flexible: bool) -> Writer:
    if field.is_array:
        return _array_writer(field, writers, is_flexible=is_flexible)
    return _element_writer(field, writers, is_flexible=is_flexible)


def _element_writer(field: FieldSchema, writers: Writers, *, is_flexible: bool) -> Writer:
    if field.struct is not None:
        return _struct_writer(field, field.struct, writers)
    if field.kafka_type in FIXED_FORMATS:
        write_fixed = _fixed_writer([field])
        return lambda buffer, value: write_fixed(buffer, [value])
    return _string_writer(field, is_compact=is_flexible and not field.is_legacy_string)


def _struct_writer(field: FieldSchema, struct_type: EntityClass, writers: Writers) -> Writer:
    def write(buffer: bytearray, value: Any) -> None:
        writers[struct_type](buffer, value)

    def write_nullable(buffer: bytearray, value: Any) -> None:
        # After a presence byte (KIP-893).
        if value is None:
            buffer.append(0xFF)
        else:
            buffer.append(1)
            write(buffer, value)

    return write_nullable if field.is_nullable_struct else write


def _string_writer(field: FieldSchema, *, is_compact: bool) -> Writer:
    is_text = field.kafka_type == "string"

    def write(buffer: bytearray, value: Any) -> None:
        if value is None:
            write_null(buffer, field, True, is_compact)
        else:
            write_content(buffer, value.encode() if is_text else value, field, is_compact)

    return write


def _array_writer(field: FieldSchema, writers: Writers, *, is_flexible: bool) -> Writer:
    write_element = _element_writer(field, writers, is_flexible=is_flexible)
    write_elements = elements_writer(field, write_element, is_flexible)
    number_format = FIXED_FORMATS.get(field.kafka_type or "")
    is_plain = number_format is not None and field.kafka_type not in _CONVERTERS

    def write(buffer: bytearray, values: Any) -> None:
        if values is None:
            write_null(buffer, field, False, is_flexible)
        elif is_plain:
            write_count(buffer, len(values), field, is_flexible)
            buffer += struct.pack(f">{len(values)}{number_format}", *values)
        elif type(values) is SharedArray:
            buffer += values.encoded_by(write_elements)
        else:
            write_elements(buffer, values)

    return write
