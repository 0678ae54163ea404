"""Reading of field values from bytes that a peer controls, with all refusals; generated and native readers use it."""

import struct
import uuid
from collections.abc import Callable
from datetime import timedelta
from functools import lru_cache
from typing import Any, Final, Self

from quorate_protocol.errors import MalformedMessage, TooManyElements
from quorate_protocol.kafka.field_types import EPOCH, MILLISECOND
from quorate_protocol.wire.schema import (
    ARRAY_ELEMENTS_MAX,
    STRING_SIZE_BYTES_MAX,
    TAGGED_FIELDS_MAX,
    FieldSchema,
)

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
def known_uuid(raw: bytes) -> uuid.UUID:
    # Topic and directory ids repeat in thousands of records: one object each saves both time and memory.
    return uuid.UUID(bytes=raw)


_DURATION_MS_MIN: Final = timedelta.min // MILLISECOND
_DURATION_MS_MAX: Final = timedelta.max // MILLISECOND


def duration(value: int) -> timedelta:
    """Milliseconds of 64 bits; a duration is at most 2.7 million years."""
    return timedelta(milliseconds=max(_DURATION_MS_MIN, min(value, _DURATION_MS_MAX)))


def instant(value: int) -> object:
    return EPOCH + value * MILLISECOND


def _read_compact_length(data: bytes, offset: int) -> tuple[int, int]:
    length, offset = read_unsigned_varint(data, offset)
    return length - 1, offset


_unpack_short: Final = struct.Struct(">h").unpack_from
_unpack_long: Final = struct.Struct(">i").unpack_from


def read_compact(data: bytes, offset: int, field: FieldSchema) -> tuple[object, int]:
    """Read a compact string or compact bytes."""
    length, offset = _read_compact_length(data, offset)
    return _read_content(data, offset, field, length)


def read_sized(data: bytes, offset: int, field: FieldSchema) -> tuple[object, int]:
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


class BoundedBytes(bytes):
    """A message with a limit for the elements of all its arrays: objects take up to a hundred times their bytes."""

    elements_max: int
    _elements: int

    def __new__(cls, data: bytes, elements_max: int) -> Self:
        """Copy a message."""
        bounded = super().__new__(cls, data)
        bounded.elements_max, bounded._elements = elements_max, 0
        return bounded

    def add(self, count: int, field: FieldSchema) -> None:
        """Count the elements of an array, before there is an object for any of them."""
        self._elements += count
        if self._elements > self.elements_max:
            raise TooManyElements(
                f"with {field.name} there are {self._elements} elements, at most {self.elements_max} are allowed"
            )


def read_count(
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
    if isinstance(data, BoundedBytes):
        data.add(count, field)
    return count, offset


def read_tag_count(data: bytes, offset: int) -> tuple[int, int]:
    """Read how many tagged fields there are."""
    count, offset = read_unsigned_varint(data, offset)
    if count > TAGGED_FIELDS_MAX:
        raise MalformedMessage(f"there are {count} tagged fields, at most {TAGGED_FIELDS_MAX} are allowed")
    return count, offset


def read_tag(data: bytes, offset: int, previous: int) -> tuple[int, int, int]:
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


def skip_tags(data: bytes, offset: int) -> int:
    """Skip tagged fields, all of which are unknown (KIP-482)."""
    count, offset = read_tag_count(data, offset)
    tag = -1
    for _ in range(count):
        tag, _, offset = read_tag(data, offset, tag)
    return offset


def refused_tag(tag: int, read_bytes: int, size_bytes: int) -> MalformedMessage:
    return MalformedMessage(f"tagged field {tag} takes {read_bytes} of {size_bytes} bytes")


def refused_presence(name: str, marker: int) -> MalformedMessage:
    return MalformedMessage(f"{name} has presence byte {marker}")
