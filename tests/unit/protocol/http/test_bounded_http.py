"""The HTTP server on sockets: what strangers can hold, and for how long."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import aiohttp
import pytest
from aiohttp import web
from kit.waiting import HANG_S, until
from quorate_protocol.bounded_http.places import HttpBounds, HttpLimit
from quorate_protocol.bounded_http.server import HttpServer

HOST = "127.0.0.1"
PAGE_BYTES = 64 * 1024 * 1024
"""More than the kernel keeps of a connection whose peer does not read."""
REQUEST = b"GET /page HTTP/1.1\r\nHost: localhost\r\n\r\n"

Start = Callable[..., Awaitable[HttpServer]]


class Seen:
    """What the server reported, and what its handlers saw."""

    def __init__(self) -> None:
        self.limits: list[HttpLimit] = []
        self.bodies: list[bytes] = []
        self.streams = 0


@pytest.fixture
def seen() -> Seen:
    return Seen()


@pytest.fixture
async def start(seen: Seen) -> AsyncIterator[Start]:
    """Start servers with such bounds."""
    async with AsyncExitStack() as stack:

        async def start(**bounds: float) -> HttpServer:
            async def page(_: web.Request) -> web.Response:
                return web.Response(text="page")

            async def large(_: web.Request) -> web.Response:
                return web.Response(body=bytes(PAGE_BYTES))

            async def form(request: web.Request) -> web.Response:
                seen.bodies.append(await request.read())
                return web.Response(text="taken")

            async def broken(_: web.Request) -> web.Response:
                raise LookupError("a fault of ours")

            async def cut_off(_: web.Request) -> web.Response:
                raise ConnectionRefusedError("somebody else than the client")

            async def stream(request: web.Request) -> web.StreamResponse:
                seen.streams += 1
                try:
                    async with server.streaming(request, {"Content-Type": "text/event-stream"}) as sending:
                        await sending.write(b"first\n")
                        await asyncio.Event().wait()
                        return sending.response
                finally:
                    seen.streams -= 1

            server = HttpServer(
                [
                    web.get("/page", page),
                    web.get("/large", large),
                    web.get("/broken", broken),
                    web.get("/cut-off", cut_off),
                    web.get("/stream", stream),
                    web.post("/form", form),
                ],
                HttpBounds(**bounds),  # type: ignore[arg-type]
                report=lambda limit, _: seen.limits.append(limit),
            )
            await server.start(HOST, 0)
            stack.push_async_callback(server.close)
            return server

        yield start


async def connect(
    server: HttpServer, data: bytes = b"", local: str = HOST
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection on which this was sent."""
    reader, writer = await asyncio.open_connection(HOST, server.port, local_addr=(local, 0))
    writer.write(data)
    return reader, writer


async def ended(reader: asyncio.StreamReader) -> bytes:
    """What comes until the server ends the connection."""
    async with asyncio.timeout(HANG_S):
        try:
            return await reader.read()
        except ConnectionResetError:
            return b""


async def page_of(server: HttpServer, path: str = "/page") -> tuple[int, str]:
    """Status and text of a page, on a connection of its own."""
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(local_addr=("127.0.0.2", 0))) as session,
        session.get(f"http://{HOST}:{server.port}{path}") as response,
    ):
        return response.status, await response.text()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"GET /p",
        b"POST /form HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nha",
        REQUEST + b"GET /p",
        b"POST /form HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nha\r\n",
    ],
)
async def test_a_request_arrives_in_time_or_never(data: bytes, start: Start, seen: Seen) -> None:
    server = await start(request_s_max=0.1)
    reader, writer = await connect(server, data)
    await ended(reader)
    writer.close()
    assert seen.limits == [HttpLimit.REQUEST_TIME]
    assert seen.bodies == []


@pytest.mark.parametrize("before", [0, 5, 16])
async def test_a_complete_request_is_served_while_its_address_connects_in_a_burst(
    start: Start, before: int
) -> None:
    server = await start()
    with contextlib.ExitStack() as stack:

        def connected(data: bytes) -> socket.socket:
            """A connection in the backlog of the server, whose loop does not run meanwhile."""
            client = stack.enter_context(socket.create_connection((HOST, server.port)))
            client.sendall(data)
            client.setblocking(False)
            return client

        for _ in range(before):
            connected(REQUEST[:-2])
        scraper = connected(REQUEST)
        for _ in range(200):
            connected(REQUEST[:-2])
        async with asyncio.timeout(HANG_S):
            assert (await asyncio.get_running_loop().sock_recv(scraper, 1024)).startswith(b"HTTP/1.1 200")


