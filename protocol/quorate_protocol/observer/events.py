"""What an observer returns: positions, events, and the errors that end an observation."""

from dataclasses import dataclass
from typing import Final, NamedTuple

from quorate_protocol.errors import ErrorCode, ProtocolError
from quorate_protocol.records.batch import RecordBatch


class Position(NamedTuple):
    """The end of a prefix of the log; also the id of the snapshot of that prefix (Kafka: OffsetAndEpoch)."""

    offset: int
    """Offset of the next record."""
    epoch: int
    """Leader epoch of the record before it."""

    def __str__(self) -> str:
        return f"offset {self.offset}, epoch {self.epoch}"


BEGINNING: Final = Position(0, 0)
"""Nothing has been read."""


class Endpoint(NamedTuple):
    """Where a controller listens."""

    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderChanged:
    """Another leader, another epoch, or none."""

    leader_id: int
    """-1 while there is none."""
    epoch: int
    endpoint: Endpoint | None
    """None when nobody has told: the bootstrap addresses are asked one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """Batches below the high watermark, whole and in order, control batches among them."""

    batches: tuple[RecordBatch, ...]
    """At least one; the first begins where the last event ended."""
    position: Position
    """Behind the last of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Truncated:
    """A new leader's log lacks records that were fetched; they were not committed, so nobody has seen them."""

    position: Position
    """The end of what is still held."""
    records: int
    """How many were dropped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """The leader no longer has the records behind our position: a snapshot will stand for them."""

    start: Position
    end: Position
    """That of the snapshot, which is offered and may still change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotBegun:
    """The first chunk of a snapshot is about to follow."""

    snapshot_id: Position
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotChunk:
    """The next bytes of the snapshot, cut anywhere."""

    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotAbandoned:
    """The chunks so far are of no use: the leader has deleted the snapshot, or is no longer the leader."""

    snapshot_id: Position


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotLoaded:
    """The snapshot is whole: it replaces everything before."""

    position: Position
    """Its id: the records from there on follow."""


Event = (
    LeaderChanged
    | Committed
    | Truncated
    | Gap
    | SnapshotBegun
    | SnapshotChunk
    | SnapshotAbandoned
    | SnapshotLoaded
)


class RefusedError(ProtocolError):
    """A controller will not let us fetch: not authorized, another cluster, a request it does not take."""

    def __init__(self, error_code: ErrorCode) -> None:
        super().__init__(
            error_code, f"the controller refuses to be observed: {int(error_code)} {error_code.name.upper()}"
        )


class HistoryLostError(ProtocolError):
    """The leader's log contradicts what was handed out as committed: records were lost, or it is another log.

    Kafka's quorums do that only after a loss of disks, or when a directory was formatted anew.
    """

    def __init__(self, position: Position, leader_end: Position) -> None:
        super().__init__(
            ErrorCode.offset_out_of_range,
            f"what was committed up to {position} is no longer in the log of the leader, which parts from it "
            f"at {leader_end}; read the log from its beginning to see what is there now",
        )
        self.position = position
        self.leader_end = leader_end
