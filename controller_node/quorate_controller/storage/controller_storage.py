"""All files of a controller, behind one object that the node drives.

The methods map to the fields of raft's `Ready`, in the order in which it must become durable:
save_hard_state -> truncate_to -> append + flush -> snapshot chunks -> restore. The recovery point is lowered before
the log is cut, and raised some time after it was flushed.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field, replace
from itertools import pairwise
from pathlib import Path
from uuid import UUID

from quorate_protocol.errors import ProtocolError
from quorate_protocol.image.snapshot import read_checkpoint
from quorate_protocol.kafka.metadata_log import METADATA_DIRECTORY
from quorate_protocol.plain_data import dataclass
from quorate_protocol.records.batch import scan_batches
from quorate_protocol.records.framing import MetadataRecord
from quorate_protocol.uuids import random_uuid

from quorate_controller.raft.model import SnapshotId
from quorate_controller.raft.records import QuorumChange, quorum_changes
from quorate_controller.raft.startup import HardState, KRaftVersionAt, LogState, VotersAt
from quorate_controller.raft.voters import VoterSet
from quorate_controller.storage.bootstrap import check_bootstrap_records, read_bootstrap_records
from quorate_controller.storage.checkpoint_files import RECOVERY_POINTS, RecoveryPointFile
from quorate_controller.storage.errors import DAMAGE_ADVICE, CorruptFileError, StorageError
from quorate_controller.storage.filesystem import FileSystem, Lock
from quorate_controller.storage.log import LogConfig, MetadataLog
from quorate_controller.storage.meta_properties import (
    MetaProperties,
    check_ensemble,
    read_ensemble,
    write_meta_properties,
)
from quorate_controller.storage.quorum_state import QUORUM_STATE, QuorumStateFile
from quorate_controller.storage.snapshots import SnapshotStore, SnapshotWriter, chunks_of, snapshot_file_name

_logger = logging.getLogger(__name__)

LOCK_FILE = ".lock"
RECOVERY_POINT_INTERVAL_MS = 60_000
"""Kafka's log.flush.offset.checkpoint.interval.ms."""
_SNAPSHOT_HEAD_BYTES = 1024 * 1024
"""Enough for the first batch of a checkpoint, which has the voters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageConfig:
    """The directories of a controller and the retention of its log."""

    node_id: int
    metadata_log_dir: Path
    log_dirs: tuple[Path, ...] = ()
    """All directories of the node, metadata_log_dir among them or not; each is checked and locked."""
    static_voter_ids: tuple[int, ...] = ()
    log: LogConfig = field(default_factory=LogConfig)
    retention_bytes: int = 100 * 1024 * 1024
    """metadata.max.retention.bytes; negative: no bound."""
    retention_ms: int = 7 * 24 * 3600 * 1000
    """metadata.max.retention.ms; negative: no bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotQuorum:
    """The head of a checkpoint. `kraft_version` is None at level 0, `voters` without a VotersRecord."""

    last_contained_log_timestamp_ms: int
    kraft_version: int | None
    voters: VoterSet | None


def read_snapshot_quorum(head: bytes) -> SnapshotQuorum:
    """Parse the bytes at the start of a checkpoint, which include its first batch.

    Raises:
        ProtocolError: they are not the beginning of a checkpoint.
    """
    checkpoint = read_checkpoint([head])
    voters = checkpoint.voters
    return SnapshotQuorum(
        last_contained_log_timestamp_ms=checkpoint.last_contained_log_timestamp_ms,
        kraft_version=checkpoint.kraft_version or None,
        voters=None if voters is None else VoterSet.from_record(voters),
    )


