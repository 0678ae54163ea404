"""Writes checkpoints of the committed metadata, one slice per turn so that turns stay short (KIP-630)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from quorate_protocol.image.snapshot import write_checkpoint

from quorate_controller.raft.messages import Note
from quorate_controller.raft.model import BOOTSTRAP_SNAPSHOT_ID, SnapshotId

if TYPE_CHECKING:
    from collections.abc import Iterator

    from quorate_protocol.image import MetadataImage

    from quorate_controller.raft.node import RaftNode
    from quorate_controller.storage.controller_storage import ControllerStorage
    from quorate_controller.storage.snapshots import SnapshotWriter

SLICE_BYTES: Final = 256 * 1024
"""The least that one turn writes of a checkpoint: about 10 ms of encoding."""


RETRY_MS: Final = 1_000
"""The pause after a checkpoint was due, but had nothing new to contain."""


class Snapshotter:
    """Decides when a checkpoint is due and writes it, one at a time."""

    def __init__(
        self, *, storage: ControllerStorage, raft: RaftNode, bytes_max: int, interval_ms: int, now_ms: int
    ) -> None:
        self._storage = storage
        self._raft = raft
        self._bytes_max = bytes_max
        self._interval_ms = interval_ms
        self._bytes_since = 0
        self._since_ms = now_ms
        self._not_before_ms = now_ms
        self.latest_timestamp_ms = 0
        """When the newest checkpoint was begun or fetched by this process."""
        self._writer: SnapshotWriter | None = None
        self._slices: Iterator[bytes] | None = None

    @property
    def is_writing(self) -> bool:
        """Whether a checkpoint is being written, so that the node should turn again soon."""
        return self._writer is not None

    @property
    def latest_id(self) -> SnapshotId | None:
        """The newest checkpoint on disk that was made from a log, None before the first."""
        latest = self._storage.snapshots.latest
        return None if latest == BOOTSTRAP_SNAPSHOT_ID else latest

    def applied(self, size_bytes: int) -> None:
        """Counts committed bytes towards the next checkpoint."""
        self._bytes_since += size_bytes

    def restart(self, now_ms: int) -> None:
        """A checkpoint was fetched from the leader: reset the counters and drop an unfinished checkpoint."""
        if self._writer is not None:
            self._writer.abort()
        self._writer = self._slices = None
        self._bytes_since = 0
        self._since_ms = self.latest_timestamp_ms = now_ms

    def deadline_ms(self) -> int | None:
        """When a checkpoint is due by time; None when only bytes count or nothing was written since."""
        if not self._interval_ms or not self._bytes_since:
            return None
        return max(self._since_ms + self._interval_ms, self._not_before_ms)

    def begin_if_due(self, image: MetadataImage, now_ms: int) -> Note | None:
        """Begins a checkpoint of the committed metadata, up to an open metadata transaction."""
        stable = image.stable
        deadline_ms = self.deadline_ms()
        due = self._bytes_since >= self._bytes_max or (deadline_ms is not None and now_ms >= deadline_ms)
        if not due or self.is_writing or now_ms < self._not_before_ms:
            return None
        self._not_before_ms = now_ms + RETRY_MS
        if stable.end_offset <= self._latest_end_offset():
            return None
        committed = image.committed_copy()
        if not committed.metadata_version:
            # Leaders came and went before one could write the bootstrap metadata: there is nothing to keep.
            return None
        snapshot_id = SnapshotId(offset=stable.end_offset, epoch=stable.epoch)
        kraft_version = self._raft.kraft_version_at(stable.end_offset - 1)
        voters = self._raft.voters_at(stable.end_offset - 1)
        self._slices = write_checkpoint(
            committed,
            now_ms=now_ms,
            kraft_version=kraft_version,
            voters=voters.to_record() if voters is not None else None,
        )
        self._writer = self._storage.create_snapshot(snapshot_id)
        self._bytes_since = 0
        self._since_ms = now_ms
        return Note(
            event="snapshot_started", facts={"offset": snapshot_id.offset, "epoch": snapshot_id.epoch}
        )

    def write_slice(self) -> SnapshotId | None:
        """Writes the next slice. Returns the id once the checkpoint is complete and durable."""
        if self._writer is None or self._slices is None:
            return None
        end_bytes = self._writer.size_bytes + SLICE_BYTES
        for data in self._slices:
            self._writer.append(data)
            if self._writer.size_bytes >= end_bytes:
                return None
        self._writer.freeze()
        snapshot_id = self._writer.snapshot_id
        self.latest_timestamp_ms = self._since_ms
        self._writer = self._slices = None
        return snapshot_id

    def _latest_end_offset(self) -> int:
        latest = self._storage.snapshots.latest
        return latest.offset if latest else 0
