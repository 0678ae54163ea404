"""Control records and their batches."""

import struct
import uuid

import pytest
from quorate_protocol.errors import MalformedMessage, UnknownRecord
from quorate_protocol.records.batch import Record, decode_batches
from quorate_protocol.records.control import (
    ControlRecord,
    Endpoint,
    KRaftVersionFeature,
    KRaftVersionRecord,
    LeaderChangeMessage,
    LeaderChangeVoter,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    Voter,
    VotersRecord,
    decode_control,
    encode_control_batch,
)

DIRECTORY_ID = uuid.UUID("27c68600-f7cb-42dd-9baa-cd494ffacc81")
RECORDS: tuple[ControlRecord, ...] = (
    LeaderChangeMessage(
        version=1,
        leader_id=3000,
        voters=(LeaderChangeVoter(voter_id=3000, voter_directory_id=DIRECTORY_ID),),
        granting_voters=(LeaderChangeVoter(voter_id=3000, voter_directory_id=None),),
    ),
    SnapshotHeaderRecord(version=0, last_contained_log_timestamp=1_700_000_000_123),
    SnapshotFooterRecord(version=0),
    KRaftVersionRecord(version=0, k_raft_version=1),
    VotersRecord(
        version=0,
        voters=(
            Voter(
                voter_id=3000,
                voter_directory_id=DIRECTORY_ID,
                endpoints=(Endpoint(name="CONTROLLER", host="h", port=9093),),
                k_raft_version_feature=KRaftVersionFeature(min_supported_version=0, max_supported_version=1),
            ),
        ),
    ),
)


def control_record(key: bytes | None, value: bytes | None) -> Record:
    """A record as a control batch has it."""
    return Record(offset_delta=0, timestamp_ms=0, key=key, value=value)


def test_control_batch_holds_every_kind() -> None:
    (batch,) = decode_batches(encode_control_batch(RECORDS, base_offset=8, epoch=2, timestamp_ms=55))
    assert batch.is_control
    assert (batch.base_offset, batch.last_offset, batch.partition_leader_epoch) == (8, 12, 2)
    assert tuple(decode_control(record) for record in batch.records) == RECORDS
    assert [record.key for record in batch.records] == [struct.pack(">hh", 0, kind) for kind in range(2, 7)]


def test_leader_change_of_version_0_has_no_directory_ids() -> None:
    voters = (LeaderChangeVoter(voter_id=1, voter_directory_id=None),)
    message = LeaderChangeMessage(version=0, leader_id=1, voters=voters, granting_voters=voters)
    (batch,) = decode_batches(encode_control_batch([message], 0, 1, 0))
    voter = b"\x02\x00\x00\x00\x01\x00"
    assert batch.records[0].value == b"\x00\x00\x00\x00\x00\x01" + voter + voter + b"\x00"
    assert decode_control(batch.records[0]) == message


@pytest.mark.parametrize(
    ("key", "value", "error"),
    [
        (None, b"\x00\x00", MalformedMessage),
        (b"\x00\x00", b"\x00\x00", MalformedMessage),
        (b"\x00\x00\x00\x02", None, MalformedMessage),
        (b"\x00\x00\x00\x02", b"\x00", MalformedMessage),
        (b"\x00\x00\x00\x02", b"\x00\x00", MalformedMessage),
        (b"\x00\x00\x00\x02", b"\x00\x02", UnknownRecord),
        (b"\x00\x00\x00\x02", b"\xff\xff", UnknownRecord),
        (b"\x00\x00\x00\x07", b"\x00\x00", UnknownRecord),
        (b"\x00\x00\x00\x01", b"\x00\x00", UnknownRecord),
    ],
)
def test_garbage_is_a_typed_error(key: bytes | None, value: bytes | None, error: type[Exception]) -> None:
    with pytest.raises(error):
        decode_control(control_record(key, value))
