"""Rebuilds metadata records from the fields that a lake stores. Pure.

The inverse of :mod:`pyspark_quorate.source.payload`, except for secrets, which a lake does not store.
"""

from base64 import b64decode
from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

from quorate_protocol.records.generated import RECORD_CLASSES, MetadataRecord
from quorate_protocol.uuids import ZERO_UUID_TEXT, uuid_from_text
from quorate_protocol.wire.schema import EntityClass, FieldSchema, schema_of

from pyspark_quorate.source.payload import REDACTED, field_name
from pyspark_quorate.tables.contract import Fields

_CLASSES: Final = {classes[-1].__name__: classes[-1] for classes in RECORD_CLASSES.values()}
_REDACTED_BYTES: Final = REDACTED.encode()


class FieldsError(Exception):
    """Fields do not fit their record; the message has the reason."""


def entity_of(name: str, fields: Fields) -> MetadataRecord | None:
    """Return the metadata record of this name with these fields; None for a control record.

    An absent field has its default, since a lake may be older than a field. An unknown field is ignored. Secret bytes
    become those of `[redacted]`.

    Raises:
    FieldsError: if the fields do not fit the record of this name.
    """
    entity_type = _CLASSES.get(name)
    if entity_type is None:
        return None
    try:
        entity: MetadataRecord = _reader_of(entity_type)(fields)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise FieldsError(f"{name}: {error}") from None
    return entity


_readers: Final[dict[EntityClass, Callable[[Any], Any]]] = {}


def _reader_of(entity_type: EntityClass) -> Callable[[Any], Any]:
    reader = _readers.get(entity_type)
    if reader is None:
        reader = _readers[entity_type] = _compile(entity_type)
    return reader


def _compile(entity_type: EntityClass) -> Callable[[Any], Any]:
    fields = [(field.name, field_name(field.name), _field_reader(field)) for field in schema_of(entity_type)]

    def read(content: Any) -> Any:
        return entity_type(
            **{name: parse(content[stated]) for name, stated, parse in fields if stated in content}
        )

    return read


def _field_reader(field: FieldSchema) -> Callable[[Any], Any]:
    read = _scalar_reader(field)
    if field.is_array:
        return lambda values: None if values is None else tuple(map(read, values))
    return lambda value: None if value is None else read(value)


def _scalar_reader(field: FieldSchema) -> Callable[[Any], Any]:
    if field.struct is not None:
        return _reader_of(field.struct)
    match field.kafka_type:
        case "uuid":
            return _uuid
        case "bytes":
            return _bytes
        case "float64":
            return _number
    return _as_it_is


def _uuid(text: str) -> UUID | None:
    return None if text == ZERO_UUID_TEXT else uuid_from_text(text)


def _bytes(text: str) -> bytes:
    return _REDACTED_BYTES if text == REDACTED else b64decode(text, validate=True)


def _number(value: float | str) -> float:
    return float(value) if isinstance(value, str) else value


def _as_it_is(value: Any) -> Any:
    return value
