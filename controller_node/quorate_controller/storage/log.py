"""The metadata log: Kafka's segment files of the one partition `__cluster_metadata-0`.

Offsets are those of records; a batch covers base_offset..last_offset. Reads and appends are in whole batches.

Recovery reads every batch and checks its checksum. A torn write at the end of the last segment was never made
durable and is cut off. Anything else is damage that a replica must not hide, because it would lose acknowledged
records: a bad batch that is followed by good ones, below the recovery point, or in an earlier segment.
"""

import logging
from pathlib import Path

from quorate_protocol.errors import ProtocolError
from quorate_protocol.plain_data import dataclass
from quorate_protocol.records.batch import BatchHeader, scan_batches

from quorate_controller.raft.startup import EpochStart
from quorate_controller.storage.batch_spans import BatchSpan
from quorate_controller.storage.checkpoint_files import (
    ensure_partition_metadata,
    epochs_within,
    settle_leader_epochs,
    write_leader_epochs,
)
from quorate_controller.storage.errors import DAMAGE_ADVICE, CorruptFileError, unreadable_content
from quorate_controller.storage.filesystem import FileSystem
from quorate_controller.storage.segment import COMPANION_SUFFIXES, LOG_SUFFIX, Segment, segment_path

_logger = logging.getLogger(__name__)

_LEFT_OVER_SUFFIXES = (".deleted", ".cleaned")
_SNAPSHOT_DELETED_SUFFIX = ".checkpoint.deleted"
_OFFSET_DIGITS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """Sizes of the log. Names and defaults are those of metadata.log.* (KIP-630)."""

    segment_bytes: int = 1024 * 1024 * 1024
    segment_ms: int = 7 * 24 * 3600 * 1000
    index_interval_bytes: int = 4096


