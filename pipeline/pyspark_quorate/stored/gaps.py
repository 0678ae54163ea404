"""Decides which stored gaps count: a gap is void once its place was read again."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa

from pyspark_quorate.stored.schema import COMMIT

_FILE: Final = re.compile(r"/[^/]*\.(log|checkpoint)$")
Reads = Mapping[str, Sequence[tuple[int, int]]]
"""Directory -> the commit of each read of it, and the offset that it started at."""


def valid_gaps(gaps: pa.RecordBatch, reads: Reads) -> pa.RecordBatch:
    """Returns the gaps whose offsets no later read of the same directory covered."""
    columns = [gaps.column(name).to_pylist() for name in ("source", "offset", "payload", COMMIT)]
    valid = []
    for source, offset, payload, commit in zip(*columns, strict=True):
        end = json.loads(payload).get("endOffset")
        valid.append(
            not any(
                read_commit > commit and (offset is None or end is None or end > start)
                for read_commit, start in reads.get(_FILE.sub("", source), ())
            )
        )
    return gaps.filter(pa.array(valid, pa.bool_()))
