"""Outbound connections of this controller: raft's requests to other controllers, its registration and its heartbeats.

Each peer has up to three lanes, connected on first use, because Kafka responds to the requests of one connection
in order: a Fetch that waits at the leader, or a request that waits for a commit, must not hold back a vote.

`Examiner` identifies the node at the address of a new voter, or of a peer whose responses raise a doubt. Java
controllers serve any client and do not report their id. But every controller reports its cluster (DescribeCluster)
and describes only its own configuration (DescribeConfigs). The requests go over a separate connection.
"""

from __future__ import annotations

import asyncio
import logging
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from quorate_protocol.errors import ErrorCode, ProtocolError
from quorate_protocol.kafka.enums import EndpointType
from quorate_protocol.kafka.generated.describe_cluster_request import DescribeClusterRequest
from quorate_protocol.kafka.identity import is_node, node_question

from quorate_controller.node.events import OWN_REQUEST_TIMEOUT_MS
from quorate_controller.raft import messages
from quorate_controller.raft.events import (
    ConnectionLost,
    Destination,
    FailureReason,
    RequestFailed,
    ResponseReceived,
    Send,
)
from quorate_controller.server import misrouting
from quorate_controller.server.misrouting import UNKNOWN_NODE_ID, Misrouting, NodeIdentity, verdict
from quorate_controller.server.peer_lane import Address, LaneLimits, Outbound, PeerLane
from quorate_controller.server.raft_wire import request_to_wire, response_from_wire

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Hashable, Iterable, Sequence


log = logging.getLogger(__name__)

TIMEOUT_S: Final = 1.0
PAUSE_S: Final = 1.0
"""The least time between two examinations of one route that found nothing wrong."""
NODE_IDS_MAX: Final = 100
"""The number of node ids that are tried to identify a node."""


