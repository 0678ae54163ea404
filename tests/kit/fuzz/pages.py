"""HTTP listeners, driven through aiohttp's protocol without sockets: the parser is aiohttp's, the handlers are ours.

An input is a request as bytes. Parts are repaired that aiohttp insists on, so that more of them reach a handler.
"""

import asyncio
import ipaddress
import logging
import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Final, cast
from urllib.parse import quote

from aiohttp.http_exceptions import HttpProcessingError
from kit.controller_parts import node_status
from kit.fuzz.simulated_controller import LoggedErrors
from kit.fuzz.target import Target
from kit.snapshots import busy
from quorate_controller.node.status import NodeStatus
from quorate_controller.server.counters import RequestCounters
from quorate_controller.server.http import HttpPages
from quorate_controller.server.metrics import MetricsPage, Usage
from quorate_operator.handlers.health import Liveness, health_server
from quorate_operator.handlers.metrics import OperatorMetrics
from quorate_operator.web.server import COOKIE, StatusPage
from quorate_operator.web.snapshots import ClusterKey, CommandError, SnapshotRegistry
from quorate_protocol import bounded_http
from quorate_protocol.bounded_http.server import HttpServer

TOKEN: Final = "right token of users"
SESSION: Final = b"@session@"
"""Stands in an input for the cookie of an unlocked session."""
CSRF: Final = b"@csrf@"
"""Stands in an input for the CSRF token of its forms."""
RESPONSE_SIZE_BYTES_MAX: Final = 1_048_576
_PASSES: Final = 12
"""The passes of the event loop that a handler takes if it waits only for its request."""
_LINE: Final = re.compile(rb"\s*([A-Za-z]+)\s+(\S*)")
_TOKEN_BYTE: Final = re.compile(rb"[^!#$%&'*+.^_`|~0-9A-Za-z-]")
_CONTROL_BYTE: Final = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")


class _Transport(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 80)})
        self.written = bytearray()
        self._is_closing = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data
        assert len(self.written) <= RESPONSE_SIZE_BYTES_MAX, "an answer without end"

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing waits."""

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        self._is_closing = True

    def abort(self) -> None:
        self._is_closing = True

    def pause_reading(self) -> None:
        """Nothing more comes."""

    def resume_reading(self) -> None:
        """Nothing more comes."""


class Site:
    """A server without its sockets."""

    def __init__(self, server: HttpServer, loop: asyncio.AbstractEventLoop) -> None:
        self._server = server
        self._loop = loop
        self._errors = LoggedErrors()
        self._address = ipaddress.IPv4Address("10.0.0.0")
        loop.run_until_complete(server.prepare())

    def ask(self, request: bytes) -> bytes:
        """The bytes that answer a connection on which this is sent.

        Raises:
            AssertionError: a handler raised, or what it answered has no end.
        """
        logger = logging.getLogger(bounded_http.__name__)
        logger.addHandler(self._errors)
        propagates, logger.propagate = logger.propagate, False
        try:
            response = self._loop.run_until_complete(self._ask(request))
        finally:
            logger.propagate = propagates
            logger.removeHandler(self._errors)
        for record in self._errors.records:
            error = record.exc_info[1] if record.exc_info else None
            if error is not None and not isinstance(error, HttpProcessingError | ConnectionError):
                self._errors.records.clear()
                raise AssertionError(f"{record.getMessage()}: {error!r}") from error
        self._errors.records.clear()
        assert b"HTTP/1.1 500" not in response, bytes(response[:500])
        return response

    async def _ask(self, request: bytes) -> bytes:
        # Each request is from another address, whose rate bounds it.
        self._address += 1
        host = str(self._address)
        protocol, transport = self._server.connect(host, host), _Transport()
        assert protocol is not None, "connections end one after the other"
        protocol.connection_made(transport)
        try:
            protocol.data_received(request)
            for _ in range(_PASSES):
                await asyncio.sleep(0)
        finally:
            protocol.connection_lost(None)
            await asyncio.sleep(0)
            # A server that reads the rest of a refused request would run for seconds.
            left = asyncio.all_tasks() - {asyncio.current_task()}
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
        return bytes(transport.written)


class _Commands:
    """Refuses what is unusual and does nothing else."""

    async def pause(self, key: ClusterKey, *, paused: bool) -> None:
        if not paused:
            raise CommandError(f"{key.name} is not paused")

    async def restart_node(self, key: ClusterKey, node_id: int) -> None:
        """Nothing restarts."""


class _Node:
    """A follower that turns."""

    def seconds_since_turn(self) -> float:
        return 0.5

    def status(self) -> NodeStatus:
        return node_status()


class _StatusPages:
    """The status page with one busy cluster, and one session that is unlocked."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        registry = SnapshotRegistry()
        registry.put(busy())
        self._page = StatusPage(registry, _Commands(), TOKEN)
        self._site = Site(self._page.server, loop)
        opened = self._site.ask(_form("/unlock", b"token=" + quote(TOKEN).encode()))
        found = re.search(COOKIE.encode() + b"=([^;]+)", opened)
        assert found is not None, opened
        self._session = found[1]
        page = self._site.ask(_get(_CLUSTER, cookie=self._session))
        word = re.search(rb'name="csrf" value="([^"]+)"', page)
        assert word is not None, page
        self._csrf = word[1]

    def ask(self, request: bytes) -> bytes:
        return self._site.ask(request.replace(SESSION, self._session).replace(CSRF, self._csrf))


