"""An aiohttp application behind bounds: places, times, rates, sizes. `places` decides; this applies it to sockets.

Requests are parsed by aiohttp. A response counts as read when the kernel has taken all of it, and the kernel's buffer
of a connection is bounded, too.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, cast

from aiohttp import web
from aiohttp.client_exceptions import ClientConnectionResetError, ClientPayloadError
from aiohttp.http_exceptions import HttpProcessingError

from quorate_protocol.bounded_http.places import (
    DEFAULT_BOUNDS,
    HttpBounds,
    HttpLimit,
    HttpPlaces,
    Place,
    State,
)
from quorate_protocol.socket_acceptor import SocketAcceptor

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping

    from aiohttp.typedefs import Middleware

log = logging.getLogger(__name__)

ACCEPTS_PER_TURN: Final = 2
"""Few, so that a request which came with its connection is read before later ones of its address take its place."""
REFUSALS_UNTIL_PAUSE: Final = 16
REFUSED_PAUSE_S: Final = 0.01
"""The pause after some connections without a place: clients that connect all the time leave the loop idle."""
KEPT_ALIVE_S: Final = 3600.0
SEND_BUFFER_BYTES: Final = 256 * 1024
SWEEP_S: Final = 0.5
CACHED_S: Final = 1.0
SHUTDOWN_S_MAX: Final = 1.0
LINGERING_S: Final = 1.0
"""For how long the rest of a refused body is read, so that the client sees the response."""
PAYLOAD_ERRORS: Final = (OSError, web.RequestPayloadError, ClientPayloadError, HttpProcessingError)
"""What reading a body raises when its client leaves, or sends no body."""


class HttpServer:
    """Serves `routes`. `report` gets each limit that applies to a connection, and the peer.

    A handler finds the body of its request already read. All responses have `headers`.
    """

    def __init__(
        self,
        routes: Iterable[web.AbstractRouteDef],
        bounds: HttpBounds = DEFAULT_BOUNDS,
        *,
        middlewares: Iterable[Middleware] = (),
        headers: Mapping[str, str] = MappingProxyType({}),
        report: Callable[[HttpLimit, str], None],
    ) -> None:
        self.bounds = bounds
        self._report = report
        self._places = HttpPlaces(bounds, report)
        self._connections: dict[object, _Connection] = {}
        """By aiohttp's protocol, which a request names."""
        self._acceptor: SocketAcceptor | None = None
        self._openings: set[asyncio.Task[None]] = set()
        self._sweep: asyncio.TimerHandle | None = None
        self._refused = 0
        app = web.Application(client_max_size=bounds.body_bytes_max, middlewares=[self._bound, *middlewares])
        app.add_routes(routes)
        self._headers = headers
        app.on_response_prepare.append(self._add_headers)
        # A logger of the server's own, as its filter needs to count.
        self._aiohttp_log = logging.Logger(f"{__name__}.aiohttp")
        self._aiohttp_log.parent = log
        self._aiohttp_log.addFilter(self._is_fault)
        self._runner = web.AppRunner(
            app,
            access_log=None,
            logger=self._aiohttp_log,
            shutdown_timeout=SHUTDOWN_S_MAX,
            # `places` ends those that wait for a request.
            keepalive_timeout=KEPT_ALIVE_S,
            lingering_time=LINGERING_S,
            max_line_size=self.bounds.header_line_bytes_max,
            max_field_size=self.bounds.header_line_bytes_max,
            max_headers=self.bounds.headers_max,
            auto_decompress=False,
        )

    async def start(self, host: str, port: int) -> None:
        """Bind and serve. Raises OSError. An empty host or 0.0.0.0 binds all interfaces, port 0 a free port."""
        await self.prepare()
        self._acceptor = SocketAcceptor(self._accept, ACCEPTS_PER_TURN)
        await self._acceptor.start(host, port)
        self._end_late()

    async def prepare(self) -> None:
        """Set up what `connect` needs. `start` does it."""
        await self._runner.setup()

    @property
    def port(self) -> int:
        """The bound port."""
        assert self._acceptor is not None, "the server is started"
        return self._acceptor.port

    async def close(self) -> None:
        """Stop serving, and end all connections."""
        if self._acceptor is not None:
            self._acceptor.close()
        if self._sweep is not None:
            self._sweep.cancel()
        for opening in self._openings:
            opening.cancel()
        await asyncio.gather(*self._openings, return_exceptions=True)
        for connection in list(self._connections.values()):
            if connection.streaming is not None:  # it would never end by itself
                connection.abort()
        await self._runner.cleanup()
        for connection in list(self._connections.values()):
            connection.abort()

    def connect(self, host: str, peer: str) -> asyncio.Protocol | None:
        """Return the protocol of a connection that was accepted; None if it must be closed."""
        assert self._runner.server is not None, "the server is prepared"
        connection = _Connection(self._runner.server(), self._forget)
        place = self._places.admit(host, peer, connection.abort, asyncio.get_running_loop().time())
        if place is None:
            return None
        connection.place = place
        self._connections[connection.served] = connection
        return connection

    def _accept(self, accepted: socket.socket, address: tuple[str, int]) -> float:
        host, port, *_ = address
        connection = self.connect(host, f"{host}:{port}")
        if connection is None:
            accepted.close()
            self._refused += 1
            return 0.0 if self._refused % REFUSALS_UNTIL_PAUSE else REFUSED_PAUSE_S
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        opening = asyncio.get_running_loop().create_task(self._open(connection, accepted))
        self._openings.add(opening)
        opening.add_done_callback(self._openings.discard)
        return 0.0

    async def _open(self, connection: asyncio.Protocol, accepted: socket.socket) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(lambda: connection, accepted)
        except BaseException:
            accepted.close()
            connection.connection_lost(None)
            raise

    def _forget(self, connection: _Connection) -> None:
        if connection.place is not None:
            self._places.leave(connection.place)
        self._connections.pop(connection.served, None)

    def _end_late(self) -> None:
        loop = asyncio.get_running_loop()
        self._places.end_late(loop.time())
        self._sweep = loop.call_later(SWEEP_S, self._end_late)

    def _is_fault(self, record: logging.LogRecord) -> bool:
        """Whether aiohttp logs a fault, and not only a client that leaves or sends what is no request."""
        error = record.exc_info[1] if record.exc_info else None
        if not isinstance(error, PAYLOAD_ERRORS):
            return True
        self._report(HttpLimit.BAD_REQUEST, "-")
        return False

    async def _add_headers(self, _: web.Request, response: web.StreamResponse) -> None:
        for name, value in self._headers.items():
            response.headers[name] = value

    @web.middleware
    async def _bound(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Serve one request within the bounds."""
        connection = self._connections.get(request.protocol)
        if connection is None or connection.place is None:  # it was lost, or gave way
            return _ended(503)
        place, loop = connection.place, asyncio.get_running_loop()
        try:
            response = await self._handle(request, handler, place)
            self._places.enter(place, State.RESPONDING, loop.time())
            await response.prepare(request)
            await response.write_eof()
        except ConnectionError:
            return _ended(503)  # aiohttp finds that the client does not read it
        finally:
            self._places.enter(place, State.ARRIVING, loop.time())
        return response

    async def _handle(
        self,
        request: web.Request,
        handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
        place: Place,
    ) -> web.StreamResponse:
        loop = asyncio.get_running_loop()
        try:
            await request.read()
        except web.HTTPRequestEntityTooLarge:
            text = f"The body of a request has at most {self.bounds.body_bytes_max} bytes.\n"
            return web.Response(status=413, text=text)
        except PAYLOAD_ERRORS:  # the client is gone, or what it sends is no body
            if place.is_taken:
                self._report(HttpLimit.BAD_REQUEST, place.peer)
            return _ended(400)
        if (delay_s := self._places.delay_s(place, loop.time())) > 0:
            self._places.enter(place, State.WAITING, loop.time())
            await asyncio.sleep(delay_s)
        self._places.enter(place, State.HANDLING, loop.time())
        try:
            return await handler(request)
        except web.HTTPException as error:
            return _response_of(error)
        except Exception as error:
            is_gone = isinstance(error, ConnectionError) and not place.is_taken
            if is_gone or isinstance(error, ClientConnectionResetError):
                raise
            log.exception("http_handler_failed", extra={"facts": {"path": request.path}})
            return web.Response(status=500)

    @asynccontextmanager
    async def streaming(self, request: web.Request, headers: Mapping[str, str]) -> AsyncIterator[Stream]:
        """A response in parts, until the client leaves, which cancels the handler."""
        connection, task = self._connections.get(request.protocol), asyncio.current_task()
        if connection is None or connection.place is None:
            raise ConnectionResetError
        assert task is not None, "requests are served by tasks"
        connection.streaming = task
        try:
            yield Stream(self._places, connection.place, request, web.StreamResponse(headers=headers))
        finally:
            connection.streaming = None


class Stream:
    """A response that is sent in parts. Each must be read in time."""

    def __init__(
        self, places: HttpPlaces, place: Place, request: web.Request, response: web.StreamResponse
    ) -> None:
        self._places = places
        self._place = place
        self._request = request
        self.response = response

    async def write(self, data: bytes) -> None:
        """Send a part, and wait until it is read. Raises ConnectionError."""
        loop = asyncio.get_running_loop()
        self._places.enter(self._place, State.RESPONDING, loop.time())
        writer = await self.response.prepare(self._request)
        assert writer is not None, "the response has not ended"
        await writer.write(data)
        await writer.drain()
        self._places.enter(self._place, State.STREAMING, loop.time())


class CachedPage:
    """Renders a page at most once a second for all its clients. `clock` is monotonic, in seconds."""

    def __init__(self, render: Callable[[], bytes], clock: Callable[[], float]) -> None:
        self._render = render
        self._clock = clock
        self._page = b""
        self._rendered_s: float | None = None

    def get(self) -> bytes:
        """Return the page, which is up to a second old."""
        now_s = self._clock()
        if self._rendered_s is None or now_s - self._rendered_s >= CACHED_S:
            self._page = self._render()
            self._rendered_s = now_s
        return self._page


class _Connection(asyncio.Protocol):
    """Passes everything on to aiohttp's protocol, and reports the end of the connection."""

    def __init__(self, served: web.RequestHandler, on_lost: Callable[[_Connection], None]) -> None:
        self.served = served
        self.place: Place | None = None
        self.streaming: asyncio.Task[object] | None = None
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None

    def abort(self) -> None:
        """End the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's class is no subclass.
        opened = cast("asyncio.Transport", transport)
        if self.place is None or not self.place.is_taken:  # it gave way before it was open
            opened.abort()
            return
        self._transport = opened
        # A response is read when nothing of it is left here.
        opened.set_write_buffer_limits(0)
        self.served.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        self.served.data_received(data)

    def eof_received(self) -> None:
        self.served.eof_received()

    def pause_writing(self) -> None:
        self.served.pause_writing()

    def resume_writing(self) -> None:
        self.served.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._on_lost(self)
        if self._transport is not None:
            self.served.connection_lost(exc)
            self._transport = None
        if self.streaming is not None:
            self.streaming.cancel()


def _ended(status: int) -> web.Response:
    """A response after which the connection is closed."""
    response = web.Response(status=status)
    response.force_close()
    return response


def _response_of(error: web.HTTPException) -> web.Response:
    return web.Response(status=error.status, headers=error.headers, body=error.body)
