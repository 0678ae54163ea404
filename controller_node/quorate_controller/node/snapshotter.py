"""Writes and loads checkpoints of the committed metadata in slices, so that turns stay short (KIP-630).

A slice of writing takes a few milliseconds, and a longer pause follows, in which requests are decided at once.
Without pauses each hop of a request, at each of the controllers, would wait for a slice.

A fetched snapshot replaces image and log once all of it is read. Until then raft begins nothing, but responds to its
peers between the slices: a large snapshot takes many seconds, and a vote has to be decided within one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from quorate_protocol.errors import ProtocolError
from quorate_protocol.image.snapshot import write_checkpoint
from quorate_protocol.kafka.extensions.controller_heartbeat_request import SnapshotState

from quorate_controller.node.slices import run_slice
from quorate_controller.raft.events import Note, SnapshotRefused, SnapshotRestored
from quorate_controller.raft.model import BOOTSTRAP_SNAPSHOT_ID, SnapshotId
from quorate_controller.unix_time import unchanged

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    from quorate_protocol.image import MetadataImage

    from quorate_controller.node.metadata import MetadataState
    from quorate_controller.raft.node import RaftNode
    from quorate_controller.storage.controller_storage import ControllerStorage
    from quorate_controller.storage.snapshots import SnapshotWriter
    from quorate_controller.unix_time import UnixTime

SLICE_MS: Final = 5
"""A slice ends with the first step after this time. A step takes one or two milliseconds."""

PAUSE_FACTOR: Final = 2
"""A pause takes this many times as long as the slice before it: a checkpoint uses a third of the time."""

RETRY_MS: Final = 1_000
"""The pause after a checkpoint was due, but no record was new."""

NO_SNAPSHOT: Final = -1
"""The offset of the last snapshot of a controller that has none (KIP-631)."""

WAIT_MS: Final = 500
"""The time after which a due checkpoint is tried again."""

OVERDUE_FACTOR: Final = 2
"""At this many times its limits a checkpoint is written without a turn."""

SPREAD_SHARES: Final = 5
"""Controllers with consecutive ids use this many different limits, from 100 % down to 80 % of the configured one."""

LOAD_SLICE_MS: Final = 10
"""A slice of loading ends with the first step after this time, without a pause: this node is behind, and serves
little."""


def spread(limit: int, node_id: int) -> int:
    """Return the limit of one controller, at most `limit`, at least 1 unless `limit` is 0.

    All controllers count the same bytes of the log: with one limit they would all write at the same time. Kafka's
    configs are the most bytes and the most time between two snapshots, so that an earlier one is allowed.
    """
    return limit - limit * (node_id % SPREAD_SHARES) // (4 * SPREAD_SHARES)


class Snapshotter:
    """Decides when a checkpoint is due and writes it, one at a time."""

    def __init__(
        self,
        *,
        storage: ControllerStorage,
        raft: RaftNode,
        node_id: int,
        bytes_max: int,
        interval_ms: int,
        clock: Callable[[], int],
        unix_ms_of: UnixTime = unchanged,
    ) -> None:
        self._storage = storage
        self._raft = raft
        self._bytes_max = spread(bytes_max, node_id)
        self._interval_ms = spread(interval_ms, node_id)
        self._clock = clock
        """The time of the turns, read while one runs: it measures a slice."""
        self._unix_ms_of = unix_ms_of
        self._bytes_since = 0
        self._since_ms = self._not_before_ms = self._slice_due_ms = clock()
        self.latest_timestamp_ms = 0
        """When the newest checkpoint was begun or fetched by this process, in Unix time."""
        self._due_since_ms: int | None = None
        self._wait_ends_ms = 0
        self._writer: SnapshotWriter | None = None
        self._steps: Generator[None, None, SnapshotId] | None = None

    @property
    def is_writing(self) -> bool:
        """Whether a checkpoint is being written."""
        return self._writer is not None

    @property
    def state(self) -> SnapshotState:
        """The state that heartbeats report to other controllers."""
        if self.is_writing:
            return SnapshotState.WRITING
        return SnapshotState.IDLE if self._due_since_ms is None else SnapshotState.DUE

    @property
    def due_since_ms(self) -> int:
        """Since when a checkpoint is due; only while one is."""
        assert self._due_since_ms is not None
        return self._due_since_ms

    @property
    def latest_id(self) -> SnapshotId | None:
        """The newest checkpoint on disk that was made from a log, None before the first."""
        latest = self._storage.snapshots.latest
        return None if latest == BOOTSTRAP_SNAPSHOT_ID else latest

    @property
    def latest_offset(self) -> int:
        """The end offset of `latest_id`, NO_SNAPSHOT before the first."""
        latest = self.latest_id
        return NO_SNAPSHOT if latest is None else latest.offset

    def applied(self, size_bytes: int) -> None:
        """Count committed bytes towards the next checkpoint."""
        self._bytes_since += size_bytes

    def restart(self, now_ms: int) -> None:
        """A checkpoint was fetched from the leader: reset the counters and drop an unfinished checkpoint."""
        if self._writer is not None:
            self._writer.abort()
        self._writer = self._steps = self._due_since_ms = None
        self._bytes_since = 0
        self._since_ms = now_ms
        self.latest_timestamp_ms = self._unix_ms_of(now_ms)

    def deadline_ms(self) -> int | None:
        """When a slice or, by time, a checkpoint is due; None when only bytes count or nothing was written since."""
        if self.is_writing:
            return self._slice_due_ms
        return self._interval_deadline_ms() if self._due_since_ms is None else self._wait_ends_ms

    def _interval_deadline_ms(self) -> int | None:
        if not self._interval_ms or not self._bytes_since:
            return None
        return max(self._since_ms + self._interval_ms, self._not_before_ms)

    def is_due(self, image: MetadataImage, now_ms: int) -> bool:
        """Whether to begin a checkpoint. A due checkpoint stays due until it is begun or fetched."""
        if self.is_writing:
            return False
        if self._due_since_ms is None:
            deadline_ms = self._interval_deadline_ms()
            has_time_passed = deadline_ms is not None and now_ms >= deadline_ms
            if now_ms < self._not_before_ms or not (self._bytes_since >= self._bytes_max or has_time_passed):
                return False
            self._not_before_ms = now_ms + RETRY_MS
            if image.stable.end_offset <= self._latest_end_offset():
                return False
            self._due_since_ms = now_ms
        return True

    def is_overdue(self, now_ms: int) -> bool:
        """Whether a checkpoint is beyond OVERDUE_FACTOR times its limits."""
        if self._bytes_since >= OVERDUE_FACTOR * self._bytes_max:
            return True
        return bool(self._interval_ms) and now_ms >= self._since_ms + OVERDUE_FACTOR * self._interval_ms

    def wait(self, now_ms: int) -> None:
        """Note that a due checkpoint may not be begun yet; try again after WAIT_MS."""
        self._wait_ends_ms = now_ms + WAIT_MS

    def begin(self, image: MetadataImage, now_ms: int) -> Note | None:
        """Begin a checkpoint of the committed metadata, up to an open metadata transaction."""
        self._due_since_ms = None
        stable = image.stable
        begun_ms = self._clock()
        committed = image.committed_copy()
        if not committed.metadata_version:
            # Leaders came and went before one could write the bootstrap metadata: there is nothing to keep.
            return None
        snapshot_id = SnapshotId(offset=stable.end_offset, epoch=stable.epoch)
        kraft_version = self._raft.kraft_version_at(stable.end_offset - 1)
        voters = self._raft.voters_at(stable.end_offset - 1)
        parts = write_checkpoint(
            committed,
            now_ms=self._unix_ms_of(now_ms),
            kraft_version=kraft_version,
            voters=voters.to_record() if voters is not None else None,
        )
        self._writer = self._storage.create_snapshot(snapshot_id)
        self._steps = _writing(self._writer, parts)
        self._bytes_since = 0
        self._since_ms = now_ms
        # The copy of many topics takes milliseconds too.
        self._pause_after(self._clock() - begun_ms)
        return Note(
            event="snapshot_started", facts={"offset": snapshot_id.offset, "epoch": snapshot_id.epoch}
        )

    def write_slice(self, now_ms: int) -> SnapshotId | None:
        """Write the next slice, if it is due. Returns the id once the checkpoint is complete and durable."""
        if self._writer is None or self._steps is None or now_ms < self._slice_due_ms:
            return None
        begun_ms = self._clock()
        snapshot_id = run_slice(self._steps, self._clock, SLICE_MS)
        if snapshot_id is None:
            self._pause_after(max(1, self._clock() - begun_ms))
        else:
            self.latest_timestamp_ms = self._unix_ms_of(self._since_ms)
            self._writer = self._steps = None
        return snapshot_id

    def _pause_after(self, work_ms: int) -> None:
        self._slice_due_ms = self._clock() + PAUSE_FACTOR * work_ms

    def _latest_end_offset(self) -> int:
        latest = self._storage.snapshots.latest
        return latest.offset if latest else 0


def _writing(writer: SnapshotWriter, parts: Iterable[bytes]) -> Generator[None, None, SnapshotId]:
    """Write the parts of a checkpoint, one a step. Returns its id once it is complete and durable."""
    for data in parts:
        writer.append(data)
        yield
    writer.freeze()
    return writer.snapshot_id


class SnapshotLoader:
    """Loads the snapshot that the storage has fetched, one at a time."""

    def __init__(
        self, *, storage: ControllerStorage, metadata: MetadataState, clock: Callable[[], int]
    ) -> None:
        self._storage = storage
        self._metadata = metadata
        self._clock = clock
        self._snapshot_id: SnapshotId | None = None
        self._steps: Generator[int, None, SnapshotRestored] | None = None

    @property
    def is_loading(self) -> bool:
        """Whether a snapshot is being loaded, so that the node should turn again at once."""
        return self._steps is not None

    def begin(self, snapshot_id: SnapshotId) -> None:
        """Begin with the snapshot that was fetched; raft waits for the result."""
        assert self._steps is None, snapshot_id
        self._snapshot_id = snapshot_id
        self._steps = self._loading(snapshot_id)

    def load_slice(self) -> SnapshotRestored | SnapshotRefused | None:
        """Load the next slice. Returns the result, once, when all was read or the snapshot cannot be read."""
        if self._steps is None or self._snapshot_id is None:
            return None
        result: SnapshotRestored | SnapshotRefused | None
        try:
            result = run_slice(self._steps, self._clock, LOAD_SLICE_MS)
        except ProtocolError as error:
            self._storage.discard_fetched()
            result = SnapshotRefused(snapshot_id=self._snapshot_id, reason=error.message)
        if result is not None:
            self._snapshot_id = self._steps = None
        return result

    def _loading(self, snapshot_id: SnapshotId) -> Generator[int, None, SnapshotRestored]:
        quorum = self._storage.fetched_quorum()
        yield from self._metadata.loading(self._storage.fetched_chunks(), snapshot_id)
        self._storage.restore(snapshot_id)
        return SnapshotRestored(
            snapshot_id=snapshot_id, kraft_version=quorum.kraft_version, voters=quorum.voters
        )