class ControllerStorage:
    """Directories of one node, opened and locked."""

    def __init__(
        self,
        file_system: FileSystem,
        config: StorageConfig,
        properties: MetaProperties,
        directory_id: UUID,
        locks: list[Lock],
    ) -> None:
        self.cluster_id = properties.cluster_id
        self.directory_id = directory_id
        self._file_system = file_system
        self._config = config
        self._locks = locks
        self._download: SnapshotWriter | None = None
        self._timestamps_ms: dict[SnapshotId, int] = {}
        directory = config.metadata_log_dir / METADATA_DIRECTORY
        self._quorum_state = QuorumStateFile(file_system, directory / QUORUM_STATE)
        self._recovery_point = RecoveryPointFile(file_system, config.metadata_log_dir / RECOVERY_POINTS)
        self._recovery_point_due_ms = 0
        self.log = MetadataLog.open(
            file_system, directory, config.log, durable_end_offset=self._recovery_point.offset
        )
        self.snapshots = SnapshotStore.open(file_system, directory)
        self.hard_state = self._quorum_state.read() or HardState()
        self._match_log_and_snapshots()

    @classmethod
    def open(
        cls,
        file_system: FileSystem,
        config: StorageConfig,
        generate_directory_id: Callable[[], UUID] = random_uuid,
    ) -> "ControllerStorage":
        """Lock the directories, check meta.properties, recover the log.

        Raises:
            StorageError: a directory is not formatted, of another node or cluster, in use, damaged or unreadable.
        """
        directories = dict.fromkeys((config.metadata_log_dir, *config.log_dirs))
        present = [directory for directory in directories if file_system.exists(directory)]
        locks: list[Lock] = []
        try:
            for directory in present:
                locks.append(file_system.lock(directory / LOCK_FILE))  # noqa: PERF401 - release those taken so far
            found = read_ensemble(file_system, present)
            properties = _formatted(found, config.metadata_log_dir)
            check_ensemble(found, node_id=config.node_id)
            _refuse_other_metadata(file_system, config.metadata_log_dir, present)
            directory_id = properties.directory_id
            if directory_id is None:
                directory_id = generate_directory_id()
                properties = replace(properties, directory_id=directory_id)
                write_meta_properties(file_system, config.metadata_log_dir, properties)
            return cls(file_system, config, properties, directory_id, locks)
        except BaseException:
            for lock in locks:
                lock.release()
            raise

    def log_state(self) -> LogState:
        """The log's metadata for raft: offsets, epochs, snapshot, voter history."""
        voters: list[VotersAt] = []
        kraft_versions: list[KRaftVersionAt] = []
        latest = self.snapshots.latest
        behind = 0
        if latest is not None:
            behind = latest.offset
            quorum = self.snapshot_quorum(latest)
            if quorum.kraft_version is not None:
                kraft_versions.append(KRaftVersionAt(offset=behind - 1, kraft_version=quorum.kraft_version))
            if quorum.voters is not None:
                voters.append(VotersAt(offset=behind - 1, voters=quorum.voters))
        for base_offset in self.log.control_batch_offsets:
            if base_offset < behind:
                continue
            for offset, change in self._quorum_changes(base_offset):
                if isinstance(change, VoterSet):
                    voters.append(VotersAt(offset=offset, voters=change))
                else:
                    kraft_versions.append(KRaftVersionAt(offset=offset, kraft_version=change))
        return LogState(
            start_offset=self.log.start_offset,
            end_offset=self.log.end_offset,
            epochs=self.log.epochs,
            snapshot_id=latest,
            earliest_snapshot_id=min(self.snapshots.ids, default=None),
            voters=tuple(voters),
            kraft_versions=tuple(kraft_versions),
        )

    def _quorum_changes(self, base_offset: int) -> tuple[tuple[int, QuorumChange], ...]:
        data = self.log.read(base_offset, 0)
        try:
            return tuple(quorum_changes(data, next(scan_batches(data))))
        except ProtocolError as error:
            raise self.log.unreadable(base_offset, error) from error

    def bootstrap_records(self) -> tuple[MetadataRecord, ...]:
        """The bootstrap records; () if formatting wrote none.

        Raises:
            StorageError: they are damaged, or the log is still empty and a new cluster cannot begin with them.
        """
        bootstrap = read_bootstrap_records(self._file_system, self._config.metadata_log_dir)
        if not self.log.end_offset and bootstrap.path is not None:
            check_bootstrap_records(bootstrap)
            facts = {"file": str(bootstrap.path), "records": len(bootstrap.records)}
            _logger.info("bootstrap_records_found", extra={"facts": facts})
        return bootstrap.records

    def save_hard_state(self, state: HardState, *, kraft_version: int) -> None:
        """Save the hard state; durable on return."""
        self._quorum_state.write(state, kraft_version=kraft_version, voter_ids=self._config.static_voter_ids)
        self.hard_state = state

    def append(self, batches: bytes) -> int:
        """See MetadataLog.append."""
        return self.log.append(batches)

    def flush(self) -> None:
        """See MetadataLog.flush."""
        self.log.flush()

    def keep_recovery_point(self, now_ms: int) -> None:
        """Store the end of the log as the recovery point, unless this was done recently. Call it after `flush`."""
        if now_ms >= self._recovery_point_due_ms:
            self._write_recovery_point()
            self._recovery_point_due_ms = now_ms + RECOVERY_POINT_INTERVAL_MS

    def _write_recovery_point(self) -> None:
        self.log.flush()
        self._recovery_point.write(self.log.end_offset)

    def _lower_recovery_point(self, offset: int) -> None:
        """Call it before the log is cut at `offset`: a crash then leaves the recovery point below the log's end."""
        if offset < self._recovery_point.offset:
            self._recovery_point.write(min(offset, self.log.start_offset))

    def truncate_to(self, offset: int) -> None:
        """See MetadataLog.truncate_to."""
        self._lower_recovery_point(offset)
        self.log.truncate_to(offset)
        self._write_recovery_point()

    def write_snapshot_chunk(self, snapshot_id: SnapshotId, position: int, data: bytes) -> None:
        """One chunk of a snapshot being fetched. Position 0 starts again; other positions continue at its end."""
        if position == 0:
            if self._download is not None:
                self._download.abort()
            self._download = self.snapshots.create(snapshot_id)
        download = self._download
        assert download is not None
        assert (download.snapshot_id, download.size_bytes) == (snapshot_id, position)
        download.append(data)

    def fetched_chunks(self) -> Iterator[bytes]:
        """The snapshot that was fetched, in parts."""
        assert self._download is not None
        return chunks_of(self._download.read, self._download.size_bytes)

    def fetched_quorum(self) -> SnapshotQuorum:
        """Return the head of the fetched snapshot. Raises ProtocolError for other content."""
        assert self._download is not None
        return read_snapshot_quorum(self._download.read(0, _SNAPSHOT_HEAD_BYTES))

    def discard_fetched(self) -> None:
        """Delete the snapshot that was fetched."""
        assert self._download is not None
        self._download.abort()
        self._download = None

    def restore(self, snapshot_id: SnapshotId) -> None:
        """Name the fetched snapshot, which is valid, drop the log, and continue at its end. Durable on return."""
        assert self._download is not None
        assert self._download.snapshot_id == snapshot_id
        self._download.freeze()
        self._download = None
        # After a crash from here on, _match_log_and_snapshots repairs the log, which is older than the snapshot.
        self._reset_log(snapshot_id.offset)
        self._forget_snapshots_before(snapshot_id)

    def _reset_log(self, offset: int) -> None:
        self._lower_recovery_point(0)
        self.log.reset_to(offset)
        self._write_recovery_point()

    def snapshot_quorum(self, snapshot_id: SnapshotId) -> SnapshotQuorum:
        """Return the head of a checkpoint. Raises CorruptFileError for other content."""
        head = self.snapshots.read(snapshot_id, 0, _SNAPSHOT_HEAD_BYTES)
        try:
            return read_snapshot_quorum(head)
        except ProtocolError as error:
            raise self.snapshots.unreadable(snapshot_id, error) from error

    def create_snapshot(self, snapshot_id: SnapshotId) -> SnapshotWriter:
        """Begin a snapshot of our own committed state."""
        return self.snapshots.create(snapshot_id)

    def clean(self, now_ms: int) -> int | None:
        """Apply retention: delete segments and snapshots that a newer snapshot covers; the latest snapshot stays.

        Returns the new log start offset if it moved. As KafkaMetadataLog.maybeClean: by size, then by age. A damaged
        checkpoint that a later one replaces is reported, and deleted when the next one is as old as retention allows.
        """
        self._write_recovery_point()
        start_offset = self.log.start_offset
        config = self._config
        if config.retention_bytes >= 0:
            self._clean_while(
                lambda _: self.log.size_bytes + self.snapshots.size_bytes > config.retention_bytes
            )
        if config.retention_ms >= 0:
            self._clean_while(lambda oldest: self._is_older(oldest, now_ms - config.retention_ms))
        return self.log.start_offset if self.log.start_offset != start_offset else None

    def close(self) -> None:
        """Flush, close, unlock; without effect the second time."""
        if self._download is not None:
            self._download.abort()
            self._download = None
        if self._locks:
            self._write_recovery_point()
        self.log.close()
        while self._locks:
            self._locks.pop().release()

    def _clean_while(self, is_expired: Callable[[SnapshotId], bool]) -> None:
        ids = self.snapshots.ids
        for oldest, following in pairwise(ids):
            if not is_expired(oldest):
                return
            deleted_segments = self.log.advance_start(following.offset)
            self._forget_snapshots_before(following)
            _logger.info(
                "old_snapshot_deleted",
                extra={
                    "facts": {
                        "snapshot": snapshot_file_name(oldest),
                        "log_start_offset": self.log.start_offset,
                        "deleted_segments": deleted_segments,
                    }
                },
            )

    def _forget_snapshots_before(self, snapshot_id: SnapshotId) -> None:
        for removed in self.snapshots.remove_before(snapshot_id):
            self._timestamps_ms.pop(removed, None)

    def _is_older(self, snapshot_id: SnapshotId, time_ms: int) -> bool:
        """Whether all records of a checkpoint are older. An unreadable checkpoint is as old as the next one."""
        later = (known for known in self.snapshots.ids if known >= snapshot_id)
        timestamp_ms = next((found for found in map(self._timestamp_ms, later) if found is not None), None)
        return timestamp_ms is not None and timestamp_ms < time_ms

    def _timestamp_ms(self, snapshot_id: SnapshotId) -> int | None:
        """The time of the newest record in a checkpoint, None for an unreadable checkpoint."""
        if snapshot_id not in self._timestamps_ms and snapshot_id not in self.snapshots.unreadable_ids:
            try:
                quorum = self.snapshot_quorum(snapshot_id)
            except CorruptFileError as error:
                _logger.warning(
                    "checkpoint_unreadable",
                    extra={"facts": {"snapshot": snapshot_file_name(snapshot_id), "problem": error.problem}},
                )
                self.snapshots.set_aside(snapshot_id)
            else:
                self._timestamps_ms[snapshot_id] = quorum.last_contained_log_timestamp_ms
        return self._timestamps_ms.get(snapshot_id)

    def _match_log_and_snapshots(self) -> None:
        """Finish an interrupted change, and make the log start at a snapshot if not at 0 (KIP-630)."""
        latest = self.snapshots.latest
        epochs = self.log.epochs
        log_epoch = epochs[-1].epoch if epochs else 0
        is_at_latest = latest is not None and self.log.start_offset == self.log.end_offset == latest.offset
        if (
            latest is not None
            and not is_at_latest
            and latest > SnapshotId(epoch=log_epoch, offset=self.log.end_offset)
        ):
            _logger.info(
                "log_replaced_by_snapshot",
                extra={
                    "facts": {"snapshot": snapshot_file_name(latest), "log_end_offset": self.log.end_offset}
                },
            )
            self._reset_log(latest.offset)
        for snapshot_id in self.snapshots.ids:
            if snapshot_id.offset < self.log.start_offset:
                self.snapshots.remove(snapshot_id)
        if self.log.start_offset > 0:
            covering = self.snapshots.ids
            if not covering:
                raise CorruptFileError(
                    self._config.metadata_log_dir / METADATA_DIRECTORY,
                    f"the log starts at {self.log.start_offset}, but no snapshot covers the records before it",
                    advice=DAMAGE_ADVICE,
                )
            self.log.advance_start(min(snapshot_id.offset for snapshot_id in covering))


def _formatted(found: Mapping[Path, MetaProperties], directory: Path) -> MetaProperties:
    if directory not in found:
        raise StorageError(
            directory,
            "is not formatted",
            advice="Run `quorate controller format --config FILE --cluster-id ID` first",
        )
    return found[directory]


def _refuse_other_metadata(file_system: FileSystem, expected: Path, directories: Iterable[Path]) -> None:
    for directory in directories:
        if directory != expected and file_system.exists(directory / METADATA_DIRECTORY):
            raise StorageError(
                directory / METADATA_DIRECTORY,
                f"is a metadata log outside the metadata directory {expected}",
                advice="Set metadata.log.dir to the directory of the log to use",
            )
