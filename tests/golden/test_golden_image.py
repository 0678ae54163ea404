"""The metadata image against stock Kafka: its log replayed by us, compared with its own checkpoints."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from quorate_protocol.image import MetadataImage, Provenance
from quorate_protocol.image.snapshot import (
    image_to_records,
    read_checkpoint,
    write_checkpoint,
    write_records,
)
from quorate_protocol.records.batch import decode_batches
from quorate_protocol.records.control import decode_control
from quorate_protocol.records.framing import decode_record, encode_record, record_version_for
from quorate_protocol.records.generated import MetadataRecord

DATA = Path(__file__).parent / "data"
SNAPSHOTS = sorted(DATA.rglob("current/*.checkpoint"))
SNAPSHOTS = [path for path in SNAPSHOTS if path.name != "bootstrap.checkpoint"]
CHECKPOINTS = sorted(DATA.rglob("*.checkpoint"))


def identify(path: object) -> str:
    """The name of a case."""
    assert isinstance(path, Path)
    return str(path.relative_to(DATA))


def replayed(log: Path, end_offset: int | None = None) -> MetadataImage:
    """The image that the log of a stock controller leads to, committed batch by batch."""
    image = MetadataImage()
    for batch in decode_batches(log.read_bytes()):
        if batch.base_offset == end_offset:
            break
        where = {"epoch": batch.partition_leader_epoch, "timestamp_ms": batch.max_timestamp_ms}
        if batch.is_control:
            image.advance(end_offset=batch.last_offset + 1, **where)
        else:
            records = [decode_record(record.value) for record in batch.records if record.value is not None]
            image.replay_batch(records, base_offset=batch.base_offset, **where)
        image.commit(image.end_offset)
    return image


def snapshot_id(path: Path) -> tuple[int, int]:
    """End offset and epoch, from the name of a checkpoint."""
    end_offset, epoch = path.stem.split("-")
    return int(end_offset), int(epoch)


def normalized(record: MetadataRecord) -> Any:
    """A record without the order that Java's hash maps give to listeners, features and quota entities."""
    fields = {
        name: tuple(sorted(getattr(record, name), key=repr))
        for name in ("end_points", "features", "entity")
        if hasattr(record, name)
    }
    return replace(record, **fields)


def by_kind(records: list[MetadataRecord]) -> Iterator[tuple[str, list[str]]]:
    """Yield runs of records of one kind, in their order; within a run, Java's order has no meaning."""
    in_topics = {"TopicRecord", "PartitionRecord"}
    for kind, run in groupby(
        records, lambda record: "topics" if type(record).__name__ in in_topics else type(record).__name__
    ):
        yield kind, sorted(repr(normalized(record)) for record in run)


@pytest.mark.parametrize("path", SNAPSHOTS, ids=identify)
def test_replaying_kafkas_log_gives_kafkas_checkpoint(path: Path) -> None:
    end_offset, epoch = snapshot_id(path)
    image = replayed(path.parent / "00000000000000000000.log", end_offset)
    checkpoint = read_checkpoint([path.read_bytes()])
    assert image.stable == Provenance(
        end_offset=end_offset, epoch=epoch, timestamp_ms=checkpoint.last_contained_log_timestamp_ms
    )
    kafkas = list(checkpoint.records)
    ours = list(image_to_records(image.committed_copy()))
    assert dict(by_kind(ours)) == dict(by_kind(kafkas))
    assert [kind for kind, _ in by_kind(ours)] == [kind for kind, _ in by_kind(kafkas)]


@pytest.mark.parametrize("path", SNAPSHOTS, ids=identify)
def test_a_restored_checkpoint_is_the_replayed_log(path: Path) -> None:
    checkpoint = read_checkpoint([path.read_bytes()])
    restored = MetadataImage()
    restored.restore(checkpoint.records, Provenance(end_offset=snapshot_id(path)[0]))
    assert restored.same_as(replayed(path.parent / "00000000000000000000.log", restored.end_offset))


@pytest.mark.parametrize("path", SNAPSHOTS, ids=identify)
def test_our_checkpoint_has_head_and_sizes_of_kafkas(path: Path) -> None:
    data = path.read_bytes()
    first, *rest = decode_batches(data)
    theirs = read_checkpoint([data])
    image = replayed(path.parent / "00000000000000000000.log", snapshot_id(path)[0])
    written = b"".join(
        write_checkpoint(
            image.committed_copy(),
            now_ms=first.max_timestamp_ms,
            kraft_version=theirs.kraft_version,
            voters=theirs.voters,
        )
    )
    ours, *_ = decode_batches(written)
    assert [decode_control(record) for record in ours.records] == [
        decode_control(record) for record in first.records
    ]
    values = [record.value for batch in rest if not batch.is_control for record in batch.records]
    our_values = [
        encode_record(record, record_version_for(type(record), image.metadata_version))
        for record in read_checkpoint([written]).records
    ]
    assert sorted(len(value or b"") for value in values) == sorted(len(value) for value in our_values)
    kinds = {(value[1], value[2]) for value in values if value}
    assert {(value[1], value[2]) for value in our_values} == kinds


@pytest.mark.parametrize("path", CHECKPOINTS, ids=identify)
def test_reading_and_writing_a_checkpoint_gives_its_bytes(path: Path) -> None:
    data = path.read_bytes()
    checkpoint = read_checkpoint([data])
    records = list(checkpoint.records)
    batches = list(decode_batches(data))
    level = max((getattr(record, "feature_level", 0) for record in records[:1]), default=30)
    written = write_records(
        records,
        metadata_version=level,
        now_ms=0,
        epoch=checkpoint.epoch,
        last_contained_log_timestamp_ms=checkpoint.last_contained_log_timestamp_ms,
        kraft_version=checkpoint.kraft_version,
        voters=checkpoint.voters,
    )
    ours = [batch for chunk in written for batch in decode_batches(chunk)]
    assert [[record.value for record in batch.records] for batch in ours] == [
        [record.value for record in batch.records] for batch in batches
    ]
    assert [batch.base_offset for batch in ours] == [batch.base_offset for batch in batches]


def test_a_log_of_old_records_can_be_replayed() -> None:
    image = replayed(DATA / "oldest" / "00000000000000000000.log")
    assert image.metadata_version == 19
    assert image.topics.by_name
    restored = MetadataImage()
    restored.restore(
        read_checkpoint(write_checkpoint(image.committed_copy(), now_ms=1)).records, image.stable
    )
    assert restored.same_as(image)
