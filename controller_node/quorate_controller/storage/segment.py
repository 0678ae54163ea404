"""One segment of the log: `%020d.log` with its `.index` and `.timeindex`.

The log file is authoritative. Index files are written for Kafka and its tools, never read for their content, and
written again when a start finds that they differ from the log (Java preallocates them while it runs and trims them at
a clean shutdown).
"""

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
from quorate_controller.storage.segment_index import SegmentIndex

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
COMPANION_SUFFIXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, ".txnindex", ".snapshot")
"""What may lie beside a segment; Java keeps producer states in `.snapshot`, always empty for this log."""

_POSITION_MAX = 2**31 - 1


def segment_path(directory: Path, base_offset: int, suffix: str = LOG_SUFFIX) -> Path:
    """Kafka's name of a file of the segment that starts at `base_offset`."""
    return directory / f"{base_offset:020d}{suffix}"


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
        """Highest timestamp of the first batch, where metadata.log.segment.ms begins; None when empty."""

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
        """Whether so many bytes may be appended, by configuration and by the width of index entries."""
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
        """Make it durable and leave the indexes as Kafka leaves those of a segment that is full."""
        self._time_index.append(self._index.close_time_index())
        for file in (self._log, self._offset_index, self._time_index):
            file.sync()

    def close(self) -> None:
        """Close the files."""
        for file in (self._log, self._offset_index, self._time_index):
            file.close()

    def cut_tail(self, size_bytes: int, durable_end_offset: int) -> None:
        """Drop that many bytes behind the last good batch, and repair the index files.

        Durable in any case: a process that was killed may have left good batches that were never synced. If a sync
        failed and ended that process, the kernel may hold them for written, and a sync alone would not write them:
        those above `durable_end_offset` are written again, in place.
        """
        if size_bytes:
            self._log.truncate(self._log.size_bytes - size_bytes)
        self._log.rewrite_from(self._position_of(max(durable_end_offset, self.base_offset)))
        self._log.sync()
        self._index.close_time_index()
        self._write_index_files()

    def batch_behind_damage(self, size_bytes: int) -> BatchSpan | None:
        """A good batch in the last `size_bytes`, which begin with a bad one; None where a write was torn.

        A torn write ends with what it wrote, or misses whole sectors of one flush, which read as zeros.
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
        """Where the last batch ends that fits before `limit`; that of the batch at `start` at least."""
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
