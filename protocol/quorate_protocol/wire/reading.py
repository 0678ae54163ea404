"""Decode entities from bytes that a peer controls.

kio defines the messages; this module reads them, because no peer may be able to end our process. The native reader
of kio 0.6.5 allocates as many array elements as a length field claims before it checks whether the bytes exist (a
frame of 20 bytes ends the process), and it refuses unknown tagged fields, which have to be skipped (KIP-482).

A reader is compiled once per class. Adjacent fields of fixed width are unpacked together.
"""

import struct
import uuid
from collections.abc import Callable
from datetime import timedelta
from functools import lru_cache
from typing import Any, Final, TypeVar

from quorate_protocol.errors import MalformedMessage, error_code_of

from .schema import (
    ARRAY_ELEMENTS_MAX,
    EPOCH,
    FIXED_FORMATS,
    MILLISECOND,
    STRING_SIZE_BYTES_MAX,
    TAGGED_FIELDS_MAX,
    UUID_ZERO_BYTES,
    EntityClass,
    FieldSchema,
    schema_of,
    size_bytes_min,
)

Entity = TypeVar("Entity")
Reader = Callable[[bytes, int], tuple[Any, int]]
"""(data, offset) -> (value, offset after it)"""


def read_unsigned_varint(data: bytes, offset: int) -> tuple[int, int]:
    """Read an unsigned number of at most 32 bits, seven bits per byte, low bits first."""
    byte = data[offset]
    if byte < 0x80:
        return byte, offset + 1
    value = byte & 0x7F
    for shift in (7, 14, 21, 28):
        offset += 1
        byte = data[offset]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFF, offset + 1
    raise MalformedMessage("a varint has more than 5 bytes")


@lru_cache(maxsize=1 << 14)
def _known_uuid(raw: bytes) -> uuid.UUID:
    # Topic and directory ids repeat in thousands of records: one object each saves both time and memory.
    return uuid.UUID(bytes=raw)


def read_uuid_bytes(raw: bytes) -> uuid.UUID | None:
    """Return a UUID in kio's form: the zero UUID is None."""
    return None if raw == UUID_ZERO_BYTES else _known_uuid(raw)


_DURATION_MS_MIN: Final = timedelta.min // MILLISECOND
_DURATION_MS_MAX: Final = timedelta.max // MILLISECOND


def _duration(value: int) -> timedelta:
    """Milliseconds of 64 bits; a duration is at most 2.7 million years."""
    return timedelta(milliseconds=max(_DURATION_MS_MIN, min(value, _DURATION_MS_MAX)))


_CONVERTERS: Final[dict[str, Callable[[Any], object]]] = {
    "uuid": read_uuid_bytes,
    "error_code": error_code_of,
    "timedelta_i32": lambda value: timedelta(milliseconds=value),
    "timedelta_i64": _duration,
    "datetime_i64": lambda value: EPOCH + value * MILLISECOND,
}


def _nullable_datetime(value: int) -> object:
    return None if value == -1 else EPOCH + value * MILLISECOND


def _converter(field: FieldSchema) -> Callable[[Any], object] | None:
    assert field.kafka_type is not None
    if field.kafka_type == "datetime_i64" and field.is_nullable:
        return _nullable_datetime
    return _CONVERTERS.get(field.kafka_type)


def _length_reader(*, is_flexible: bool, is_short: bool) -> Callable[[bytes, int], tuple[int, int]]:
    """Reads a length; -1 is null."""
    unpack_from = struct.Struct(">h" if is_short else ">i").unpack_from
    width = 2 if is_short else 4

    def read_fixed(data: bytes, offset: int) -> tuple[int, int]:
        (length,) = unpack_from(data, offset)
        return length, offset + width

    def read_compact(data: bytes, offset: int) -> tuple[int, int]:
        length, offset = read_unsigned_varint(data, offset)
        return length - 1, offset

    return read_compact if is_flexible else read_fixed


