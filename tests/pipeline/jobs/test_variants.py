"""The encoding of payloads as VARIANT, beside Spark's own."""

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql.variant_utils import VariantUtils
from pyspark_quorate.jobs import variant

SCALARS = st.none() | st.booleans() | st.integers(-(2**64), 2**64) | st.text(max_size=80)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=8), inner, max_size=6),
)
UNUSUAL: tuple[Any, ...] = (
    *(1.5, 2**63, -(2**63) - 1, [1e300], {"a": 0.1}, list(range(300)), "x" * 70_000, ["y" * 66_000]),
    *(
        {f"name{number}": number for number in range(300)},
        [True, 1, None, {"b": [], "a": {}}],
        ["é", {"é": "ü"}],
    ),
)


@given(VALUES)
def test_values_are_encoded_as_spark_encodes_them(value: Any) -> None:
    text = json.dumps(value)
    assert variant.encode(text) == VariantUtils.parse_json(text)


@pytest.mark.parametrize("value", UNUSUAL, ids=range(len(UNUSUAL)))
def test_unusual_values_are_encoded_as_spark_encodes_them(value: Any) -> None:
    text = json.dumps(value)
    assert variant.encode(text) == VariantUtils.parse_json(text)


def test_the_engine_encodes_them_in_the_same_way(spark: SparkSession) -> None:
    texts = [
        json.dumps(value) for value in (*UNUSUAL, {"a": [1, 200, 70_000, 2**40], "b": "x" * 64, "c": None})
    ]
    texts = [text for text in texts if len(text) < 1_000]
    frame = spark.createDataFrame([(text,) for text in texts], "text string")
    found = frame.selectExpr("parse_json(text) as payload").collect()
    kind = pa.struct([pa.field("value", pa.binary(), False), pa.field("metadata", pa.binary(), False)])
    ours = variant.variants(pa.array(texts), kind).to_pylist()
    assert [(our["value"], our["metadata"]) for our in ours] == [
        (bytes(row.payload.value), bytes(row.payload.metadata)) for row in found
    ]
