"""Encode entities: the counterpart of :mod:`.reading`."""

from functools import cache

from .codec.generated_writers import writers_around
from .codec.native import writers
from .codec.write_values import SharedArray, Writer, write_count, write_unsigned_varint
from .schema import EntityClass, FieldSchema, schema_of

__all__ = ("SharedArray", "around_elements", "encode", "write_entity", "write_unsigned_varint")


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
    field, write_before, write_after = _writers_around(type(entity), array)
    before, after = bytearray(), bytearray()
    write_before(before, entity)
    write_count(before, count, field, is_compact=type(entity).__flexible__)  # type: ignore[attr-defined]
    write_after(after, entity)
    return before, after


@cache
def _writers_around(entity_type: EntityClass, array: str) -> tuple[FieldSchema, Writer, Writer]:
    (field,) = (field for field in schema_of(entity_type) if field.name == array)
    return field, *writers_around(entity_type, array, writers)


def encode(entity: object) -> bytes:
    """Encode an entity in the format of its class."""
    buffer = bytearray()
    writers[type(entity)](buffer, entity)
    return bytes(buffer)