class MetadataLog:
    """One partition's log. Not thread-safe; a single owner appends, truncates and reads."""

    def __init__(self, file_system: FileSystem, directory: Path, config: LogConfig) -> None:
        self._file_system = file_system
        self._directory = directory
        self._config = config
        self._segments: list[Segment] = []
        self._epochs: list[EpochStart] = []
        self._control_offsets: list[int] = []
        self._start_offset = 0
        self._is_dirty = False

    @classmethod
    def open(
        cls,
        file_system: FileSystem,
        directory: Path,
        config: LogConfig | None = None,
        *,
        durable_end_offset: int = 0,
    ) -> "MetadataLog":
        """Open or create the log, cutting off a tail that is torn.

        Nothing below `durable_end_offset` is cut off.

        Raises:
            StorageError: a file cannot be used.
            CorruptFileError: batches that were durable are damaged or missing, or their epochs are not those of
                leader-epoch-checkpoint. No durable batch was cut off.
        """
        log = cls(file_system, directory, config or LogConfig())
        file_system.make_directory(directory)
        ensure_partition_metadata(file_system, directory)
        base_offsets = log._tidy_directory()
        for base_offset in base_offsets:
            log._recover_segment(base_offset, base_offsets[-1], durable_end_offset)
        if log._segments:
            log._start_offset = log._segments[0].base_offset
        else:
            if durable_end_offset:
                raise _lost_records(segment_path(directory, 0), 0, 0, durable_end_offset)
            log._create_segment(0)
        settle_leader_epochs(file_system, directory, log._epochs, log.end_offset)
        # The names that a killed predecessor left are visible, but may not be durable.
        file_system.sync_directory(directory)
        file_system.sync_directory(directory.parent)
        return log

    @property
    def start_offset(self) -> int:
        """Offset of the first record that may be read."""
        return self._start_offset

    @property
    def end_offset(self) -> int:
        """The offset of the next record."""
        return self._segments[-1].next_offset

    @property
    def size_bytes(self) -> int:
        """Sum of the segments' lengths."""
        return sum(segment.size_bytes for segment in self._segments)

    @property
    def epochs(self) -> tuple[EpochStart, ...]:
        """Epoch boundaries of the retained log, ascending."""
        return tuple(self._epochs)

    @property
    def control_batch_offsets(self) -> tuple[int, ...]:
        """Base offsets of the retained control batches (leader changes, kraft.version, voters), ascending."""
        return tuple(self._control_offsets)

    def append(self, batches: bytes) -> int:
        """Write whole batches, the first of which starts at `end_offset`. Returns the new end offset.

        Durable only after `flush`. An offset gap or a falling epoch is an assertion: raft admits neither.
        """
        headers = list(scan_batches(batches))
        assert headers, "an append needs a batch"
        self._make_room_for(len(batches), headers)
        epoch_count = len(self._epochs)
        expected_offset = self.end_offset
        for header in headers:
            assert header.base_offset == expected_offset, (header, expected_offset)
            expected_offset = header.last_offset + 1
            self._note(header)
        if len(self._epochs) != epoch_count:
            # Before the batches, whose checksums do not cover it: see checkpoint_files.
            write_leader_epochs(self._file_system, self._directory, self._epochs)
        self._is_dirty = True
        self._segments[-1].append(batches, headers)
        return self.end_offset

    def flush(self) -> None:
        """Return when everything appended so far is durable."""
        if self._is_dirty:
            self._segments[-1].sync()
            self._is_dirty = False

    def read(self, start_offset: int, size_bytes_max: int, end_offset: int | None = None) -> bytes:
        """Whole batches, the first of which holds `start_offset`, in at most `size_bytes_max` bytes.

        A first batch that is larger is returned whole. No batch that reaches past `end_offset` (default: the end of
        the log) is returned; b"" without such batches. A read ends where a segment ends, so it may return less than
        the log has. `start_offset` must lie within start_offset..end_offset of the log.
        """
        end_offset = self.end_offset if end_offset is None else min(end_offset, self.end_offset)
        assert self._start_offset <= start_offset <= self.end_offset, (start_offset, self._start_offset)
        for segment in reversed(self._segments):
            if segment.base_offset <= start_offset:
                return segment.read(start_offset, size_bytes_max, end_offset)
        raise AssertionError(f"no segment holds offset {start_offset}")

    def unreadable(self, offset: int, error: ProtocolError) -> CorruptFileError:
        """The error for records at `offset`, or behind it in the same batch, that cannot be read."""
        base_offset = max(segment.base_offset for segment in self._segments if segment.base_offset <= offset)
        return unreadable_content(
            segment_path(self._directory, base_offset), f"the batch at offset {offset}", error
        )

    def truncate_to(self, offset: int) -> None:
        """Drop the batch that holds `offset` and all after it, durably."""
        assert offset >= self._start_offset, (offset, self._start_offset)
        if offset >= self.end_offset:
            return
        while len(self._segments) > 1 and self._segments[-1].base_offset >= offset:
            # The newest first: a crash leaves a log without a gap.
            self._delete_segment(self._segments.pop())
        self._segments[-1].truncate_to(offset)
        self._epochs = epochs_within(self._epochs, self._start_offset, self.end_offset)
        self._control_offsets = [base for base in self._control_offsets if base < self.end_offset]
        write_leader_epochs(self._file_system, self._directory, self._epochs)

    def reset_to(self, offset: int) -> None:
        """Drop everything and continue at `offset`, durably: after a snapshot that ends there was fetched."""
        while self._segments:
            self._delete_segment(self._segments.pop())
        self._epochs = []
        self._control_offsets = []
        self._start_offset = offset
        self._is_dirty = False
        self._create_segment(offset)
        write_leader_epochs(self._file_system, self._directory, self._epochs)

    def advance_start(self, offset: int) -> int:
        """Delete records below `offset`, the end of a snapshot. Returns the number of deleted segments."""
        assert offset <= self.end_offset, (offset, self.end_offset)
        if offset <= self._start_offset:
            return 0
        self._start_offset = offset
        deleted = 0
        while len(self._segments) > 1 and self._segments[1].base_offset <= offset:
            # The oldest first: a crash leaves a log without a gap.
            self._delete_segment(self._segments.pop(0))
            deleted += 1
        self._epochs = epochs_within(self._epochs, offset, self.end_offset)
        self._control_offsets = [base for base in self._control_offsets if base >= offset]
        write_leader_epochs(self._file_system, self._directory, self._epochs)
        return deleted

    def close(self) -> None:
        """Flush and close all files."""
        self.flush()
        if self._segments:
            self._segments[-1].finish()
        for segment in self._segments:
            segment.close()
        self._segments = []

    def _make_room_for(self, size_bytes: int, headers: list[BatchHeader]) -> None:
        """Begin a new segment under Kafka's rules: by size, by age, by the width of index entries."""
        active = self._segments[-1]
        if active.first_timestamp_ms is None:
            return
        newest_ms = max(header.max_timestamp_ms for header in headers)
        if (
            not active.has_room_for(size_bytes, headers[-1].last_offset, self._config.segment_bytes)
            or newest_ms - active.first_timestamp_ms > self._config.segment_ms
        ):
            active.finish()
            self._is_dirty = False
            self._create_segment(active.next_offset)

    def _create_segment(self, base_offset: int) -> None:
        self._segments.append(
            Segment.create(self._file_system, self._directory, base_offset, self._config.index_interval_bytes)
        )
        self._file_system.sync_directory(self._directory)

    def _delete_segment(self, segment: Segment) -> None:
        segment.close()
        for suffix in (LOG_SUFFIX, *COMPANION_SUFFIXES):
            self._file_system.remove(segment_path(self._directory, segment.base_offset, suffix))
        self._file_system.sync_directory(self._directory)

    def _note(self, header: BatchHeader | BatchSpan) -> None:
        epoch = self._epochs[-1].epoch if self._epochs else -1
        assert header.partition_leader_epoch >= epoch, (header, epoch)
        if header.partition_leader_epoch > epoch:
            self._epochs.append(
                EpochStart(epoch=header.partition_leader_epoch, start_offset=header.base_offset)
            )
        if header.is_control:
            self._control_offsets.append(header.base_offset)

    def _tidy_directory(self) -> list[int]:
        """Remove left-overs of deletions and crashes. Returns the base offsets of the segments, ascending."""
        names = self._file_system.list_directory(self._directory)
        bases = {
            name[:_OFFSET_DIGITS]
            for name in names
            if name.endswith(LOG_SUFFIX) and len(name) == _OFFSET_DIGITS + len(LOG_SUFFIX)
        }
        for name in names:
            is_left_over = name.endswith(_LEFT_OVER_SUFFIXES) and not name.endswith(_SNAPSHOT_DELETED_SUFFIX)
            is_orphan = (
                name.endswith((".index", ".timeindex", ".txnindex")) and name.split(".")[0] not in bases
            )
            if is_left_over or is_orphan:
                _logger.info("left_over_file_removed", extra={"facts": {"file": name}})
                self._file_system.remove(self._directory / name)
        return sorted(map(int, bases))

    def _recover_segment(self, base_offset: int, last_base_offset: int, durable_end_offset: int) -> None:
        path = segment_path(self._directory, base_offset)
        if self._segments and self.end_offset != base_offset:
            raise CorruptFileError(
                path,
                f"starts at offset {base_offset}, but the file before it ends at {self.end_offset}",
                advice=DAMAGE_ADVICE,
            )

        def note(header: BatchSpan) -> None:
            if self._epochs and header.partition_leader_epoch < self._epochs[-1].epoch:
                raise CorruptFileError(
                    path, f"the epoch falls at offset {header.base_offset}", advice=DAMAGE_ADVICE
                )
            self._note(header)

        segment, bad_bytes = Segment.recover(
            self._file_system, self._directory, base_offset, self._config.index_interval_bytes, note
        )
        position = segment.size_bytes - bad_bytes
        expected = f"expected a batch at offset {segment.next_offset}, position {position}, but it is damaged"
        if base_offset != last_base_offset:
            if bad_bytes:
                raise CorruptFileError(path, f"{expected}, and later files follow", advice=DAMAGE_ADVICE)
        elif segment.next_offset < durable_end_offset:
            raise _lost_records(path, segment.next_offset, position, durable_end_offset)
        elif bad_bytes and (behind := segment.batch_behind_damage(bad_bytes)) is not None:
            raise CorruptFileError(
                path,
                f"{expected}, and a good batch of offset {behind.base_offset} follows at position {behind.position}",
                advice=DAMAGE_ADVICE,
            )
        self._segments.append(segment)
        if bad_bytes:
            _logger.warning(
                "torn_log_end_cut_off",
                extra={
                    "facts": {"file": str(path), "size_bytes": bad_bytes, "end_offset": segment.next_offset}
                },
            )
        segment.cut_tail(bad_bytes, durable_end_offset)


def _lost_records(path: Path, end_offset: int, position: int, durable_end_offset: int) -> CorruptFileError:
    return CorruptFileError(
        path,
        f"ends at offset {end_offset}, position {position}, but records up to offset {durable_end_offset - 1} were "
        "made durable",
        advice=DAMAGE_ADVICE,
    )
