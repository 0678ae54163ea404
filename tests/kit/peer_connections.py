"""Connections to other controllers, and a controller with scripted responses."""

import asyncio
import random
from typing import TYPE_CHECKING, Any

from kit.waiting import HANG_S, turn_until
from quorate_controller.raft import messages as m
from quorate_controller.raft.events import Destination, Send
from quorate_controller.raft.model import ReplicaKey
from quorate_controller.server.counters import RequestCounters
from quorate_controller.server.peer_lane import LaneLimits
from quorate_controller.server.peers import PeerConnections
from quorate_controller.server.raft_wire import response_to_wire
from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.apis import CONTROLLER_APIS
from quorate_protocol.kafka.generated.api_versions_response import (
    ApiVersion,
    ApiVersionsResponse,
    SupportedFeatureKey,
)
from quorate_protocol.wire.frames import FrameDecoder
from quorate_protocol.wire.server import Request, parse_request, serialize_response

if TYPE_CHECKING:
    from collections.abc import Callable

VOTE_GRANTED = m.VoteResponse(leader_epoch=5, vote_granted=True)


def vote(*, pre_vote: bool = False) -> m.VoteRequest:
    return m.VoteRequest(
        cluster_id="c",
        voter=ReplicaKey(node_id=2),
        replica=ReplicaKey(node_id=1),
        replica_epoch=5,
        last_offset=0,
        last_offset_epoch=0,
        pre_vote=pre_vote,
    )


FETCH = m.FetchRequest(
    cluster_id="c",
    replica=ReplicaKey(node_id=1),
    current_leader_epoch=5,
    fetch_offset=0,
    last_fetched_epoch=0,
    max_wait_ms=500,
)


class FakePeer:
    """A controller with scripted versions and responses."""

    def __init__(self) -> None:
        self.ranges = {key: (api.version_min, api.version_max) for key, api in CONTROLLER_APIS.items()}
        self.responses: dict[int, Callable[[Any], Any]] = {52: lambda _body: response_to_wire(VOTE_GRANTED)}
        self.requests: list[Request] = []
        self.transports: list[asyncio.Transport] = []
        self.closed: list[asyncio.Transport] = []
        self.raw_response: bytes | None = None
        self.node_id = 2
        self._server: asyncio.Server | None = None

    async def start(self, port: int = 0) -> int:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _PeerConnection(self), "127.0.0.1", port)
        return int(self._server.sockets[0].getsockname()[1])

    def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for transport in self.transports:
            transport.abort()

    def seen(self, key: int) -> list[int]:
        """The versions of the requests of one API that came."""
        return [request.version for request in self.requests if request.api.key == key]

    def receive(self, transport: asyncio.Transport, frame: bytes) -> None:
        request = parse_request(frame)
        self.requests.append(request)
        if self.raw_response is not None:
            transport.write(self.raw_response)
        elif request.api.key == 18:
            self.respond_to_versions(transport, request)
        elif request.api.key in self.responses:
            body = self.responses[request.api.key](request.body)
            response = serialize_response(request.api, request.version, request.correlation_id, body)
            transport.write(response)

    def respond_to_versions(self, transport: asyncio.Transport, request: Request) -> None:
        lowest, highest = self.ranges[18]
        if not lowest <= request.version <= highest:
            body = ApiVersionsResponse(
                error_code=ErrorCode.unsupported_version,
                api_keys=(ApiVersion(api_key=18, min_version=lowest, max_version=highest),),
            )
            transport.write(serialize_response(request.api, 0, request.correlation_id, body))
            return
        is_meant = request.body.node_id in (-1, self.node_id)
        body = ApiVersionsResponse(
            error_code=ErrorCode.none if is_meant else ErrorCode.rebootstrap_required,
            api_keys=tuple(
                ApiVersion(api_key=key, min_version=low, max_version=high)
                for key, (low, high) in self.ranges.items()
            ),
            supported_features=(SupportedFeatureKey(name="kraft.version", min_version=0, max_version=1),)
            if request.version >= 4
            else (),
        )
        transport.write(serialize_response(request.api, request.version, request.correlation_id, body))


class _PeerConnection(asyncio.Protocol):
    def __init__(self, peer: FakePeer) -> None:
        self._peer = peer
        self._frames = FrameDecoder()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._peer.transports.append(transport)

    def data_received(self, data: bytes) -> None:
        for frame in self._frames.feed(data):
            self._peer.receive(self._transport, frame)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's interface
        self._peer.closed.append(self._transport)


class PeerBench:
    """Peer connections under test, the fake peer, and the raft events that came."""

    def __init__(self) -> None:
        self.peer = FakePeer()
        self.port = 0
        self.events: list[Any] = []
        self.counters = RequestCounters()
        self.connections: PeerConnections
        self._next_id = 0

    async def start(self, **limits: Any) -> None:
        self.port = await self.peer.start()
        self.open(**limits)

    def open(self, **limits: Any) -> None:
        self.connections = PeerConnections(
            client_id="controller-1",
            cluster_id="c",
            counters=self.counters,
            rng=random.Random(1),
            on_raft_event=self.events.append,
            limits=LaneLimits(
                **{"setup_timeout_s": HANG_S, "backoff_s": 0.001, "backoff_s_max": 0.004, **limits}
            ),
        )

    def send(
        self, request: Any, *, timeout_ms: int = HANG_S * 1000, node_id: int = 2, port: int | None = None
    ) -> int:
        """Send to the fake peer. Returns the request id."""
        self._next_id += 1
        destination = Destination(node_id=node_id, host="127.0.0.1", port=port or self.port)
        self.connections.send(
            Send(request_id=self._next_id, destination=destination, request=request, timeout_ms=timeout_ms)
        )
        return self._next_id

    async def wait_events(self, count: int) -> list[Any]:
        """All events so far, once there are `count`."""
        await turn_until(lambda: len(self.events) >= count)
        return self.events

    async def wait_request(self, key: int, count: int = 1) -> None:
        """Return when the peer has `count` requests of an API."""
        await turn_until(lambda: len(self.peer.seen(key)) >= count)
