"""Metadata records as log record values."""

import uuid
from typing import Any

import pytest
from quorate_protocol.errors import MalformedMessage, UnknownRecord, UnsupportedVersion
from quorate_protocol.records.framing import (
    decode_record,
    encode_record,
    encode_record_at,
    record_version_for,
)
from quorate_protocol.records.generated import (
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
    UnregisterControllerRecord,
)

TOPIC_ID = uuid.UUID("b5a1c9b6-6f4e-4f0f-8f36-5d3c3f1a2b4c")


def partition(**changes: object) -> PartitionRecord:
    """A partition record."""
    values: dict[str, object] = {
        "partition_id": 3,
        "topic_id": TOPIC_ID,
        "replicas": (1, 2),
        "isr": (1,),
        "removing_replicas": (),
        "adding_replicas": (),
        "leader": 1,
        "leader_epoch": 4,
        "partition_epoch": 9,
    }
    return PartitionRecord(**(values | changes))


def test_frame_is_version_key_and_record_version() -> None:
    """The frame of Kafka's AbstractApiMessageSerde."""
    assert encode_record(NoOpRecord()) == b"\x01\x14\x00\x00"
    assert encode_record(UnregisterControllerRecord(controller_id=7)) == b"\x01\x1d\x00\x00\x00\x00\x07\x00"
    topic = TopicRecord(name="foo", topic_id=TOPIC_ID)
    assert encode_record(topic) == b"\x01\x02\x00\x04foo" + TOPIC_ID.bytes + b"\x00"


@pytest.mark.parametrize("version", [0, 1, 2])
def test_older_version_is_decoded_into_the_newest_class(version: int) -> None:
    encoded = encode_record(partition(), version)
    assert encoded[2] == version
    assert decode_record(encoded) == partition()


def test_zero_uuid_is_none() -> None:
    """As in messages."""
    record = partition(topic_id=None, directories=(None, TOPIC_ID))
    assert decode_record(encode_record(record)) == record


def test_what_a_version_cannot_carry_is_refused() -> None:
    with pytest.raises(UnsupportedVersion, match="eligible_leader_replicas"):
        encode_record(partition(eligible_leader_replicas=(2,)), 1)


@pytest.mark.parametrize(
    ("level", "expected"),
    [(7, (1, 0, 0)), (8, (2, 0, 0)), (17, (3, 1, 1)), (22, (3, 1, 1)), (23, (3, 2, 2)), (30, (4, 2, 2))],
)
def test_record_version_follows_the_metadata_version(level: int, expected: tuple[int, int, int]) -> None:
    types = (RegisterBrokerRecord, PartitionRecord, PartitionChangeRecord)
    assert tuple(record_version_for(record_type, level) for record_type in types) == expected
    assert record_version_for(TopicRecord, level) == 0


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"fenced": -1}, 0),
        ({"fenced": 1, "in_controlled_shutdown": 1}, 1),
        ({"log_dirs": (TOPIC_ID,)}, 2),
        ({"cordoned_log_dirs": ()}, 3),
    ],
)
def test_broker_change_is_written_in_the_lowest_version(change: dict[str, Any], expected: int) -> None:
    record = BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=2, **change)
    encoded = encode_record_at(record, 30)
    assert encoded[2] == expected
    assert decode_record(encoded) == record


def test_other_records_are_written_in_the_version_of_the_level() -> None:
    assert [encode_record_at(partition(), level)[2] for level in (7, 17, 30)] == [0, 1, 2]


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", MalformedMessage),
        (b"\x01", MalformedMessage),
        (b"\x01\x14", MalformedMessage),
        (b"\x00\x14\x00\x00", UnknownRecord),
        (b"\x02\x14\x00\x00", UnknownRecord),
        (b"\x01\x06\x00\x00", UnknownRecord),
        (b"\x01\xff\x7f\x00\x00", UnknownRecord),
        (b"\x01\x14\x01\x00", UnknownRecord),
        (b"\x01\x14\x00", MalformedMessage),
        (b"\x01\x14\x00\x00\x00", MalformedMessage),
        (b"\x01\xff\xff\xff\xff\xff\x01\x00", MalformedMessage),
    ],
)
def test_garbage_is_a_typed_error(data: bytes, error: type[Exception]) -> None:
    with pytest.raises(error):
        decode_record(data)


def test_unknown_tagged_field_of_a_newer_writer_is_skipped() -> None:
    """KIP-482's forward compatibility."""
    encoded = encode_record(TopicRecord(name="foo", topic_id=TOPIC_ID))
    assert decode_record(encoded[:-1] + b"\x01\x63\x02ab") == TopicRecord(name="foo", topic_id=TOPIC_ID)


def test_nested_structs_survive_every_version() -> None:
    record = RegisterBrokerRecord(
        broker_id=1,
        incarnation_id=TOPIC_ID,
        broker_epoch=12,
        end_points=(BrokerEndpoint(name="PLAINTEXT", host="h", port=65535, security_protocol=0),),
        features=(BrokerFeature(name="metadata.version", min_supported_version=7, max_supported_version=30),),
        rack=None,
    )
    for version in range(5):
        assert decode_record(encode_record(record, version)) == record