class Examiner:
    """Examines the routes to other controllers: the node and the kind of connection are a route's key.

    What is wrong with a route is logged and reported to `on_misrouted` once, until the route is `served`.
    """

    def __init__(
        self, *, cluster_id: str, open_lane: Callable[[Address], PeerLane], on_misrouted: Callable[[], None]
    ) -> None:
        self._cluster_id = cluster_id
        self._open_lane = open_lane
        self._on_misrouted = on_misrouted
        self._loop = asyncio.get_running_loop()
        self._tasks: dict[Hashable, asyncio.Task[None]] = {}
        self._reported: dict[Hashable, Misrouting] = {}
        self._not_before_s: dict[Hashable, float] = {}

    def doubted(self, route: Hashable, address: Address, doubt: Misrouting) -> None:
        """Identify the node at a route, unless that is under way, was just done, or has found another node."""
        is_early = self._loop.time() < self._not_before_s.get(route, 0.0)
        if route in self._tasks or route in self._reported or is_early:
            return
        self._start(route, self._resolve(route, address, doubt))

    def served(self, route: Hashable, address: Address) -> None:
        """The intended node has served a request."""
        if self._reported and self._reported.pop(route, None) is not None:
            log.info("peer_reached_again", extra={"facts": {"peer": str(address)}})

    def forget(self, route: Hashable) -> None:
        """The route is used no more."""
        self._reported.pop(route, None)
        self._not_before_s.pop(route, None)

    def confirm(self, address: Address, then: Callable[[bool], None]) -> None:
        """Identify the node at a new address; `then` gets whether it may be the intended one."""

        async def confirm() -> None:
            what = await self._examine(address, None)
            then(what is None)

        self._start(object(), confirm())

    async def close(self) -> None:
        """End the examinations and their connections."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start(self, key: Hashable, examination: Coroutine[Any, Any, None]) -> None:
        task = self._tasks[key] = self._loop.create_task(examination)
        task.add_done_callback(lambda _: self._tasks.pop(key, None))

    async def _resolve(self, route: Hashable, address: Address, doubt: Misrouting) -> None:
        what = await self._examine(address, doubt)
        if what is None:
            self._not_before_s[route] = self._loop.time() + PAUSE_S
        else:
            self._reported[route] = what

    async def _examine(self, address: Address, doubt: Misrouting | None) -> Misrouting | None:
        """Identify the node; another one than the intended is logged and reported."""
        # The connection names no intended node, because another node might refuse it then.
        lane = self._open_lane(Address(node_id=UNKNOWN_NODE_ID, host=address.host, port=address.port))
        try:
            identity = await _identify(lane, address.node_id)
        finally:
            lane.close()
        what = verdict(doubt, identity, cluster_id=self._cluster_id)
        if what is not None:
            facts = {
                "peer": str(address),
                "meant": what.value,
                "cluster_id": self._cluster_id,
                "found_cluster_id": identity.cluster_id,
                "found_node_id": identity.node_id,
            }
            log.warning("peer_misrouted", extra={"facts": facts})
            self._on_misrouted()
        return what


async def _identify(lane: PeerLane, meant: int) -> NodeIdentity:
    cluster_id, node_ids = None, [meant]
    try:
        async with asyncio.timeout(TIMEOUT_S):
            described = await lane.ask(_cluster_question(), TIMEOUT_S)
            if described.error_code is ErrorCode.none:
                cluster_id = described.cluster_id
                node_ids += [node.broker_id for node in described.brokers[:NODE_IDS_MAX]]
            configs = await lane.ask(node_question(node_ids), TIMEOUT_S)
    except OSError:  # TimeoutError, too
        return NodeIdentity(cluster_id=cluster_id)
    return identity_in(node_ids, cluster_id, configs.results)


def identity_in(node_ids: Sequence[int], cluster_id: str | None, results: Iterable[Any]) -> NodeIdentity:
    """Return the node by its cluster and its results of `node_question`; the first id is the intended one."""
    responses = {result.resource_name: is_node(result.error_code) for result in results}
    return NodeIdentity(
        cluster_id=cluster_id,
        is_meant=responses.get(str(node_ids[0])),
        node_id=next((node_id for node_id in node_ids if responses.get(str(node_id))), None),
    )


def _cluster_question() -> DescribeClusterRequest:
    return DescribeClusterRequest(
        include_cluster_authorized_operations=False,
        endpoint_type=EndpointType.CONTROLLER,
        include_fenced_brokers=False,
    )


if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Callable
    from random import Random

    from quorate_protocol.kafka.apis import Payload
    from quorate_protocol.security.tokens import TokenKeeper

    from quorate_controller.config.listener_sasl import Login
    from quorate_controller.node.events import OwnRequest
    from quorate_controller.server.counters import RequestCounters
    from quorate_controller.server.tls import TlsOfListener

    RaftEvent = ResponseReceived | RequestFailed | ConnectionLost

log = logging.getLogger(__name__)


class _Lane(Enum):
    """Which requests share a connection."""

    QUORUM = "quorum"
    """Vote, BeginQuorumEpoch, EndQuorumEpoch: the response comes at once."""
    FETCH = "fetch"
    """Fetch and FetchSnapshot: wait for data, carry much of it."""
    MEMBERSHIP = "membership"
    """Whatever waits for a commit."""


_LANES: Final[dict[type, _Lane]] = {
    messages.FetchRequest: _Lane.FETCH,
    messages.FetchSnapshotRequest: _Lane.FETCH,
    messages.VoteRequest: _Lane.QUORUM,
    messages.BeginQuorumEpochRequest: _Lane.QUORUM,
    messages.EndQuorumEpochRequest: _Lane.QUORUM,
}


def _lane_of(send: Send) -> _Lane:
    return _LANES.get(type(send.request), _Lane.MEMBERSHIP)


def _address(destination: Destination) -> Address:
    return Address(node_id=destination.node_id, host=destination.host, port=destination.port)


def _nothing() -> None:
    """For a lane whose requests report their failures."""


class PeerConnections:
    """All lanes to all peers. Implements `port.PeerTransport`; reports to raft by `on_raft_event`."""

    def __init__(
        self,
        *,
        client_id: str,
        cluster_id: str,
        rng: Random,
        on_raft_event: Callable[[RaftEvent], None],
        counters: RequestCounters,
        limits: LaneLimits | None = None,
        tls: TlsOfListener | None = None,
        login: Login | None = None,
        tokens: TokenKeeper | None = None,
    ) -> None:
        self._login = login
        self._tokens = tokens
        self._tls = tls
        self._client_id = client_id
        self._cluster_id = cluster_id
        self._counters = counters
        self._rng = rng
        self._on_raft_event = on_raft_event
        self._limits = limits or LaneLimits()
        self._loop = asyncio.get_running_loop()
        self._lanes: dict[tuple[int, _Lane], PeerLane] = {}
        self._examiner = Examiner(
            cluster_id=cluster_id, open_lane=self._open_lane, on_misrouted=self._misrouted
        )
        self._is_closed = False
        self._sweep = self._loop.call_later(self._limits.idle_timeout_s / 4, self._close_idle)

    def send(self, send: Send) -> None:
        """Queue a request. Exactly one `ResponseReceived` or `RequestFailed` with its id follows.

        After `close` nothing is sent, and nothing follows.
        """
        if self._is_closed:
            return
        outbound = Outbound(
            request=request_to_wire(send.request),
            on_response=partial(self._raft_responded, send),
            on_failure=partial(self._raft_failed, send.request_id),
        )
        self._lane(send.destination, _lane_of(send)).submit(outbound, send.timeout_ms / 1000)

    def ask(self, own: OwnRequest) -> Future[Payload]:
        """Send a request of this controller itself.

        The future raises OSError, or UnsupportedVersion if the other side does not have the API.
        """
        if self._is_closed:
            return self._loop.create_future()
        lane = self._lane(own.destination, _Lane.MEMBERSHIP)
        return lane.ask(own.request, OWN_REQUEST_TIMEOUT_MS / 1000)

    async def close(self) -> None:
        """Close all connections; requests in flight end without an event."""
        self._is_closed = True
        self._sweep.cancel()
        await self._examiner.close()
        for lane in self._lanes.values():
            lane.close()
        self._lanes.clear()
        await asyncio.sleep(0)  # lets transports run their callbacks before the loop may end

    def _lane(self, destination: Destination, kind: _Lane) -> PeerLane:
        """Return the lane to a destination. A lane to a former address of the peer is closed."""
        key = (destination.node_id, kind)
        address = _address(destination)
        lane = self._lanes.get(key)
        if lane is not None and lane.address != address:
            lane.abandon()
            self._examiner.forget((lane.address, kind))
            lane = None
        if lane is None:
            lane = self._lanes[key] = self._open_lane(
                address, on_lost=partial(self._lost, destination.node_id, kind), on_misrouted=self._misrouted
            )
        return lane

    def _open_lane(
        self,
        address: Address,
        *,
        on_lost: Callable[[], None] = _nothing,
        on_misrouted: Callable[[], None] = _nothing,
    ) -> PeerLane:
        return PeerLane(
            address,
            client_id=self._client_id,
            cluster_id=self._cluster_id,
            limits=self._limits,
            rng=self._rng,
            on_lost=on_lost,
            on_misrouted=on_misrouted,
            tls=self._tls,
            login=self._login,
            tokens=self._tokens,
        )

    def _raft_responded(self, send: Send, response: Payload) -> None:
        try:
            message = response_from_wire(response)
        except ProtocolError as error:
            log.warning("peer_response_refused", extra={"facts": {"reason": error.message}})
            self._raft_failed(send.request_id, FailureReason.DISCONNECTED)
            return
        self._judge(send, message)
        received = ResponseReceived(request_id=send.request_id, response=message)
        if isinstance(send.request, messages.ApiVersionsProbe) and message.error_code is ErrorCode.none:
            # The address of a new voter: its response does not have its id.
            self._examiner.confirm(_address(send.destination), partial(self._probed, received))
            return
        self._on_raft_event(received)

    def _probed(self, received: ResponseReceived, is_meant: bool) -> None:
        if is_meant:
            self._on_raft_event(received)
        else:
            self._raft_failed(received.request_id, FailureReason.MISROUTED)

    def _judge(self, send: Send, response: messages.RaftResponse) -> None:
        """Have the node examined when its response makes it doubtful that it is the intended one."""
        address = _address(send.destination)
        route = address, _lane_of(send)
        doubt = misrouting.of_response(send, response)
        if doubt is not None:
            self._examiner.doubted(route, address, doubt)
        elif response.error_code is ErrorCode.none:
            self._examiner.served(route, address)

    def _raft_failed(self, request_id: int, reason: FailureReason) -> None:
        self._on_raft_event(RequestFailed(request_id=request_id, reason=reason))

    def _lost(self, node_id: int, kind: _Lane) -> None:
        if kind is _Lane.QUORUM and node_id >= 0:
            self._on_raft_event(ConnectionLost(node_id=node_id))

    def _misrouted(self) -> None:
        self._counters.misrouted_peer_connections += 1

    def _close_idle(self) -> None:
        for lane in self._lanes.values():
            lane.close_if_idle()
        self._sweep = self._loop.call_later(self._limits.idle_timeout_s / 4, self._close_idle)
