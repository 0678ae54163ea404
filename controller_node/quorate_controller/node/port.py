"""The boundary of the node: its interface for the server, and for outbound requests.

The server never calls raft, control or storage. It turns frames into requests, passes them to a `NodePort` and
turns the responses into frames. The driver implements `NodePort`; it passes raft's outbound requests to a
`PeerTransport` (`server/peers.py`), which reports the result of each as one raft event.

All of it runs on one event loop. A future that the server gets is owned by the node until it is done. The
server cancels it when the client has gone or its timeout has passed. The node therefore checks `future.done()`
before it sets a result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from quorate_protocol.plain_data import dataclass

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Mapping

    from quorate_protocol.kafka.apis import Payload

    from quorate_controller.node.events import Caller, NotAwaited, OwnRequest, ResponseWithData
    from quorate_controller.node.status import NodeStatus
    from quorate_controller.raft import messages
    from quorate_controller.raft.events import (
        ConnectionLost,
        QuorumDescription,
        RequestFailed,
        ResponseReceived,
        Send,
    )
    from quorate_controller.security.authorizer import Authorizer
    from quorate_controller.security.sasl import Credentials


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalizedFeatures:
    """The features in ApiVersions.

    `levels` are finalized levels as of `epoch` (the offset of the last committed record seen, -1 when
    unknown); `supported` maps each feature to the (lowest, highest) level that this node can run.
    """

    levels: Mapping[str, int]
    epoch: int
    supported: Mapping[str, tuple[int, int]]


class NodePort(Protocol):
    """The interface of the node for the server."""

    @property
    def node_id(self) -> int:
        """This node's id."""

    @property
    def cluster_id(self) -> str:
        """The cluster's id from meta.properties."""

    @property
    def is_active(self) -> bool:
        """Whether this node is the active controller: leader, and caught up with its own log. Cheap."""

    @property
    def authorizer(self) -> Authorizer | None:
        """Authorizes requests by the ACLs of the image; None if no authorizer is configured."""

    @property
    def credentials(self) -> Credentials:
        """The SCRAM credentials of users and delegation tokens."""

    def control(self, request: Payload, caller: Caller) -> Future[Payload | NotAwaited]:
        """Decide on a canonical control request. The response follows the commit of all that it changed or saw.

        With a timeout of 0, the response to a change follows its decision (KIP-4).
        A standby serves reads (DescribeCluster, DescribeConfigs); the server refuses all other requests there.
        A node that has just started serves requests once it has caught up.

        Raises:
            ControlError: its error code goes to the client. NOT_CONTROLLER when leadership is lost before the
                commit, UNKNOWN_SERVER_ERROR when the decision failed.
        """

    def raft(self, request: messages.RaftRequest, listener: str) -> Future[ResponseWithData]:
        """Pass a request that was received on `listener` to raft. A Fetch may wait for up to its max wait."""

    def describe_quorum(self) -> QuorumDescription:
        """The content of DescribeQuorum: leader, epoch, high watermark, voters and observers with their offsets."""

    def features(self) -> FinalizedFeatures:
        """Features for ApiVersions. Cheap: called once per connection."""

    def status(self) -> NodeStatus:
        """Snapshot for metrics and readiness."""

    def seconds_since_turn(self) -> float:
        """Age of the node's last turn. A healthy node turns at least once a second, idle or not."""

    def raft_event(self, event: ResponseReceived | RequestFailed | ConnectionLost) -> None:
        """Report the result of an outbound raft request, or the loss of the connection for votes to a peer."""


class PeerTransport(Protocol):
    """Outbound raft requests, for the driver. Implemented by `peers.PeerConnections`."""

    def send(self, send: Send) -> None:
        """Queue a request. Exactly one `ResponseReceived` or `RequestFailed` with its id follows."""

    def ask(self, own: OwnRequest) -> Future[Payload]:
        """Send a request of this controller itself.

        The future raises OSError, or UnsupportedVersion if the receiver does not have the API.
        """

    async def close(self) -> None:
        """Close all connections; requests in flight end without an event."""
