"""Decodes bytes of a log or checkpoint to Arrow columns of :data:`pyspark_quorate.rows.SCHEMA`."""

import json
import struct
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from quorate_protocol.kafka.enums import ControlRecordType
from quorate_protocol.records.framing import FRAME_VERSION
from quorate_protocol.records.generated import RECORD_CLASSES
from quorate_protocol.wire.codec.native import extension

from pyspark_quorate import rows
from pyspark_quorate.source.batch_scanner import BatchScanner, Gap, UnknownRecord
from pyspark_quorate.source.columns import arrow_of, program_of, repeated, strings, strings_of
from pyspark_quorate.source.framing import Records, frame_records, padded
from pyspark_quorate.source.payload import (
    METADATA_NAMES,
    NO_OP,
    Decoded,
    Undecodable,
    decode_control_record,
    decode_metadata,
)
from pyspark_quorate.source.runs import Batches, Integers, gather
from pyspark_quorate.source.selection import Selection

ARROW_SCHEMA: Final = rows.arrow_schema(rows.SCHEMA)
"""The schema that Spark expects of a RecordBatch."""
ROWS_PER_BATCH_MAX: Final = 1 << 16
"""The number of records decoded together, unless one batch has more."""

_ALIKE_MIN: Final = 32
"""Fewer records of one type are faster to decode one by one."""
_FRAME_BYTES: Final = 3
_NO_OP_KEY: Final = next(key for key, name in METADATA_NAMES.items() if name == NO_OP)
_NAMES: Final = [METADATA_NAMES.get(key, "") for key in range(max(METADATA_NAMES) + 1)]
_MILLISECONDS_MAX: Final = (2**63 - 1) // 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The file or controller of the bytes; for a checkpoint also its id."""

    cluster_id: str
    source: str
    snapshot: tuple[int, int] | None = None
    """End offset and epoch."""

    @property
    def kind(self) -> str:
        """The kind of the rows."""
        return rows.LOG if self.snapshot is None else rows.SNAPSHOT


class _Found:
    """Decoded records with their indices, in any order."""

    def __init__(self) -> None:
        self._alike: list[tuple[Integers, str, int, pa.StringArray]] = []
        self._single: list[tuple[int, Decoded]] = []

    def add(self, index: Integers, name: str, version: int, payloads: pa.StringArray) -> None:
        """Add records of one type and version."""
        self._alike.append((index, name, version, payloads))

    def add_one(self, index: int, decoded: Decoded) -> None:
        """Add one record."""
        self._single.append((index, decoded))

    def in_order(self, count: int) -> "_Columns":
        """Index, type, version and payload of all records, ordered by index, which is below `count`."""
        single = [decoded for _, decoded in self._single]
        index = np.concatenate(
            [*(each[0] for each in self._alike), np.array([number for number, _ in self._single], np.int64)]
        )
        names = list(dict.fromkeys([*(each[1] for each in self._alike), *(each.name for each in single)]))
        code = [np.full(len(each[0]), names.index(each[1])) for each in self._alike]
        version = [np.full(len(each[0]), each[2], np.int16) for each in self._alike]
        code.append(np.array([names.index(each.name) for each in single], np.int64))
        version.append(np.array([each.version for each in single], np.int16))
        payload = pa.concat_arrays(
            [*(each[3] for each in self._alike), pa.array([each.payload for each in single], pa.string())]
        )
        place = np.full(count, -1)
        place[index] = np.arange(len(index))
        index = np.flatnonzero(place >= 0)
        order = place[index]
        types = pa.array(names, pa.string()).take(pa.array(np.concatenate(code)[order]))
        is_sorted = len(self._alike) + bool(single) == 1
        payload = payload if is_sorted else payload.take(pa.array(order))
        return index, types, pa.array(np.concatenate(version)[order]), payload


_Columns: TypeAlias = tuple[Integers, pa.Array, pa.Array, pa.StringArray]
"""Index, type, version and payload of records."""


def _decode_at(data: bytes, records: Records, index: int) -> Decoded | Undecodable:
    """Decode one record: a rare, damaged or unknown one."""
    start, size = int(records.value_start[index]), int(records.value_size[index])
    value = data[start : start + size] if size >= 0 else None
    if not records.is_control[index]:
        return decode_metadata(value)
    start, size = int(records.key_start[index]), int(records.key_size[index])
    return decode_control_record(data[start : start + size] if size >= 0 else None, value)


