"""What lies in the metadata directories of nodes, read without asking them: logs, snapshots, images."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from quorate_protocol.image import MetadataImage
from quorate_protocol.image.loading import load_checkpoint, replay_log_batch
from quorate_protocol.image.snapshot import image_to_records
from quorate_protocol.image.state import ImageState
from quorate_protocol.records.batch import RecordBatch, decode_batches
from quorate_protocol.records.framing import decode_record
from quorate_protocol.records.generated import MetadataRecord, UserScramCredentialRecord

# Both keep them as hash maps, so that their order has no meaning.
UNORDERED_FIELDS = ("end_points", "features", "entity")
TOPIC_RECORDS = ("TopicRecord", "PartitionRecord")


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A complete checkpoint."""

    end_offset: int
    epoch: int
    path: Path

    def image(self) -> MetadataImage:
        """The image that it holds."""
        image = MetadataImage()
        load_checkpoint(image, [self.path.read_bytes()], end_offset=self.end_offset, epoch=self.epoch)
        return image


def batches_in(partition: Path) -> Iterator[RecordBatch]:
    """Every batch of a log, segment by segment."""
    for segment in sorted(partition.glob("*.log")):
        yield from decode_batches(segment.read_bytes())


def scram_keys(partition: Path) -> dict[str, bytes]:
    """What a log has of the passwords of SCRAM users, by user and field: salts, and keys that were made of them."""
    found = {}
    for batch in batches_in(partition):
        for record in () if batch.is_control else batch.records:
            decoded = decode_record(record.value or b"")
            if isinstance(decoded, UserScramCredentialRecord):
                for field in ("salt", "stored_key", "server_key"):
                    found[f"{field} of {decoded.name}"] = getattr(decoded, field)
    return found


def end_offset(partition: Path) -> int:
    """The offset after the last record of a log."""
    last = max(partition.glob("*.log"))
    ends = [batch.last_offset + 1 for batch in decode_batches(last.read_bytes())]
    return ends[-1] if ends else int(last.stem)


def start_offset(partition: Path) -> int:
    """The base offset of the first segment of a log."""
    return int(min(partition.glob("*.log")).stem)


def snapshots_in(partition: Path) -> list[Snapshot]:
    """The snapshots of a directory, the oldest first; not the one that formatting writes."""
    found = []
    for path in sorted(partition.glob("*-*.checkpoint")):
        offset, epoch = path.stem.split("-")
        if int(offset) > 0:
            found.append(Snapshot(end_offset=int(offset), epoch=int(epoch), path=path))
    return found


def images_of(partition: Path, offsets: Sequence[int]) -> Iterator[ImageState]:
    """The image at each of these ascending offsets, from one pass over the log.

    It begins with the oldest snapshot when the log does not begin at 0.
    """
    image = MetadataImage()
    batches = batches_in(partition)
    if start_offset(partition) > 0:
        image = next(
            snapshot for snapshot in snapshots_in(partition) if snapshot.end_offset >= start_offset(partition)
        ).image()
    for offset in offsets:
        assert image.end_offset <= offset, f"{partition} has nothing from before {image.end_offset}"
        while image.end_offset < offset:
            _replay(image, next(batches))
        yield image.committed_copy()


def image_of(partition: Path, until: int) -> ImageState:
    """The image at an offset."""
    (image,) = images_of(partition, [until])
    return image


def content(image: ImageState) -> dict[str, list[str]]:
    """An image as sorted records by kind, so that a difference can be read."""
    records = sorted(image_to_records(image), key=_kind)
    return {
        kind: sorted(repr(_normalized(record)) for record in of_kind)
        for kind, of_kind in groupby(records, _kind)
    }


def assert_same_images(partitions: Sequence[Path], until: int | None = None) -> ImageState:
    """Assert that all directories hold the same batches and lead to the same image; that image.

    Compared is what all of them have: up to `until`, by default to the end of the shortest log.
    """
    shared = min(end_offset(partition) for partition in partitions)
    assert until is None or until <= shared, f"a log ends at {shared}, before {until}"
    until = shared if until is None else until
    images = {partition: image_of(partition, until) for partition in partitions}
    first, *others = partitions
    for other in others:
        if not images[first].same_as(images[other]):
            assert content(images[first]) == content(images[other]), f"{first} and {other} differ at {until}"
        _assert_same_batches(first, other, until)
    return images[first]


def assert_snapshots_hold(partitions: Sequence[Path]) -> None:
    """Assert that every snapshot is the image that the longest log leads to."""
    reference = min(partitions, key=start_offset)
    first, last = start_offset(reference), end_offset(reference)
    snapshots = sorted(
        (
            snapshot
            for path in partitions
            for snapshot in snapshots_in(path)
            if first <= snapshot.end_offset <= last
        ),
        key=lambda snapshot: snapshot.end_offset,
    )
    images = images_of(reference, [snapshot.end_offset for snapshot in snapshots])
    for snapshot, image in zip(snapshots, images, strict=True):
        if not snapshot.image().same_as(image):
            assert content(snapshot.image()) == content(image), (
                f"{snapshot.path} is not what {reference} says"
            )


def _replay(image: MetadataImage, batch: RecordBatch) -> None:
    if batch.base_offset < image.end_offset:
        return
    assert batch.base_offset == image.end_offset, f"no batch at {image.end_offset}"
    replay_log_batch(image, batch)
    image.commit(image.end_offset)


def _assert_same_batches(first: Path, other: Path, until: int) -> None:
    begin = max(start_offset(first), start_offset(other))
    ours, theirs = (
        [batch for batch in batches_in(path) if begin <= batch.base_offset < until] for path in (first, other)
    )
    for mine, yours in zip(ours, theirs, strict=True):
        assert mine == yours, f"{first} and {other} have different batches at {mine.base_offset}"


def _kind(record: MetadataRecord) -> str:
    name = type(record).__name__
    return "topics" if name in TOPIC_RECORDS else name


def _normalized(record: MetadataRecord) -> Any:
    fields = {
        name: tuple(sorted(getattr(record, name), key=repr))
        for name in UNORDERED_FIELDS
        if hasattr(record, name)
    }
    return replace(record, **fields)
