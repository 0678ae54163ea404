"""What the server asks of the controller node behind it, and what it gives back.

The server never calls into raft, control or storage. It turns frames into requests, hands them to a
`NodePort` and turns the answers into frames. The node hands its outbound raft requests to a `PeerTransport`
(`peers.PeerConnections`) and is told of the outcome by one raft event per request.

All of it runs on one event loop. A future that the server gets is owned by the node until it is done; the
server cancels it when nobody waits for the answer any more (the client left, or its timeout passed), so the
node checks `future.done()` before it sets a result.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Mapping, Sequence

    from kio.schema.controller_registration.v0.response import ControllerRegistrationResponse
    from kio.static.protocol import Payload

    from quorate_controller.node.events import RegistrationSend
    from quorate_controller.raft import messages
    from quorate_controller.server.counters import LatencyHistogram


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Who asks: `User:ANONYMOUS` on a connection without authentication."""

    type: str = "User"
    name: str = "ANONYMOUS"
    token_authenticated: bool = False

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The circumstances of one request, as authorization and version-dependent answers need them.

    A forwarded request (Envelope) has the principal and host of the client that asked the broker, and the
    listener on which the broker reached us.
    """

    principal: Principal
    client_host: str
    client_id: str | None
    listener: str
    api_version: int
    request_timeout_ms: int
    forwarded: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftAnswer:
    """A raft response and the bytes that belong to it.

    `data` holds the record batches of a FetchResponse or the chunk of a FetchSnapshotResponse, exactly as
    storage read them; it is empty for every other response.
    """

    response: messages.RaftResponse
    data: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalizedFeatures:
    """What ApiVersions tells about features.

    `levels` are finalized levels as of `epoch` (the offset of the last committed record seen, -1 when
    unknown); `supported` maps each feature to the (lowest, highest) level that this node can run.
    """

    levels: Mapping[str, int]
    epoch: int
    supported: Mapping[str, tuple[int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStatus:
    """A snapshot of the node for readiness and metrics; taken on a scrape, so it may cost some microseconds.

    Offsets are of the metadata log. `current_state` is Kafka's word: leader, candidate, follower,
    observer, resigned, unattached or prospective, the last two with -voted once this node has voted. Ids and
    the high watermark are -1 when unknown; offset, time and size of the latest snapshot are 0 when there is
    none.
    """

    node_id: int
    cluster_id: str
    current_state: str
    is_voter: bool
    is_active: bool
    leader_id: int
    leader_epoch: int
    voted_id: int
    high_watermark: int
    log_start_offset: int
    log_end_offset: int
    latest_snapshot_end_offset: int
    latest_snapshot_timestamp_ms: int
    latest_snapshot_size_bytes: int
    last_applied_offset: int
    last_applied_timestamp_ms: int
    is_caught_up: bool
    """Whether all that the leader last told to be committed is applied here; False without a leader."""
    voter_ids: Sequence[int]
    observer_count: int
    active_broker_count: int
    fenced_broker_count: int
    controlled_shutdown_broker_count: int
    topic_count: int
    partition_count: int
    offline_partition_count: int
    preferred_replica_imbalance_count: int
    new_active_controller_count: int
    election_count: int
    metadata_version: int = 0
    kraft_version: int = 0
    is_registered: bool = False
    """Whether the metadata says of this controller what it is (KIP-919)."""
    controller_count: int = 0
    """Registered controllers, ghosts among them."""
    broker_states: Mapping[int, int] = field(default_factory=dict)
    """Kafka's BrokerRegistrationState by broker id: 10 fenced, 20 controlled shutdown, 30 active."""
    commit_latency: LatencyHistogram | None = None
    """From appending on the active controller to the commit."""
    event_queue_time: LatencyHistogram | None = None
    """From an event's arrival to the turn that takes it."""


class NodePort(Protocol):
    """What the node does for the server."""

    @property
    def node_id(self) -> int:
        """This node's id."""

    @property
    def cluster_id(self) -> str:
        """The cluster's id from meta.properties."""

    @property
    def is_active(self) -> bool:
        """Whether this node is the active controller: leader, and caught up with its own log. Cheap."""

    def control(self, request: Payload, caller: Caller) -> Future[Payload]:
        """Decide on a canonical control request; the answer comes when what it changed or saw is committed.

        The future fails with `quorate_protocol.errors.ProtocolError` (or `ControlError`), whose error code
        goes to the client; NOT_CONTROLLER when leadership is lost before the commit. Reads (DescribeCluster,
        DescribeConfigs) are answered on a standby too; the server itself refuses the others there.
        """

    def raft(self, request: messages.RaftRequest, listener: str) -> Future[RaftAnswer]:
        """Step raft with a request received on `listener`; a Fetch may stay unanswered for its max wait."""

    def describe_quorum(self) -> messages.QuorumDescription:
        """What DescribeQuorum answers: leader, epoch, high watermark, voters and observers with their
        offsets.
        """

    def features(self) -> FinalizedFeatures:
        """Features for ApiVersions. Cheap: asked once per connection."""

    def status(self) -> NodeStatus:
        """Snapshot for metrics and readiness."""

    def seconds_since_turn(self) -> float:
        """Age of the node's last turn. A node that works turns at least once a second, idle or not."""

    def raft_event(
        self, event: messages.ResponseReceived | messages.RequestFailed | messages.ConnectionLost
    ) -> None:
        """Tell how an outbound raft request ended, or that an established connection to a peer broke."""


class PeerTransport(Protocol):
    """Outbound raft requests, for the driver. Implemented by `peers.PeerConnections`."""

    def send(self, send: messages.Send) -> None:
        """Send a request when its turn comes. One `ResponseReceived` or `RequestFailed` with its id follows."""

    def send_registration(self, registration: RegistrationSend) -> Future[ControllerRegistrationResponse]:
        """Register with the active controller; the future fails with OSError or ProtocolError."""

    async def close(self) -> None:
        """Close all connections; what is in flight ends without a word."""