class RowReader:
    """Converts one file, or data fetched from a controller, to rows."""

    def __init__(self, origin: Origin, selection: Selection, scanner: BatchScanner) -> None:
        self._origin = origin
        self._selection = selection
        self._wanted = selection.wanted_of(origin.kind)
        self._scanner = scanner
        self._snapshot_time_us: int | None = None
        self._has_footer = False

    def read(self, data: bytes, *, is_end: bool) -> tuple[list[pa.RecordBatch], int]:
        """Rows of the complete batches in `data`, and the number of bytes consumed.

        The next call must start with the other bytes. `is_end`: no bytes follow.
        """
        scanned = self._scanner.scan(data, is_end=is_end)
        gaps = scanned.gaps
        batches: list[pa.RecordBatch] = []
        for group in _groups(scanned.batches):
            records, faults = frame_records(data, group)
            gaps += faults
            batches += self._rows(data, records, gaps)
        if is_end and self._origin.snapshot is not None and not self._has_footer and not gaps:
            detail = "the checkpoint has no SnapshotFooterRecord: it is incomplete"
            gaps.append(Gap(reason=rows.TORN_TAIL, detail=detail))
        wanted = filter(self._selection.wants_gap, map(self._of_snapshot, gaps))
        batches += gap_rows(self._origin, wanted)
        return batches, scanned.consumed_bytes

    def _of_snapshot(self, gap: Gap) -> Gap:
        """Convert a gap of a checkpoint.

        Offsets within a checkpoint number its records, they are not offsets of the log.
        """
        if self._origin.snapshot is None:
            return gap
        place = "" if gap.offset is None else f" (its records from {gap.offset}"
        if place:
            place += ")" if gap.end_offset is None else f" up to {gap.end_offset})"
        return Gap(reason=gap.reason, epoch=gap.epoch, detail=gap.detail + place, record=gap.record)

    def _rows(self, data: bytes, records: Records, gaps: list[Gap]) -> Iterator[pa.RecordBatch]:
        if self._origin.snapshot is not None:
            self._note_header_and_footer(data, records)
        if not self._wanted and not self._selection.wants_undecodable:
            return
        low, high = self._selection.offset_range
        if self._origin.snapshot is None:
            if len(records) and not (low <= records.offset[0] and records.offset[-1] < high):
                records = records.select((records.offset >= low) & (records.offset < high))
        elif not low <= self._origin.snapshot[0] < high:
            return
        if len(records):
            decode = self._decode_in_numpy if extension is None else self._decode_natively
            index, types, versions, payloads = decode(data, records, gaps)
            if len(index):
                chosen = records if len(index) == len(records) else records.select(index)
                yield self._assemble(chosen, types, versions, payloads)

    @property
    def _decoded_names(self) -> frozenset[str]:
        """Names of the records that are decoded, also to find out whether they can be."""
        return self._wanted | self._selection.names if self._selection.wants_undecodable else self._wanted

    def _decode_natively(self, data: bytes, records: Records, gaps: list[Gap]) -> _Columns:
        texts = _texts_of(self._wanted, self._decoded_names)
        return _make_texts(texts, data, records, partial(self._decode_one, data, records, gaps))

    def _decode_in_numpy(self, data: bytes, records: Records, gaps: list[Gap]) -> _Columns:
        window = padded(data)
        found = _Found()
        for index in self._decode_alike(data, window, records, found).tolist():
            decoded = self._decode_one(data, records, gaps, index)
            if decoded is not None:
                found.add_one(index, decoded)
        return found.in_order(len(records))

    def _decode_one(self, data: bytes, records: Records, gaps: list[Gap], index: int) -> Decoded | None:
        """A record that is rare, unknown or damaged; None, and maybe a gap, if it does not become a row."""
        decoded = _decode_at(data, records, index)
        if isinstance(decoded, Decoded):
            return decoded if decoded.name in self._wanted else None
        offset = int(records.offset[index])
        gaps.append(
            Gap(
                reason=rows.UNKNOWN_RECORD,
                offset=offset,
                end_offset=offset + 1,
                epoch=int(records.epoch[index]),
                detail=decoded.detail,
                record=self._bytes_at(data, records, index) if decoded.is_kept else None,
            )
        )
        return None

    def _bytes_at(self, data: bytes, records: Records, index: int) -> UnknownRecord | None:
        """A record that can't be decoded now; None without a value."""
        start, size = int(records.value_start[index]), int(records.value_size[index])
        key_start, key_size = int(records.key_start[index]), int(records.key_size[index])
        if size < 0:
            return None
        snapshot = self._origin.snapshot
        key = data[key_start : key_start + key_size] if records.is_control[index] and key_size >= 0 else None
        time_us = self._snapshot_time_us if snapshot else _timestamp_us(int(records.time_ms[index]))
        return UnknownRecord(
            key=None if key is None else b64encode(key).decode(),
            value=b64encode(data[start : start + size]).decode(),
            time_us=time_us,
            ordinal=int(records.offset[index]) if snapshot else 0,
            snapshot=snapshot,
        )

    def _decode_alike(
        self, data: bytes, window: NDArray[np.uint8], records: Records, found: "_Found"
    ) -> Integers:
        """Decode records of the same type and version together. Returns the indices of the other records."""
        start, size = records.value_start, records.value_size
        head = gather(window, start, _FRAME_BYTES).astype(np.int64)
        # Frame version, key and version are varints of one byte in all known records.
        is_plain = (size > _FRAME_BYTES) & ~records.is_control & (head[:, 0] == FRAME_VERSION)
        is_plain &= (head[:, 1] < 0x80) & (head[:, 2] < 0x80)
        is_left = ~is_plain
        if NO_OP not in self._wanted:
            is_no_op = (head[:, 0] == FRAME_VERSION) & (head[:, 1] == _NO_OP_KEY) & (size > 1)
            is_no_op &= ~records.is_control
            is_left &= ~is_no_op
            is_plain &= ~is_no_op
        code = np.where(is_plain, head[:, 1] << 8 | head[:, 2], -1)
        for each in np.unique(code[is_plain]).tolist():
            key, version = each >> 8, each & 0xFF
            alike = np.flatnonzero(code == each)
            name = METADATA_NAMES.get(key)
            if name is not None and name not in self._decoded_names:
                continue
            program = program_of(key, version) if len(alike) >= _ALIKE_MIN else None
            if name is None or program is None:
                is_left[alike] = True
                continue
            at = start[alike]
            payloads, is_usual = program.run(window, len(data), at + _FRAME_BYTES, at + size[alike])
            is_left[alike[~is_usual]] = True
            if name in self._wanted:
                usual = alike[is_usual]
                payloads = payloads if len(usual) == len(alike) else payloads.filter(pa.array(is_usual))
                found.add(usual, name, version, payloads)
        return np.flatnonzero(is_left)

    def _assemble(
        self, records: Records, types: pa.Array, versions: pa.Array, payloads: pa.Array
    ) -> pa.RecordBatch:
        origin, count = self._origin, len(records)
        time = None
        if origin.snapshot is None:
            offset, epoch = records.offset, records.epoch
            ordinal = np.zeros(count, np.int32)
            time = _microseconds(records.time_ms)
        else:
            offset, epoch = (np.full(count, each) for each in origin.snapshot)
            ordinal = records.offset.astype(np.int32)
            if self._snapshot_time_us is not None:
                time = np.full(count, self._snapshot_time_us)
        time_type = ARROW_SCHEMA.field("time").type
        columns = [
            *(repeated(text, count) for text in (origin.cluster_id, origin.source, origin.kind)),
            arrow_of(offset, pa.int64()),
            arrow_of(ordinal, pa.int32()),
            arrow_of(epoch.astype(np.int32), pa.int32()),
            pa.nulls(count, time_type) if time is None else arrow_of(time, time_type),
            types,
            versions,
            payloads,
        ]
        return pa.RecordBatch.from_arrays(columns, schema=ARROW_SCHEMA)

    def _note_header_and_footer(self, data: bytes, records: Records) -> None:
        """Note the time of a checkpoint's rows, which its header has, and whether its footer was seen."""
        for index in np.flatnonzero(records.is_control & (records.key_size >= 4)).tolist():
            (kind,) = struct.unpack_from(">h", data, int(records.key_start[index]) + 2)
            if kind == ControlRecordType.SNAPSHOT_HEADER and records.value_size[index] >= 10:
                (time_ms,) = struct.unpack_from(">q", data, int(records.value_start[index]) + 2)
                self._snapshot_time_us = _timestamp_us(time_ms) if time_ms > 0 else None
            self._has_footer |= kind == ControlRecordType.SNAPSHOT_FOOTER


