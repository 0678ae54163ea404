"""Encode entities: the counterpart of :mod:`.reading`."""

from .codec.closure_writers import fields_writer, tags_writer
from .codec.native import writers
from .codec.write_values import SharedArray, write_count, write_unsigned_varint
from .schema import schema_of

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
    schema = schema_of(type(entity))
    is_flexible: bool = type(entity).__flexible__  # type: ignore[attr-defined]
    before, after = bytearray(), bytearray()
    buffer = before
    for field in schema:
        if field.tag is not None:
            continue
        if field.name != array:
            fields_writer([field], writers, is_flexible=is_flexible)(buffer, entity)
            continue
        write_count(before, count, field, is_flexible)
        buffer = after
    if is_flexible:
        tags_writer([field for field in schema if field.tag is not None], writers)(after, entity)
    return before, after


def encode(entity: object) -> bytes:
    """Encode an entity in the format of its class."""
    buffer = bytearray()
    writers[type(entity)](buffer, entity)
    return bytes(buffer)
