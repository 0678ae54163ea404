"""Decodes records that an older version of Quorate stored without knowing them: those of a newer Kafka."""

import json
from base64 import b64decode
from typing import Any

import pyarrow as pa

from pyspark_quorate import rows
from pyspark_quorate.source.payload import Decoded, Undecodable, decode_control_record, decode_metadata
from pyspark_quorate.stored.files import FOLDED_SCHEMA


def divide_gaps(gaps: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Divide stored gaps. Returns the gaps, and the records among them that this version decodes."""
    left, decoded = [], []
    for gap in gaps.to_pylist():
        row = _decoded(gap)
        if row is None:
            left.append(gap)
        else:
            decoded.append(row)
    if not decoded:
        return gaps, gaps.slice(0, 0)
    left_over, records = (pa.RecordBatch.from_pylist(each, schema=FOLDED_SCHEMA) for each in (left, decoded))
    return left_over, records


def _decoded(gap: dict[str, Any]) -> dict[str, Any] | None:
    """The row of a record; None if its bytes were not kept, or can't be decoded yet."""
    record = json.loads(gap["payload"]).get("record") if gap["type"] == rows.UNKNOWN_RECORD else None
    if record is None:
        return None
    value = b64decode(record["value"])
    decoded: Decoded | Undecodable
    if record["key"] is not None:
        decoded = decode_control_record(b64decode(record["key"]), value)
    else:
        decoded = decode_metadata(value)
    if isinstance(decoded, Undecodable):
        return None
    row = {"time": record["time_us"], "ordinal": record["ordinal"], "kind": rows.LOG}
    if record["snapshot"] is not None:
        row |= {"kind": rows.SNAPSHOT, "offset": record["snapshot"][0], "epoch": record["snapshot"][1]}
    return {**gap, **row, "type": decoded.name, "version": decoded.version, "payload": decoded.payload}
