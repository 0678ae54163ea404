"""What the head of a checkpoint says about the quorum: kraft.version and voters (KIP-853)."""

from quorate_protocol.image.snapshot import read_checkpoint
from quorate_protocol.plain_data import dataclass

from quorate_controller.raft.voters import VoterSet


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotQuorum:
    """The head of a checkpoint. `kraft_version` is None at level 0, `voters` where it has none."""

    last_contained_log_timestamp_ms: int
    kraft_version: int | None
    voters: VoterSet | None


def read_snapshot_quorum(head: bytes) -> SnapshotQuorum:
    """From the bytes at the start of a checkpoint, the first batch among them.

    Raises:
        ProtocolError: they are not those of a checkpoint.
    """
    checkpoint = read_checkpoint([head])
    voters = checkpoint.voters
    return SnapshotQuorum(
        last_contained_log_timestamp_ms=checkpoint.last_contained_log_timestamp_ms,
        kraft_version=checkpoint.kraft_version or None,
        voters=None if voters is None else VoterSet.from_record(voters),
    )
