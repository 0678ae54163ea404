"""A node that only records, clients and peers on real sockets, for the tests of the server."""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import uvloop
from kit.controller_parts import node_status
from kit.java.tls import Certificates
from kit.peer_connections import PeerBench
from kit.tls_listener import TlsRig
from kit.waiting import HANG_S
from quorate_controller.node.events import Caller, ResponseWithData
from quorate_controller.node.port import FinalizedFeatures
from quorate_controller.node.status import NodeStatus
from quorate_controller.raft.events import QuorumDescription
from quorate_controller.security.authorizer import Authorizer
from quorate_controller.server import peers
from quorate_controller.server.connection_quotas import ConnectionLimits, ConnectionQuotas
from quorate_controller.server.counters import RequestCounters
from quorate_controller.server.dispatch import Dispatcher
from quorate_controller.server.listener import Listener
from quorate_controller.server.listener_limits import ListenerLimits
from quorate_protocol.kafka.generated.api_versions_request import ApiVersionsRequest
from quorate_protocol.wire.client import ClientConnection

LOCALHOST = "127.0.0.1"


@pytest.hookimpl(optionalhook=True)
def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Each test that needs a loop runs on Python's own and on uvloop, which serves in production."""
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@dataclass
class FakeNode:
    """Implements NodePort: returns futures that the test resolves, or those of `decide` and `reply` at once."""

    node_id: int = 1
    cluster_id: str = "cluster"
    is_active: bool = True
    turn_age_s: float = 0.1
    decide: Callable[[Any, Caller], Any] | None = None
    respond: Callable[[Any], ResponseWithData] | None = None
    quorum: QuorumDescription = field(default_factory=QuorumDescription)
    feature_levels: FinalizedFeatures = field(
        default_factory=lambda: FinalizedFeatures(
            levels={"metadata.version": 29},
            epoch=77,
            supported={"metadata.version": (7, 29), "kraft.version": (0, 1)},
        )
    )
    node_status: NodeStatus = field(default_factory=node_status)
    controls: list[tuple[Any, Caller, asyncio.Future[Any]]] = field(default_factory=list)
    rafts: list[tuple[Any, str, asyncio.Future[ResponseWithData]]] = field(default_factory=list)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    authorizer: Authorizer | None = None

    def control(self, request: Any, caller: Caller) -> asyncio.Future[Any]:
        future = asyncio.get_running_loop().create_future()
        self.controls.append((request, caller, future))
        if self.decide is not None:
            result = self.decide(request, caller)
            if isinstance(result, Exception):
                future.set_exception(result)
            else:
                future.set_result(result)
        self.arrived.set()
        return future

    def raft(self, request: Any, listener: str) -> asyncio.Future[ResponseWithData]:
        future = asyncio.get_running_loop().create_future()
        self.rafts.append((request, listener, future))
        if self.respond is not None:
            future.set_result(self.respond(request))
        self.arrived.set()
        return future

    async def requests(self, count: int) -> list[asyncio.Future[Any]]:
        """Wait for `count` requests. Returns their futures, control before raft."""
        while len(self.controls) + len(self.rafts) < count:
            self.arrived.clear()
            await asyncio.wait_for(self.arrived.wait(), HANG_S)
        return [entry[-1] for entry in (*self.controls, *self.rafts)]

    def describe_quorum(self) -> QuorumDescription:
        return self.quorum

    def features(self) -> FinalizedFeatures:
        return self.feature_levels

    def status(self) -> NodeStatus:
        return self.node_status

    def seconds_since_turn(self) -> float:
        return self.turn_age_s

    def raft_event(self, event: Any) -> None:
        raise AssertionError(f"the server tells nothing of {event}")


@dataclass
class WireClient:
    """A Kafka client that may pipeline."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    codec: ClientConnection = field(default_factory=lambda: ClientConnection("test", in_flight_max=1_000))
    unread: deque[Any] = field(default_factory=deque)

    def send(self, request: Any, version: int) -> None:
        """Send a canonical request in one version."""
        self.writer.write(self.codec.send(request, version))

    async def receive(self) -> Any:
        """The next response; ConnectionError when the connection ends first."""
        while not self.unread:
            data = await asyncio.wait_for(self.reader.read(1 << 20), HANG_S)
            if not data:
                raise ConnectionError("closed")
            self.unread.extend(response for _, response in self.codec.receive_data(data))
        return self.unread.popleft()

    async def ask(self, request: Any, version: int) -> Any:
        """Send, and wait for the response."""
        self.send(request, version)
        return await self.receive()

    async def is_closed(self) -> bool:
        """Whether the server ends the connection without sending anything more."""
        try:
            return await asyncio.wait_for(self.reader.read(1), HANG_S) == b""
        except ConnectionError:
            return True

    async def drain_until_closed(self) -> None:
        """Read whatever comes until the server ends the connection."""
        with contextlib.suppress(ConnectionError):
            while await asyncio.wait_for(self.reader.read(1 << 16), HANG_S):
                pass

    async def close(self) -> None:
        """Close our side."""
        self.writer.close()


class Rig:
    """A listener over a fake node, and the clients connected to it."""

    def __init__(self) -> None:
        self.node = FakeNode()
        self.counters = RequestCounters()
        self.listener: Listener
        self._clients: list[WireClient] = []

    async def listen(
        self,
        limits: ListenerLimits | None = None,
        connections: ConnectionLimits | None = None,
        *,
        first_frames_size_bytes_max: int | None = None,
    ) -> Listener:
        """Start the listener."""
        self.listener = Listener(
            name="CONTROLLER",
            handler=Dispatcher(self.node, self.counters),
            limits=limits or ListenerLimits(),
            first_frames_size_bytes_max=first_frames_size_bytes_max,
            quotas=ConnectionQuotas(connections or ConnectionLimits(), ["CONTROLLER"], self.counters),
            counters=self.counters,
        )
        await self.listener.start(LOCALHOST, 0)
        return self.listener

    async def connect(self) -> WireClient:
        """A new client connection."""
        client = WireClient(*await asyncio.open_connection(LOCALHOST, self.listener.port))
        self._clients.append(client)
        return client

    async def barrier_of_loop(self) -> None:
        """Let the event loop look at all sockets some times."""
        for _ in range(20):
            await asyncio.sleep(0)

    async def barrier(self) -> None:
        """Return when all that was sent to the listener before is taken: another client is served."""
        for _ in range(3):
            client = await self.connect()
            await client.ask(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 4)

    async def close(self) -> None:
        """Close everything."""
        for client in self._clients:
            await client.close()
        if hasattr(self, "listener"):
            await self.listener.close(grace_s=0)
        await asyncio.sleep(0)


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    """A listener over a fake node."""
    built = Rig()
    yield built
    await built.close()


@pytest.fixture
async def bench(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[PeerBench]:
    """Connections to peers, and a scripted peer."""
    monkeypatch.setattr(peers, "OWN_REQUEST_TIMEOUT_MS", HANG_S * 1000)
    built = PeerBench()
    yield built
    await built.connections.close()
    built.peer.stop()
    await asyncio.sleep(0)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """An authority, a server, a client."""
    return Certificates.create(tmp_path_factory.mktemp("tls") / "certificates")


@pytest.fixture
async def secured() -> AsyncIterator[TlsRig]:
    """A listener with TLS, which the test starts."""
    built = TlsRig()
    yield built
    await built.close()
