"""Decode entities from bytes that a peer controls.

kio defines the messages; this module reads them, because no peer may be able to end our process. The native reader
of kio 0.6.5 allocates as many array elements as a length field claims before it checks whether the bytes exist (a
frame of 20 bytes ends the process), and it refuses unknown tagged fields, which have to be skipped (KIP-482).

A reader is a function that is generated once per class, see :mod:`.generating`. Adjacent fields of fixed width are
unpacked together.
"""

import struct
import uuid
from collections.abc import Callable
from datetime import timedelta
from functools import lru_cache
from typing import Any, Final, TypeVar

from quorate_protocol.errors import MalformedMessage, error_code_of

from .generating import Function, draft_of
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
    runs_of,
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


def _instant(value: int) -> object:
    return EPOCH + value * MILLISECOND


# What generated readers call: all that is not worth a place in each of them, and every refusal.


def _read_compact_length(data: bytes, offset: int) -> tuple[int, int]:
    length, offset = read_unsigned_varint(data, offset)
    return length - 1, offset


_unpack_short: Final = struct.Struct(">h").unpack_from
_unpack_long: Final = struct.Struct(">i").unpack_from


def _read_compact(data: bytes, offset: int, field: FieldSchema) -> tuple[object, int]:
    """Read a compact string or compact bytes."""
    length, offset = _read_compact_length(data, offset)
    return _read_content(data, offset, field, length)


def _read_sized(data: bytes, offset: int, field: FieldSchema) -> tuple[object, int]:
    """Read a string after a length of 16 bits, or bytes after one of 32 bits."""
    if field.kafka_type == "string":
        (length,) = _unpack_short(data, offset)
        offset += 2
    else:
        (length,) = _unpack_long(data, offset)
        offset += 4
    return _read_content(data, offset, field, length)


def _read_content(data: bytes, offset: int, field: FieldSchema, length: int) -> tuple[object, int]:
    name, is_text = field.name, field.kafka_type == "string"
    if length < 0:
        if length == -1 and field.is_nullable and not field.is_array:
            return None, offset
        raise MalformedMessage(f"{name} has length {length}")
    if is_text and length > STRING_SIZE_BYTES_MAX:
        raise MalformedMessage(f"{name} has length {length}, at most {STRING_SIZE_BYTES_MAX} are allowed")
    end = offset + length
    if end > len(data):
        raise MalformedMessage(f"{name} has length {length}, but {len(data) - offset} bytes are left")
    return (data[offset:end].decode() if is_text else data[offset:end]), end


def _read_count(
    data: bytes, offset: int, field: FieldSchema, width: int, is_compact: bool
) -> tuple[int | None, int]:
    """Read how many elements an array has, each of at least ``width`` bytes; None if the array is null."""
    if is_compact:
        count, offset = _read_compact_length(data, offset)
    else:
        (count,) = _unpack_long(data, offset)
        offset += 4
    if count < 0:
        if count == -1 and field.is_nullable:
            return None, offset
        raise MalformedMessage(f"{field.name} has {count} elements")
    # Before anything is allocated.
    if count > ARRAY_ELEMENTS_MAX:
        raise MalformedMessage(f"{field.name} has {count} elements, at most {ARRAY_ELEMENTS_MAX} are allowed")
    if count * width > len(data) - offset:
        raise MalformedMessage(f"{field.name} has {count} elements, but {len(data) - offset} bytes are left")
    return count, offset


def _read_tag_count(data: bytes, offset: int) -> tuple[int, int]:
    """Read how many tagged fields there are."""
    count, offset = read_unsigned_varint(data, offset)
    if count > TAGGED_FIELDS_MAX:
        raise MalformedMessage(f"there are {count} tagged fields, at most {TAGGED_FIELDS_MAX} are allowed")
    return count, offset


def _read_tag(data: bytes, offset: int, previous: int) -> tuple[int, int, int]:
    """Read a tag and its size: (tag, offset of the value, offset after it)."""
    tag, size_bytes = data[offset], data[offset + 1]
    if tag < 0x80 and size_bytes < 0x80:
        offset += 2
    else:
        tag, offset = read_unsigned_varint(data, offset)
        size_bytes, offset = read_unsigned_varint(data, offset)
    end = offset + size_bytes
    if tag <= previous or end > len(data):
        raise MalformedMessage(f"tagged field {tag} follows {previous} or takes {size_bytes} bytes too many")
    return tag, offset, end