def _string_reader(field: FieldSchema, *, is_flexible: bool) -> Reader:
    is_text = field.kafka_type == "string"
    is_compact = is_flexible and not field.is_legacy_string
    read_length = _length_reader(is_flexible=is_compact, is_short=is_text)
    is_nullable, name = field.is_nullable and not field.is_array, field.name

    def read(data: bytes, offset: int) -> tuple[object, int]:
        if is_compact and data[offset] < 0x80:  # a length of one byte: saves two calls
            length, offset = data[offset] - 1, offset + 1
        else:
            length, offset = read_length(data, offset)
        if length < 0:
            if length == -1 and is_nullable:
                return None, offset
            raise MalformedMessage(f"{name} has length {length}")
        if is_text and length > STRING_SIZE_BYTES_MAX:
            raise MalformedMessage(f"{name} has length {length}, at most {STRING_SIZE_BYTES_MAX} are allowed")
        end = offset + length
        if end > len(data):
            raise MalformedMessage(f"{name} has length {length}, but {len(data) - offset} bytes are left")
        return (data[offset:end].decode() if is_text else data[offset:end]), end

    return read


def _fixed_reader(field: FieldSchema) -> Reader:
    assert field.kafka_type is not None
    unpacker = struct.Struct(">" + FIXED_FORMATS[field.kafka_type])
    convert = _converter(field)

    def read(data: bytes, offset: int) -> tuple[object, int]:
        (value,) = unpacker.unpack_from(data, offset)
        return (value if convert is None else convert(value)), offset + unpacker.size

    return read


def _element_reader(field: FieldSchema, *, is_flexible: bool) -> Reader:
    if field.struct is not None:
        read_struct = entity_reader(field.struct)
        return _nullable_struct_reader(field, read_struct) if field.is_nullable_struct else read_struct
    if field.kafka_type in FIXED_FORMATS:
        return _fixed_reader(field)
    return _string_reader(field, is_flexible=is_flexible)


def _nullable_struct_reader(field: FieldSchema, read_struct: Reader) -> Reader:
    """Reads a struct after its presence byte (KIP-893)."""

    def read(data: bytes, offset: int) -> tuple[object, int]:
        marker = data[offset]
        if marker == 0xFF:
            return None, offset + 1
        if marker != 1:
            raise MalformedMessage(f"{field.name} has presence byte {marker}")
        return read_struct(data, offset + 1)

    return read


def _array_reader(field: FieldSchema, *, is_flexible: bool) -> Reader:
    read_length = _length_reader(is_flexible=is_flexible, is_short=False)
    read_element = _element_reader(field, is_flexible=is_flexible)
    number_format = FIXED_FORMATS.get(field.kafka_type or "")
    width = size_bytes_min(field, is_flexible=is_flexible)
    is_plain = number_format is not None and _converter(field) is None
    is_uuid, is_nullable = field.kafka_type == "uuid", field.is_nullable

    def read(data: bytes, offset: int) -> tuple[object, int]:
        if is_flexible and data[offset] < 0x80:
            length, offset = data[offset] - 1, offset + 1
        else:
            length, offset = read_length(data, offset)
        if length <= 0:
            if length == 0:
                return (), offset
            if length == -1 and is_nullable:
                return None, offset
            raise MalformedMessage(f"{field.name} has {length} elements")
        # Before anything is allocated: each element takes at least `width` bytes.
        if length > ARRAY_ELEMENTS_MAX:
            raise MalformedMessage(
                f"{field.name} has {length} elements, at most {ARRAY_ELEMENTS_MAX} are allowed"
            )
        if length * width > len(data) - offset:
            raise MalformedMessage(
                f"{field.name} has {length} elements, but {len(data) - offset} bytes are left"
            )
        end = offset + length * width
        if is_plain:
            return struct.unpack_from(f">{length}{number_format}", data, offset), end
        if is_uuid:
            return tuple([read_uuid_bytes(data[at : at + 16]) for at in range(offset, end, 16)]), end
        elements = []
        for _ in range(length):
            element, offset = read_element(data, offset)
            elements.append(element)
        return tuple(elements), offset

    return read


def _field_reader(field: FieldSchema, *, is_flexible: bool) -> Reader:
    build = _array_reader if field.is_array else _element_reader
    return build(field, is_flexible=is_flexible)


Step = Callable[[bytes, int, list[Any]], int]
"""(data, offset, values to extend) -> offset after the fields"""


def _fixed_step(fields: list[FieldSchema]) -> Step:
    """Reads adjacent fields of fixed width at once."""
    unpacker = struct.Struct(">" + "".join(FIXED_FORMATS[field.kafka_type or ""] for field in fields))
    converters = [(index, convert) for index, field in enumerate(fields) if (convert := _converter(field))]

    def step(data: bytes, offset: int, values: list[Any]) -> int:
        numbers = unpacker.unpack_from(data, offset)
        if not converters:
            values += numbers
            return offset + unpacker.size
        converted = list(numbers)
        for index, convert in converters:
            converted[index] = convert(numbers[index])
        values += converted
        return offset + unpacker.size

    return step


