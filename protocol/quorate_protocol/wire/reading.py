"""Decode entities from bytes that a peer controls.

kio defines the messages; this module reads them, because no peer may be able to end our process. The native reader
of kio 0.6.5 allocates as many array elements as a length field claims before it checks whether the bytes exist (a
frame of 20 bytes ends the process), and it refuses unknown tagged fields, which have to be skipped (KIP-482).
"""

import struct
from typing import TypeVar

from quorate_protocol.errors import MalformedMessage

from .codec.native import readers
from .codec.read_values import BoundedBytes, read_unsigned_varint

__all__ = ("BoundedBytes", "decode", "read_entity", "read_unsigned_varint")

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
