"""Strategies for whatever Kafka's schemas describe: entities with any content that their fields may have."""

import uuid
from datetime import timedelta
from typing import Any

from hypothesis import strategies as st
from quorate_protocol.errors import error_code_of
from quorate_protocol.kafka.field_types import EPOCH
from quorate_protocol.wire.schema import FieldSchema, schema_of

INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
UUIDS = st.none() | st.integers(1, 2**128 - 1).map(lambda number: uuid.UUID(int=number))
PRIMITIVES: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int8": st.integers(-(2**7), 2**7 - 1),
    "int16": st.integers(-(2**15), 2**15 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": INT64,
    "uint16": st.integers(0, 2**16 - 1),
    "uint32": st.integers(0, 2**32 - 1),
    "float64": st.floats(allow_nan=False),
    "uuid": UUIDS,
    "string": TEXT,
    "bytes": st.binary(max_size=20),
    "records": st.binary(max_size=20),
    "error_code": st.integers(-1, 129).map(error_code_of),
    "timedelta_i32": st.integers(-(2**31), 2**31 - 1).map(lambda number: timedelta(milliseconds=number)),
    "timedelta_i64": st.integers(-(2**40), 2**40).map(lambda number: timedelta(milliseconds=number)),
    "datetime_i64": st.integers(0, 2**41).map(lambda number: EPOCH + timedelta(milliseconds=number)),
}


def values_of(field: FieldSchema) -> st.SearchStrategy[Any]:
    """Values that a field may have."""
    values = entities_of(field.struct) if field.struct is not None else PRIMITIVES[field.kafka_type or ""]
    if field.is_array:
        values = st.lists(values, max_size=3).map(tuple)
    # What is absent by default can't be null on the wire as well.
    return (
        values | st.none() if field.is_nullable and (field.tag is None or field.default is None) else values
    )


def entities_of(entity_type: type[Any]) -> st.SearchStrategy[Any]:
    """Instances of an entity class, with any value in each field."""
    return st.builds(entity_type, **{field.name: values_of(field) for field in schema_of(entity_type)})
