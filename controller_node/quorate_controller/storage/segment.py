"""One segment of the log: `%020d.log` with its `.index` and `.timeindex`.

The log file is authoritative. Index files are written for Kafka and its tools, never read for their content, and
written again when a start finds that they differ from the log (Java preallocates them while it runs and trims them at
a clean shutdown).
"""

import struct
from array import array
from bisect import bisect_right
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from quorate_protocol.records.batch import PREFIX, BatchHeader

from quorate_controller.storage.batch_spans import (
    LOOKUP_CHUNK_BYTES,
    BatchSpan,
    find_span,
    has_unwritten_sector,
    read_spans,
)
from quorate_controller.storage.errors import FileMissingError
from quorate_controller.storage.filesystem import File, FileSystem

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
COMPANION_SUFFIXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, ".txnindex", ".snapshot")
"""The files beside a segment; Java keeps producer states in `.snapshot`, always empty for this log."""

_POSITION_MAX = 2**31 - 1


def segment_path(directory: Path, base_offset: int, suffix: str = LOG_SUFFIX) -> Path:
    """Kafka's name of a file of the segment that starts at `base_offset`."""
    return directory / f"{base_offset:020d}{suffix}"


_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")
_RECENT_BATCHES_MAX = 4096
_NO_TIMESTAMP = -1