def _skip_tags(data: bytes, offset: int) -> int:
    """Skip tagged fields, all of which are unknown (KIP-482)."""
    count, offset = _read_tag_count(data, offset)
    tag = -1
    for _ in range(count):
        tag, _, offset = _read_tag(data, offset, tag)
    return offset


def _refused_tag(tag: int, read_bytes: int, size_bytes: int) -> MalformedMessage:
    return MalformedMessage(f"tagged field {tag} takes {read_bytes} of {size_bytes} bytes")


def _refused_presence(name: str, marker: int) -> MalformedMessage:
    return MalformedMessage(f"{name} has presence byte {marker}")


_CALLED: Final[dict[str, object]] = {
    "read_compact": _read_compact,
    "read_sized": _read_sized,
    "read_count": _read_count,
    "read_tag_count": _read_tag_count,
    "read_tag": _read_tag,
    "skip_tags": _skip_tags,
    "refused_tag": _refused_tag,
    "refused_presence": _refused_presence,
    "unpack_from": struct.unpack_from,
    "known_uuid": _known_uuid,
    "uuid_zero": UUID_ZERO_BYTES,
    "error_code_of": error_code_of,
    "millisecond": MILLISECOND,
    "duration": _duration,
    "instant": _instant,
}

_CONVERTED: Final = {
    "uuid": "None if {0} == uuid_zero else known_uuid({0})",
    "error_code": "error_code_of({0})",
    "timedelta_i32": "{0} * millisecond",
    "timedelta_i64": "duration({0})",
    "datetime_i64": "instant({0})",
}
"""Types of fixed width -> the expression for a value from what ``struct`` unpacks, if that is not the value."""

_unpacker = lru_cache(maxsize=None)(struct.Struct)


def _converted(field: FieldSchema) -> str | None:
    if field.kafka_type == "datetime_i64" and field.is_nullable:
        return "None if {0} == -1 else instant({0})"
    return _CONVERTED.get(field.kafka_type or "")


