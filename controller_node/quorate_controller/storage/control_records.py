"""What the head of a checkpoint says about the quorum: kraft.version and voters (KIP-853)."""

from dataclasses import dataclass

from quorate_protocol.records.batch import decode_batches
from quorate_protocol.records.control import (
    KRaftVersionRecord,
    SnapshotHeaderRecord,
    VotersRecord,
    decode_control,
)

from quorate_controller.raft.voters import VoterSet


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotQuorum:
    """The head of a checkpoint. `kraft_version` and `voters` are None where it has none."""

    last_contained_log_timestamp_ms: int
    kraft_version: int | None
    voters: VoterSet | None


def read_snapshot_quorum(head: bytes) -> SnapshotQuorum:
    """From the first batch of a checkpoint. CorruptBatch, UnknownRecord or MalformedMessage if it is none."""
    batch = next(decode_batches(head))
    timestamp_ms = 0
    kraft_version: int | None = None
    voters: VoterSet | None = None
    for record in batch.records:
        match decode_control(record):
            case SnapshotHeaderRecord(last_contained_log_timestamp=timestamp):
                timestamp_ms = timestamp
            case KRaftVersionRecord(k_raft_version=level):
                kraft_version = level
            case VotersRecord() as voters_record:
                voters = VoterSet.from_record(voters_record)
            case _:
                pass
    return SnapshotQuorum(
        last_contained_log_timestamp_ms=timestamp_ms, kraft_version=kraft_version, voters=voters
    )
