"""Images as records and as checkpoints, and checkpoints as records; damage is found and named."""

from collections.abc import Iterable, Iterator
from typing import Any
from uuid import UUID

import pytest
from quorate_protocol.errors import ProtocolError, RecordsTooLarge
from quorate_protocol.image import (
    CorruptCheckpointError,
    MetadataImage,
    Provenance,
    UnwritableImageError,
)
from quorate_protocol.image.snapshot import (
    RECORDS_PER_STEP,
    Checkpoint,
    image_to_records,
    read_checkpoint,
    write_checkpoint,
    write_records,
)
from quorate_protocol.records import batch as batch_module
from quorate_protocol.records import generated as records
from quorate_protocol.records.batch import build_batch, decode_batches
from quorate_protocol.records.control import (
    KRaftVersionFeature,
    KRaftVersionRecord,
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    Voter,
    VotersRecord,
    decode_control,
    encode_control_batch,
)
from quorate_protocol.records.framing import encode_record

VOTERS = VotersRecord(
    version=0,
    voters=(
        Voter(
            voter_id=3000,
            voter_directory_id=UUID(int=77),
            endpoints=(),
            k_raft_version_feature=KRaftVersionFeature(min_supported_version=0, max_supported_version=1),
        ),
    ),
)
HEADER = SnapshotHeaderRecord(version=0, last_contained_log_timestamp=5)
FOOTER = SnapshotFooterRecord(version=0)


@pytest.fixture
def image(log: Any, make: Any) -> MetadataImage:
    """A bit of everything, in an order that no snapshot has."""
    log.append(make.token("t"), make.scram("bob", 2), make.scram("alice"), make.acl(2), make.acl(1))
    log.append(
        make.producer_ids(1000), make.quota({"user": None}, "b", 2.0), make.quota({"user": "u"}, "a", 1.0)
    )
    log.append(make.quota({"user": None}, "a", 1.0), make.config("y", "1", (4, "")), make.config("x", "2"))
    log.append(make.topic(2, "b"), make.topic(1, "a"), make.partition(1, 1), make.partition(1, 0))
    log.append(make.controller(3001), make.controller(3000), make.broker(2), make.broker(1, fenced=False))
    log.append(make.feature("transaction.version", 2), make.feature("group.version", 1), make.feature())
    log.commit()
    image: MetadataImage = log.image
    return image


def restored(checkpoint: Checkpoint) -> MetadataImage:
    image = MetadataImage()
    image.restore(checkpoint.records, Provenance(end_offset=1))
    return image


def test_order_of_records(image: MetadataImage, make: Any) -> None:
    """Kafka's order of kinds, metadata.version first of all, sorted within."""
    assert list(image_to_records(image)) == [
        make.feature(),
        make.feature("group.version", 1),
        make.feature("transaction.version", 2),
        make.broker(1, fenced=False),
        make.broker(2),
        make.controller(3000),
        make.controller(3001),
        make.topic(1, "a"),
        make.partition(1, 0, directories=(None, None, None)),
        make.partition(1, 1, directories=(None, None, None)),
        make.topic(2, "b"),
        make.config("x", "2"),
        make.config("y", "1", (4, "")),
        make.quota({"user": None}, "a", 1.0),
        make.quota({"user": None}, "b", 2.0),
        make.quota({"user": "u"}, "a", 1.0),
        records.ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=1000),
        make.acl(1),
        make.acl(2),
        make.scram("alice"),
        make.scram("bob", 2),
        make.token("t"),
    ]


@pytest.mark.parametrize(
    ("make_record", "level", "loss"),
    [
        (lambda make: make.controller(1), 14, "controller registration data"),
        (lambda make: make.scram("a"), 10, "SCRAM credentials of 1 users"),
        (lambda make: make.token("t"), 13, "1 delegation tokens"),
        (lambda make: make.acl(1), 6, "anything"),
    ],
)
def test_state_that_a_level_cannot_express(
    log: Any, make: Any, make_record: Any, level: int, loss: str
) -> None:
    log.append(make_record(make))
    with pytest.raises(UnwritableImageError, match=loss):
        list(image_to_records(log.image, level))
    assert len(list(image_to_records(log.image, level + 1))) == 2


def test_image_without_metadata_version_is_unwritable(log: Any) -> None:
    with pytest.raises(UnwritableImageError, match=r"metadata\.version 0 can't"):
        list(write_checkpoint(log.image, now_ms=1))


def test_structure_of_a_checkpoint(image: MetadataImage) -> None:
    chunks = list(write_checkpoint(image, now_ms=99, kraft_version=1, voters=VOTERS))
    batches = [next(decode_batches(chunk)) for chunk in chunks]
    assert [batch.is_control for batch in batches] == [True, False, True]
    assert [batch.base_offset for batch in batches] == [0, 3, 25]
    assert {batch.partition_leader_epoch for batch in batches} == {1}
    assert {batch.max_timestamp_ms for batch in batches} == {99}
    header = SnapshotHeaderRecord(version=0, last_contained_log_timestamp=image.provenance.timestamp_ms)
    head = [decode_control(record) for record in batches[0].records]
    assert head == [header, KRaftVersionRecord(version=0, k_raft_version=1), VOTERS]
    assert [decode_control(record) for record in batches[2].records] == [FOOTER]


def test_checkpoint_at_kraft_version_0_has_only_a_header(image: MetadataImage) -> None:
    checkpoint = read_checkpoint(write_checkpoint(image, now_ms=1))
    assert (checkpoint.kraft_version, checkpoint.voters) == (0, None)
    with pytest.raises(AssertionError):
        next(write_checkpoint(image, now_ms=1, voters=VOTERS))


