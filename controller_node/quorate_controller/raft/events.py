"""Input and output of the raft core: events in, `Ready` out, and the description of the quorum."""

from collections.abc import Mapping
from dataclasses import field, replace
from enum import Enum

from quorate_protocol.errors import ErrorCode
from quorate_protocol.plain_data import dataclass

from quorate_controller.raft.messages import HIGH_WATERMARK_UNKNOWN, RaftRequest, RaftResponse
from quorate_controller.raft.model import NO_NODE_ID, Endpoint, ReplicaKey, SnapshotId
from quorate_controller.raft.startup import HardState
from quorate_controller.raft.voters import VoterSet
from quorate_controller.unix_time import UnixTime

# ------------------------------------------------------------------------------------------- events, in


class FailureReason(Enum):
    """The reason why a request of this replica got no response."""

    UNREACHABLE = "unreachable"
    """The connection failed: the peer is down, or its address is wrong."""
    DISCONNECTED = "disconnected"
    """The connection broke while the request waited for its response. The peer may still run."""
    TIMED_OUT = "timed out"
    UNSUPPORTED_VERSION = "unsupported version"
    """The peer speaks no version that can carry the request, for instance a pre-vote before Vote v2."""
    AUTHENTICATION_FAILED = "authentication failed"
    MISROUTED = "misrouted"
    """Another node, or a node of another cluster, has that address (KIP-1242)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestReceived:
    """A peer's request. `token` is the driver's, returned in the only `OutgoingResponse` to it.

    `listener` is the name of the listener it came in on: responses name the leader's endpoint on that one.
    """

    token: int
    request: RaftRequest
    listener: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseReceived:
    """The response to the `Send` with that request id."""

    request_id: int
    response: RaftResponse


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFailed:
    """The `Send` with that request id will get no response."""

    request_id: int
    reason: FailureReason


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLost:
    """The connection for votes and epochs to that node closed. Its process may have ended, or the connection
    was idle: a leader that shuts down counts the node as unreachable, every other role ignores it.
    """

    node_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """Time has passed; due at `RaftNode.deadline_ms`. Every other event advances the time, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Propose:
    """Whole encoded batches to append, leader only: the first base offset is `RaftNode.log_end_offset` and
    every batch has the current epoch.
    """

    batches: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Persisted:
    """The log is durable up to `end_offset` (exclusive)."""

    end_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotTaken:
    """The state machine has written a snapshot of the committed log; it is durable and can be served."""

    snapshot_id: SnapshotId


@dataclass(frozen=True, slots=True, kw_only=True)
class LogStartMoved:
    """Retention deleted the log below `start_offset`, which is at or below the latest snapshot's offset."""

    start_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotRestored:
    """`Ready.restore` was done: the log is empty and starts and ends at the snapshot's offset.

    `kraft_version` and `voters` are those of the snapshot's control records; None without one.
    """

    snapshot_id: SnapshotId
    kraft_version: int | None
    voters: VoterSet | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Resign:
    """Give up the leadership of `epoch`; without effect when it is over already."""

    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Shutdown:
    """Shut down within `timeout_ms`: a leader hands over first. Done when `RaftNode.is_shut_down`."""

    timeout_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotRefused:
    """`Ready.restore` failed: the snapshot is damaged and was deleted. Log and snapshots are as before."""

    snapshot_id: SnapshotId
    reason: str


Event = (
    RequestReceived
    | ResponseReceived
    | RequestFailed
    | ConnectionLost
    | Tick
    | Propose
    | Persisted
    | SnapshotTaken
    | LogStartMoved
    | SnapshotRestored
    | SnapshotRefused
    | Resign
    | Shutdown
)