def _timestamp_us(time_ms: int) -> int:
    """Microseconds, clipped to the range of the column."""
    return max(-_MILLISECONDS_MAX, min(_MILLISECONDS_MAX, time_ms)) * 1000


def _microseconds(time_ms: Integers) -> Integers:
    return np.clip(time_ms, -_MILLISECONDS_MAX, _MILLISECONDS_MAX) * 1000


def _groups(batches: Batches) -> Iterator[Batches]:
    """Yield groups of batches with at most ROWS_PER_BATCH_MAX records, or of one larger batch."""
    ends = np.cumsum(batches.record_count)
    start, done = 0, 0
    while start < len(batches):
        stop = max(start + 1, int(np.searchsorted(ends, done + ROWS_PER_BATCH_MAX, "right")))
        yield batches.select(slice(start, stop))
        start, done = stop, int(ends[stop - 1])


def gap_rows(origin: Origin, gaps: Iterable[Gap]) -> Iterator[pa.RecordBatch]:
    """Gaps as rows, in one batch; nothing without gaps."""
    lines = [
        (
            origin.cluster_id,
            origin.source,
            rows.GAP,
            gap.offset,
            0,
            gap.epoch,
            None,
            gap.reason,
            None,
            json.dumps(
                {"endOffset": gap.end_offset, "detail": gap.detail}
                | ({"record": gap.record._asdict()} if gap.record is not None else {})
            ),
        )
        for gap in gaps
    ]
    if lines:
        columns = zip(zip(*lines, strict=True), ARROW_SCHEMA, strict=True)
        arrays = [pa.array(column, field.type) for column, field in columns]
        yield pa.RecordBatch.from_arrays(arrays, schema=ARROW_SCHEMA)


