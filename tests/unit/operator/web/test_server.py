"""The server of the status page: pages, sessions and refusals."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import aiohttp
import pytest
from kit.snapshots import busy, well
from kit.waiting import HANG_S, until
from quorate_operator.web import access, server
from quorate_operator.web.access import (
    ADDRESSES_MAX,
    FAILURES_MAX,
    FAILURES_WINDOW_MS,
    SESSION_MS,
    SESSIONS_MAX,
    Sessions,
    TooManyFailuresError,
)
from quorate_operator.web.server import StatusPage
from quorate_operator.web.snapshots import ClusterKey, CommandError, SnapshotRegistry

TOKEN = "correct horse battery"
CLUSTER = "/clusters/kafka/quorum"
NOW_MS = 1_000_000


class Commands:
    """Writes down what it is asked to do, or refuses."""

    def __init__(self) -> None:
        self.done: list[tuple[str, ClusterKey, object]] = []
        self.refusal: str | None = None

    async def pause(self, key: ClusterKey, *, paused: bool) -> None:
        """Write it down."""
        self._note("pause", key, paused)

    async def restart_node(self, key: ClusterKey, node_id: int) -> None:
        """Write it down."""
        self._note("restart", key, node_id)

    def _note(self, what: str, key: ClusterKey, value: object) -> None:
        if self.refusal is not None:
            raise CommandError(self.refusal)
        self.done.append((what, key, value))


class Site:
    """A running page, and a browser without a screen."""

    def __init__(
        self, registry: SnapshotRegistry, commands: Commands, client: aiohttp.ClientSession, page: StatusPage
    ) -> None:
        self.page = page
        self.registry = registry
        self.commands = commands
        self.client = client

    async def get(self, path: str) -> tuple[int, str]:
        """Status and body."""
        async with self.client.get(path, allow_redirects=False) as response:
            return response.status, await response.text()

    async def post(self, path: str, headers: dict[str, str] | None = None, **form: str) -> tuple[int, str]:
        """Status, and where it leads or what it says."""
        async with self.client.post(path, data=form, headers=headers, allow_redirects=False) as response:
            return response.status, response.headers.get("Location") or await response.text()

    async def unlock(self) -> str:
        """Give the token; the word that forms have to bring."""
        assert await self.post("/unlock", token=TOKEN) == (303, "/?notice=unlocked")
        _, page = await self.get(CLUSTER)
        return re.findall(r'name="csrf" value="([^"]+)"', page)[0]


Start = Callable[..., Any]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Start a page with a busy cluster."""
    opened: list[tuple[StatusPage, aiohttp.ClientSession]] = []

    async def begin(token: str | None = TOKEN, *, commands: bool = True, hosts: Iterable[str] = ()) -> Site:
        registry, recorder = SnapshotRegistry(), Commands()
        registry.put(busy())
        page = StatusPage(registry, recorder if commands else None, token, hosts=hosts)
        await page.start("127.0.0.1", 0)
        jar = aiohttp.CookieJar(unsafe=True)  # of an address instead of a name
        client = aiohttp.ClientSession(f"http://127.0.0.1:{page.port}", cookie_jar=jar)
        opened.append((page, client))
        return Site(registry, recorder, client, page)

    yield begin
    for page, client in opened:
        await client.close()
        await page.close()


async def test_pages_and_assets_are_served_with_a_strict_policy(start: Start) -> None:
    site = await start()
    for path, kind in (
        ("/", "text/html"),
        (CLUSTER, "text/html"),
        ("/assets/style.css", "text/css"),
        ("/assets/live.js", "text/javascript"),
        ("/assets/icon.svg", "image/svg+xml"),
    ):
        async with site.client.get(path) as response:
            assert response.status == 200
            assert response.content_type == kind
            assert "default-src 'none'" in response.headers["Content-Security-Policy"]
            assert "unsafe" not in response.headers["Content-Security-Policy"]
            assert response.headers["X-Content-Type-Options"] == "nosniff"
            assert not re.search(r"(src|href)=\"(https?:)?//", await response.text())


