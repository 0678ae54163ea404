"""Writing of field values to a buffer, with all refusals; generated and native writers use it."""

import struct
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final, TypeVar

from quorate_protocol.errors import ArrayTooLong, StringTooLong
from quorate_protocol.kafka.field_types import EPOCH, MILLISECOND
from quorate_protocol.wire.schema import ARRAY_ELEMENTS_MAX, STRING_SIZE_BYTES_MAX, EntityClass, FieldSchema

Struct = TypeVar("Struct")

Writer = Callable[[bytearray, Any], None]
"""(buffer to append to, value)"""


class SharedArray(tuple[Struct, ...]):
    """Structs that an array of many messages has in common, such as the configs of topics without own ones.

    They are encoded once. All are of one class, so that there is one encoding.
    """

    encoded: bytes | None = None
    """What is appended for the array, once one message was written."""

    def encoded_by(self, write: Writer) -> bytes:
        """Return what ``write`` appends for the array."""
        if self.encoded is None:
            buffer = bytearray()
            write(buffer, self)
            self.encoded = bytes(buffer)
        return self.encoded


ERROR_TEXT: Final = "error_message"
"""The field of responses with a text for people, which often quotes a request: it is cut to what fits."""

_pack_short: Final = struct.Struct(">h").pack
_pack_long: Final = struct.Struct(">i").pack


def write_unsigned_varint(buffer: bytearray, value: int) -> None:
    """Append an unsigned number, seven bits per byte, low bits first."""
    while value > 0x7F:
        buffer.append(value & 0x7F | 0x80)
        value >>= 7
    buffer.append(value)


def timestamp(value: datetime | None) -> int:
    """Return a time as it is written: None is -1."""
    return -1 if value is None else (value - EPOCH) // MILLISECOND


def _write_length(
    buffer: bytearray, length: int, field: FieldSchema, *, is_element: bool, is_compact: bool
) -> None:
    if is_compact:
        write_unsigned_varint(buffer, length + 1)
    elif field.kafka_type == "string" and is_element:
        buffer += _pack_short(length)
    else:
        buffer += _pack_long(length)


def write_null(buffer: bytearray, field: FieldSchema, is_element: bool, is_compact: bool) -> None:
    """Append null for an array, or for a string or bytes, be it an element or a field of its own."""
    is_nullable = field.is_nullable and not (is_element and field.is_array)
    assert is_nullable, f"{field.name} can't be null"
    _write_length(buffer, -1, field, is_element=is_element, is_compact=is_compact)


def _cut(encoded: bytes) -> bytes:
    """Return the characters of a text that fit, and dots for the rest."""
    return encoded[: STRING_SIZE_BYTES_MAX - 3].decode(errors="ignore").encode() + b"..."


def write_content(buffer: bytearray, encoded: bytes, field: FieldSchema, is_compact: bool) -> None:
    """Append an encoded string, or bytes, after its length."""
    size_bytes = len(encoded)
    if size_bytes > STRING_SIZE_BYTES_MAX and field.kafka_type == "string":
        if field.name != ERROR_TEXT:
            raise StringTooLong(
                f"{field.name} has {size_bytes} bytes, at most {STRING_SIZE_BYTES_MAX} are allowed"
            )
        encoded = _cut(encoded)
        size_bytes = len(encoded)
    _write_length(buffer, size_bytes, field, is_element=True, is_compact=is_compact)
    buffer += encoded


def write_count(buffer: bytearray, count: int, field: FieldSchema, is_compact: bool) -> None:
    """Append how many elements an array has."""
    if count > ARRAY_ELEMENTS_MAX:
        raise ArrayTooLong(f"{field.name} has {count} elements, at most {ARRAY_ELEMENTS_MAX} are allowed")
    _write_length(buffer, count, field, is_element=False, is_compact=is_compact)


def elements_writer(field: FieldSchema, writers: Mapping[EntityClass, Writer], is_compact: bool) -> Writer:
    """Return what writes an array of structs that is not null."""

    def write(buffer: bytearray, values: Any) -> None:
        assert field.struct is not None
        write_element = writers[field.struct]
        write_count(buffer, len(values), field, is_compact)
        for value in values:
            write_element(buffer, value)

    return write


def write_tags(buffer: bytearray, present: list[tuple[int, bytearray]]) -> None:
    """Append tagged fields, which are in the order of their tags (KIP-482)."""
    write_unsigned_varint(buffer, len(present))
    for tag, encoded in present:
        write_unsigned_varint(buffer, tag)
        write_unsigned_varint(buffer, len(encoded))
        buffer += encoded
