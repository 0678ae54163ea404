"""Responses that are not read: their memory is bounded, and clients that read stay connected."""

import asyncio
import itertools
import logging
from types import SimpleNamespace
from typing import Any

import pytest
from kit.noted_places import NotedPlace
from kit.request_handlers import LargeResponses
from kit.waiting import HANG_S, turn_until, until
from quorate_controller import scheduler
from quorate_controller.server import connection_memory
from quorate_controller.server.connection import REQUESTS_AT_ONCE, Exchange
from quorate_controller.server.connection_memory import (
    HARD_FACTOR,
    READ_BYTES_MAX,
    SLOW_S_MIN,
    ResponseMemory,
)
from quorate_controller.server.counters import Limit, RequestCounters
from quorate_controller.server.listener_limits import ListenerLimits
from quorate_protocol.wire.frames import encode_frame

MIB = 1024 * 1024
SLOW_S = 2.0
"""A busy machine may keep a client that reads from it for a second."""


def test_who_reads_nothing_for_longest_is_closed() -> None:
    counters = RequestCounters()
    memory = ResponseMemory(10 * MIB, counters)
    reading, silent, last = NotedPlace(), NotedPlace(), NotedPlace()
    memory.waits(reading, 4 * MIB, 0.0)
    memory.waits(silent, 4 * MIB, 0.1)
    memory.reads(reading, 5.0)
    memory.waits(last, 4 * MIB, 5.1)
    assert [place.events for place in (reading, silent, last)] == [[], ["closed"], []]
    assert memory.used_bytes == 8 * MIB
    assert counters.limited == {Limit.RESPONSE_MEMORY: 1}


def test_a_burst_is_forgiven_for_a_second_but_not_all_of_it() -> None:
    """Many clients that fetch at once are not closed; memory is bounded all the same."""
    memory = ResponseMemory(10 * MIB, RequestCounters())
    clients = [NotedPlace() for _ in range(10 * HARD_FACTOR + 1)]
    for client in clients[:-1]:
        memory.waits(client, MIB, 0.0)
    assert not any(client.events for client in clients)
    memory.waits(clients[-1], MIB, 0.0)
    assert [len(client.events) for client in clients] == [1] + [0] * 10 * HARD_FACTOR
    memory.waits(NotedPlace(), MIB, SLOW_S_MIN)
    assert memory.used_bytes == 10 * MIB


def test_small_answers_and_those_who_leave_do_not_count() -> None:
    memory = ResponseMemory(10 * MIB, RequestCounters())
    client = NotedPlace()
    memory.waits(client, 1000, 0.0)
    assert memory.used_bytes == 0
    for size_bytes in (MIB, 2 * MIB, 0, 0):
        memory.waits(client, size_bytes, 0.0)
        assert memory.used_bytes == size_bytes


async def test_clients_that_never_read_are_closed(
    rig: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(connection_memory, "SLOW_S_MIN", SLOW_S)
    # The system has room for what one client reads while the others of this process ask.
    await rig.listen(ListenerLimits(response_memory_bytes_max=2 * MIB, socket_send_buffer_bytes=-1))
    rig.listener.context.handler = LargeResponses(MIB)
    reading = await rig.connect()
    reading.writer.write(encode_frame(b"ask") * 32)
    read = asyncio.create_task(reading.reader.readexactly(32 * MIB))
    for _ in range(14):
        client = await rig.connect()
        client.writer.transport.pause_reading()
        client.writer.write(encode_frame(b"ask") * 32)
    assert len(await asyncio.wait_for(read, HANG_S)) == 32 * MIB
    assert 2 * MIB < rig.listener.context.responses.used_bytes <= 2 * MIB * HARD_FACTOR
    slow_s = asyncio.get_running_loop().time() + SLOW_S
    await turn_until(lambda: asyncio.get_running_loop().time() > slow_s)
    late = await rig.connect()
    late.writer.transport.pause_reading()
    late.writer.write(encode_frame(b"ask") * 32)
    await asyncio.wait_for(
        until(lambda: rig.counters.limited[Limit.RESPONSE_MEMORY] > 0, "a slow reader"), HANG_S
    )
    assert rig.listener.context.responses.used_bytes <= 4 * MIB
    assert {record.message for record in caplog.records} == {"slow_reader_closed"}
    await rig.listener.close(grace_s=0)
    await turn_until(lambda: rig.listener.context.responses.used_bytes == 0)


async def test_connections_are_served_in_turn(rig: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = itertools.count()
    clock = SimpleNamespace(monotonic=lambda: next(ticks) / 1024)
    monkeypatch.setattr(scheduler, "time", clock)
    order: list[bytes] = []

    class Noting:
        def handle(self, exchange: Exchange) -> None:
            order.append(bytes(exchange.frame))
            exchange.respond(encode_frame(b""))

    await rig.listen()
    rig.listener.context.handler = Noting()
    for _ in range(3):
        client = await rig.connect()
        client.writer.write(encode_frame(b"known"))
        await client.reader.readexactly(4)
    order.clear()
    for number, connection in enumerate(rig.listener.context.connections):
        connection.data_received(encode_frame(b"%d" % number) * 100)
    await turn_until(lambda: len(order) == 300)
    runs = [len(list(run)) for _, run in itertools.groupby(order)]
    # The first connection found no other waiting, and then was the first to wait.
    assert runs[0] <= 2 * REQUESTS_AT_ONCE
    assert max(runs[1:]) == REQUESTS_AT_ONCE
    assert len(runs) > 300 / REQUESTS_AT_ONCE


async def test_little_is_read_at_once(rig: Any) -> None:
    await rig.listen(ListenerLimits(in_flight_max=1))
    rig.listener.context.handler = type("Silent", (), {"handle": lambda _self, _exchange: None})()
    client = await rig.connect()
    client.writer.write(encode_frame(bytes(1_000)) * 1_000)
    await turn_until(
        lambda: any(connection._intake.waiting for connection in rig.listener.context.connections)
    )
    await rig.barrier_of_loop()
    (connection,) = rig.listener.context.connections
    intake = connection._intake
    held = sum(map(len, intake.waiting)) + intake._decoder.buffered_size_bytes
    assert 0 < held <= READ_BYTES_MAX
