"""Requests to Kubernetes' API, against a server that answers as one."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml
from aiohttp import web
from kit.waiting import HANG_S
from quorate_operator.runtime.kubernetes.api import (
    CONNECTIONS_MAX,
    LEASE,
    TERMINATING_AGE_S_MAX,
    ApiError,
    KubernetesApi,
)
from quorate_operator.runtime.kubernetes.reachability import Reachability

TERMINATING = {"reason": "Forbidden", "details": {"causes": [{"reason": "NamespaceTerminating"}]}}
"""The refusal of a creation in a namespace that is being deleted."""


@pytest.fixture
async def server() -> AsyncIterator[str]:
    """The address of an API that has one Lease."""

    async def lease(_: web.Request) -> web.Response:
        return web.json_response({"kind": "Lease", "metadata": {"name": "quorate-operator"}})

    async with listening(lease) as address:
        yield address


@asynccontextmanager
async def listening(
    respond: Callable[[web.Request], Awaitable[web.StreamResponse]], method: str = "GET"
) -> AsyncIterator[str]:
    """Run a server that answers each request about Leases with `respond`. Yields its address."""
    app = web.Application()
    app.router.add_route(
        method, "/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases{name:.*}", respond
    )
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@pytest.fixture
def busy_lookups() -> Iterator[ThreadPoolExecutor]:
    """A thread pool whose only thread waits for a name that is never resolved."""
    resolved = threading.Event()
    pool = ThreadPoolExecutor(1)
    pool.submit(resolved.wait)
    yield pool
    resolved.set()
    pool.shutdown()


@pytest.fixture
def configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Make the kubeconfig of the process name a server."""
    path = tmp_path / "kubeconfig"
    monkeypatch.setenv("KUBECONFIG", f"{path}")

    def configure(server: str) -> None:
        path.write_text(kubeconfig(server))

    return configure


def kubeconfig(server: str) -> str:
    """A kubeconfig that names this server."""
    return yaml.safe_dump(
        {
            "clusters": [{"name": "one", "cluster": {"server": server}}],
            "users": [{"name": "one", "user": {"token": "secret"}}],
            "contexts": [{"name": "one", "context": {"cluster": "one", "user": "one"}}],
            "current-context": "one",
        }
    )


async def test_a_request_never_waits_for_name_lookups(
    server: str, busy_lookups: ThreadPoolExecutor, configured: Callable[[str], None]
) -> None:
    """A Lease is renewed however slowly names of nodes resolve."""
    configured(server)
    asyncio.get_running_loop().set_default_executor(busy_lookups)
    api = await KubernetesApi.connect()
    try:
        async with asyncio.timeout(HANG_S):
            found = await api.get(LEASE, "here", "quorate-operator")
    finally:
        await api.close()
    assert found is not None
    assert found["metadata"]["name"] == "quorate-operator"


async def test_a_watch_never_takes_the_place_of_a_request(configured: Callable[[str], None]) -> None:
    """A request is answered however many watches are open, and each names the operator and its release."""
    agents: set[str] = set()
    opened, ended = asyncio.Semaphore(0), asyncio.Event()

    async def respond(request: web.Request) -> web.StreamResponse:
        agents.add(request.headers["User-Agent"])
        if "watch" not in request.query:
            return web.json_response({"metadata": {"name": "one"}})
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b'{"type": "BOOKMARK", "object": {}}\n')
        opened.release()
        await ended.wait()
        return response

    async def watch(api: KubernetesApi) -> None:
        async for _ in api.watch(LEASE, "here", "", "1"):
            pass

    async with listening(respond) as address:
        configured(address)
        api = await KubernetesApi.connect()
        watches = [asyncio.create_task(watch(api)) for _ in range(2 * CONNECTIONS_MAX)]
        try:
            async with asyncio.timeout(HANG_S):
                for _ in watches:
                    await opened.acquire()
                assert await api.get(LEASE, "here", "one") is not None
        finally:
            ended.set()
            for task in watches:
                task.cancel()
            await asyncio.gather(*watches, return_exceptions=True)
            await api.close()
    assert agents == {f"quorate-operator/{version('quorate')}"}