@pytest.mark.parametrize("size", [1, 7, 61, 4096, 1 << 20])
def test_checkpoint_round_trip(image: MetadataImage, size: int) -> None:
    data = b"".join(write_checkpoint(image, now_ms=1, kraft_version=1, voters=VOTERS))
    checkpoint = read_checkpoint(data[at : at + size] for at in range(0, len(data), size))
    assert checkpoint.kraft_version == 1
    assert checkpoint.voters == VOTERS
    assert checkpoint.epoch == 1
    assert checkpoint.last_contained_log_timestamp_ms == image.provenance.timestamp_ms
    assert restored(checkpoint).same_as(image)


def test_reading_takes_no_more_than_it_needs(image: MetadataImage) -> None:
    taken = 0

    def count(chunks: Iterable[bytes]) -> Iterator[bytes]:
        nonlocal taken
        for chunk in chunks:
            taken += 1
            yield chunk

    checkpoint = read_checkpoint(count(write_checkpoint(image, now_ms=1)))
    assert taken == 1
    next(checkpoint.records)
    assert taken == 2


def test_a_writer_can_pause_within_a_batch(make: Any) -> None:
    taken = 0

    def counted() -> Iterator[records.MetadataRecord]:
        nonlocal taken
        for number in range(2500):
            taken += 1
            yield make.config(f"{number:04}", "v")

    most = before = 0
    for _ in write_records(counted(), metadata_version=30, now_ms=1):
        most, before = max(most, taken - before), taken
    assert (most, taken) == (RECORDS_PER_STEP, 2500)


def test_batches_are_bounded(monkeypatch: pytest.MonkeyPatch, make: Any) -> None:
    configs = [make.config(f"{number:04}", "v") for number in range(2500)]
    chunks = write_records(configs, metadata_version=30, now_ms=1)
    sizes = [len(batch.records) for chunk in chunks for batch in decode_batches(chunk)]
    assert sizes == [1, 1024, 1024, 452, 1]
    monkeypatch.setattr(batch_module, "BATCH_SIZE_BYTES_MAX", 300)
    values = [make.config("a", "v" * size) for size in (100, 100, 180, 1, 1)]
    chunks = write_records(values, metadata_version=30, now_ms=1)
    sizes = [len(batch.records) for chunk in chunks for batch in decode_batches(chunk)]
    assert sizes == [1, 1, 1, 1, 2, 1]
    with pytest.raises(RecordsTooLarge, match=r"a batch at offset 1 has \d+ bytes, at most 300 are allowed"):
        list(write_records([make.config("a", "v" * 400)], metadata_version=30, now_ms=1))


def test_records_have_the_versions_of_the_level(make: Any) -> None:
    partition = make.partition(1, 0, directories=(None, None, None))
    for level, version in ((7, 0), (17, 1), (23, 2)):
        record = partition if level >= 17 else make.partition(1, 0)
        _, data, _ = write_records([record], metadata_version=level, now_ms=1)
        value = next(decode_batches(data)).records[0].value
        assert value is not None
        assert value[:3] == bytes((1, 3, version))


def control(*given: Any, offset: int) -> bytes:
    return encode_control_batch(given, offset, 1, 1)


def data_batch(record: Any, offset: int) -> bytes:
    return build_batch([encode_record(record)], offset, 1, 1)


NO_OP = records.NoOpRecord()


@pytest.mark.parametrize(
    ("chunks", "reason"),
    [
        ([], "has to start with a control batch"),
        ([data_batch(NO_OP, 0)], "has to start with a control batch"),
        ([control(FOOTER, offset=0)], "starts with a SnapshotFooterRecord"),
        ([control(HEADER, FOOTER, offset=0)], "head of a checkpoint has a SnapshotFooterRecord"),
        ([control(HEADER, offset=0)], "has no footer"),
        ([control(HEADER, offset=0), data_batch(NO_OP, 1)], "has no footer"),
        ([control(HEADER, offset=0), data_batch(NO_OP, 2)], "offset 2 instead of 1"),
        ([control(HEADER, offset=0), build_batch([b"x"], 1, 7, 1)], "epoch 7 instead of 1"),
        ([control(HEADER, offset=0), control(FOOTER, offset=1), data_batch(NO_OP, 2)], "in the middle"),
        (
            [
                control(HEADER, offset=0),
                control(LeaderChangeMessage(version=0, leader_id=1, voters=(), granting_voters=()), offset=1),
            ],
            "LeaderChangeMessage in the middle",
        ),
        ([control(HEADER, offset=0), control(FOOTER, offset=1)[:-1]], "bytes into a batch"),
        ([control(HEADER, offset=0), b"\0" * 8 + b"\x7f\xff\xff\xff"], "a batch of 2147483659 bytes"),
        ([b"\0" * 8 + b"\xff\xff\xff\xff"], "a batch of 11 bytes"),
    ],
)
def test_damaged_structure(chunks: list[bytes], reason: str) -> None:
    with pytest.raises(CorruptCheckpointError, match=reason):
        list(read_checkpoint(chunks).records)


def test_every_truncation_and_flipped_bit_is_found(image: MetadataImage) -> None:
    data = b"".join(write_checkpoint(image, now_ms=1))
    for length in range(len(data)):
        with pytest.raises(ProtocolError):
            list(read_checkpoint([data[:length]]).records)
    for position in range(0, len(data), 3):
        damaged = bytearray(data)
        damaged[position] ^= 1 << position % 8
        with pytest.raises(ProtocolError):
            list(read_checkpoint([bytes(damaged)]).records)