@pytest.mark.parametrize(
    "path", ["/clusters/kafka/other", "/nothing", "/assets/../server.py", "/assets/x", "/clusters/a"]
)
async def test_what_is_not_there_is_said_on_a_page(start: Start, path: str) -> None:
    status, page = await (await start()).get(path)
    assert status == 404
    assert "Not found" in page


async def test_without_a_token_nothing_can_be_done(start: Start) -> None:
    for site in (await start(), await start(token=None), await start(commands=False)):
        for path in (f"{CLUSTER}/pause", f"{CLUSTER}/restart", "/lock"):
            status, _ = await site.post(path, node="3000", csrf="guessed")
            assert status == 403
        assert site.commands.done == []
    status, said = await (await start(token=None)).post("/unlock", token="anything")
    assert (status, "page is read-only" in said) == (403, True)


async def test_the_token_allows_to_pause_resume_and_restart(start: Start) -> None:
    site = await start()
    csrf = await site.unlock()
    key = ClusterKey("kafka", "quorum")
    assert await site.post(f"{CLUSTER}/pause", csrf=csrf) == (303, f"{CLUSTER}?notice=paused")
    assert await site.post(f"{CLUSTER}/resume", csrf=csrf) == (303, f"{CLUSTER}?notice=resumed")
    assert await site.post(f"{CLUSTER}/restart", csrf=csrf, node="3001") == (
        303,
        f"{CLUSTER}?notice=restarting",
    )
    assert site.commands.done == [("pause", key, True), ("pause", key, False), ("restart", key, 3001)]
    assert await site.post("/lock", csrf=csrf) == (303, "/?notice=locked")
    assert (await site.post(f"{CLUSTER}/pause", csrf=csrf))[0] == 403
    assert len(site.commands.done) == 3


async def test_forms_of_other_sites_are_refused(start: Start) -> None:
    site = await start()
    csrf = await site.unlock()
    assert (await site.post(f"{CLUSTER}/pause", csrf="guessed"))[0] == 403
    assert (await site.post(f"{CLUSTER}/pause"))[0] == 403
    for origin in ("https://evil.example", "null"):
        status, said = await site.post(f"{CLUSTER}/pause", headers={"Origin": origin}, csrf=csrf)
        assert (status, "another site" in said) == (403, True)
    assert site.commands.done == []
    async with site.client.post("/unlock", data={"token": TOKEN}, allow_redirects=False) as response:
        cookie = response.headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie


@pytest.mark.parametrize("node", ["", "7", "-1", "3000 ", "²", "3000; rm", "9" * 400])
async def test_only_nodes_of_the_cluster_can_be_restarted(start: Start, node: str) -> None:
    site = await start()
    status, said = await site.post(f"{CLUSTER}/restart", csrf=await site.unlock(), node=node)
    assert status == 400
    assert "must be one of 0, 1, 2, 3000" in said
    assert site.commands.done == []


async def test_a_command_that_fails_says_why(start: Start) -> None:
    site = await start()
    csrf = await site.unlock()
    site.commands.refusal = "kafkacontrollers quorum is forbidden"
    status, said = await site.post(f"{CLUSTER}/pause", csrf=csrf)
    assert status == 502
    assert "quorum is forbidden" in said
    status, _ = await site.post("/clusters/kafka/other/pause", csrf=csrf)
    assert status == 404


async def test_large_forms_are_refused(start: Start) -> None:
    status, said = await (await start()).post("/unlock", token="x" * 2**16)
    assert status == 413
    assert "4096 bytes" in said


async def events(response: aiohttp.ClientResponse) -> AsyncIterator[tuple[str, dict[str, str]]]:
    """The server-sent events of a stream: kind and data."""
    kind = "message"
    async for raw in response.content:
        line = raw.decode().rstrip("\n")
        if line.startswith("event: "):
            kind = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield kind, json.loads(line.removeprefix("data: "))
            kind = "message"