class _ReaderSource(Function):
    """The reader of an entity class. The methods append what reads a field and puts it to a ``target``."""

    def __init__(self, entity_type: EntityClass) -> None:
        super().__init__("read", entity_type, "data, offset", _CALLED)
        self._entity_type = entity_type
        self._is_flexible: bool = entity_type.__flexible__

    def build(self) -> Reader:
        """Append all and compile it."""
        assert not hasattr(self._entity_type, "__post_init__")
        schema = schema_of(self._entity_type)
        self.line(f"entity = {self.bind('Draft', draft_of(self._entity_type))}()")
        for run in runs_of([field for field in schema if field.tag is None]):
            if run[0].is_fixed:
                self._fixed(run)
            else:
                self._value(run[0], f"entity.{run[0].name}")
        if self._is_flexible:
            self._tags([field for field in schema if field.tag is not None])
        self.line(f"entity.__class__ = {self.bind('Entity', self._entity_type)}")
        self.line("return entity, offset")
        return self.compile()

    def _value(self, field: FieldSchema, target: str) -> None:
        if field.is_array:
            self._array(field, target)
        elif field.struct is not None:
            self._struct(field, target)
        elif field.is_fixed:
            self._fixed([field])
        else:
            self._string(field, target)

    def _fixed(self, fields: list[FieldSchema]) -> None:
        """Read adjacent fields of fixed width at once."""
        unpacker = _unpacker(">" + "".join(FIXED_FORMATS[field.kafka_type or ""] for field in fields))
        unpack = self.bind("unpack", unpacker.unpack_from)
        targets = [
            f"entity.{field.name}" if _converted(field) is None else f"raw_{field.name}" for field in fields
        ]
        self.line(f"({', '.join(targets)},) = {unpack}(data, offset)")
        for field in fields:
            converted = _converted(field)
            if converted is not None:
                self.line(f"entity.{field.name} = {converted.format(f'raw_{field.name}')}")
        self.line(f"offset += {unpacker.size}")

    def _string(self, field: FieldSchema, target: str) -> None:
        described = self.bind(f"{field.name}_field", field)
        if not self._is_flexible or field.is_legacy_string:
            self.line(f"{target}, offset = read_sized(data, offset, {described})")
            return
        self.line("length = data[offset]")
        self.line("end = offset + length")
        with self.block("if 0 < length < 128 and end <= len(data):"):
            decoded = ".decode()" if field.kafka_type == "string" else ""
            self.line(f"{target} = data[offset + 1 : end]{decoded}")
            self.line("offset = end")
        with self.block("else:"):
            self.line(f"{target}, offset = read_compact(data, offset, {described})")

    def _struct(self, field: FieldSchema, target: str) -> None:
        assert field.struct is not None
        read = self.bind(f"read_{field.struct.__name__}", entity_reader(field.struct))
        if not field.is_nullable_struct:
            self.line(f"{target}, offset = {read}(data, offset)")
            return
        # After a presence byte (KIP-893).
        self.line("marker = data[offset]")
        with self.block("if marker == 0xFF:"):
            self.line(f"{target} = None")
            self.line("offset += 1")
        with self.block("elif marker == 1:"):
            self.line(f"{target}, offset = {read}(data, offset + 1)")
        with self.block("else:"):
            self.line(f"raise refused_presence({field.name!r}, marker)")

    def _array(self, field: FieldSchema, target: str) -> None:
        width = size_bytes_min(field, is_flexible=self._is_flexible)
        described = self.bind(f"{field.name}_field", field)
        read_count = f"count, offset = read_count(data, offset, {described}, {width}, {self._is_flexible})"
        if self._is_flexible:
            self.line("count = data[offset] - 1")
            with self.block(f"if 0 <= count < 127 and count * {width} < len(data) - offset:"):
                self.line("offset += 1")
            with self.block("else:"):
                self.line(read_count)
        else:
            self.line(read_count)
        with self.block("if count:"):
            if field.kafka_type in FIXED_FORMATS:
                self._fixed_elements(field, target, width)
            else:
                self._elements(field, target)
        with self.block("else:"):
            self.line(f"{target} = None if count is None else ()" if field.is_nullable else f"{target} = ()")

    def _fixed_elements(self, field: FieldSchema, target: str, width: int) -> None:
        assert field.kafka_type is not None
        converted = _converted(field)
        self.line(f"end = offset + count * {width}")
        if field.kafka_type == "uuid":
            self.line("raw = [data[at : at + 16] for at in range(offset, end, 16)]")
        else:
            form = FIXED_FORMATS[field.kafka_type]
            raw = target if converted is None else "raw"
            self.line(f"{raw} = unpack_from(f'>{{count}}{form}', data, offset)")
        if converted is not None:
            self.line(f"{target} = tuple([{converted.format('each')} for each in raw])")
        self.line("offset = end")

    def _elements(self, field: FieldSchema, target: str) -> None:
        self.line("elements = []")
        with self.block("for _ in range(count):"):
            if field.struct is not None:
                self._struct(field, "element")
            else:
                self._string(field, "element")
            self.line("elements.append(element)")
        self.line(f"{target} = tuple(elements)")

    def _tags(self, tagged: list[FieldSchema]) -> None:
        for field in tagged:
            self.line(f"entity.{field.name} = {self.constant(f'default_{field.name}', field.default)}")
        with self.block("if data[offset] == 0:"):
            self.line("offset += 1")
        with self.block("else:"):
            if not tagged:
                self.line("offset = skip_tags(data, offset)")
                return
            self.line("tags, offset = read_tag_count(data, offset)")
            self.line("tag = -1")
            with self.block("for _ in range(tags):"):
                self.line("tag, offset, end_of_tag = read_tag(data, offset, tag)")
                self.line("start_of_tag = offset")
                for index, field in enumerate(tagged):
                    with self.block(f"{'elif' if index else 'if'} tag == {field.tag}:"):
                        self._value(field, f"entity.{field.name}")
                with self.block("else:"):
                    self.line("offset = end_of_tag")
                with self.block("if offset != end_of_tag:"):
                    self.line("raise refused_tag(tag, offset - start_of_tag, end_of_tag - start_of_tag)")


_readers: Final[dict[EntityClass, Reader]] = {}


def entity_reader(entity_type: EntityClass) -> Reader:
    """Return the reader of an entity class, generated at the first call.

    On malformed bytes it may raise ``struct.error`` or ``IndexError``: use :func:`read_entity` for a peer's bytes.
    """
    reader = _readers.get(entity_type)
    if reader is None:
        reader = _readers[entity_type] = _ReaderSource(entity_type).build()
    return reader


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