async def test_a_response_is_read_in_time_or_never(start: Start, seen: Seen) -> None:
    server = await start(response_s_max=0.1)
    _, writer = await connect(server, b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n")
    await until(lambda: HttpLimit.RESPONSE_TIME in seen.limits, "the end of the slow reader")
    await until(lambda: not server._connections, "the connection's end")
    writer.close()


async def test_half_requests_keep_nobody_out(start: Start, seen: Seen) -> None:
    server = await start(connections_max=8, connections_of_address_max=4)
    writers = [(await connect(server, b"GET /p", f"127.0.1.{number % 9}"))[1] for number in range(30)]
    assert await page_of(server) == (200, "page")
    assert len(server._connections) <= 8
    assert {HttpLimit.CONNECTIONS} <= set(seen.limits)
    for writer in writers:
        writer.close()


async def test_without_a_place_a_connection_is_closed(start: Start, seen: Seen) -> None:
    server = await start(connections_max=2)
    streams = [await connect(server, b"GET /stream HTTP/1.1\r\nHost: localhost\r\n\r\n") for _ in range(2)]
    for reader, _ in streams:
        await reader.readuntil(b"first\n")
    reader, writer = await connect(server, REQUEST)
    assert await ended(reader) == b""
    writer.close()
    assert seen.limits == [HttpLimit.CONNECTIONS]
    streams[0][1].close()
    await until(lambda: len(server._connections) == 1, "the stream's end")
    assert await page_of(server) == (200, "page")
    streams[1][1].close()


async def test_a_stream_ends_with_its_connection(start: Start, seen: Seen) -> None:
    server = await start()
    reader, writer = await connect(server, b"GET /stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
    await reader.readuntil(b"first\n")
    assert seen.streams == 1
    writer.transport.abort()
    await until(lambda: seen.streams == 0, "the handler's end")


async def test_requests_above_the_rate_wait(start: Start, seen: Seen) -> None:
    server = await start(requests_of_address_per_s_max=100.0)
    reader, writer = await connect(server, REQUEST * 110)
    async with asyncio.timeout(HANG_S):
        for _ in range(110):
            await reader.readuntil(b"\r\n\r\npage")
    writer.close()
    assert 1 <= seen.limits.count(HttpLimit.REQUEST_RATE) <= 10


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"nonsense\r\n\r\n", b"400"),
        (b"GET /" + b"a" * 5000 + b" HTTP/1.1\r\nHost: a\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nA: " + b"a" * 5000 + b"\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nHost: a\r\n" + b"a: b\r\n" * 40 + b"\r\n", b"400"),
        (b"POST /form HTTP/1.1\r\nHost: a\r\nContent-Length: 5000\r\n\r\n" + bytes(5000), b"413"),
        (b"POST /form HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n", b"400"),
        (b"GET /nowhere HTTP/1.1\r\nHost: a\r\n\r\n", b"404"),
        (b"POST /page HTTP/1.1\r\nHost: a\r\n\r\n", b"405"),
    ],
)
async def test_a_refused_request_leaves_no_error_in_the_log(
    data: bytes, status: bytes, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    server = await start()
    reader, writer = await connect(server, data)
    assert (await reader.readuntil(b"\r\n")).split()[1] == status
    writer.close()
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.parametrize(
    "head", [b"Content-Length: 9\r\n\r\nha", b"Transfer-Encoding: chunked\r\n\r\n2\r\nha"]
)
async def test_a_dropped_post_leaves_no_error_in_the_log(
    head: bytes, start: Start, seen: Seen, caplog: pytest.LogCaptureFixture
) -> None:
    server = await start()
    for is_orderly in (True, False):
        _, writer = await connect(server, b"POST /form HTTP/1.1\r\nHost: localhost\r\n" + head)
        await writer.drain()
        await until(lambda: server._connections, "the connection")
        if is_orderly:
            writer.close()
        else:
            writer.transport.abort()
        await until(lambda: not server._connections, "the connection's end")
    assert seen.bodies == []
    await server.close()
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.parametrize("path", ["/broken", "/cut-off"])
async def test_a_fault_is_logged_and_told(path: str, start: Start, caplog: pytest.LogCaptureFixture) -> None:
    server = await start()
    assert await page_of(server, path) == (500, "")
    (record,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert record.message == "http_handler_failed"
    assert record.exc_info is not None


async def test_a_port_in_use_is_an_error() -> None:
    with socket.create_server((HOST, 0)) as taken:
        server = HttpServer([], report=lambda *_: None)
        with pytest.raises(OSError, match="address already in use"):
            await server.start(HOST, taken.getsockname()[1])
        await server.close()


async def test_closing_ends_everything(start: Start, seen: Seen) -> None:
    server = await start()
    reader, writer = await connect(server, b"GET /stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
    await reader.readuntil(b"first\n")
    half, half_writer = await connect(server, b"GET /p")
    await until(lambda: len(server._connections) == 2, "both")
    await server.close()
    await ended(reader)
    await ended(half)
    assert (seen.streams, server._connections) == (0, {})
    writer.close()
    half_writer.close()