async def test_a_stream_sends_what_changed_and_ends_with_its_cluster(start: Start) -> None:
    site = await start()
    async with site.client.get(f"{CLUSTER}/events") as response:
        assert response.content_type == "text/event-stream"
        stream = events(response)
        _, first = await anext(stream)
        assert {"summary", "plan", "quorum", "brokers", "registrations", "addresses", "events"} <= set(first)
        site.registry.put(replace(busy(), at_ms=busy().at_ms, problem="no route"))
        _, second = await anext(stream)
        assert "no route" in second["summary"]
        assert "brokers" not in second
        site.registry.forget(ClusterKey("kafka", "quorum"))
        assert await anext(stream) == ("gone", {})


async def test_the_list_is_live_too(start: Start) -> None:
    site = await start()
    async with site.client.get("/events") as response:
        stream = events(response)
        await anext(stream)
        site.registry.put(replace(well(), key=ClusterKey("kafka", "second")))
        _, changed = await anext(stream)
        assert "/clusters/kafka/second" in changed["clusters-list"]
        assert "1 ready" in changed["announcement"]


async def test_a_quiet_stream_beats_so_that_a_dead_reader_is_noticed(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "HEARTBEAT_S", 0.01)
    site = await start()
    async with site.client.get(f"{CLUSTER}/events") as response:
        await response.content.readuntil(b"\n\n")
        assert await response.content.readuntil(b"\n\n") == b":\n\n"


async def test_strangers_do_not_take_the_streams_of_administrators(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "STREAMS_OF_ADDRESS_MAX", 2)
    monkeypatch.setattr(access, "STREAMS_OF_SESSION_MAX", 1)
    site = await start()
    async with AsyncExitStack() as open_pages:
        for _ in range(2):
            page = await open_pages.enter_async_context(site.client.get("/events"))
            await page.content.readuntil(b"\n\n")
        refused = await site.client.get("/events")
        assert (refused.status, refused.headers["Retry-After"]) == (503, "30")
        assert await refused.text() == "2 live pages of your address are already open\n"
        await site.unlock()
        page = await open_pages.enter_async_context(site.client.get("/events"))
        await page.content.readuntil(b"\n\n")
        refused = await site.client.get("/events")
        assert await refused.text() == "1 live pages of your session are already open\n"


async def test_a_closed_page_gives_its_share_back_at_once(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "STREAMS_OF_ADDRESS_MAX", 1)
    site = await start()
    for _ in range(3):
        page = await site.client.get("/events")
        await page.content.readuntil(b"\n\n")
        assert page.connection is not None
        page.connection.transport.abort()
        await until(lambda: not site.page.server._connections, "the end of the connection")


