"""Listeners on real sockets: order, bounds, idleness, closing, and garbage."""

import asyncio
import logging
import os
import random
import socket
from typing import Any

import pytest
from kit.controller_parts import heartbeat, heartbeat_response
from kit.request_handlers import LargeResponses
from kit.waiting import HANG_S, turn_until
from quorate_controller.server.connection_quotas import ConnectionLimits
from quorate_controller.server.counters import Limit
from quorate_controller.server.listener_limits import ListenerLimits
from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.apis import APIS
from quorate_protocol.kafka.generated.api_versions_request import ApiVersionsRequest
from quorate_protocol.wire.client import encode_request
from quorate_protocol.wire.frames import encode_frame

HEARTBEAT, HEARTBEAT_VERSION = APIS[63], 1
LOCALHOST = "127.0.0.1"


async def test_answers_leave_in_the_order_of_the_requests(rig: Any) -> None:
    await rig.listen()
    client = await rig.connect()
    for broker_id in range(3):
        client.send(heartbeat(broker_id), HEARTBEAT_VERSION)
    futures = await rig.node.requests(3)
    assert [request.broker_id for request, _, _ in rig.node.controls] == [0, 1, 2]
    for index in (2, 1, 0):
        assert not client.unread
        futures[index].set_result(heartbeat_response(is_fenced=index == 1))
    responses = [await client.receive() for _ in range(3)]
    assert [response.is_fenced for response in responses] == [False, True, False]


async def test_requests_in_flight_are_bounded(rig: Any) -> None:
    await rig.listen(ListenerLimits(in_flight_max=4))
    client = await rig.connect()
    for broker_id in range(10):
        client.send(heartbeat(broker_id), HEARTBEAT_VERSION)
    await rig.node.requests(4)
    await rig.barrier()
    assert len(rig.node.controls) == 4
    for done in range(10):
        futures = await rig.node.requests(min(10, done + 4))
        futures[done].set_result(heartbeat_response())
        await client.receive()
    assert [request.broker_id for request, _, _ in rig.node.controls] == list(range(10))


@pytest.mark.parametrize("size_bytes", [50_000, -1])
async def test_the_system_keeps_few_answers(rig: Any, size_bytes: int) -> None:
    """A client that does not read is soon served no more (socket.send.buffer.bytes)."""
    await rig.listen(ListenerLimits(socket_send_buffer_bytes=size_bytes))
    await rig.connect()
    await turn_until(lambda: rig.listener.connection_count == 1)
    (connection,) = rig.listener.context.connections
    accepted = connection._transport.get_extra_info("socket")
    given = accepted.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
    assert given == 100_000 if size_bytes > 0 else given > 100_000


async def test_a_peer_that_does_not_read_is_not_read_from(rig: Any) -> None:
    await rig.listen(ListenerLimits(send_buffer_bytes_max=1))
    rig.listener.context.handler = handler = LargeResponses()
    client = await rig.connect()
    client.writer.write(encode_frame(b"ask") * 200)
    await turn_until(lambda: handler.handled > 0)
    for _ in range(20):
        other = await rig.connect()
        other.writer.write(encode_frame(b"ask"))
        await other.reader.readexactly(len(handler.response))
    assert handler.handled < 150, "what the kernel's buffers hold, and no more"
    await client.reader.readexactly(200 * len(handler.response))
    assert handler.handled == 220


async def test_idle_connections_are_closed_and_waiting_ones_are_not(rig: Any) -> None:
    await rig.listen(ListenerLimits(idle_timeout_ms=-1))
    waiting, idle = await rig.connect(), await rig.connect()
    waiting.send(heartbeat(1), HEARTBEAT_VERSION)
    (future,) = await rig.node.requests(1)
    rig.listener.context.limits = ListenerLimits(idle_timeout_ms=40)
    rig.listener._schedule_sweep()
    assert await idle.is_closed()
    future.set_result(heartbeat_response())
    assert (await waiting.receive()).error_code is ErrorCode.none
    assert await waiting.is_closed()