async def test_a_refusal_in_a_namespace_that_is_being_deleted_is_remembered(
    configured: Callable[[str], None],
) -> None:
    async def respond(_: web.Request) -> web.Response:
        return web.json_response(TERMINATING, status=403)

    async with listening(respond, "POST") as address:
        configured(address)
        api = await KubernetesApi.connect()
        try:
            with pytest.raises(ApiError):
                await api.create(LEASE, "here", {})
            assert api.is_terminating("here")
            assert not api.is_terminating("there")
        finally:
            await api.close()


async def test_refusals_in_namespaces_that_were_deleted_are_forgotten(
    configured: Callable[[str], None],
) -> None:
    async def respond(_: web.Request) -> web.Response:
        return web.json_response(TERMINATING, status=403)

    now_s = 0.0
    async with listening(respond, "POST") as address:
        configured(address)
        api = await KubernetesApi.connect()
        api.reachability = Reachability(lambda: now_s)
        try:
            for number in range(3):
                for namespace in (f"a{number}", f"b{number}"):
                    with pytest.raises(ApiError):
                        await api.create(LEASE, namespace, {})
                assert api._terminating.keys() == {f"a{number}", f"b{number}"}
                now_s += TERMINATING_AGE_S_MAX
        finally:
            await api.close()


@pytest.mark.parametrize(("exempt", "is_asked"), [("", True), ("127.0.0.1", False)])
async def test_a_proxy_of_the_environment_is_heeded(
    exempt: str,
    is_asked: bool,
    server: str,
    configured: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("http_proxy", server if is_asked else "http://127.0.0.1:1")
    monkeypatch.setenv("no_proxy", exempt)
    configured("http://api.invalid" if is_asked else server)
    api = await KubernetesApi.connect()
    try:
        async with asyncio.timeout(HANG_S):
            assert await api.get(LEASE, "here", "quorate-operator") is not None
    finally:
        await api.close()


@pytest.mark.parametrize("content", [b"<html>Sign in</html>", b"", b"[1]", b"\xff", b"[" * 100_000])
async def test_an_answer_that_is_no_object_is_an_error_of_the_api(
    content: bytes, configured: Callable[[str], None]
) -> None:
    """A proxy in between that answers 200 is reported like an API server that can't be reached."""

    async def respond(_: web.Request) -> web.Response:
        return web.Response(body=content)

    async with listening(respond) as address:
        configured(address)
        api = await KubernetesApi.connect()
        try:
            with pytest.raises(
                ApiError, match=r"GET .*leases/one: the response is not a JSON object"
            ) as refusal:
                await api.get(LEASE, "here", "one")
            assert refusal.value.status == 0
            with pytest.raises(ApiError, match=r"GET .*leases: the response is not a JSON object"):
                await api.list(LEASE, "here")
        finally:
            await api.close()


@pytest.mark.parametrize(
    "line", [b"<html>", b"[1]", b"{}", b'{"type": "ADDED", "object": 1}', b"[" * 100_000]
)
async def test_a_line_of_a_watch_that_is_no_event_breaks_it(
    line: bytes, configured: Callable[[str], None]
) -> None:
    """A broken watch is one error, after which the watcher lists again."""

    async def respond(_: web.Request) -> web.Response:
        return web.Response(body=line + b"\n")

    async with listening(respond) as address:
        configured(address)
        api = await KubernetesApi.connect()
        try:
            with pytest.raises(ApiError, match=r"a watch of leases broke: .*not an event"):
                [event async for event in api.watch(LEASE, "here", "", "1")]
        finally:
            await api.close()


async def test_a_page_of_a_list_without_items_is_an_error_of_the_api(
    configured: Callable[[str], None],
) -> None:
    async def respond(_: web.Request) -> web.Response:
        return web.json_response({"login": "https://elsewhere"})

    async with listening(respond) as address:
        configured(address)
        api = await KubernetesApi.connect()
        try:
            with pytest.raises(ApiError, match=r"GET .*leases: the response is not a list of leases"):
                await api.list(LEASE, "here")
        finally:
            await api.close()


async def test_a_redirection_is_not_followed(server: str, configured: Callable[[str], None]) -> None:
    """A proxy before the API server can't lead requests, and the token in them, elsewhere."""

    async def redirect(request: web.Request) -> web.Response:
        raise web.HTTPTemporaryRedirect(f"{server}{request.path}")

    async with listening(redirect) as address:
        configured(address)
        api = await KubernetesApi.connect()
        try:
            with pytest.raises(ApiError, match="is a redirection \\(status 307\\)"):
                await api.get(LEASE, "here", "quorate-operator")
        finally:
            await api.close()