@pytest.mark.parametrize(
    ("host", "is_allowed"),
    [
        ("localhost:8081", True),
        ("127.0.0.1:8081", True),
        ("10.1.2.3", True),
        ("[::1]:8081", True),
        ("Quorate.example.com", True),
        ("quorate.example.com:443", True),
        ("evil.example", False),
        ("quorate.example.com.evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("localhost@evil.example", False),
        ("[", False),
        ("", False),
    ],
)
async def test_other_names_of_the_page_are_refused(start: Start, host: str, is_allowed: bool) -> None:
    """A site that gives its own name this page's address reads nothing (DNS rebinding)."""
    site = await start(hosts=["quorate.example.com"])
    for method, path in (("GET", "/"), ("GET", CLUSTER), ("POST", "/unlock")):
        async with site.client.request(method, path, headers={"Host": host}) as response:
            assert (response.status not in (400, 421)) == is_allowed, (method, path)
            if not is_allowed:
                assert "evil" not in response.headers.get("Location", "")
                assert "kafka" not in await response.text()


async def test_a_dropped_form_leaves_no_traceback(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    site = await start()
    _, writer = await asyncio.open_connection("127.0.0.1", site.page.port)
    writer.write(b"POST /unlock HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\ntoken=")
    await writer.drain()
    await until(lambda: site.page.server._connections, "the connection")
    writer.close()
    await until(lambda: not site.page.server._connections, "its end")
    assert [record for record in caplog.records if record.exc_info] == []


async def test_a_locked_out_address_has_no_token_compared(start: Start) -> None:
    site = await start()
    for _ in range(FAILURES_MAX):
        assert (await site.post("/unlock", token="wrong token of a stranger"))[0] == 403
    for token in ("wrong token of a stranger", TOKEN):
        status, said = await site.post("/unlock", token=token)
        assert (status, "from your address in the last minute" in said) == (429, True)


async def test_closing_ends_the_streams() -> None:
    registry = SnapshotRegistry()
    registry.put(busy())
    page = StatusPage(registry)
    await page.start("127.0.0.1", 0)
    async with aiohttp.ClientSession() as client:
        response = await client.get(f"http://127.0.0.1:{page.port}{CLUSTER}/events")
        await response.content.readuntil(b"\n\n")
        await asyncio.wait_for(page.close(), HANG_S)
        response.close()


def test_sessions_end_and_are_bounded() -> None:
    """A token is needed again some day."""
    sessions = Sessions(TOKEN)
    name = sessions.unlock(TOKEN, "a", NOW_MS)
    assert sessions.find(name, NOW_MS + SESSION_MS - 1) is not None
    assert sessions.find(name, NOW_MS + SESSION_MS) is None
    assert sessions.find(None, NOW_MS) is None
    for _ in range(SESSIONS_MAX):
        sessions.unlock(TOKEN, "a", NOW_MS)
    assert sessions.find(name, NOW_MS) is None, "the oldest gives way"


def test_wrong_tokens_lock_out_their_address_for_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    sessions = Sessions(TOKEN)
    for _ in range(FAILURES_MAX):
        assert sessions.unlock("wrong", "a", NOW_MS) is None
    with monkeypatch.context() as patch:
        patch.setattr("hmac.compare_digest", None)
        with pytest.raises(TooManyFailuresError):
            sessions.unlock(TOKEN, "a", NOW_MS)
    assert sessions.unlock(TOKEN, "b", NOW_MS) is not None
    assert sessions.unlock(TOKEN, "a", NOW_MS + FAILURES_WINDOW_MS) is not None


def test_addresses_that_guess_do_not_fill_the_memory() -> None:
    sessions = Sessions(TOKEN)
    for number in range(ADDRESSES_MAX + 10):
        sessions.unlock("wrong", str(number), NOW_MS)
    assert len(sessions._failures) == ADDRESSES_MAX


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({"Content-Type": "application/x-www-form-urlencoded; charset=utf-16"}, b"token=a"),
        ({"Content-Type": "application/x-www-form-urlencoded; charset=none"}, b"token=a"),
        ({"Content-Type": "multipart/form-data; boundary=x"}, b"--x\r\nContent-Type: a\r\n\r\n--x--"),
        ({}, b"token=%ff\xff"),
        ({"Origin": "http://[half"}, b"token=a"),
    ],
)
async def test_forms_that_can_not_be_read_are_refused(
    start: Start, caplog: pytest.LogCaptureFixture, headers: dict[str, str], body: bytes
) -> None:
    site = await start()
    async with site.client.post("/unlock", data=body, headers=headers) as response:
        assert response.status == 403
    assert not caplog.records


@pytest.mark.parametrize(("token", "length"), [(" \n", 0), ("", 0), (f"  {'x' * 15}\n", 15)])
def test_a_short_token_is_refused(token: str, length: int) -> None:
    """Neither an empty Secret nor a guess opens the page."""
    with pytest.raises(ValueError, match=rf"has {length} characters; at least 16 are needed"):
        Sessions(token)


def test_white_space_around_a_token_does_not_count() -> None:
    assert Sessions(f"{'x' * 16}\n").unlock("x" * 16, "a", NOW_MS) is not None
    assert Sessions(None).unlock("", "a", NOW_MS) is None
