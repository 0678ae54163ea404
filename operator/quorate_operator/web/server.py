"""The HTTP server of the status page: pages, events that keep them live, forms for users with the token."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from importlib.resources import files
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from aiohttp import web
from quorate_protocol.bounded_http.places import HttpBounds, HttpLimit
from quorate_protocol.bounded_http.server import HttpServer
from quorate_protocol.counted_address import counted_address

from quorate_operator import clock
from quorate_operator.web.access import (
    AllowedHosts,
    Session,
    Sessions,
    StreamShares,
    TooManyFailuresError,
    TooManyStreamsError,
)
from quorate_operator.web.controls import Access, cluster_path
from quorate_operator.web.html import Html
from quorate_operator.web.limits import LimitLog
from quorate_operator.web.pages import (
    cluster_list,
    cluster_page,
    list_announcement,
    list_page,
    not_found_page,
    refused_page,
)
from quorate_operator.web.sections import cluster_sections
from quorate_operator.web.snapshots import ClusterKey, CommandError, Commands, SnapshotRegistry

COOKIE: Final = "quorate-session"
BOUNDS: Final = HttpBounds(
    # All users of a proxy share its address.
    connections_max=256,
    connections_of_address_max=128,
    requests_of_address_per_s_max=100.0,
    # Proxies that log users in add large cookies.
    header_line_bytes_max=8190,
    headers_max=64,
    body_bytes_max=4096,
)
HEARTBEAT_S: Final = 15.0
"""A comment is sent after this time without a change, so that a closed page is noticed."""
SETTLE_S: Final = 0.25
"""The shortest time between two messages of a stream; changes in between are sent together."""

ASSETS: Final = {"style.css": "text/css", "live.js": "text/javascript", "icon.svg": "image/svg+xml"}
STREAM_HEADERS: Final = {
    "Content-Type": "text/event-stream",
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",
}
HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


class StatusPage:
    """Serves the clusters in `snapshots`. Without `commands` or `token` the page is read-only.

    `hosts` are names under which it may be asked for, beside addresses and localhost.
    """

    def __init__(
        self,
        snapshots: SnapshotRegistry,
        commands: Commands | None = None,
        token: str | None = None,
        report: Callable[[HttpLimit, str], None] | None = None,
        hosts: Iterable[str] = (),
    ) -> None:
        self._snapshots = snapshots
        self._commands = commands
        self._sessions = Sessions(token if commands is not None else None)
        self._streams = StreamShares()
        self._hosts = AllowedHosts(hosts)
        folder = files("quorate_operator.web") / "assets"
        self._assets = {name: (folder / name).read_bytes() for name in ASSETS}
        self.server = HttpServer(
            [
                web.get("/", self._show_list),
                web.get("/events", self._stream_list),
                web.get("/assets/{name}", self._show_asset),
                web.post("/unlock", self._unlock),
                web.post("/lock", self._lock),
                web.get("/clusters/{namespace}/{name}", self._show_cluster),
                web.get("/clusters/{namespace}/{name}/events", self._stream_cluster),
                web.post("/clusters/{namespace}/{name}/{action:pause|resume|restart}", self._command),
            ],
            BOUNDS,
            middlewares=[self._guard],
            headers=HEADERS,
            report=report or LimitLog("status page"),
        )

    async def start(self, host: str, port: int) -> None:
        """Bind and serve. Raises OSError. An empty host or 0.0.0.0 binds all interfaces."""
        await self.server.start(host, port)

    @property
    def port(self) -> int:
        return self.server.port

    async def close(self) -> None:
        """End the streams, which never end by themselves, and stop serving."""
        await self.server.close()

    @web.middleware
    async def _guard(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Refuse other names of this page, and forms of other sites; shows errors as pages."""
        if not self._hosts.allow(request.host):
            remedy = "`--web-host` (web.hosts of the chart) allows a name"
            return web.Response(status=421, text=f"This page is not served as {request.host!r}; {remedy}.\n")
        origin = request.headers.get("Origin")
        if request.method == "POST" and origin is not None and _host_of(origin) != request.host:
            return self._refuse(request, 403, "Refused", "The form came from another site.")
        try:
            return await handler(request)
        except web.HTTPNotFound:
            return _html(not_found_page(None, self._access(request)), status=404)

    async def _show_list(self, request: web.Request) -> web.Response:
        page = list_page(self._snapshots.clusters(), self._access(request), request.query.get("notice"))
        return _html(page)

    async def _show_cluster(self, request: web.Request) -> web.Response:
        key = _key_of(request)
        snapshot = self._snapshots.find(key)
        if snapshot is None:
            return _html(not_found_page(key, self._access(request)), status=404)
        return _html(cluster_page(snapshot, self._access(request), request.query.get("notice")))

    async def _show_asset(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if name not in ASSETS:
            raise web.HTTPNotFound
        headers = {"Cache-Control": "public, max-age=300"}
        return web.Response(body=self._assets[name], content_type=ASSETS[name], headers=headers)

    async def _stream_list(self, request: web.Request) -> web.StreamResponse:
        def parts() -> dict[str, Html]:
            clusters = self._snapshots.clusters()
            return {"clusters-list": cluster_list(clusters), "announcement": list_announcement(clusters)}

        return await self._stream(request, parts)

    async def _stream_cluster(self, request: web.Request) -> web.StreamResponse:
        key, access = _key_of(request), self._access(request)

        def parts() -> dict[str, Html] | None:
            snapshot = self._snapshots.find(key)
            return None if snapshot is None else cluster_sections(snapshot, access)

        return await self._stream(request, parts)

    async def _stream(
        self, request: web.Request, parts: Callable[[], dict[str, Html] | None]
    ) -> web.StreamResponse:
        """Send all parts of a page, then those that changed, until the user leaves."""
        session = request.cookies.get(COOKIE) if self._session(request) is not None else None
        try:
            with self._streams.taken(_address_of(request), session):
                return await self._send(request, parts)
        except TooManyStreamsError as error:
            return web.Response(status=503, text=f"{error}\n", headers={"Retry-After": "30"})

    async def _send(
        self, request: web.Request, parts: Callable[[], dict[str, Html] | None]
    ) -> web.StreamResponse:
        async with self.server.streaming(request, STREAM_HEADERS) as stream:
            sent: dict[str, Html] = {}
            while True:
                seen = self._snapshots.version
                current = parts()
                if current is None:
                    await stream.write(b"event: gone\ndata: {}\n\n")
                    return stream.response
                changed = {name: html for name, html in current.items() if sent.get(name) != html}
                sent = current
                # A heartbeat is a comment: readers ignore it.
                await stream.write(f"data: {json.dumps(changed)}\n\n".encode() if changed else b":\n\n")
                await asyncio.sleep(SETTLE_S)
                await self._change(seen)

    async def _change(self, seen: int) -> None:
        try:
            async with asyncio.timeout(HEARTBEAT_S):
                await self._snapshots.changed(seen)
        except TimeoutError:
            return

    async def _unlock(self, request: web.Request) -> web.Response:
        token = (await _fields(request)).get("token", "")
        if not self._sessions.can_unlock:
            return self._refuse(
                request, 403, "Read-only", "This page is read-only: it was started without a token."
            )
        try:
            name = self._sessions.unlock(token, _address_of(request), clock.now_ms())
        except TooManyFailuresError:
            text = "Too many wrong tokens from your address in the last minute; no further token is compared."
            return self._refuse(request, 429, "Too many attempts", text)
        if name is None:
            return self._refuse(request, 403, "Wrong token", "This is not the token of this page.")
        response = _see_other("/?notice=unlocked")
        response.set_cookie(COOKIE, name, httponly=True, samesite="Strict", secure=request.secure)
        return response

    async def _lock(self, request: web.Request) -> web.Response:
        if await self._genuine_session(request) is None:
            return self._refuse_forged(request)
        self._sessions.lock(request.cookies.get(COOKIE))
        response = _see_other("/?notice=locked")
        response.del_cookie(COOKIE)
        return response

    async def _command(self, request: web.Request) -> web.Response:
        if self._commands is None or await self._genuine_session(request) is None:
            return self._refuse_forged(request)
        key, action = _key_of(request), request.match_info["action"]
        snapshot = self._snapshots.find(key)
        if snapshot is None:
            return _html(not_found_page(key, self._access(request)), status=404)
        try:
            if action == "restart":
                written = (await _fields(request)).get("node", "")
                nodes = snapshot.observed.nodes if snapshot.observed is not None else {}
                if not (written.isascii() and written.isdecimal() and int(written) in nodes):
                    known = ", ".join(str(node_id) for node_id in sorted(nodes)) or "none"
                    return self._refuse(request, 400, "Refused", f"node: {written!r}: must be one of {known}")
                await self._commands.restart_node(key, int(written))
            else:
                await self._commands.pause(key, paused=action == "pause")
        except CommandError as error:
            return self._refuse(request, 502, "The command failed", str(error))
        notice = {"pause": "paused", "resume": "resumed", "restart": "restarting"}[action]
        return _see_other(f"{cluster_path(key)}?notice={notice}")

    def _session(self, request: web.Request) -> Session | None:
        return self._sessions.find(request.cookies.get(COOKIE), clock.now_ms())

    async def _genuine_session(self, request: web.Request) -> Session | None:
        """Return the user's session if the form came from one of its pages."""
        session = self._session(request)
        csrf = (await _fields(request)).get("csrf", "")
        return session if session is not None and self._sessions.is_genuine(session, csrf) else None

    def _access(self, request: web.Request) -> Access:
        session = self._session(request)
        return Access(
            can_unlock=self._sessions.can_unlock, csrf=session.csrf if session is not None else None
        )

    def _refuse_forged(self, request: web.Request) -> web.Response:
        return self._refuse(
            request, 403, "Locked", "Unlock the page with its token first, and use its buttons."
        )

    def _refuse(self, request: web.Request, status: int, title: str, text: str) -> web.Response:
        return _html(refused_page(title, text, self._access(request)), status=status)


def _host_of(origin: str) -> str | None:
    """Return host and port of an origin; None if it has none that can be read."""
    try:
        return urlsplit(origin).netloc or None
    except ValueError:  # an open bracket, for instance
        return None


async def _fields(request: web.Request) -> Mapping[str, str]:
    """Return the fields of a form, of which the pages send URL-encoded UTF-8. Other bodies have none that matter."""
    return dict(parse_qsl((await request.read()).decode(errors="replace")))


def _address_of(request: web.Request) -> str:
    return counted_address(request.remote or "")


def _key_of(request: web.Request) -> ClusterKey:
    return ClusterKey(request.match_info["namespace"], request.match_info["name"])


def _html(page: Html, status: int = 200) -> web.Response:
    return web.Response(
        text=page,
        status=status,
        content_type="text/html",
        charset="utf-8",
        headers={"Cache-Control": "no-store"},
    )


def _see_other(where: str) -> web.Response:
    return web.Response(status=303, headers={"Location": where, "Cache-Control": "no-store"})
