"""Finds the records of all batches of a window at once (natively, or with numpy).

A record is: length, attributes i8, timestamp delta, offset delta, key length, key, value length, value, header count;
its numbers are zigzag varints. Source: Kafka's DefaultRecord.
"""

from dataclasses import dataclass, fields
from typing import Final

import numpy as np
from numpy.typing import NDArray
from quorate_protocol.wire.codec.native import extension

from pyspark_quorate.rows import CORRUPT_BATCH
from pyspark_quorate.source.batch_scanner import Gap
from pyspark_quorate.source.runs import Batch, Batches, Integers, columns_of

PADDING_BYTES: Final = 64
"""Zeros after the bytes of an array, so that reads past a damaged end stay inside the array."""
_VARINT_BYTES_MAX: Final = 10
_LENGTH_BYTES_MAX: Final = 5
_TOGETHER_MIN: Final = 24
"""With fewer active batches, a Python loop is faster than numpy."""


@dataclass(frozen=True, slots=True)
class Records:
    """Columns of the records of a window; starts are positions in it. A size of -1 is null."""

    offset: Integers
    time_ms: Integers
    epoch: Integers
    is_control: NDArray[np.bool_]
    key_start: Integers
    key_size: Integers
    value_start: Integers
    value_size: Integers

    def __len__(self) -> int:
        return len(self.offset)

    def select(self, which: NDArray[np.bool_] | Integers) -> "Records":
        """The records of a mask or of indices."""
        return Records(*(getattr(self, field.name)[which] for field in fields(self)))


def padded(data: bytes) -> NDArray[np.uint8]:
    """The bytes as an array with padding."""
    return np.frombuffer(data + bytes(PADDING_BYTES), np.uint8)


def frame_records(data: bytes, batches: Batches) -> tuple[Records, list[Gap]]:
    """The records of batches in `data`, and a gap per batch that can't be split."""
    records = None if extension is None else _frame_natively(data, batches)
    return _frame_in_numpy(data, batches) if records is None else (records, [])


def _frame_natively(data: bytes, batches: Batches) -> Records | None:
    """The records of batches; None if one of them can't be split."""
    columns = (
        batches.start,
        batches.end,
        batches.record_count,
        batches.base_offset,
        batches.base_timestamp_ms,
    )
    found = extension.frame_records(data, *(column.tobytes() for column in columns))
    if found is None:
        return None
    offset, time_ms, key_start, key_size, value_start, value_size = columns_of(found, 6)
    return Records(
        offset=offset,
        time_ms=time_ms,
        epoch=np.repeat(batches.epoch, batches.record_count),
        is_control=np.repeat(batches.is_control, batches.record_count),
        key_start=key_start,
        key_size=key_size,
        value_start=value_start,
        value_size=value_size,
    )


def _frame_in_numpy(data: bytes, batches: Batches) -> tuple[Records, list[Gap]]:
    window = padded(data)
    start, is_whole = _record_starts(data, window, batches)
    gaps = [_unsplittable(batches[number]) for number in np.flatnonzero(~is_whole).tolist()]
    if gaps:
        start = start[np.repeat(is_whole, batches.record_count)]
        batches = batches.select(is_whole)
    counts = batches.record_count
    owner = np.repeat(np.arange(len(batches)), counts)
    index = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
    limit = len(data)
    length, at = read_varints(window, start)
    end = at + length
    time_delta, at = read_varints(window, at + 1)
    offset_delta, at = read_varints(window, at)
    key_size, key_start = read_varints(window, at)
    at = np.clip(key_start + np.maximum(key_size, 0), 0, limit)
    value_size, value_start = read_varints(window, at)
    at = np.clip(value_start + np.maximum(value_size, 0), 0, limit)
    header_count, at = read_varints(window, at)
    is_bad = (at != end) | (offset_delta != index) | (header_count != 0) | (key_size < -1) | (value_size < -1)
    bad = np.unique(owner[is_bad])
    gaps += [_unsplittable(batches[number]) for number in bad.tolist()]

    records = Records(
        offset=batches.base_offset[owner] + index,
        time_ms=batches.base_timestamp_ms[owner] + time_delta,
        epoch=batches.epoch[owner],
        is_control=batches.is_control[owner],
        key_start=key_start,
        key_size=key_size,
        value_start=value_start,
        value_size=value_size,
    )
    return (records if not len(bad) else records.select(~np.isin(owner, bad))), gaps


