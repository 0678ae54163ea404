"""Requests to Kubernetes' API, against a server that answers as one."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml
from aiohttp import web
from kit.waiting import HANG_S
from kubernetes.aio import config
from quorate_operator.runtime.kubernetes.api import LEASE, KubernetesApi


@pytest.fixture
async def server() -> AsyncIterator[str]:
    """The address of an API that has one Lease."""

    async def lease(_: web.Request) -> web.Response:
        return web.json_response({"kind": "Lease", "metadata": {"name": "quorate-operator"}})

    app = web.Application()
    app.router.add_get("/apis/coordination.k8s.io/v1/namespaces/here/leases/quorate-operator", lease)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


@pytest.fixture
def busy_lookups() -> Iterator[ThreadPoolExecutor]:
    """A thread pool whose only thread waits for a name that nobody resolves."""
    resolved = threading.Event()
    pool = ThreadPoolExecutor(1)
    pool.submit(resolved.wait)
    yield pool
    resolved.set()
    pool.shutdown()


@pytest.fixture
def configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Makes the kubeconfig of the process name a server. The client reads KUBECONFIG when it is imported."""
    path = tmp_path / "kubeconfig"
    for module in (config, config.kube_config):
        monkeypatch.setattr(module, "KUBE_CONFIG_DEFAULT_LOCATION", f"{path}")

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
    """Goal: a Lease is renewed however slowly names of nodes resolve. Method: one thread for lookups, taken."""
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


@pytest.mark.parametrize(("exempt", "is_asked"), [("", True), ("127.0.0.1", False)])
async def test_a_proxy_of_the_environment_is_heeded(
    exempt: str,
    is_asked: bool,
    server: str,
    configured: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Goal: HTTP(S)_PROXY and NO_PROXY mean what they mean to kubectl. Method: the proxy is the server itself, and
    the API a name that does not resolve; exempt, the API is the server, and nobody listens at the proxy's address.
    """
    monkeypatch.setenv("http_proxy", server if is_asked else "http://127.0.0.1:1")
    monkeypatch.setenv("no_proxy", exempt)
    configured("http://api.invalid" if is_asked else server)
    api = await KubernetesApi.connect()
    try:
        async with asyncio.timeout(HANG_S):
            assert await api.get(LEASE, "here", "quorate-operator") is not None
    finally:
        await api.close()
