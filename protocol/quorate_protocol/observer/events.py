"""What an observer returns: positions, events, and the errors that end an observation."""

from typing import Final, NamedTuple

from quorate_protocol.errors import ErrorCode, ProtocolError
from quorate_protocol.plain_data import dataclass
from quorate_protocol.records.batch import RecordBatch


class Position(NamedTuple):
    """The end of a prefix of the log, which is also the id of the snapshot of that prefix (Kafka: OffsetAndEpoch)."""

    offset: int
    """Offset of the next record."""
    epoch: int
    """Leader epoch of the record before it."""

    def __str__(self) -> str:
        return f"offset {self.offset}, epoch {self.epoch}"


BEGINNING: Final = Position(0, 0)
"""The position before the first record."""


class Endpoint(NamedTuple):
    """The address of a controller's listener."""

    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderChanged:
    """The leader or its epoch has changed."""

    leader_id: int
    """-1 if there is no leader."""
    epoch: int
    endpoint: Endpoint | None
    """None if it is unknown: the observer asks the bootstrap addresses in turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """Complete batches below the high watermark, in order, control batches included."""

    batches: tuple[RecordBatch, ...]
    """At least one; the first starts where the last event ended."""
    position: Position
    """The end of the last batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Truncated:
    """A new leader's log lacks fetched records. They were not committed, so no event contained them."""

    position: Position
    """The end of the remaining fetched records."""
    records: int
    """Number of dropped records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """The leader no longer has the records at our position; a snapshot replaces them."""

    start: Position
    end: Position
    """The id of the offered snapshot; a later one may be loaded instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotBegun:
    """The download of a snapshot starts; its chunks follow."""

    snapshot_id: Position
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotChunk:
    """The next bytes of the snapshot; a chunk may end anywhere."""

    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotAbandoned:
    """The chunks so far are void: the leader has deleted the snapshot, or is no longer the leader."""

    snapshot_id: Position


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotLoaded:
    """The snapshot is complete: it replaces everything before it."""

    position: Position
    """The id of the snapshot; the records after it follow."""


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
    """A controller refuses Fetch: not authorized, another cluster, an unsupported request."""

    def __init__(self, error_code: ErrorCode) -> None:
        super().__init__(
            error_code,
            f"the controller refuses to serve the metadata log: {int(error_code)} {error_code.name.upper()}",
        )


class HistoryLostError(ProtocolError):
    """The leader's log contradicts committed records: records were lost, or it is another log.

    It happens only after a loss of disks, or when a directory was formatted again.
    """

    def __init__(self, position: Position, leader_end: Position) -> None:
        super().__init__(
            ErrorCode.offset_out_of_range,
            f"the log of the leader no longer has the records that were committed up to {position}: it differs "
            f"from {leader_end} on; read the log from its beginning",
        )
        self.position = position
        self.leader_end = leader_end
