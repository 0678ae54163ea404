"""Where the records of batches are, for all batches of a window at once (numpy).

A record is: length, attributes i8, timestamp delta, offset delta, key length, key, value length, value, header count;
its numbers are zigzag varints. Source: Kafka's DefaultRecord.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pyspark_quorate.rows import CORRUPT_BATCH
from pyspark_quorate.source.scanning import Batch, Gap

Integers = NDArray[np.int64]

PADDING_BYTES: Final = 64
"""Zeros that follow the bytes in an array, so that a look behind a damaged end finds something."""
_VARINT_BYTES_MAX: Final = 10
_LENGTH_BYTES_MAX: Final = 5


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
        """Those of a mask or of indices."""
        return Records(*(getattr(self, field.name)[which] for field in fields(self)))


def padded(data: bytes) -> NDArray[np.uint8]:
    """The bytes as an array that one may look behind the end of."""
    return np.frombuffer(data + bytes(PADDING_BYTES), np.uint8)


def frame_records(
    data: bytes, window: NDArray[np.uint8], batches: Sequence[Batch]
) -> tuple[Records, list[Gap]]:
    """The records of batches in `data`, of which `window` is the padded array; a gap for each that can't be split."""
    starts: list[int] = []
    whole: list[Batch] = []
    gaps: list[Gap] = []
    for batch in batches:
        found = _record_starts(data, batch)
        if found is None:
            gaps.append(_unsplittable(batch))
        else:
            starts += found
            whole.append(batch)
    counts = np.array([batch.record_count for batch in whole], np.int64)
    owner = np.repeat(np.arange(len(whole)), counts)
    index = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
    start = np.array(starts, np.int64)
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
    gaps += [_unsplittable(whole[number]) for number in bad]

    def of_batch(values: list[int]) -> Integers:
        return np.array(values, np.int64)[owner]

    records = Records(
        offset=of_batch([batch.base_offset for batch in whole]) + index,
        time_ms=of_batch([batch.base_timestamp_ms for batch in whole]) + time_delta,
        epoch=of_batch([batch.epoch for batch in whole]),
        is_control=of_batch([batch.is_control for batch in whole]).astype(bool),
        key_start=key_start,
        key_size=key_size,
        value_start=value_start,
        value_size=value_size,
    )
    return (records if not len(bad) else records.select(~np.isin(owner, bad))), gaps


def _record_starts(data: bytes, batch: Batch) -> list[int] | None:
    """Where the records of a batch begin; None if they do not fill it."""
    at = batch.start
    starts: list[int] = []
    add = starts.append
    try:
        for _ in range(batch.record_count):
            add(at)
            # The length, a zigzag varint. What is negative or does not fit shows when the records are compared.
            byte = data[at]
            if byte < 0x80:
                at += (byte >> 1) + 1
            elif (second := data[at + 1]) < 0x80:
                at += ((byte & 0x7F | second << 7) >> 1) + 2
            else:
                at = _behind_long(data, at)
    except IndexError:
        return None
    return starts if at == batch.end else None


def _behind_long(data: bytes, at: int) -> int:
    """Where a record ends whose length takes more than two bytes."""
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
        detail=f"the batch of {batch.record_count} records has a right checksum, but its records do not fill it",
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
