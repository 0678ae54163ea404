"""Large requests of many connections share a bound of memory: reading pauses, nobody is thrown out."""

import asyncio
import socket
import struct
import tracemalloc
from typing import Any

import pytest
from kit.waiting import HANG_S, turn_until
from quorate_controller.server.connection import ListenerLimits
from quorate_controller.server.counters import RequestCounters
from quorate_controller.server.exchange import Exchange
from quorate_controller.server.request_memory import RequestMemory
from quorate_controller.server.server import listener_limits
from quorate_protocol.wire.frames import encode_frame

from tests.unit.controller.server.test_metrics_and_health import config

MIB = 1024 * 1024
FRAME = bytes(8 * MIB)
LIMITS = ListenerLimits(frame_size_bytes_max=len(FRAME), request_memory_bytes_max=len(FRAME))


class Answering:
    """Answers each request with its length; large ones only when told to, if so made."""

    def __init__(self, *, holds_large: bool = False) -> None:
        self.held: list[Exchange] = []
        self._holds_large = holds_large

    def handle(self, exchange: Exchange) -> None:
        if self._holds_large and len(exchange.frame) > MIB:
            self.held.append(exchange)
        else:
            answer(exchange)


def answer(exchange: Exchange) -> None:
    exchange.respond(encode_frame(struct.pack(">i", len(exchange.frame))))


