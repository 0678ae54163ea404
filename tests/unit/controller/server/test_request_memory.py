"""The memory of requests: budgets by class, counted as bytes arrive; slow senders give way."""

import asyncio
import logging
import socket
import struct
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from kit.noted_places import NotedPlace
from kit.waiting import HANG_S, turn_until
from quorate_controller.scheduler import ServiceClass
from quorate_controller.server import connection_memory, listener
from quorate_controller.server.connection import REQUEST_BYTES_MAX, Exchange
from quorate_controller.server.connection_memory import (
    ARRIVING_S_MIN,
    CREDIT_S_MAX,
    LEAST_BYTES_PER_S,
    READ_BYTES_MAX,
    RESERVED_BYTES,
    UNCOUNTED_REQUEST_BYTES_MAX,
    Arrival,
    RequestMemory,
)
from quorate_controller.server.counters import Limit, RequestCounters
from quorate_controller.server.listener_limits import ListenerLimits
from quorate_controller.server.server import ControllerServer, request_memory_bytes_max
from quorate_protocol.wire.frames import encode_frame

from tests.unit.controller.server.test_metrics_and_health import config

MIB = 1024 * 1024
FRAME = bytes(8 * MIB)
LIMITS = ListenerLimits(frame_size_bytes_max=100 * MIB)
STRANGERS_BYTES_MAX = RESERVED_BYTES[ServiceClass.STRANGERS]
HEARTBEAT_KEY, CREATE_TOPICS_KEY = b"\0\x3f", b"\0\x13"


class LengthHandler:
    """Responds to each request with its length; to large ones only when released, with `holds_large`."""

    def __init__(self, *, holds_large: bool = False) -> None:
        self.held: list[Exchange] = []
        self._holds_large = holds_large

    def handle(self, exchange: Exchange) -> None:
        if self._holds_large and len(exchange.frame) > MIB:
            self.held.append(exchange)
        else:
            respond(exchange)


def respond(exchange: Exchange) -> None:
    exchange.respond(encode_frame(struct.pack(">i", len(exchange.frame))))


