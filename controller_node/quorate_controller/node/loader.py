"""Puts a fetched snapshot in the place of image and log, in slices.

Image and log stay as they are until all of the snapshot was read. Raft begins nothing meanwhile, but answers its
peers between the slices: a large snapshot takes many seconds, and votes are asked for within one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from quorate_protocol.errors import ProtocolError

from quorate_controller.node.slices import run_slice
from quorate_controller.raft.messages import SnapshotRefused, SnapshotRestored

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from quorate_controller.node.metadata import MetadataState
    from quorate_controller.raft.model import SnapshotId
    from quorate_controller.storage.controller_storage import ControllerStorage

SLICE_MS: Final = 10
"""A slice ends with the first step after this time. No pause follows: this node is behind, and serves little."""


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
        """Begins with the snapshot that was fetched; raft waits for the outcome."""
        assert self._steps is None, snapshot_id
        self._snapshot_id = snapshot_id
        self._steps = self._loading(snapshot_id)

    def load_slice(self) -> SnapshotRestored | SnapshotRefused | None:
        """Loads the next slice. Returns the outcome, once, when all was read or the snapshot cannot be read."""
        if self._steps is None or self._snapshot_id is None:
            return None
        outcome: SnapshotRestored | SnapshotRefused | None
        try:
            outcome = run_slice(self._steps, self._clock, SLICE_MS)
        except ProtocolError as error:
            self._storage.discard_fetched()
            outcome = SnapshotRefused(snapshot_id=self._snapshot_id, reason=error.message)
        if outcome is not None:
            self._snapshot_id = self._steps = None
        return outcome

    def _loading(self, snapshot_id: SnapshotId) -> Generator[int, None, SnapshotRestored]:
        quorum = self._storage.fetched_quorum()
        yield from self._metadata.loading(self._storage.fetched_chunks(), snapshot_id)
        self._storage.restore(snapshot_id)
        return SnapshotRestored(
            snapshot_id=snapshot_id, kraft_version=quorum.kraft_version, voters=quorum.voters
        )