class Sender:
    """A client that sends one large frame as fast as it is read."""

    def __init__(self, port: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._port = port
        self.socket = socket.socket()
        self.socket.setblocking(False)
        self.sent = 0

    async def start(self, size_bytes: int) -> "Sender":
        """Connect, and announce a frame."""
        await self._loop.sock_connect(self.socket, ("127.0.0.1", self._port))
        await self._loop.sock_sendall(self.socket, struct.pack(">i", size_bytes))
        return self

    async def send(self, until: int) -> None:
        """Send the frame up to a position; waits while the other side does not read."""
        view = memoryview(FRAME)
        while self.sent < until:
            end = min(until, self.sent + 256 * 1024)
            await self._loop.sock_sendall(self.socket, view[self.sent : end])
            self.sent = end

    async def answered(self) -> int:
        """The length in the answer."""
        data = b""
        while len(data) < 8:
            received = await asyncio.wait_for(self._loop.sock_recv(self.socket, 8), HANG_S)
            assert received, "the connection was closed"
            data += received
        return struct.unpack(">ii", data)[1]


async def announce(rig: Any, count: int) -> list[Sender]:
    """So many clients that have announced a frame of 8 MiB, one after the other: the first one has the share."""
    senders, memory = [], rig.listener.memory
    for number in range(count):
        senders.append(await Sender(rig.listener.port).start(len(FRAME)))
        await turn_until(lambda: bool(memory.used_bytes) and len(memory._waiting) == number)  # noqa: B023
    return senders


async def serve_small(rig: Any) -> None:
    """Small requests, one after the other: enough turns to read whatever else would be read."""
    client = await rig.connect()
    for _ in range(100):
        client.writer.write(encode_frame(b"small"))
        assert await asyncio.wait_for(client.reader.readexactly(8), HANG_S) == struct.pack(">ii", 4, 5)


async def test_unfinished_requests_take_bounded_memory(rig: Any) -> None:
    """Goal: memory for large requests is bounded over all connections. Method: eight unfinished requests of 8 MiB,
    a bound of 8 MiB; small requests are served meanwhile, and in the end all eight are, on their connections.
    """
    await rig.listen(LIMITS)
    rig.listener.handler = Answering()
    senders = await announce(rig, 8)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        tasks = [asyncio.create_task(sender.send(len(FRAME) - 1)) for sender in senders]
        await turn_until(tasks[0].done)
        await serve_small(rig)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # The bound, an eighth more of a growing buffer, and one read of each connection that waits.
    assert after - before < len(FRAME) * 9 / 8 + 7 * 256 * 1024 + MIB
    assert rig.listener.memory.used_bytes == len(FRAME)
    for sender, task in zip(senders, tasks, strict=True):
        await task
        await sender.send(len(FRAME))
        assert await sender.answered() == len(FRAME)
        sender.socket.close()
    await turn_until(lambda: rig.listener.memory.used_bytes == 0)


async def test_a_request_counts_until_it_is_answered(rig: Any) -> None:
    """Goal: requests that wait for their answers are memory, too. Method: a request of 8 MiB is held; another one
    is not read before it is answered.
    """
    await rig.listen(LIMITS)
    rig.listener.handler = handler = Answering(holds_large=True)
    first, second = await announce(rig, 2)
    await first.send(len(FRAME))
    await turn_until(lambda: len(handler.held) == 1)
    task = asyncio.create_task(second.send(len(FRAME)))
    await serve_small(rig)
    assert not task.done()
    answer(handler.held.pop())
    await turn_until(lambda: len(handler.held) == 1)
    answer(handler.held.pop())
    assert [await sender.answered() for sender in (first, second)] == [len(FRAME)] * 2
    assert rig.listener.memory.used_bytes == 0
    for sender in (first, second):
        sender.socket.close()


@pytest.mark.parametrize("is_waiting", [False, True])
async def test_whoever_leaves_gives_its_share_back(rig: Any, is_waiting: bool) -> None:
    """Goal: no memory is lost. Method: the holder of a share, or one that waits for it, disconnects; the next gets
    it.
    """
    await rig.listen(LIMITS)
    rig.listener.handler = Answering()
    holder, waiting, last = await announce(rig, 3)
    if is_waiting:
        waiting.socket.close()
        await holder.send(len(FRAME))
        assert await holder.answered() == len(FRAME)
    else:
        holder.socket.close()
        await waiting.send(len(FRAME))
        assert await waiting.answered() == len(FRAME)
    await last.send(len(FRAME))
    assert await last.answered() == len(FRAME)
    await turn_until(lambda: rig.listener.memory.used_bytes == 0)
    for sender in (holder, waiting, last):
        sender.socket.close()


async def test_a_refused_connection_holds_nothing(rig: Any) -> None:
    """Goal: what will not be served is not kept. Method: an unknown API while a large frame is unfinished."""
    await rig.listen(LIMITS)
    client = await rig.connect()
    client.writer.write(
        encode_frame(b"\x7f\xff\x00\x00\x00\x00\x00\x01\xff\xff") + struct.pack(">i", 4 * MIB)
    )
    assert await client.is_closed()
    assert rig.listener.memory.used_bytes == 0


def test_shares_are_given_in_order() -> None:
    """Goal: a large request is not overtaken for ever. Method: 7 of 10 are taken; 9 and 2 wait in this order."""
    memory, granted = RequestMemory("CONTROLLER", 10, RequestCounters()), []

    class Waiting:
        def __init__(self, name: str) -> None:
            self.name = name

        def memory_granted(self) -> None:
            granted.append(self.name)

    assert memory.reserve(7, Waiting("first"))
    large, small = Waiting("large"), Waiting("small")
    assert not memory.reserve(9, large)
    assert not memory.reserve(2, small)
    assert granted == []
    memory.release(7)
    assert (granted, memory.used_bytes) == (["large"], 9)
    memory.release(9)
    assert (granted, memory.used_bytes) == (["large", "small"], 2)
    assert not memory.reserve(10, large)
    assert not memory.reserve(1, small)
    memory.withdraw(large)
    assert (granted, memory.used_bytes) == (["large", "small", "small"], 3)


def test_the_bound_follows_the_configuration() -> None:
    """Goal: Kafka's key works. Method: the key given, -1, and our bound where Kafka has none."""
    given = listener_limits(config(properties={"queued.max.request.bytes": "300000000"}))
    assert given.request_memory_bytes_max == 300_000_000
    unbounded = listener_limits(config(properties={"queued.max.request.bytes": "-1"}))
    assert unbounded.request_memory_bytes_max == -1
    default = listener_limits(config(properties={"socket.request.max.bytes": "4096"}))
    assert default.request_memory_bytes_max == 4096
