"""Decodes one record to its name, version and JSON: the general way, for rare records.

:mod:`pyspark_quorate.source.columns` produces the same text for many records of one type at once.

The JSON follows Kafka's MetadataJsonConverters: names in camelCase, UUIDs in URL-safe base64 of 22 characters, bytes
in base64. Unlike Kafka's, it includes fields at their defaults, and fields that the record's version lacks.
"""

import json
import math
import struct
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from quorate_protocol.errors import ProtocolError, UnknownRecord
from quorate_protocol.kafka.secret_configs import is_secret_config
from quorate_protocol.records.batch import Record
from quorate_protocol.records.control import CONTROL_NAMES, decode_control
from quorate_protocol.records.framing import decode_record
from quorate_protocol.records.generated import RECORD_CLASSES, ConfigRecord
from quorate_protocol.uuids import uuid_to_text
from quorate_protocol.wire.schema import EntityClass, FieldSchema, field_of, schema_of

NO_OP: Final = "NoOpRecord"
METADATA_NAMES: Final = {key: classes[-1].__name__ for key, classes in RECORD_CLASSES.items()}
"""Record key -> its name."""
RECORD_NAMES: Final = frozenset((*METADATA_NAMES.values(), *CONTROL_NAMES))
"""The names of all records that can become rows."""
REDACTED: Final = "[redacted]"
SECRET_FIELDS: Final = frozenset(
    ("UserScramCredentialRecord", name) for name in ("salt", "stored_key", "server_key")
)
"""(Record, field) pairs that are always redacted.

Delegation tokens need no redaction: their record has the token's id, but not the key derived from it.
"""


@dataclass(frozen=True, slots=True)
class Decoded:
    """A record's columns in a row."""

    name: str
    version: int
    payload: str


SECRET_RECORDS: Final = frozenset(
    {name for name, _ in SECRET_FIELDS} | {ConfigRecord.__name__, "DelegationTokenRecord"}
)
"""The bytes of these records are not kept if they can't be decoded, because they may have secrets."""


@dataclass(frozen=True, slots=True)
class Undecodable:
    """The reason why a record can't be decoded."""

    detail: str
    is_kept: bool = True
    """Whether its bytes may be kept, for a later version that can decode them."""


def decode_metadata(value: bytes | None) -> Decoded | Undecodable:
    """A metadata record from the value of a log record. Never raises."""
    if value is None:
        return Undecodable("a metadata record has no value")
    try:
        entity = decode_record(value)
    except UnknownRecord as error:
        return Undecodable(error.message, METADATA_NAMES.get(_key_of(value)) not in SECRET_RECORDS)
    except ProtocolError as error:
        is_kept = METADATA_NAMES.get(_key_of(value)) not in SECRET_RECORDS
        return Undecodable(f"{_describe(value)}: {error.message}", is_kept)
    # decode_record has read three varints of one byte: no frame version, key or version is as large as 128.
    return Decoded(type(entity).__name__, value[2], to_json(redact(entity)))


def decode_control_record(key: bytes | None, value: bytes | None) -> Decoded | Undecodable:
    """A control record from the key and value of a log record. Never raises."""
    try:
        entity = decode_control(Record(offset_delta=0, timestamp_ms=0, key=key, value=value))
    except ProtocolError as error:
        return Undecodable(f"control record: {error.message}")
    assert value is not None, "decode_control refuses what has no value"
    (version,) = struct.unpack_from(">h", value)
    return Decoded(type(entity).__name__, version, to_json(entity))


def decoder_version() -> str:
    """The records that this version decodes, as text: another version may decode more."""
    return ",".join(f"{key}:{len(classes)}" for key, classes in sorted(RECORD_CLASSES.items()))


def _key_of(value: bytes) -> int:
    """The record's type; -1 if the value is too short."""
    return value[1] if len(value) > 1 else -1


def _describe(value: bytes) -> str:
    return f"{METADATA_NAMES.get(_key_of(value), 'a record')} of {len(value)} bytes"


def redact(entity: Any) -> Any:
    """The record with a secret config value redacted."""
    if (
        isinstance(entity, ConfigRecord)
        and entity.value is not None
        and is_secret_config(entity.resource_type, entity.name)
    ):
        return replace(entity, value=REDACTED)
    return entity


# JSON


def to_json(entity: Any) -> str:
    """An entity as the JSON text of its fields."""
    return _writer_of(type(entity))(entity)


def field_name(name: str) -> str:
    """The name of a field in Kafka's JSON: broker_id is brokerId."""
    first, *others = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in others)


def field_text(entity: Any, name: str) -> str:
    """The JSON of one field of an entity."""
    entity_type = type(entity)
    return _field_writer(entity_type, field_of(entity_type, name))(getattr(entity, name))


def number_text(value: float) -> str:
    """A float64 as JSON; NaN and infinities as strings, as Kafka's Jackson writes them."""
    if math.isfinite(value):
        return repr(value)
    return f'"{"NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"}"'


def string_text(value: str) -> str:
    """A string as JSON with minimal escapes, as Jackson writes it."""
    return json.dumps(value, ensure_ascii=False)


_SCALARS: Final[dict[str, Callable[[Any], str]]] = {
    "bool": lambda value: "true" if value else "false",
    "float64": number_text,
    "uuid": lambda value: f'"{uuid_to_text(value)}"',
    "string": string_text,
    "bytes": lambda value: f'"{b64encode(value).decode()}"',
}


def _scalar_writer(field: FieldSchema) -> Callable[[Any], str]:
    if field.struct is not None:
        return _writer_of(field.struct)
    assert field.kafka_type is not None
    return _SCALARS.get(field.kafka_type, str)


def _field_writer(entity_type: EntityClass, field: FieldSchema) -> Callable[[Any], str]:
    if (entity_type.__name__, field.name) in SECRET_FIELDS:
        return _write_redacted
    write = _scalar_writer(field)
    if field.is_array:
        return _nullable_writer(_array_writer(write))
    # A decoded uuid that is None is the zero uuid, not null.
    return _nullable_writer(write) if field.is_nullable and field.kafka_type != "uuid" else write


_writers: Final[dict[EntityClass, Callable[[Any], str]]] = {}


def _writer_of(entity_type: EntityClass) -> Callable[[Any], str]:
    writer = _writers.get(entity_type)
    if writer is None:
        writer = _writers[entity_type] = _compile(entity_type)
    return writer


def _compile(entity_type: EntityClass) -> Callable[[Any], str]:
    parts = [
        (field.name, f'"{field_name(field.name)}":', _field_writer(entity_type, field))
        for field in schema_of(entity_type)
    ]

    def write_entity(entity: Any) -> str:
        texts = []
        for name, prefix, write in parts:
            texts.append(prefix + write(getattr(entity, name)))
        return "{" + ",".join(texts) + "}"

    return write_entity


def _write_redacted(_: Any) -> str:
    return string_text(REDACTED)


def _array_writer(write: Callable[[Any], str]) -> Callable[[Any], str]:
    return lambda values: "[" + ",".join(map(write, values)) + "]"


def _nullable_writer(write: Callable[[Any], str]) -> Callable[[Any], str]:
    return lambda value: "null" if value is None else write(value)