_CLUSTER: Final = "/clusters/kafka/quorum"


def _get(path: str, cookie: bytes = b"", **headers: str) -> bytes:
    lines = [
        f"GET {path} HTTP/1.1",
        "Host: localhost",
        *(f"{name}: {text}" for name, text in headers.items()),
    ]
    if cookie:
        lines.append(f"Cookie: {COOKIE}={cookie.decode()}")
    return "\r\n".join([*lines, "", ""]).encode()


def _form(
    path: str, body: bytes, cookie: bytes = b"", kind: str = "application/x-www-form-urlencoded"
) -> bytes:
    lines = [
        f"POST {path} HTTP/1.1",
        "Host: localhost",
        "Origin: http://localhost",
        f"Content-Type: {kind}",
        f"Content-Length: {len(body)}",
    ]
    if cookie:
        lines.append(f"Cookie: {COOKIE}={cookie.decode()}")
    return "\r\n".join([*lines, "", ""]).encode() + body


def _probes() -> Iterator[bytes]:
    for path in ("/metrics", "/healthz", "/readyz", "/readyz?verbose=1&x=%ff"):
        yield _get(path)
    yield _get("/metrics", Accept="application/openmetrics-text; version=1.0.0", Cookie="a=b")
    yield _form("/healthz", b"a=b")


def _visits() -> Iterator[bytes]:
    for path in ("/", "/?notice=unlocked", "/events", "/assets/style.css", f"{_CLUSTER}?notice=paused"):
        yield _get(path)
    yield _get(_CLUSTER, cookie=SESSION)
    yield _get(f"{_CLUSTER}/events", cookie=SESSION)
    for token in (b"token=right+token+of+users", b"token=%ff%00wrong"):
        yield _form("/unlock", token)
    for action, more in (
        ("pause", b""),
        ("resume", b""),
        ("restart", b"&node=3000"),
        ("restart", b"&node=%b2"),
    ):
        yield _form(f"{_CLUSTER}/{action}", b"csrf=" + CSRF + more, SESSION)
    yield _form("/lock", b"csrf=wrong", SESSION)
    part = b'--x\r\nContent-Disposition: form-data; name="token"\r\n\r\nright token of users\r\n--x--\r\n'
    yield _form("/unlock", part, kind="multipart/form-data; boundary=x")
    yield _form("/unlock", part, kind="application/x-www-form-urlencoded; charset=utf-16")


def _repaired(data: bytes) -> bytes:
    """The same request with a start line, headers and a length that aiohttp takes."""
    head, _, body = data.partition(b"\r\n\r\n")
    start, *lines = head.split(b"\r\n")
    found = _LINE.match(start)
    method, target = (found[1].upper(), found[2]) if found is not None else (b"GET", start)
    path = quote(target, safe="/%?&=+:@!$'()*,;~").encode()
    headers = []
    for line in lines:
        name, _, value = line.partition(b":")
        name = _TOKEN_BYTE.sub(b"-", name)
        if name and name.lower() not in {
            b"content-length",
            b"transfer-encoding",
            b"host",
            b"expect",
            b"upgrade",
        }:
            headers.append(name + b":" + _CONTROL_BYTE.sub(b" ", value))
    headers += [b"Host: localhost", b"Content-Length: %d" % len(body)]
    path = path if path.startswith(b"/") else b"/" + path
    return b"\r\n".join([method + b" " + path + b" HTTP/1.1", *headers, b"", b""]) + body


@cache
def _loop() -> asyncio.AbstractEventLoop:
    return asyncio.new_event_loop()


@cache
def _controller_pages() -> Callable[[bytes], bytes]:
    node = cast("Any", _Node())
    page = MetricsPage(node, RequestCounters(), usage=lambda: Usage(0, {}, 0))
    return Site(HttpPages(node, page, RequestCounters()).server, _loop()).ask


@cache
def _operator_pages() -> Callable[[bytes], bytes]:
    return Site(health_server(Liveness(), OperatorMetrics()), _loop()).ask


@cache
def _status_pages() -> Callable[[bytes], bytes]:
    return _StatusPages(_loop()).ask


def _reader(pages: Callable[[], Callable[[bytes], bytes]]) -> Callable[[bytes], None]:
    def read(data: bytes) -> None:
        pages()(_repaired(data))

    return read


def release() -> None:
    """Close the event loop of the pages, if there is one."""
    if _loop.cache_info().currsize:
        _loop().close()
        for cached in (_loop, _controller_pages, _operator_pages, _status_pages):
            cached.cache_clear()


def page_targets() -> Iterator[Target]:
    """The listeners for HTTP: a controller's, the operator's, and the status page."""
    yield Target(name="controller-pages", read=_reader(_controller_pages), good=_probes)
    yield Target(name="operator-pages", read=_reader(_operator_pages), good=_probes)
    yield Target(name="status-page", read=_reader(_status_pages), good=_visits)
