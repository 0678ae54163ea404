"""The messages of replicas: requests and responses, which come in `events` and leave in `events.Ready`.

They have the fields of Kafka's messages of the same names at their highest version, without the topic and partition
nesting around the one partition there is (`__cluster_metadata`, 0). The server translates. A field that an older
version lacks is None, or has the default documented here.

`top_level_error_code` is the error of the response as a whole: when it is set, the wire has no partition and the
other fields are meaningless. `error_code` is the error of the partition.
"""

from dataclasses import replace

from quorate_protocol.errors import ErrorCode
from quorate_protocol.plain_data import dataclass

from quorate_controller.raft.model import (
    NO_NODE_ID,
    Endpoint,
    OffsetAndEpoch,
    ReplicaKey,
    SnapshotId,
    VersionRange,
)

HIGH_WATERMARK_UNKNOWN = -1

# ---------------------------------------------------------------------------------------------- requests


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteRequest:
    """A candidate (or, with `pre_vote`, a prospective one) asks for a vote. KIP-595, 853, 996.

    `voter` is the receiver as the sender knows it, None in version 0. `replica_epoch` is the epoch the
    sender stands for; in a pre-vote its current epoch. A sender of `pre_vote` needs version 2 or later: the
    request then fails with `events.FailureReason.UNSUPPORTED_VERSION` where a peer has none.
    """

    cluster_id: str | None
    voter: ReplicaKey | None
    replica: ReplicaKey
    replica_epoch: int
    last_offset: int
    last_offset_epoch: int
    pre_vote: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginQuorumEpochRequest:
    """A new leader announces itself to a voter. `voter` and `leader_endpoints` came with version 1."""

    cluster_id: str | None
    voter: ReplicaKey | None
    leader_id: int
    leader_epoch: int
    leader_endpoints: tuple[Endpoint, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EndQuorumEpochRequest:
    """A leader resigns. `preferred_candidates`, the most caught-up first, have no directory ids in version 0
    (there PreferredSuccessors).
    """

    cluster_id: str | None
    leader_id: int
    leader_epoch: int
    preferred_candidates: tuple[ReplicaKey, ...] = ()
    leader_endpoints: tuple[Endpoint, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchRequest:
    """A replica asks for records from `fetch_offset`, which is also the end of its log.

    `replica.node_id` is -1 for a reader that is no replica. `high_watermark` (version 18, KIP-1166) is the
    replica's, -1 when unknown, and None when its version lacks the field.
    `last_fetched_epoch` is the epoch of the record before `fetch_offset`.
    """

    cluster_id: str | None
    replica: ReplicaKey
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    max_wait_ms: int
    max_bytes: int = 0x7FFFFFFF
    high_watermark: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSnapshotRequest:
    """A replica asks for bytes of a snapshot from byte `position`. KIP-630."""

    cluster_id: str | None
    replica: ReplicaKey
    current_leader_epoch: int
    snapshot_id: SnapshotId
    position: int
    max_bytes: int = 0x7FFFFFFF


@dataclass(frozen=True, slots=True, kw_only=True)
class AddRaftVoterRequest:
    """Add a voter. `ack_when_committed` False (version 1) responds once the leader has appended the change."""

    cluster_id: str | None
    timeout_ms: int
    voter: ReplicaKey
    endpoints: tuple[Endpoint, ...]
    ack_when_committed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveRaftVoterRequest:
    """Remove a voter by id and directory id. KIP-853."""

    cluster_id: str | None
    voter: ReplicaKey


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateRaftVoterRequest:
    """A voter sends the leader its endpoints and its range of kraft.version. KIP-853."""

    cluster_id: str | None
    current_leader_epoch: int
    voter: ReplicaKey
    endpoints: tuple[Endpoint, ...]
    kraft_versions: VersionRange


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiVersionsProbe:
    """Ask a replica that is to become a voter for its feature ranges: an ApiVersions request, sent only."""


RaftRequest = (
    VoteRequest
    | BeginQuorumEpochRequest
    | EndQuorumEpochRequest
    | FetchRequest
    | FetchSnapshotRequest
    | AddRaftVoterRequest
    | RemoveRaftVoterRequest
    | UpdateRaftVoterRequest
    | ApiVersionsProbe
)

# --------------------------------------------------------------------------------------------- responses


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderEndpoint:
    """The leader's endpoint on the listener that the request came in on (NodeEndpoints on the wire)."""

    node_id: int
    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderResponse:
    """The leader and epoch that the sender knows."""

    error_code: ErrorCode = ErrorCode.none
    leader_id: int = NO_NODE_ID
    leader_epoch: int = 0
    leader_endpoint: LeaderEndpoint | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionResponse(LeaderResponse):
    """A response whose partition is the metadata log. `top_level_error_code` replaces the partition."""

    top_level_error_code: ErrorCode = ErrorCode.none


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteResponse(PartitionResponse):
    vote_granted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginQuorumEpochResponse(PartitionResponse):
    """The response to the announcement of a new leader."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndQuorumEpochResponse(PartitionResponse):
    """The response to the resignation of a leader."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRange:
    """The records of a FetchResponse: whole batches from `start_offset` to below `end_offset`, the first of them even
    if it is larger than `size_bytes_max`.
    """

    start_offset: int
    end_offset: int
    size_bytes_max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchResponse(PartitionResponse):
    """Records, or the point where the logs diverge, or the snapshot to load first.

    In an outgoing response `records` is empty and `read` is what the driver has to read (None: nothing).
    In a response from a peer `records` are its bytes and `read` is None. `high_watermark` is -1 when unknown.
    """

    leader_epoch: int = -1
    high_watermark: int = HIGH_WATERMARK_UNKNOWN
    log_start_offset: int = -1
    diverging_epoch: OffsetAndEpoch | None = None
    snapshot_id: SnapshotId | None = None
    records: bytes = b""
    read: ReadRange | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotRead:
    """The bytes of a FetchSnapshotResponse: at most `size_bytes_max` from byte `position`.

    Only storage knows the size of a snapshot: the driver also fills `FetchSnapshotResponse.size_bytes`, and
    responds SNAPSHOT_NOT_FOUND or POSITION_OUT_OF_RANGE by `FetchSnapshotResponse.refused`.
    """

    snapshot_id: SnapshotId
    position: int
    size_bytes_max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSnapshotResponse(PartitionResponse):
    """A chunk of a snapshot. `read` and `records` as in `FetchResponse`."""

    snapshot_id: SnapshotId | None = None
    size_bytes: int = 0
    position: int = 0
    records: bytes = b""
    read: SnapshotRead | None = None

    def refused(self, error_code: ErrorCode) -> "FetchSnapshotResponse":
        """This response when storage cannot serve the read."""
        return replace(self, error_code=error_code, snapshot_id=None, position=0, read=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class AddRaftVoterResponse:
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveRaftVoterResponse:
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateRaftVoterResponse(LeaderResponse):
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiVersionsProbeResponse:
    """`kraft_versions` is the peer's supported range of the feature kraft.version, None without that feature."""

    error_code: ErrorCode = ErrorCode.none
    kraft_versions: VersionRange | None = None


RaftResponse = (
    VoteResponse
    | BeginQuorumEpochResponse
    | EndQuorumEpochResponse
    | FetchResponse
    | FetchSnapshotResponse
    | AddRaftVoterResponse
    | RemoveRaftVoterResponse
    | UpdateRaftVoterResponse
    | ApiVersionsProbeResponse
)
