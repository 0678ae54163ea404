"""A metadata image that applies the events of an observer."""

from functools import partial
from tempfile import SpooledTemporaryFile

from quorate_protocol.image import MetadataImage, Provenance
from quorate_protocol.image.loading import load_checkpoint, replay_log_batch
from quorate_protocol.observer import (
    Committed,
    Event,
    SnapshotAbandoned,
    SnapshotBegun,
    SnapshotChunk,
    SnapshotLoaded,
)

_MEMORY_BYTES_MAX = 8 * 1024 * 1024
_CHUNK_BYTES = 1024 * 1024


class ImageFollower:
    """Applies events to `image`, in place. Close it."""

    def __init__(self) -> None:
        self.image = MetadataImage()
        self.epoch_seen = Provenance(end_offset=0, epoch=-1, timestamp_ms=0)
        """The oldest known record of the latest leader epoch: the first one, unless a snapshot replaces it."""
        self._snapshot: SpooledTemporaryFile[bytes] | None = None

    def close(self) -> None:
        """Discard the snapshot that is being fetched."""
        snapshot, self._snapshot = self._snapshot, None
        if snapshot is not None:
            snapshot.close()

    def apply(self, event: Event) -> None:
        """Apply an event to the image.

        Raises:
            ProtocolError: records or a snapshot can't be read.
            OSError: the temporary file of a snapshot can't be written.
        """
        if isinstance(event, Committed):
            for batch in event.batches:
                replay_log_batch(self.image, batch)
                self._note_epoch()
            self.image.commit(event.position.offset)
        elif isinstance(event, SnapshotBegun):
            self.close()
            # Large snapshots go to disk: they would be in memory twice, as bytes and as an image.
            self._snapshot = SpooledTemporaryFile(max_size=_MEMORY_BYTES_MAX)  # noqa: SIM115 - outlives this call
        elif isinstance(event, SnapshotChunk):
            assert self._snapshot is not None
            self._snapshot.write(event.data)
        elif isinstance(event, SnapshotAbandoned):
            self.close()
        elif isinstance(event, SnapshotLoaded):
            self._restore(event)

    def _restore(self, event: SnapshotLoaded) -> None:
        assert self._snapshot is not None
        try:
            self._snapshot.seek(0)
            offset, epoch = event.position
            chunks = iter(partial(self._snapshot.read, _CHUNK_BYTES), b"")
            load_checkpoint(self.image, chunks, end_offset=offset, epoch=epoch)
            self._note_epoch()
        finally:
            self.close()

    def _note_epoch(self) -> None:
        if self.image.provenance.epoch > self.epoch_seen.epoch:
            self.epoch_seen = self.image.provenance