def _record_starts(
    data: bytes, window: NDArray[np.uint8], batches: Batches
) -> tuple[Integers, NDArray[np.bool_]]:
    """The positions of all batches' records, and for each batch whether its records fill it exactly.

    Visits the first records of all batches, then the second ones, and so on. Batches with the most records come
    first, so that the active ones are a prefix. The last few are faster in a Python loop.
    """
    order = np.argsort(-batches.record_count, kind="stable")
    count = batches.record_count[order]
    place = (np.cumsum(batches.record_count) - batches.record_count)[order]
    at = batches.start[order]
    starts = np.empty(int(count.sum()), np.int64)
    active, number = len(count), 0
    while active >= _TOGETHER_MIN:
        starts[place[:active] + number] = at[:active]
        at[:active] = _behind_records(window, at[:active], len(data))
        number += 1
        active = int(np.searchsorted(-count, -number, "left"))
    for each in range(active):
        begin = int(place[each])
        at[each] = _walk(data, int(at[each]), starts[begin + number : begin + int(count[each])])
    is_whole = np.empty(len(count), np.bool_)
    is_whole[order] = at == batches.end[order]
    return starts, is_whole


def _behind_records(window: NDArray[np.uint8], at: Integers, limit: int) -> Integers:
    """The ends of records, by their lengths. Lengths that do not fit are detected later."""
    zigzag, behind = read_unsigned_varints(window, at)
    length = np.minimum(zigzag.view(np.uint64) >> np.uint64(1), np.uint64(limit + 1)).astype(np.int64)
    # Not exactly the limit, where the last batch ends.
    ends: Integers = np.minimum(behind + length, limit + 1)
    return ends


def _walk(data: bytes, at: int, starts: Integers) -> int:
    """Fill `starts` with the positions of records from `at` on. Returns the end of the last; -1: not in `data`."""
    found: list[int] = []
    add = found.append
    try:
        for _ in range(len(starts)):
            add(at)
            byte = data[at]
            if byte < 0x80:
                at += (byte >> 1) + 1
            elif (second := data[at + 1]) < 0x80:
                at += ((byte & 0x7F | second << 7) >> 1) + 2
            else:
                at = _behind_long(data, at)
    except IndexError:
        return -1
    starts[:] = found
    return at


def _behind_long(data: bytes, at: int) -> int:
    """The end of a record whose length has more than two bytes."""
    zigzag, shift = 0, 0
    while shift < 7 * _LENGTH_BYTES_MAX:
        byte = data[at]
        zigzag |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            break
    return at + (zigzag >> 1)


def _unsplittable(batch: Batch) -> Gap:
    return Gap(
        reason=CORRUPT_BATCH,
        offset=batch.base_offset,
        end_offset=batch.base_offset + batch.record_count,
        epoch=batch.epoch,
        detail=f"the batch of {batch.record_count} records has a correct checksum, but its records do not fill it",
    )


def read_varints(window: NDArray[np.uint8], at: Integers) -> tuple[Integers, Integers]:
    """Zigzag varints at positions: their values, and the positions behind them."""
    zigzag, behind = read_unsigned_varints(window, at)
    return (zigzag >> 1) ^ -(zigzag & 1), behind


def read_unsigned_varints(window: NDArray[np.uint8], at: Integers) -> tuple[Integers, Integers]:
    """Unsigned varints at positions: their values modulo 2**63, and the positions behind them."""
    byte = window[at].astype(np.int64)
    value, behind = byte & 0x7F, at + 1
    longer = np.flatnonzero(byte >= 0x80)
    for shift in range(7, 7 * _VARINT_BYTES_MAX, 7):
        if not len(longer):
            break
        byte = window[np.minimum(behind[longer], len(window) - 1)].astype(np.int64)
        value[longer] |= (byte & 0x7F) << shift
        behind[longer] += 1
        longer = longer[byte >= 0x80]
    return value, behind
