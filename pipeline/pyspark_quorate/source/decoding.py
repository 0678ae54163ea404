"""Bytes of a log or checkpoint -> Arrow columns of :data:`pyspark_quorate.rows.SCHEMA`."""

import json
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from pyspark_quorate import rows
from pyspark_quorate.source.framing import Integers, Records, frame_records, padded
from pyspark_quorate.source.payload import (
    METADATA_NAMES,
    NO_OP,
    Decoded,
    Undecodable,
    decode_control_record,
    decode_metadata,
)
from pyspark_quorate.source.scanning import Batch, BatchScanner, Gap
from pyspark_quorate.source.selection import Selection

ARROW_SCHEMA: Final = to_arrow_schema(rows.SCHEMA, timezone="UTC")
"""Exactly what Spark expects of a RecordBatch."""
ROWS_PER_BATCH_MAX: Final = 1 << 16
"""Records that are decoded together; a batch of Kafka has fewer than its bytes over 7."""

_SNAPSHOT_HEADER_TYPE: Final = 3
_NO_OP_KEY: Final = next(key for key, name in METADATA_NAMES.items() if name == NO_OP)


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Of which file or controller the bytes are; for a checkpoint also its id."""

    cluster_id: str
    source: str
    snapshot: tuple[int, int] | None = None
    """End offset and epoch."""

    @property
    def kind(self) -> str:
        """The kind of the rows."""
        return rows.LOG if self.snapshot is None else rows.SNAPSHOT


class RowReader:
    """Rows of one file, or of what was fetched from a controller."""

    def __init__(self, origin: Origin, selection: Selection, scanner: BatchScanner) -> None:
        self._origin = origin
        self._selection = selection
        self._scanner = scanner
        self._snapshot_time_us: int | None = None
        self._has_footer = False

    def read(self, data: bytes, *, is_end: bool) -> tuple[list[pa.RecordBatch], int]:
        """Rows of what is whole in `data`, and how many of its bytes are done with.

        The next call begins with the others. `is_end`: nothing follows.
        """
        found, consumed = self._scanner.scan(data, is_end=is_end)
        gaps = [each for each in found if isinstance(each, Gap)]
        window = padded(data)
        batches: list[pa.RecordBatch] = []
        for group in _groups([each for each in found if isinstance(each, Batch)]):
            records, faults = frame_records(data, window, group)
            gaps += faults
            batches += self._rows(data, window, records, gaps)
        if is_end and self._origin.snapshot is not None and not self._has_footer and not gaps:
            detail = "the checkpoint has no SnapshotFooterRecord: it is not whole"
            gaps.append(Gap(reason=rows.TORN_TAIL, detail=detail))
        wanted = [gap for gap in map(self._of_snapshot, gaps) if self._selection.wants_gap(gap)]
        if wanted:
            batches.append(gap_rows(self._origin.cluster_id, self._origin.source, wanted))
        return batches, consumed

    def _of_snapshot(self, gap: Gap) -> Gap:
        """Offsets in a checkpoint count its records: they are no offsets of the log."""
        if self._origin.snapshot is None:
            return gap
        place = "" if gap.offset is None else f" (its records from {gap.offset}"
        if place:
            place += ")" if gap.end_offset is None else f" up to {gap.end_offset})"
        return Gap(reason=gap.reason, epoch=gap.epoch, detail=gap.detail + place)

    def _rows(self, data: bytes, window: Any, records: Records, gaps: list[Gap]) -> Iterator[pa.RecordBatch]:
        if self._origin.snapshot is not None:
            self._note_header_and_footer(data, records)
        if not self._selection.wants_kind(self._origin.kind):
            return
        low, high = self._selection.offset_range
        if self._origin.snapshot is None:
            if len(records) and not (low <= records.offset[0] and records.offset[-1] < high):
                records = records.select((records.offset >= low) & (records.offset < high))
        elif not low <= self._origin.snapshot[0] < high:
            return
        if NO_OP not in self._selection.wanted:
            at = records.value_start
            is_no_op = (window[at] == 1) & (window[at + 1] == _NO_OP_KEY) & (records.value_size > 1)
            records = records.select(~is_no_op | records.is_control)
        if len(records):
            yield from self._decode(data, records, gaps)

    def _decode(self, data: bytes, records: Records, gaps: list[Gap]) -> Iterator[pa.RecordBatch]:
        kept, types, versions, payloads = [], [], [], []
        wanted = self._selection.wanted
        for index, (is_control, key_start, key_size, start, size) in enumerate(
            zip(
                records.is_control.tolist(),
                records.key_start.tolist(),
                records.key_size.tolist(),
                records.value_start.tolist(),
                records.value_size.tolist(),
                strict=True,
            )
        ):
            value = data[start : start + size] if size >= 0 else None
            decoded: Decoded | Undecodable
            if is_control:
                key = data[key_start : key_start + key_size] if key_size >= 0 else None
                decoded = decode_control_record(key, value)
            else:
                decoded = decode_metadata(value)
            if isinstance(decoded, Undecodable):
                offset = int(records.offset[index])
                gaps.append(
                    Gap(
                        reason=rows.UNKNOWN_RECORD,
                        offset=offset,
                        end_offset=offset + 1,
                        epoch=int(records.epoch[index]),
                        detail=decoded.detail,
                    )
                )
            elif decoded.name in wanted:
                kept.append(index)
                types.append(decoded.name)
                versions.append(decoded.version)
                payloads.append(decoded.payload)
        if kept:
            chosen = records if len(kept) == len(records) else records.select(np.array(kept, np.int64))
            yield self._assemble(
                chosen,
                pa.array(types, pa.string()),
                pa.array(versions, pa.int16()),
                pa.array(payloads, pa.string()),
            )

    def _assemble(
        self, records: Records, types: pa.Array, versions: pa.Array, payloads: pa.Array
    ) -> pa.RecordBatch:
        origin, count = self._origin, len(records)
        if origin.snapshot is None:
            offset: pa.Array = pa.array(records.offset)
            ordinal = pa.repeat(pa.scalar(0, pa.int32()), count)
            epoch = pa.array(records.epoch.astype(np.int32))
            time = _timestamps(records.time_ms)
        else:
            offset = pa.repeat(pa.scalar(origin.snapshot[0], pa.int64()), count)
            ordinal = pa.array(records.offset.astype(np.int32))
            epoch = pa.repeat(pa.scalar(origin.snapshot[1], pa.int32()), count)
            time = pa.repeat(pa.scalar(self._snapshot_time_us, ARROW_SCHEMA.field("time").type), count)
        columns = [
            pa.repeat(pa.scalar(origin.cluster_id), count),
            pa.repeat(pa.scalar(origin.source), count),
            pa.repeat(pa.scalar(origin.kind), count),
            *(offset, ordinal, epoch, time, types, versions, payloads),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=ARROW_SCHEMA)

    def _note_header_and_footer(self, data: bytes, records: Records) -> None:
        """The time of a checkpoint's rows is in its header."""
        for index in np.flatnonzero(records.is_control & (records.key_size >= 4)).tolist():
            (kind,) = struct.unpack_from(">h", data, int(records.key_start[index]) + 2)
            if kind == _SNAPSHOT_HEADER_TYPE and records.value_size[index] >= 10:
                (time_ms,) = struct.unpack_from(">q", data, int(records.value_start[index]) + 2)
                self._snapshot_time_us = _timestamp_us(time_ms) if time_ms > 0 else None
            self._has_footer |= kind == _SNAPSHOT_FOOTER_TYPE


