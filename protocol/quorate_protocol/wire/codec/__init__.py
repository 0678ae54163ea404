"""Entities and their bytes: those of requests, responses, headers and records.

A peer controls the bytes that are decoded, so every length is checked before anything is allocated.
"""

import struct
from functools import cache
from typing import Any, TypeVar

from quorate_protocol.errors import MalformedMessage
from quorate_protocol.wire.schema import EntityClass, field_of

from .generated_writers import writers_around
from .native import readers, writers
from .read_values import BoundedBytes, read_unsigned_varint
from .write_values import SharedArray, Writer, write_count, write_unsigned_varint

__all__ = (
    "BoundedBytes",
    "SharedArray",
    "around_elements",
    "decode",
    "encode",
    "read_entity",
    "read_unsigned_varint",
    "write_entity",
    "write_unsigned_varint",
)

Entity = TypeVar("Entity")


def read_entity(entity_type: type[Entity], data: bytes, offset: int = 0) -> tuple[Entity, int]:
    """Decode one entity that starts at ``offset``.

    Returns:
        The entity and the offset after it.

    Raises:
        MalformedMessage: the bytes are not such an entity.
    """
    try:
        entity, end = readers[entity_type](data, offset)
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


def write_entity(buffer: bytearray, entity: object) -> None:
    """Append an entity, encoded in the format of its class.

    Raises:
        ValueTooLong: a string or an array is longer than Kafka's readers accept. Here and below.
    """
    writers[type(entity)](buffer, entity)


def around_elements(entity: object, array: str, count: int) -> tuple[bytearray, bytearray]:
    """Encode an entity without the elements of one of its arrays, which are written elsewhere.

    Returns:
        what precedes them, their number included, and what follows them.
    """
    entity_type: Any = type(entity)
    write_before, write_after = _writers_around(entity_type, array)
    before, after = bytearray(), bytearray()
    write_before(before, entity)
    write_count(before, count, field_of(entity_type, array), is_compact=entity_type.__flexible__)
    write_after(after, entity)
    return before, after


@cache
def _writers_around(entity_type: EntityClass, array: str) -> tuple[Writer, Writer]:
    return writers_around(entity_type, array, writers)


def encode(entity: object) -> bytes:
    """Encode an entity in the format of its class."""
    buffer = bytearray()
    writers[type(entity)](buffer, entity)
    return bytes(buffer)
