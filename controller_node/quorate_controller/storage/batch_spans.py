"""A fast scan of the batches of a segment file: a start after a quiet week reads a million batches.

`quorate_protocol.records.batch.scan_batches` finds the same batches, checks more and costs four times as much; a
test compares both.
"""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from quorate_protocol.records.batch import (
    CONTROL,
    CRC_COVERS_FROM,
    HEADER_SIZE_BYTES,
    MAGIC,
    MAGIC_POSITION,
    PREFIX,
    RECORD_SIZE_BYTES_MIN,
    header_struct,
)
from quorate_protocol.records.checksum import crc32c

from quorate_controller.storage.filesystem import File

_HEADER: Final = header_struct(slice(9))  # up to the highest timestamp
_CHUNK_BYTES: Final = 1024 * 1024
LOOKUP_CHUNK_BYTES: Final = 16 * 1024
"""The bytes per read when one batch is looked up: a few intervals of the index."""
_BATCH_BYTES_MAX: Final = 64 * 1024 * 1024
"""Eight times Kafka's maximum for metadata batches: a longer batch has a damaged length."""
_HEADER_FROM_MAGIC: Final = re.compile(rb"\x02(?=.{26}\xff{14})", re.DOTALL)
"""Magic 2 and, 26 bytes behind it, producer id, producer epoch and base sequence, each -1 in a metadata log."""
_SECTOR_BYTES: Final = 512
"""The unit that a disk writes completely or not at all. File systems write one or more of them."""


class BatchSpan(NamedTuple):
    """The position of a batch, and fields of its header. A tuple, because a log has millions of them."""

    base_offset: int
    last_offset: int
    partition_leader_epoch: int
    size_bytes: int
    is_control: bool
    max_timestamp_ms: int
    position: int


def read_spans(
    file: File, start: int, end: int, *, check_crc: bool, chunk_bytes: int = _CHUNK_BYTES
) -> Iterator[BatchSpan]:
    """The batches of a file from `start` on, up to `end` or to the first bad one."""
    wanted_bytes = chunk_bytes
    while start + PREFIX.size <= end:
        chunk = file.read_at(start, min(wanted_bytes, end - start))
        span = None
        for span in _spans_of_chunk(chunk, start, check_crc=check_crc):
            yield span
        if span is not None:
            start = span.position + span.size_bytes
            wanted_bytes = chunk_bytes
            continue
        _, length = PREFIX.unpack_from(chunk)
        if not len(chunk) - PREFIX.size < length <= min(end - start, _BATCH_BYTES_MAX) - PREFIX.size:
            return  # bad, not merely longer than a chunk
        wanted_bytes = PREFIX.size + length


def _spans_of_chunk(chunk: bytes, chunk_position: int, *, check_crc: bool) -> Iterator[BatchSpan]:
    """The whole and good batches at the start of a chunk."""
    view = memoryview(chunk)
    at = 0
    limit = len(chunk) - HEADER_SIZE_BYTES
    while at <= limit:
        base_offset, length, epoch, magic, crc, attributes, last_delta, _, timestamp_ms = _HEADER.unpack_from(
            chunk, at
        )
        size_bytes = length + PREFIX.size
        behind = at + size_bytes
        if size_bytes < HEADER_SIZE_BYTES or behind > len(chunk) or magic != MAGIC:
            return
        # The number of records is bounded by the size of the batch, and so the offsets by the width of index entries.
        if base_offset < 0 or epoch < 0 or not 0 <= last_delta < size_bytes // RECORD_SIZE_BYTES_MIN:
            return
        if check_crc and crc32c(view[at + CRC_COVERS_FROM : behind]) != crc:
            return
        yield BatchSpan(
            base_offset,
            base_offset + last_delta,
            epoch,
            size_bytes,
            bool(attributes & CONTROL),
            timestamp_ms,
            chunk_position + at,
        )
        at = behind


def find_span(file: File, start: int, end: int) -> BatchSpan | None:
    """The first whole and good batch that begins at `start` or at any byte behind it."""
    while start + HEADER_SIZE_BYTES <= end:
        chunk = file.read_at(start, min(_CHUNK_BYTES, end - start))
        for found in _HEADER_FROM_MAGIC.finditer(chunk, MAGIC_POSITION):
            position = start + found.start() - MAGIC_POSITION
            spans = read_spans(file, position, end, check_crc=True, chunk_bytes=LOOKUP_CHUNK_BYTES)
            for span in spans:
                return span
        start += max(len(chunk) - HEADER_SIZE_BYTES + 1, 1)
    return None


def has_unwritten_sector(file: File, start: int, end: int) -> bool:
    """Whether a whole sector between two positions is zeros, like a sector that never reached the disk."""
    first = -(-start // _SECTOR_BYTES) * _SECTOR_BYTES
    return any(
        not any(file.read_at(sector, _SECTOR_BYTES))
        for sector in range(first, end - _SECTOR_BYTES + 1, _SECTOR_BYTES)
    )
