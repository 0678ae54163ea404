"""Decode entities from bytes that a peer controls.

kio defines the messages; this module reads them, because no peer may be able to end our process. The native reader
of kio 0.6.5 allocates as many array elements as a length field claims before it checks whether the bytes exist (a
frame of 20 bytes ends the process), and it refuses unknown tagged fields, which have to be skipped (KIP-482).
"""

import struct
from typing import Final, TypeVar

from quorate_protocol.errors import MalformedMessage

from .codec.closure_readers import closure_reader
from .codec.generated_readers import generated_reader
from .codec.read_values import Reader, read_unsigned_varint
from .codec.switching import CodecFunctions

__all__ = ("decode", "read_entity", "read_unsigned_varint", "readers")

Entity = TypeVar("Entity")

readers: Final[CodecFunctions[Reader]] = CodecFunctions(closure_reader, generated_reader)
"""The reader of each entity class.

On malformed bytes one may raise ``struct.error`` or ``IndexError``: use :func:`read_entity` for a peer's bytes.
"""


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