# ------------------------------------------------------------------------------------------- Ready, out


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """The receiver of a request. `node_id` is negative for a bootstrap server whose id is unknown (-2, -3, ...: one
    number per address). A node may change its address; the request goes to the address given here.
    """

    node_id: int
    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """A request to a peer, followed by exactly one `ResponseReceived` or `RequestFailed` with `request_id`;
    after `timeout_ms` the driver gives up with TIMED_OUT.
    """

    request_id: int
    destination: Destination
    request: RaftRequest
    timeout_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingResponse:
    """The response to the `RequestReceived` with that token."""

    token: int
    response: RaftResponse
    is_for_observer: bool = False
    """Whether it goes to a replica that no commit waits for. Responses to voters and clients are sent first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotChunk:
    """Bytes of a snapshot being downloaded, to be written at `position`. At 0 a new download starts and any
    unfinished one is dropped.
    """

    snapshot_id: SnapshotId
    position: int
    data: bytes


class Role(Enum):
    """Kafka's names of the states, as the metric `current-state` spells them."""

    UNATTACHED = "unattached"
    PROSPECTIVE = "prospective"
    CANDIDATE = "candidate"
    LEADER = "leader"
    FOLLOWER = "follower"
    RESIGNED = "resigned"


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleChange:
    """Role, epoch and leader of this node, whenever one of them changes.

    `epoch_start_offset` is set for a leader: the offset of its LeaderChange record. Its state machine must
    have replayed up to there before it may decide anything.
    """

    role: Role
    epoch: int
    leader_id: int = NO_NODE_ID
    epoch_start_offset: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """An entry for the log: an event in snake case and its facts. `is_warning` when an operator should
    act; `exception` when code of ours failed.
    """

    event: str
    facts: Mapping[str, object] = field(default_factory=dict)
    is_warning: bool = False
    exception: Exception | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """What the driver must do, in the order of the fields: make durable, then send, then report.

    After `append` the driver feeds `Persisted`, after `restore` it feeds `SnapshotRestored` or `SnapshotRefused`;
    it continues until nothing is left to do. `truncate_to` removes the log from that offset on. `snapshot_chunk` goes
    to a partial file that `restore` completes: fsync, rename, and the log is reset to the snapshot.
    `high_watermark` is set when it moved; `voters` when the voter set in force changed, `role` likewise.
    """

    hard_state: HardState | None = None
    truncate_to: int | None = None
    append: bytes = b""
    snapshot_chunk: SnapshotChunk | None = None
    restore: SnapshotId | None = None
    sends: tuple[Send, ...] = ()
    responses: tuple[OutgoingResponse, ...] = ()
    high_watermark: int | None = None
    role: RoleChange | None = None
    voters: VoterSet | None = None
    notes: tuple[Note, ...] = ()


# ------------------------------------------------------------------------------------------- description


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaDescription:
    """A replica in DescribeQuorum. Timestamps are milliseconds of the leader's turns; -1 stands for unknown."""

    key: ReplicaKey
    log_end_offset: int = -1
    last_fetch_timestamp_ms: int = -1
    last_caught_up_timestamp_ms: int = -1
    endpoints: tuple[Endpoint, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumDescription:
    """The response to DescribeQuorum. A node that does not lead has `error_code` NOT_LEADER_OR_FOLLOWER, the leader
    that it follows, its own epoch, and the voters with their endpoints alone.
    """

    error_code: ErrorCode = ErrorCode.none
    leader_id: int = NO_NODE_ID
    leader_epoch: int = 0
    high_watermark: int = HIGH_WATERMARK_UNKNOWN
    voters: tuple[ReplicaDescription, ...] = ()
    observers: tuple[ReplicaDescription, ...] = ()

    def in_unix_time(self, unix_ms_of: UnixTime) -> "QuorumDescription":
        """The description with timestamps in Unix time."""

        def converted(replica: ReplicaDescription) -> ReplicaDescription:
            fetched_ms, caught_up_ms = replica.last_fetch_timestamp_ms, replica.last_caught_up_timestamp_ms
            return replace(
                replica,
                last_fetch_timestamp_ms=fetched_ms if fetched_ms < 0 else unix_ms_of(fetched_ms),
                last_caught_up_timestamp_ms=caught_up_ms if caught_up_ms < 0 else unix_ms_of(caught_up_ms),
            )

        return replace(
            self,
            voters=tuple(map(converted, self.voters)),
            observers=tuple(map(converted, self.observers)),
        )