# By the extension `quorate_native`


@cache
def _texts_of(wanted: frozenset[str], decoded_names: frozenset[str]) -> Any:
    """The native maker of texts. Records of `decoded_names` that are not wanted are decoded only to find damage."""
    keys = []
    for key, name in METADATA_NAMES.items():
        programs = [program_of(key, version) for version in range(len(RECORD_CLASSES[key]))]
        natives = [program and program.native for program in programs]
        keys.append((key, name in wanted, natives if name in decoded_names else None))
    return extension.Texts(keys, None if NO_OP in wanted else _NO_OP_KEY)


def _make_texts(
    texts: Any, data: bytes, records: Records, single: Callable[[int], Decoded | None]
) -> tuple[Integers, pa.Array, pa.Array, pa.StringArray]:
    """Index, type, version and payload of the records that become rows.

    `single` decodes a record, by its index, that is not usual.
    """
    singles: list[Decoded] = []

    def text_of(index: int) -> str | None:
        decoded = single(index)
        if decoded is None:
            return None
        singles.append(decoded)
        return decoded.payload

    columns = (records.value_start, records.value_size, records.is_control)
    text, ends, indices, numbers = texts.make(data, *(column.tobytes() for column in columns), text_of)
    index, code = np.frombuffer(indices, np.int64), np.frombuffer(numbers, np.int64)
    names, kind, version = _NAMES, code >> 8, (code & 0xFF).astype(np.int16)
    if singles:
        places = np.flatnonzero(code < 0)
        kind[places] = np.arange(len(names), len(names) + len(singles))
        version[places] = [decoded.version for decoded in singles]
        names = [*names, *(decoded.name for decoded in singles)]
    types = strings_of(names).take(arrow_of(kind, pa.int64()))
    return index, types, arrow_of(version, pa.int16()), strings(text, np.frombuffer(ends, np.int32))