class Sender:
    """A client that sends one large frame as fast as it is read."""

    def __init__(self, port: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._port = port
        self.socket = socket.socket()
        self.socket.setblocking(False)
        self.sent = 0

    async def start(self, size_bytes: int, key: bytes = CREATE_TOPICS_KEY) -> "Sender":
        """Connect, and announce a frame."""
        await self._loop.sock_connect(self.socket, ("127.0.0.1", self._port))
        await self._loop.sock_sendall(self.socket, struct.pack(">i", size_bytes) + key)
        self.sent = len(key)
        return self

    async def send(self, until: int) -> None:
        """Send the frame up to a position; waits while the other side does not read."""
        view = memoryview(FRAME)
        while self.sent < until:
            end = min(until, self.sent + 256 * 1024)
            await self._loop.sock_sendall(self.socket, view[self.sent : end])
            self.sent = end

    async def served(self) -> "Sender":
        """Connect, and have a small request served: no stranger any more."""
        await self._loop.sock_connect(self.socket, ("127.0.0.1", self._port))
        await self._loop.sock_sendall(self.socket, encode_frame(b"hello"))
        assert await self.response_length() == 5
        return self

    async def is_closed(self) -> bool:
        """Whether the server ends the connection."""
        try:
            return await asyncio.wait_for(self._loop.sock_recv(self.socket, 8), HANG_S) == b""
        except ConnectionError:
            return True

    async def response_length(self) -> int:
        """The length in the response."""
        data = b""
        while len(data) < 8:
            received = await asyncio.wait_for(self._loop.sock_recv(self.socket, 8), HANG_S)
            assert received, "the connection was closed"
            data += received
        return struct.unpack(">ii", data)[1]


async def serve_small(rig: Any) -> None:
    """Small requests, one after the other: enough turns to read whatever else would be read."""
    client = await rig.connect()
    for _ in range(100):
        client.writer.write(encode_frame(b"small"))
        assert await asyncio.wait_for(client.reader.readexactly(8), HANG_S) == struct.pack(">ii", 4, 5)


@pytest.mark.parametrize(
    ("size_bytes", "first_frames_size_bytes_max"),
    [(512 * 1024, 512 * 1024), (STRANGERS_BYTES_MAX, None)],
    ids=["SASL", "PLAINTEXT"],
)
async def test_an_announcement_takes_no_memory(
    rig: Any, size_bytes: int, first_frames_size_bytes_max: int | None
) -> None:
    await rig.listen(LIMITS, first_frames_size_bytes_max=first_frames_size_bytes_max)
    rig.listener.context.handler = LengthHandler()
    announcing = [
        await Sender(rig.listener.port).start(size_bytes, CREATE_TOPICS_KEY + bytes(2)) for _ in range(205)
    ]
    await turn_until(lambda: rig.listener.connection_count == 205)
    for key in (CREATE_TOPICS_KEY, HEARTBEAT_KEY):
        client = await rig.connect()
        client.writer.write(encode_frame(key + bytes(40_000)))
        assert await asyncio.wait_for(client.reader.readexactly(8), HANG_S) == struct.pack(">ii", 4, 40_002)
    assert rig.listener.context.memory.total_bytes == 0
    assert rig.counters.limited[Limit.REQUEST_MEMORY] == 0
    for sender in announcing:
        sender.socket.close()


async def test_strangers_take_bounded_memory(rig: Any) -> None:
    await rig.listen(LIMITS)
    rig.listener.context.handler = LengthHandler()
    node, client = [await Sender(rig.listener.port).served() for _ in range(2)]
    senders = [await Sender(rig.listener.port).start(4 * MIB) for _ in range(8)]
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        tasks = [asyncio.create_task(sender.send(4 * MIB - 1)) for sender in senders]
        await turn_until(lambda: rig.counters.limited[Limit.REQUEST_MEMORY] > 0)
        assert (
            rig.listener.context.memory.used_bytes[ServiceClass.STRANGERS]
            < STRANGERS_BYTES_MAX + 8 * READ_BYTES_MAX
        )
        await serve_small(rig)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # The bound, an eighth more of growing buffers, and what connections hold uncounted.
    assert (
        after - before
        < STRANGERS_BYTES_MAX * 9 / 8 + 8 * (UNCOUNTED_REQUEST_BYTES_MAX + READ_BYTES_MAX) + 2 * MIB
    )
    for sender, key in ((node, HEARTBEAT_KEY), (client, CREATE_TOPICS_KEY)):
        await asyncio.get_running_loop().sock_sendall(sender.socket, encode_frame(key + bytes(4 * MIB)))
        assert await sender.response_length() == 4 * MIB + 2
    for task in tasks:
        task.cancel()
    for sender in (*senders, node, client):
        sender.socket.close()
    await turn_until(lambda: rig.listener.context.memory.total_bytes == 0)


async def test_a_stranger_may_send_a_request_within_its_budget(
    rig: Any, caplog: pytest.LogCaptureFixture
) -> None:
    await rig.listen(LIMITS)
    rig.listener.context.handler = LengthHandler()
    stranger = await Sender(rig.listener.port).start(STRANGERS_BYTES_MAX + 1)
    await stranger.send(64 * 1024)
    assert await stranger.is_closed()
    assert rig.counters.limited[Limit.REQUEST_SIZE] == 1
    assert "a request of 8388609 bytes; strangers may send 8388608" in caplog.records[0].facts["reason"]  # type: ignore[attr-defined]
    within = await Sender(rig.listener.port).start(STRANGERS_BYTES_MAX)
    await within.send(STRANGERS_BYTES_MAX)
    assert await within.response_length() == STRANGERS_BYTES_MAX
    client = await Sender(rig.listener.port).served()
    await asyncio.get_running_loop().sock_sendall(client.socket, encode_frame(bytes(STRANGERS_BYTES_MAX + 1)))
    assert await client.response_length() == STRANGERS_BYTES_MAX + 1
    for sender in (stranger, within, client):
        sender.socket.close()


async def test_requests_count_until_they_are_answered(rig: Any) -> None:
    """Requests that wait for their responses are memory, too, on a connection that is closed in the meantime
    as well.
    """
    await rig.listen(LIMITS)
    rig.listener.context.handler = handler = LengthHandler(holds_large=True)
    first, second = [await Sender(rig.listener.port).served() for _ in range(2)]
    for sender in (first, second):
        await asyncio.get_running_loop().sock_sendall(sender.socket, encode_frame(FRAME))
    await turn_until(lambda: len(handler.held) == 2)
    used_bytes = len(FRAME) - UNCOUNTED_REQUEST_BYTES_MAX
    assert rig.listener.context.memory.used_bytes[ServiceClass.CLIENTS] == 2 * used_bytes
    respond(handler.held[0])
    await turn_until(lambda: rig.listener.context.memory.total_bytes == used_bytes)
    for sender in (first, second):
        sender.socket.close()
    await turn_until(lambda: rig.listener.context.memory.total_bytes == 0)


async def test_a_connection_holds_few_requests_at_once(rig: Any) -> None:
    await rig.listen(LIMITS)
    rig.listener.context.handler = silent = LengthHandler(holds_large=True)
    silent.handle = silent.held.append  # type: ignore[method-assign]
    client = await rig.connect()
    client.writer.write(encode_frame(bytes(16_000)) * 256)
    await turn_until(lambda: len(silent.held) > 1)
    for _ in range(len(silent.held), 256):
        await rig.barrier_of_loop()
    assert len(silent.held) * 16_000 <= REQUEST_BYTES_MAX + 16_000
    assert rig.listener.context.memory.total_bytes < REQUEST_BYTES_MAX + READ_BYTES_MAX
    for exchange in silent.held:
        silent.handle = respond  # type: ignore[method-assign]
        respond(exchange)
    await asyncio.wait_for(client.reader.readexactly(256 * 8), HANG_S)


async def test_a_refused_connection_holds_nothing(rig: Any) -> None:
    await rig.listen(LIMITS)
    client = await rig.connect()
    client.writer.write(
        encode_frame(b"\x7f\xff\x00\x00\x00\x00\x00\x01\xff\xff")
        + struct.pack(">i", 4 * MIB)
        + bytes(32 * 1024)
    )
    assert await client.is_closed()
    assert rig.listener.context.memory.total_bytes == 0


async def test_a_request_that_arrives_too_slowly_ends_its_connection(
    rig: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(connection_memory, "CREDIT_S_MAX", 0.02)
    monkeypatch.setattr(listener, "SWEEP_EVERY_S", 0.01)
    await rig.listen(LIMITS)
    rig.listener.context.handler = LengthHandler()
    silent, slow = await rig.connect(), await rig.connect()
    slow.writer.write(bytes(3))
    assert await slow.is_closed()
    assert rig.counters.limited == {Limit.REQUEST_RATE: 1}
    assert [record.message for record in caplog.records] == ["request_too_slow"]
    silent.writer.write(encode_frame(b"hello"))
    assert await asyncio.wait_for(silent.reader.readexactly(8), HANG_S) == struct.pack(">ii", 4, 5)


def test_the_time_of_a_request_grows_with_its_bytes() -> None:
    """Large requests over slow lines are served, and time in which we do not read does not count."""
    arrival = Arrival()
    arrival.arrived(1, 100.0, is_new=True)
    assert arrival.due_s == 100 + CREDIT_S_MAX
    for second in range(1, 8):
        arrival.arrived(1, 100.0 + second, is_new=False)
    assert arrival.due_s == pytest.approx(100 + CREDIT_S_MAX, abs=0.001)
    arrival.arrived(5 * LEAST_BYTES_PER_S, 108.0, is_new=False)
    assert arrival.due_s == pytest.approx(105 + CREDIT_S_MAX, abs=0.001)
    arrival.pause(110.0)
    assert arrival.due_s is None
    arrival.resume(500.0)
    assert arrival.due_s == pytest.approx(505.0, abs=0.001)
    arrival.arrived(32 * 1024, 501.0, is_new=True)
    assert arrival.due_s == 501 + CREDIT_S_MAX
    arrival.pause(502.0)
    arrival.completed()
    arrival.resume(503.0)
    assert arrival.due_s is None, "TLS may pass on the rest of a request while the connection is not read"


class Held(NotedPlace):
    """A connection that holds requests."""

    def __init__(self, memory: RequestMemory, service_class: ServiceClass = ServiceClass.CLIENTS) -> None:
        super().__init__()
        self._memory = memory
        self._class = service_class
        self.close = self._closed

    def hold(self, size_bytes: int, missing_bytes: int = 0) -> bool:
        return self._memory.hold(self, self._class, size_bytes + UNCOUNTED_REQUEST_BYTES_MAX, missing_bytes)

    def _closed(self) -> None:
        self.events.append("closed")
        self._memory.forget(self)


class Timers:
    """A clock whose timers run when it is moved."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self._due: list[tuple[float, Callable[[], None]]] = []

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> None:
        self._due.append((self.now_s + delay_s, callback))

    def move(self, seconds: float) -> None:
        """Let time pass, timer by timer."""
        ends_s = self.now_s + seconds
        while self._due and min(self._due, key=lambda timer: timer[0])[0] <= ends_s:
            self._due.sort(key=lambda timer: timer[0])
            self.now_s, callback = self._due.pop(0)
            callback()
        self.now_s = ends_s


@pytest.fixture
def timers() -> Timers:
    return Timers()


@pytest.fixture
def memory(timers: Timers) -> RequestMemory:
    return RequestMemory(MIB, RequestCounters(), timers.call_later, lambda: timers.now_s)


def test_who_lacks_least_goes_on_first(memory: RequestMemory, timers: Timers) -> None:
    """Large unfinished requests do not hold up a smaller one."""
    done, large, small = Held(memory), Held(memory), Held(memory)
    assert done.hold(MIB)
    assert not large.hold(1_000, 500_000)
    assert not small.hold(1_000, 30_000)
    timers.move(0.3)
    assert large.events == small.events == []
    done.hold(MIB - 10_000)
    timers.move(0.1)
    assert (large.events, small.events) == ([], ["granted"])
    memory.forget(done)
    timers.move(0.1)
    assert large.events == ["granted"]


def test_the_oldest_unfinished_request_gives_way(
    memory: RequestMemory, timers: Timers, caplog: pytest.LogCaptureFixture
) -> None:
    """A client that fills a budget and stops sending is disconnected within a second."""
    first, second, third = Held(memory), Held(memory), Held(memory)
    assert first.hold(MIB // 2, MIB)
    timers.move(0.05)
    assert not second.hold(MIB // 2, MIB)
    assert not third.hold(1_000, 30_000)
    timers.move(0.4)
    assert (first.events, third.events) == ([], [])
    timers.move(0.2)
    assert (first.events, second.events, third.events) == (["closed"], ["granted"], ["granted"])
    assert memory.total_bytes == MIB // 2 + 1_000
    assert [record.message for record in caplog.records] == [
        "request_memory_full",
        "unfinished_request_gave_way",
    ]


def test_a_complete_request_does_not_give_way(memory: RequestMemory, timers: Timers) -> None:
    done, waiting, other = Held(memory), Held(memory), Held(memory)
    assert done.hold(MIB)
    assert not waiting.hold(1_000, 30_000)
    assert not other.hold(1_000, 40_000)
    timers.move(1.0)
    assert (done.events, waiting.events, other.events) == ([], [], [])
    memory.forget(done)
    timers.move(0.1)
    assert (waiting.events, other.events) == (["granted"], ["granted"])


def test_classes_have_budgets_of_their_own(memory: RequestMemory) -> None:
    client, other, node = Held(memory), Held(memory), Held(memory, ServiceClass.NODES)
    assert not client.hold(MIB, 1)
    assert not other.hold(1, 1)
    assert node.hold(MIB, 1)
    assert memory.used_bytes[ServiceClass.NODES] == MIB
    assert node.hold(0)
    assert memory.total_bytes == MIB + 1


def test_the_bound_follows_the_configuration() -> None:
    assert (
        request_memory_bytes_max(config(properties={"queued.max.request.bytes": "300000000"})) == 300_000_000
    )
    assert request_memory_bytes_max(config(properties={"queued.max.request.bytes": "-1"})) == -1
    assert request_memory_bytes_max(config(properties={"socket.request.max.bytes": "4096"})) == 4096
    unbounded = RequestMemory(-1, RequestCounters(), lambda *_: None, lambda: 0.0)
    assert Held(unbounded).hold(10**10, 1)


async def test_listeners_share_budgets_and_scheduler(rig: Any) -> None:
    configured = config()
    two = replace(
        configured,
        listeners=(*configured.listeners, replace(configured.listeners[0], name="CLIENTS")),
        listener_security={
            **configured.listener_security,
            "CLIENTS": configured.listener_security["CONTROLLER"],
        },
    )
    first, second = ControllerServer(two, rig.node)._listeners
    for part in ("memory", "responses", "scheduler", "quotas", "counters"):
        assert getattr(first.context, part) is getattr(second.context, part), part


def test_the_request_that_lacks_least_never_gives_way() -> None:
    now_s = 100.0
    timers: list[Callable[[], None]] = []
    memory = RequestMemory(0, RequestCounters(), lambda _delay_s, call: timers.append(call), lambda: now_s)
    missing_bytes = {NotedPlace("least"): 10, NotedPlace("second"): 1_000, NotedPlace("third"): 1_000}
    for size_bytes in (1, STRANGERS_BYTES_MAX // 2, STRANGERS_BYTES_MAX // 2):
        for place, missing in missing_bytes.items():
            memory.hold(place, ServiceClass.STRANGERS, UNCOUNTED_REQUEST_BYTES_MAX + size_bytes, missing)
            now_s += 0.01
    least, second, _ = missing_bytes
    now_s += ARRIVING_S_MIN
    timers.pop()()
    assert (least.events, second.events) == (["granted"], ["closed"])


def test_a_request_saves_up_bounded_time() -> None:
    """A connection that stops is closed soon, whatever it has sent."""
    arrival = Arrival()
    arrival.arrived(1, 100.0, is_new=True)
    assert arrival.due_s == 100.0 + CREDIT_S_MAX
    arrival.arrived(LEAST_BYTES_PER_S, 105.0, is_new=False)
    assert arrival.due_s == 101.0 + CREDIT_S_MAX
    arrival.arrived(1_000 * LEAST_BYTES_PER_S, 106.0, is_new=False)
    assert arrival.due_s == 106.0 + CREDIT_S_MAX