_SNAPSHOT_FOOTER_TYPE: Final = 4
_MILLISECONDS_MAX: Final = (2**63 - 1) // 1000


def _timestamp_us(time_ms: int) -> int:
    """Microseconds; what is no time that a column can hold is cut to its limit."""
    return max(-_MILLISECONDS_MAX, min(_MILLISECONDS_MAX, time_ms)) * 1000


def _timestamps(time_ms: Integers) -> pa.Array:
    microseconds = np.clip(time_ms, -_MILLISECONDS_MAX, _MILLISECONDS_MAX) * 1000
    return pa.array(microseconds).view(ARROW_SCHEMA.field("time").type)


def _groups(batches: Sequence[Batch]) -> Iterator[list[Batch]]:
    """Batches with at most ROWS_PER_BATCH_MAX records together, or one that has more."""
    group: list[Batch] = []
    count = 0
    for batch in batches:
        if group and count + batch.count > ROWS_PER_BATCH_MAX:
            yield group
            group, count = [], 0
        group.append(batch)
        count += batch.count
    if group:
        yield group


def gap_rows(cluster_id: str, source: str, gaps: Sequence[Gap]) -> pa.RecordBatch:
    """Gaps as rows."""
    count = len(gaps)
    payloads = [json.dumps({"endOffset": gap.end_offset, "detail": gap.detail}) for gap in gaps]
    columns: list[Sequence[object]] = [
        *([cluster_id] * count, [source] * count, [rows.GAP] * count),
        *([gap.offset for gap in gaps], [0] * count, [gap.epoch for gap in gaps], [None] * count),
        *([gap.reason for gap in gaps], [None] * count, list(payloads)),
    ]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, ARROW_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=ARROW_SCHEMA)