class SegmentIndex:
    """The positions of a segment's batches: Kafka's `.index` and `.timeindex`, and the latest batches one by one.

    Sparse entries, one per interval of bytes, are Kafka's: (last offset of a batch, its position) and (highest
    timestamp so far, last offset of the first batch that has it). The positions of the latest batches are kept one by
    one, too, because followers read mostly the tail of the log.
    """

    def __init__(self, base_offset: int, interval_bytes: int) -> None:
        self._base_offset = base_offset
        self._interval_bytes = interval_bytes
        self._entry_offsets = array("q")
        self._entry_positions = array("q")
        self._entry_times = array("q")
        self._entry_time_offsets = array("q")
        self._recent_offsets = array("q")
        self._recent_positions = array("q")
        self._bytes_since_entry = 0
        self._max_timestamp_ms = _NO_TIMESTAMP
        self._max_timestamp_offset = base_offset

    def add(self, header: BatchHeader | BatchSpan, position: int) -> tuple[bytes, bytes]:
        """Add the batch at `position`. Returns the bytes to append to the offset and to the time index file."""
        if header.max_timestamp_ms > self._max_timestamp_ms:
            self._max_timestamp_ms = header.max_timestamp_ms
            self._max_timestamp_offset = header.last_offset
        if len(self._recent_offsets) == _RECENT_BATCHES_MAX:
            del self._recent_offsets[: _RECENT_BATCHES_MAX // 2]
            del self._recent_positions[: _RECENT_BATCHES_MAX // 2]
        self._recent_offsets.append(header.base_offset)
        self._recent_positions.append(position)
        entries = b"", b""
        if self._bytes_since_entry > self._interval_bytes:
            self._bytes_since_entry = 0
            self._entry_offsets.append(header.last_offset)
            self._entry_positions.append(position)
            entries = self._offset_entry(header.last_offset, position), self.close_time_index()
        self._bytes_since_entry += header.size_bytes
        return entries

    def close_time_index(self) -> bytes:
        """End the time index with the segment's highest timestamp. Returns the bytes to append to its file."""
        if self._max_timestamp_ms <= (self._entry_times[-1] if self._entry_times else _NO_TIMESTAMP):
            return b""
        self._entry_times.append(self._max_timestamp_ms)
        self._entry_time_offsets.append(self._max_timestamp_offset)
        return self._time_entry(self._max_timestamp_ms, self._max_timestamp_offset)

    def truncate(self, offset: int, position: int) -> int:
        """Drop batches from `position` on, the first of which holds `offset`.

        Returns the position from which the remaining batches have to be added again, because their timestamps and
        their entries in the tail are dropped, too.
        """
        kept = bisect_right(self._entry_positions, position - 1)
        del self._entry_offsets[kept:]
        del self._entry_positions[kept:]
        resume = self._entry_positions[-1] if kept else 0
        # A close, too, leaves time entries, past the last offset entry: their timestamps are found again when
        # the batches are.
        times = bisect_right(
            self._entry_time_offsets, self._entry_offsets[-1] if kept else self._base_offset - 1
        )
        del self._entry_times[times:]
        del self._entry_time_offsets[times:]
        assert all(entry < offset for entry in self._entry_offsets[-1:])
        del self._recent_offsets[:]
        del self._recent_positions[:]
        self._bytes_since_entry = 0
        self._max_timestamp_ms = self._entry_times[-1] if times else _NO_TIMESTAMP
        self._max_timestamp_offset = self._entry_time_offsets[-1] if times else self._base_offset
        return resume

    def position_before(self, offset: int) -> tuple[int, bool]:
        """Position of a batch at or before the batch with `offset`, and whether it is that batch itself."""
        if self._recent_offsets and offset >= self._recent_offsets[0]:
            return self._recent_positions[bisect_right(self._recent_offsets, offset) - 1], True
        found = bisect_right(self._entry_offsets, offset)
        return (self._entry_positions[found - 1] if found else 0), False

    def boundary_before(self, position: int) -> int:
        """The highest known start of a batch that is not past `position`."""
        if self._recent_positions and position >= self._recent_positions[0]:
            return self._recent_positions[bisect_right(self._recent_positions, position) - 1]
        found = bisect_right(self._entry_positions, position)
        return self._entry_positions[found - 1] if found else 0

    def offset_index(self) -> bytes:
        """The whole content of the .index file."""
        return b"".join(map(self._offset_entry, self._entry_offsets, self._entry_positions))

    def time_index(self) -> bytes:
        """The whole content of the .timeindex file."""
        return b"".join(map(self._time_entry, self._entry_times, self._entry_time_offsets))

    def _offset_entry(self, offset: int, position: int) -> bytes:
        return _OFFSET_ENTRY.pack(offset - self._base_offset, position)

    def _time_entry(self, timestamp_ms: int, offset: int) -> bytes:
        return _TIME_ENTRY.pack(timestamp_ms, offset - self._base_offset)


class Segment:
    """Open files of one segment. Positions are bytes in the log file."""

    def __init__(
        self, log: File, offset_index: File, time_index: File, index: SegmentIndex, base_offset: int
    ) -> None:
        self._log = log
        self._offset_index = offset_index
        self._time_index = time_index
        self._index = index
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.first_timestamp_ms: int | None = None
        """Highest timestamp of the first batch, from which metadata.log.segment.ms counts; None when empty."""

    @classmethod
    def create(
        cls, file_system: FileSystem, directory: Path, base_offset: int, interval_bytes: int
    ) -> "Segment":
        """An empty segment. Its names are not durable yet."""
        log, offset_index, time_index = (
            file_system.create_file(segment_path(directory, base_offset, suffix))
            for suffix in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX)
        )
        return cls(log, offset_index, time_index, SegmentIndex(base_offset, interval_bytes), base_offset)

    @classmethod
    def recover(
        cls,
        file_system: FileSystem,
        directory: Path,
        base_offset: int,
        interval_bytes: int,
        on_landmark: Callable[[BatchSpan], None],
    ) -> tuple["Segment", int]:
        """Read a segment up to its first bad batch; `on_landmark` gets control batches and changes of epoch.

        Returns the segment, and the number of bytes behind the last good batch, which `cut_tail` removes.
        """
        log = file_system.open_file(segment_path(directory, base_offset))
        offset_index, time_index = (
            _open_or_create(file_system, segment_path(directory, base_offset, suffix))
            for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX)
        )
        segment = cls(log, offset_index, time_index, SegmentIndex(base_offset, interval_bytes), base_offset)
        good_bytes = 0
        epoch = -1
        for span in read_spans(log, 0, log.size_bytes, check_crc=True):
            if span.base_offset != segment.next_offset:
                break
            segment._note(span, span.position)
            if span.is_control or span.partition_leader_epoch != epoch:
                epoch = span.partition_leader_epoch
                on_landmark(span)
            good_bytes = span.position + span.size_bytes
        return segment, log.size_bytes - good_bytes

    @property
    def size_bytes(self) -> int:
        """Length of the log file."""
        return self._log.size_bytes

    def has_room_for(self, size_bytes: int, last_offset: int, segment_bytes: int) -> bool:
        """Whether `size_bytes` more fit, by configuration and by the width of index entries."""
        return (
            self.size_bytes + size_bytes <= min(segment_bytes, _POSITION_MAX)
            and last_offset - self.base_offset <= _POSITION_MAX
        )

    def append(self, batches: bytes, headers: list[BatchHeader]) -> None:
        """Write whole batches; `headers` are theirs, positions counted from the start of `batches`."""
        start = self.size_bytes
        self._log.append(batches)
        for header in headers:
            offset_entry, time_entry = self._note(header, start + header.position)
            if offset_entry:
                self._offset_index.append(offset_entry)
                self._time_index.append(time_entry)

    def sync(self) -> None:
        """Make the log file durable. Indexes need not be: recovery makes them from the log."""
        self._log.sync()

    def finish(self) -> None:
        """Make it durable and complete the indexes, as Kafka does for a full segment."""
        self._time_index.append(self._index.close_time_index())
        for file in (self._log, self._offset_index, self._time_index):
            file.sync()

    def close(self) -> None:
        """Close the files."""
        for file in (self._log, self._offset_index, self._time_index):
            file.close()

    def cut_tail(self, size_bytes: int, durable_end_offset: int) -> None:
        """Drop that many bytes behind the last good batch, and repair the index files.

        Durable in any case: a killed process may have left good batches that were never synced. If a failed sync
        ended that process, the kernel may regard them as written, so that a sync alone would not write them:
        batches above `durable_end_offset` are written again, in place.
        """
        if size_bytes:
            self._log.truncate(self._log.size_bytes - size_bytes)
        self._log.rewrite_from(self._position_of(max(durable_end_offset, self.base_offset)))
        self._log.sync()
        self._index.close_time_index()
        self._write_index_files()

    def batch_behind_damage(self, size_bytes: int) -> BatchSpan | None:
        """A good batch in the last `size_bytes`, which begin with a bad one; None for a torn write.

        A torn write is cut short, or lacks whole sectors of one flush, which read as zeros.
        """
        start = self._log.size_bytes - size_bytes
        span = find_span(self._log, start + 1, self._log.size_bytes)
        if span is None or span.base_offset < self.next_offset:
            return None
        return None if has_unwritten_sector(self._log, start, span.position) else span

    def truncate_to(self, offset: int) -> None:
        """Drop the batch that holds `offset` and all after it, durably."""
        position = self._position_of(offset)
        if position == self.size_bytes:
            return
        self._log.truncate(position)
        self._log.sync()
        resume = self._index.truncate(offset, position)
        self.next_offset = self.base_offset
        if resume == 0:
            self.first_timestamp_ms = None
        for span in read_spans(self._log, resume, position, check_crc=False):
            self._note(span, span.position)
        self._write_index_files()

    def read(self, start_offset: int, size_bytes_max: int, end_offset: int) -> bytes:
        """See MetadataLog.read; within this segment."""
        start = self._position_of(start_offset)
        end = self._position_of(end_offset)
        if start >= end:
            return b""
        if end - start > size_bytes_max:
            end = self._whole_batches_end(start, start + size_bytes_max)
        return self._log.read_at(start, end - start)

    def _note(self, header: BatchHeader | BatchSpan, position: int) -> tuple[bytes, bytes]:
        if self.first_timestamp_ms is None:
            self.first_timestamp_ms = header.max_timestamp_ms
        self.next_offset = header.last_offset + 1
        return self._index.add(header, position)

    def _position_of(self, offset: int) -> int:
        """Start of the batch that holds `offset`; the end of the file for offsets past it."""
        if offset >= self.next_offset:
            return self.size_bytes
        position, exact = self._index.position_before(offset)
        if exact:
            return position
        for span in read_spans(
            self._log, position, self.size_bytes, check_crc=False, chunk_bytes=LOOKUP_CHUNK_BYTES
        ):
            if offset <= span.last_offset:
                return span.position
        raise AssertionError(f"offset {offset} is not in segment {self.base_offset}..{self.next_offset}")

    def _whole_batches_end(self, start: int, limit: int) -> int:
        """The end of the last batch that fits before `limit`, at least of the batch at `start`."""
        position = max(start, self._index.boundary_before(limit))
        end = position
        while True:
            _, length = PREFIX.unpack(self._log.read_at(position, PREFIX.size))
            position += PREFIX.size + length
            if position > limit:
                return end if end > start else position
            end = position

    def _write_index_files(self) -> None:
        for file, content in (
            (self._offset_index, self._index.offset_index()),
            (self._time_index, self._index.time_index()),
        ):
            if file.size_bytes != len(content) or file.read_at(0, file.size_bytes) != content:
                file.truncate(0)
                file.append(content)


def _open_or_create(file_system: FileSystem, path: Path) -> File:
    with suppress(FileMissingError):
        return file_system.open_file(path)
    return file_system.create_file(path)