def _single_step(field: FieldSchema, *, is_flexible: bool) -> Step:
    read = _field_reader(field, is_flexible=is_flexible)

    def step(data: bytes, offset: int, values: list[Any]) -> int:
        value, offset = read(data, offset)
        values.append(value)
        return offset

    return step


def _compile_steps(fields: list[FieldSchema], *, is_flexible: bool) -> list[Step]:
    steps: list[Step] = []
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


def _tag_reader(tagged: dict[int, tuple[int, Reader]]) -> Step:
    """Reads a section of tagged fields, skipping unknown ones (KIP-482).

    ``tagged`` has the index of each tag's value, and its reader.
    """

    def read_tags(data: bytes, offset: int, values: list[Any]) -> int:
        count, offset = read_unsigned_varint(data, offset)
        if count > TAGGED_FIELDS_MAX:
            raise MalformedMessage(
                f"there are {count} tagged fields, at most {TAGGED_FIELDS_MAX} are allowed"
            )
        previous = -1
        for _ in range(count):
            tag, offset = read_unsigned_varint(data, offset)
            size_bytes, offset = read_unsigned_varint(data, offset)
            end = offset + size_bytes
            if tag <= previous or end > len(data):
                raise MalformedMessage(
                    f"tagged field {tag} follows {previous} or takes {size_bytes} bytes too many"
                )
            previous = tag
            if tag in tagged:
                index, read = tagged[tag]
                values[index], read_to = read(data, offset)
                if read_to != end:
                    raise MalformedMessage(
                        f"tagged field {tag} takes {read_to - offset} of {size_bytes} bytes"
                    )
            offset = end
        return offset

    return read_tags


_readers: Final[dict[EntityClass, Reader]] = {}


def entity_reader(entity_type: EntityClass) -> Reader:
    """Return the reader of an entity class, compiled at the first call.

    On malformed bytes it may raise ``struct.error`` or ``IndexError``: use :func:`read_entity` for a peer's bytes.
    """
    reader = _readers.get(entity_type)
    if reader is None:
        reader = _readers[entity_type] = _compile(entity_type)
    return reader


def _compile(entity_type: EntityClass) -> Reader:
    is_flexible: bool = entity_type.__flexible__
    schema = schema_of(entity_type)
    untagged = [field for field in schema if field.tag is None]
    tagged = [field for field in schema if field.tag is not None]
    steps = _compile_steps(untagged, is_flexible=is_flexible)
    absent = [field.default for field in tagged]
    readers = {
        field.tag or 0: (len(untagged) + place, _field_reader(field, is_flexible=is_flexible))
        for place, field in enumerate(tagged)
    }
    read_tags = _tag_reader(readers)
    # Setting the slots directly takes a third of the time that a frozen dataclass's __init__ takes for it.
    assert not hasattr(entity_type, "__post_init__")
    setters = [getattr(entity_type, field.name).__set__ for field in (*untagged, *tagged)]

    def read(data: bytes, offset: int) -> tuple[Any, int]:
        values: list[Any] = []
        for step in steps:
            offset = step(data, offset, values)
        if is_flexible:
            values += absent
            if data[offset] == 0:
                offset += 1
            else:
                offset = read_tags(data, offset, values)
        entity = object.__new__(entity_type)
        for set_slot, value in zip(setters, values, strict=True):
            set_slot(entity, value)
        return entity, offset

    return read


def read_entity(entity_type: type[Entity], data: bytes, offset: int = 0) -> tuple[Entity, int]:
    """Decode one entity that starts at ``offset``.

    Returns:
        The entity and the offset after it.

    Raises:
        MalformedMessage: the bytes are not such an entity.
    """
    try:
        entity, end = entity_reader(entity_type)(data, offset)
    except (struct.error, IndexError, UnicodeDecodeError, OverflowError) as error:
        raise MalformedMessage(f"not a {entity_type.__name__}: {error}") from error
    return entity, end


def decode(entity_type: type[Entity], data: bytes, offset: int = 0) -> Entity:
    """Decode the one entity that fills the rest of ``data``.

    Raises:
        MalformedMessage: the bytes are not such an entity, or more bytes follow it.
    """
    entity, end = read_entity(entity_type, data, offset)
    if end != len(data):
        raise MalformedMessage(f"{len(data) - end} bytes follow a {entity_type.__name__}")
    return entity
