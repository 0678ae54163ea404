"""Record batches as columns, and runs of batches that are checked together (numpy).

A run ends at damage, at another leader epoch or at the end of the bytes;
:mod:`pyspark_quorate.source.batch_scanner` continues there batch by batch.
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Final, NamedTuple, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray
from quorate_protocol.records.batch import (
    CONTROL,
    CRC_COVERS_FROM,
    HEADER_FIELDS,
    HEADER_SIZE_BYTES,
    LENGTH_COUNTS_FROM,
    MAGIC,
    PREFIX,
    RECORD_SIZE_BYTES_MIN,
)
from quorate_protocol.records.checksum import crc32c
from quorate_protocol.wire.codec.native import extension

Integers: TypeAlias = NDArray[np.int64]

BATCH_SIZE_BYTES_MAX: Final = 16 * 1024 * 1024
"""KRaft's batches have at most 8 MiB plus headers."""

_HEADER: Final = np.dtype([(name, f">{code}") for name, code in HEADER_FIELDS])


class Batch(NamedTuple):
    """A batch with a correct checksum; its records are at `start` to `end` of the scanned bytes."""

    start: int
    end: int
    base_offset: int
    record_count: int
    epoch: int
    is_control: bool
    base_timestamp_ms: int


@dataclass(frozen=True, slots=True)
class Batches:
    """Columns of batches, in the order of the file."""

    start: Integers
    end: Integers
    base_offset: Integers
    record_count: Integers
    epoch: Integers
    is_control: NDArray[np.bool_]
    base_timestamp_ms: Integers

    def __len__(self) -> int:
        return len(self.start)

    def __getitem__(self, which: int) -> Batch:
        return Batch(*(getattr(self, field.name)[which].item() for field in fields(self)))

    def select(self, which: slice | NDArray[np.bool_]) -> Self:
        """Some of them."""
        return type(self)(*(getattr(self, field.name)[which] for field in fields(self)))

    @classmethod
    def join(cls, parts: Iterable[Batch | Self]) -> Self:
        """Concatenate single batches and columns of batches."""
        columns = [cls._of(), *(cls._of(part) if isinstance(part, Batch) else part for part in parts)]
        return cls(
            *(np.concatenate([getattr(each, field.name) for each in columns]) for field in fields(cls))
        )

    @classmethod
    def _of(cls, *batches: Batch) -> Self:
        columns = zip(*batches, strict=True) if batches else [[]] * len(fields(cls))
        kinds = (np.bool_ if field.name == "is_control" else np.int64 for field in fields(cls))
        return cls(*(np.array(column, kind) for column, kind in zip(columns, kinds, strict=True)))


def gather(window: NDArray[np.uint8], at: Integers, width: int) -> NDArray[np.uint8]:
    """`width` bytes from each of the positions, as rows."""
    # Overlapping items of `width` bytes: several times faster than an index for each byte.
    items = np.ndarray(max(len(window) - width + 1, 0), f"V{width}", window, strides=(1,))
    return items[at].view(np.uint8).reshape(len(at), width)


def read_usual_batches(data: bytes, at: int, *, next_offset: int, epoch: int, count_max: int) -> Batches:
    """The batches from `at` on, up to the first unexpected or incomplete one.

    Expected are correct checksums, consecutive offsets from `next_offset`, this epoch, and KRaft's attributes.
    """
    if extension is not None:
        return _take_natively(data, at, next_offset=next_offset, epoch=epoch, count_max=count_max)
    starts = _follow_lengths(data, at, count_max)
    start, end = np.array(starts[:-1], np.int64), np.array(starts[1:], np.int64)
    header = gather(np.frombuffer(data, np.uint8), start, HEADER_SIZE_BYTES).view(_HEADER).ravel()
    count = header["count"].astype(np.int64)
    is_usual = (header["magic"] == MAGIC) & (header["epoch"] == epoch) & (count > 0)
    is_usual &= (header["attributes"] == 0) | (header["attributes"] == CONTROL)
    is_usual &= (header["last_delta"] == count - 1) & (count <= (end - start) // RECORD_SIZE_BYTES_MIN)
    is_usual &= header["base_offset"] == next_offset + np.cumsum(count) - count
    length = _true_until(is_usual)
    view = memoryview(data)
    covered = zip((start[:length] + CRC_COVERS_FROM).tolist(), starts[1 : length + 1], strict=True)
    checksums = np.array([crc32c(view[begin:behind]) for begin, behind in covered], np.uint32)
    length = _true_until(checksums == header["crc"][:length])
    return Batches(
        start=start + HEADER_SIZE_BYTES,
        end=end,
        base_offset=header["base_offset"].astype(np.int64),
        record_count=count,
        epoch=header["epoch"].astype(np.int64),
        is_control=header["attributes"] == CONTROL,
        base_timestamp_ms=header["base_timestamp_ms"].astype(np.int64),
    ).select(slice(length))


def _take_natively(data: bytes, at: int, *, next_offset: int, epoch: int, count_max: int) -> Batches:
    found = columns_of(extension.usual_batches(data, at, next_offset, epoch, count_max), 6)
    start, end, base_offset, record_count, is_control, base_timestamp_ms = found
    return Batches(
        start=start,
        end=end,
        base_offset=base_offset,
        record_count=record_count,
        epoch=np.full(len(start), epoch, np.int64),
        is_control=is_control != 0,
        base_timestamp_ms=base_timestamp_ms,
    )


def columns_of(numbers: bytes, count: int) -> Integers:
    """The columns that a native function returns, one after the other in `numbers`."""
    return np.frombuffer(numbers, np.int64).reshape(count, -1)


def _true_until(are: NDArray[np.bool_]) -> int:
    """The number of leading true values."""
    return len(are) if are.all() else int(are.argmin())


def _follow_lengths(data: bytes, at: int, count_max: int) -> list[int]:
    """The positions of at most `count_max` complete batches, by their lengths, and the end of the last one."""
    starts = [at]
    add = starts.append
    prefix_of, behind_all = PREFIX.unpack_from, len(data)
    while len(starts) <= count_max and at + HEADER_SIZE_BYTES <= behind_all:
        _, length = prefix_of(data, at)
        size_bytes = length + LENGTH_COUNTS_FROM
        at += size_bytes
        if not HEADER_SIZE_BYTES < size_bytes <= BATCH_SIZE_BYTES_MAX or at > behind_all:
            break
        add(at)
    return starts