def events(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was logged."""
    return [record.message for record in caplog.records]


async def test_a_stranger_gives_way_when_all_places_are_taken(
    rig: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """A client that fills the listener keeps no other out."""
    await rig.listen(connections=ConnectionLimits(total_max=2))
    rig.node.decide = lambda _request, _caller: heartbeat_response()
    first, silent = await rig.connect(), await rig.connect()
    assert (await first.ask(heartbeat(1), HEARTBEAT_VERSION)).error_code is ErrorCode.none
    third = await rig.connect()
    assert await silent.is_closed()
    await third.close()
    await turn_until(lambda: rig.listener.connection_count == 1)
    fourth = await rig.connect()
    for client in (fourth, first):
        assert (await client.ask(heartbeat(1), HEARTBEAT_VERSION)).error_code is ErrorCode.none
    assert events(caplog) == ["connection_gave_way"]
    assert rig.counters.limited == {Limit.CONNECTIONS: 1}


async def test_clients_that_are_served_keep_their_places(rig: Any, caplog: pytest.LogCaptureFixture) -> None:
    await rig.listen(connections=ConnectionLimits(total_max=2))
    rig.node.decide = lambda _request, _caller: heartbeat_response()
    first, second = await rig.connect(), await rig.connect()
    for client in (first, second):
        assert (await client.ask(heartbeat(1), HEARTBEAT_VERSION)).error_code is ErrorCode.none
    for _ in range(2):
        assert await (await rig.connect()).is_closed()
    assert events(caplog) == ["listener_full"]
    assert rig.counters.limited == {Limit.CONNECTIONS: 2}
    await first.close()
    await turn_until(lambda: rig.listener.connection_count == 1)
    third = await rig.connect()
    assert (await third.ask(heartbeat(1), HEARTBEAT_VERSION)).error_code is ErrorCode.none


async def test_a_host_has_its_own_bound(rig: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Max.connections.per.ip and its overrides."""
    await rig.listen(connections=ConnectionLimits(per_host_max=0, of_host={LOCALHOST: 2}))
    first, _ = await rig.connect(), await rig.connect()
    assert await (await rig.connect()).is_closed()
    assert events(caplog) == ["host_has_too_many_connections"]
    assert rig.counters.limited == {Limit.CONNECTIONS_OF_HOST: 1}
    await first.close()
    await turn_until(lambda: rig.listener.connection_count == 1)
    rig.node.decide = lambda _request, _caller: heartbeat_response()
    assert (await (await rig.connect()).ask(heartbeat(1), HEARTBEAT_VERSION)).error_code is ErrorCode.none


async def test_connections_wait_when_too_many_are_created(rig: Any, caplog: pytest.LogCaptureFixture) -> None:
    limits = ConnectionLimits(rate_max=20, windows=2, window_s=0.05)
    await rig.listen(connections=limits)
    rig.node.decide = lambda _request, _caller: heartbeat_response()
    began_s = asyncio.get_running_loop().time()
    clients = [await rig.connect() for _ in range(9)]
    for client in clients:
        assert (await client.ask(heartbeat(1), HEARTBEAT_VERSION)).error_code is ErrorCode.none
    assert asyncio.get_running_loop().time() - began_s > 0.2
    assert rig.counters.limited[Limit.CREATION_RATE] >= 5
    assert set(events(caplog)) == {"connections_created_too_fast"}


async def test_single_bytes_do_not_keep_a_connection_open(rig: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    await rig.listen(ListenerLimits(idle_timeout_ms=40))
    slow = await rig.connect()
    is_closed = asyncio.ensure_future(slow.is_closed())
    for byte in encode_frame(bytes(10_000)):
        slow.writer.write(bytes([byte]))
        if (await asyncio.wait([is_closed], timeout=0.005))[0]:
            break
    assert is_closed.done()
    assert events(caplog) == ["connection_idle"]
    assert rig.counters.limited == {Limit.IDLE_TIME: 1}


async def test_close_answers_what_is_in_flight(rig: Any) -> None:
    await rig.listen()
    client = await rig.connect()
    client.send(heartbeat(1), HEARTBEAT_VERSION)
    (future,) = await rig.node.requests(1)
    port = rig.listener.port
    closing = asyncio.create_task(rig.listener.close(grace_s=HANG_S))
    await asyncio.sleep(0)
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)
    future.set_result(heartbeat_response())
    await closing
    assert (await client.receive()).error_code is ErrorCode.none
    assert await client.is_closed()


async def test_close_does_not_wait_beyond_the_grace(rig: Any) -> None:
    await rig.listen()
    client = await rig.connect()
    client.send(heartbeat(1), HEARTBEAT_VERSION)
    (future,) = await rig.node.requests(1)
    await asyncio.wait_for(rig.listener.close(grace_s=0.02), HANG_S)
    assert await client.is_closed()
    assert future.cancelled()


async def test_a_stopped_node_closes_connections_at_once(rig: Any) -> None:
    """A stop does not wait for answers that cannot come."""
    await rig.listen()
    client = await rig.connect()
    client.send(heartbeat(1), HEARTBEAT_VERSION)
    (future,) = await rig.node.requests(1)
    future.cancel()
    assert await client.is_closed()
    await asyncio.wait_for(rig.listener.close(grace_s=3_600), HANG_S)


async def test_a_client_that_leaves_cancels_its_requests(rig: Any) -> None:
    await rig.listen()
    client = await rig.connect()
    client.send(heartbeat(1), HEARTBEAT_VERSION)
    client.send(heartbeat(2), HEARTBEAT_VERSION)
    futures = await rig.node.requests(2)
    await client.close()
    await turn_until(lambda: all(future.cancelled() for future in futures))


async def test_no_delay_is_set(rig: Any) -> None:
    await rig.listen()
    await rig.connect()
    await turn_until(lambda: rig.listener.connection_count == 1)
    (connection,) = rig.listener.context.connections
    accepted = connection._transport.get_extra_info("socket")
    copy = socket.socket(fileno=os.dup(accepted.fileno()))
    with copy:
        assert copy.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


API_VERSIONS_FRAME = encode_frame(
    encode_request(
        APIS[18], 4, 5, "c", ApiVersionsRequest(client_software_name="a", client_software_version="1")
    )
)


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),
        b"\xff\xff\xff\xff",
        (200 << 20).to_bytes(4, "big"),
        encode_frame(b""),
        encode_frame(b"\x00\x12"),
        encode_frame(b"\x00\x3f\x00\x01\x00\x00\x00\x01\xff\xff"),
        encode_frame(b"\x7f\xff\x00\x00\x00\x00\x00\x01\xff\xff"),
        encode_frame(b"\x00\x00\x00\x0d\x00\x00\x00\x01\xff\xff"),
        encode_frame(b"\x00\x3f\x00\x63\x00\x00\x00\x01\xff\xff\x00"),
    ],
    ids=[
        "http",
        "tls",
        "negative",
        "huge",
        "empty",
        "short header",
        "short body",
        "unknown api",
        "api of brokers",
        "unknown version",
    ],
)
async def test_garbage_closes_its_connection_only(
    rig: Any, garbage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    await rig.listen()
    good, bad = await rig.connect(), await rig.connect()
    address = "{}:{}".format(*bad.writer.get_extra_info("sockname"))
    bad.writer.write(garbage)
    assert await bad.is_closed()
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.facts["peer"] == address
    rig.node.decide = lambda _request, _caller: heartbeat_response()
    assert (await good.ask(heartbeat(1), HEARTBEAT_VERSION)).error_code is ErrorCode.none


async def test_answers_before_garbage_are_sent(rig: Any) -> None:
    await rig.listen()
    client = await rig.connect()
    client.send(heartbeat(1), HEARTBEAT_VERSION)
    (future,) = await rig.node.requests(1)
    client.writer.write(encode_frame(b"\x7f\xff\x00\x00\x00\x00\x00\x01\xff\xff"))
    await turn_until(lambda: rig.counters.refused_connections == 1)
    future.set_result(heartbeat_response())
    assert (await client.receive()).error_code is ErrorCode.none
    assert await client.is_closed()


async def test_a_request_may_come_byte_by_byte(rig: Any) -> None:
    await rig.listen()
    client = await rig.connect()
    client.send(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 4)
    expected = await client.receive()
    client.codec.send(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 4)
    frame = API_VERSIONS_FRAME[:8] + (1).to_bytes(4, "big") + API_VERSIONS_FRAME[12:]
    for index in range(len(frame)):
        client.writer.write(frame[index : index + 1])
        await client.writer.drain()
        await asyncio.sleep(0)
    assert await client.receive() == expected


async def test_random_bytes_never_break_the_listener(rig: Any) -> None:
    await rig.listen()
    noise = random.Random(7)
    for _ in range(60):
        client = await rig.connect()
        body = noise.choice([b"", b"\x00\x13\x00\x07", b"\x00\x01\x00\x12", b"\x00\x3a\x00\x00"])
        body += noise.randbytes(noise.randrange(80))
        client.writer.write(encode_frame(body))
        client.writer.write_eof()
        await client.drain_until_closed()
    rig.node.decide = lambda _request, _caller: heartbeat_response()
    good = await rig.connect()
    assert (await good.ask(heartbeat(1), HEARTBEAT_VERSION)).error_code is ErrorCode.none
