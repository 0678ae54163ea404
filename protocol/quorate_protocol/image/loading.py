"""Loading an image from what the metadata log holds: batches of its segments, and checkpoints."""

from collections.abc import Generator, Iterable, Iterator
from dataclasses import field

from quorate_protocol.image.errors import CorruptCheckpointError
from quorate_protocol.image.image import RECORDS_PER_STEP, MetadataImage
from quorate_protocol.image.snapshot import read_checkpoint
from quorate_protocol.image.state import Provenance
from quorate_protocol.plain_data import dataclass
from quorate_protocol.records.batch import RecordBatch
from quorate_protocol.records.framing import decode_record
from quorate_protocol.records.generated import MetadataRecord

__all__ = ("NotedImage", "load_checkpoint", "loading_checkpoint", "replay_log_batch", "replaying_log_batch")

_NOTES_MAX = 20


@dataclass(slots=True)
class NotedImage:
    """An image that was read from what may be damaged or incomplete, and notes for the user on that."""

    image: MetadataImage = field(default_factory=MetadataImage)
    notes: list[str] = field(default_factory=list)
    """In the order in which they were found; what goes beyond a bound is counted in `notes_dropped`."""
    notes_dropped: int = 0

    def note(self, text: str) -> None:
        """Add a note."""
        if len(self.notes) < _NOTES_MAX:
            self.notes.append(text)
        else:
            self.notes_dropped += 1

    def forget_notes(self) -> None:
        """A complete state was read: nothing before it matters any more."""
        self.notes.clear()
        self.notes_dropped = 0


def replay_log_batch(image: MetadataImage, batch: RecordBatch) -> None:
    """Replay the next batch of the log. The caller commits the image.

    Raises:
        ReplayError: a record does not fit. The image may have a part of the batch, but none of it is stable; here and
            below.
        ProtocolError: UnknownRecord or MalformedMessage for a record that can't be decoded.
    """
    for _ in replaying_log_batch(image, batch):
        pass


def replaying_log_batch(
    image: MetadataImage, batch: RecordBatch
) -> Generator[None, None, list[MetadataRecord]]:
    """Do what :func:`replay_log_batch` does in steps of RECORDS_PER_STEP records, so that its caller can pause.

    Returns the metadata records of the batch; a control batch has none. In between the image has a part of the batch.
    """
    records: list[MetadataRecord] = []
    if not batch.is_control:
        for start in range(0, len(batch.records), RECORDS_PER_STEP):
            values = batch.records[start : start + RECORDS_PER_STEP]
            decoded = [decode_record(record.value or b"") for record in values]
            image.replay_all(decoded, base_offset=batch.base_offset + start)
            records += decoded
            yield
    image.advance(
        end_offset=batch.last_offset + 1,
        epoch=batch.partition_leader_epoch,
        timestamp_ms=batch.max_timestamp_ms,
    )
    return records


def load_checkpoint(image: MetadataImage, chunks: Iterable[bytes], *, end_offset: int, epoch: int) -> None:
    """Replace the image by the checkpoint with this id; ``chunks`` may split its bytes anywhere.

    Raises:
        ReplayError: a record does not fit. The image has not changed, here and below.
        ProtocolError: the checkpoint is damaged; see :func:`~quorate_protocol.image.snapshot.read_checkpoint`.
    """
    for _ in loading_checkpoint(image, chunks, end_offset=end_offset, epoch=epoch):
        pass


def loading_checkpoint(
    image: MetadataImage, chunks: Iterable[bytes], *, end_offset: int, epoch: int
) -> Iterator[int]:
    """Do what :func:`load_checkpoint` does in steps; see :meth:`MetadataImage.restoring`."""
    checkpoint = read_checkpoint(chunks)
    if checkpoint.epoch != epoch:
        raise CorruptCheckpointError(f"a checkpoint of epoch {epoch} has batches of epoch {checkpoint.epoch}")
    timestamp_ms = checkpoint.last_contained_log_timestamp_ms
    yield from image.restoring(
        checkpoint.records, Provenance(end_offset=end_offset, epoch=epoch, timestamp_ms=timestamp_ms)
    )
