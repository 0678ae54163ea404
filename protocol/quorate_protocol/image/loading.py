"""Loading an image from what the metadata log holds: batches of its segments, and checkpoints."""

from collections.abc import Iterable, Iterator

from quorate_protocol.image.errors import CorruptCheckpointError
from quorate_protocol.image.image import MetadataImage
from quorate_protocol.image.snapshot import read_checkpoint
from quorate_protocol.image.state import Provenance
from quorate_protocol.records.batch import RecordBatch
from quorate_protocol.records.framing import decode_record
from quorate_protocol.records.generated import MetadataRecord

__all__ = ("load_checkpoint", "loading_checkpoint", "replay_log_batch")


def replay_log_batch(image: MetadataImage, batch: RecordBatch) -> list[MetadataRecord]:
    """Replay the next batch of the log and return its metadata records; a control batch has none.

    The caller commits the image.

    Raises:
        ReplayError: a record does not fit the image.
        ProtocolError: UnknownRecord or MalformedMessage for a record that can't be decoded.
    """
    if batch.is_control:
        image.advance(
            end_offset=batch.last_offset + 1,
            epoch=batch.partition_leader_epoch,
            timestamp_ms=batch.max_timestamp_ms,
        )
        return []
    records = [decode_record(record.value or b"") for record in batch.records]
    image.replay_batch(
        records,
        base_offset=batch.base_offset,
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
