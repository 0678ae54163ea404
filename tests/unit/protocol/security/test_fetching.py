"""The policy of every request over HTTP: no redirections, bounded time and size, verified certificates."""

import asyncio
import gzip
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from kit.java.tls import Certificates
from quorate_protocol.security import fetching
from quorate_protocol.security.fetching import Fetched, FetchError, fetch
from quorate_protocol.security.oauth_properties import AllowedUrl
from quorate_protocol.security.stores import Store, StoreType, TlsConfig

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Of an authority that has signed a server on loopback."""
    return Certificates.create(tmp_path_factory.mktemp("fetching") / "tls")


@asynccontextmanager
async def listening(handler: Handler, certificate: Path | None = None) -> AsyncIterator[str]:
    """Run a server, with TLS if there is a certificate. Yields its URL."""
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(application, shutdown_timeout=0)
    await runner.setup()
    context = None
    if certificate is not None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate)
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    try:
        yield f"{'http' if context is None else 'https'}://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def trusting(authority: Path) -> TlsConfig:
    """TLS settings that trust an authority."""
    return TlsConfig(truststore=Store(prefix="ssl.truststore", type=StoreType.PEM, location=str(authority)))


async def get(url: str, tls: TlsConfig | None = None, **settings: int) -> Fetched:
    """Fetch a URL."""
    return await fetch(AllowedUrl(url), tls=tls or TlsConfig(), headers={}, **settings)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("begins", ["http", "https"])
@pytest.mark.parametrize("leads_to", ["http", "https"])
async def test_redirections_are_not_followed(
    certificates: Certificates, begins: str, leads_to: str, status: int
) -> None:
    reached: list[str] = []

    async def note(request: web.Request) -> web.Response:
        reached.append(request.path)
        return web.Response(text="foreign")

    async with AsyncExitStack() as stack:
        scheme_of = {"http": None, "https": certificates.server}
        target = await stack.enter_async_context(listening(note, scheme_of[leads_to]))

        async def redirect(_: web.Request) -> web.Response:
            return web.Response(status=status, headers={"Location": f"{target}/keys?secret=s3cret"})

        origin = await stack.enter_async_context(listening(redirect, scheme_of[begins]))
        for body in (None, b"client_secret=s3cret"):
            with pytest.raises(
                FetchError, match=rf"status {status} to '{target}/keys', which is not foll"
            ) as refused:
                await fetch(
                    AllowedUrl(f"{origin}/keys"), tls=trusting(certificates.authority), headers={}, body=body
                )
            assert refused.value.is_final
            assert "s3cret" not in str(refused.value)
    assert reached == []


async def test_a_certificate_is_verified(certificates: Certificates) -> None:
    async def handler(_: web.Request) -> web.Response:
        return web.Response(text="ours")

    async with listening(handler, certificates.server) as url:
        right = await get(url, trusting(certificates.authority))
        assert right == Fetched(status=200, content=b"ours")
        for tls in (trusting(certificates.other_authority), TlsConfig()):
            with pytest.raises(FetchError, match="certificate verify failed"):
                await get(url, tls)


async def test_a_response_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "RESPONSE_SIZE_BYTES_MAX", 1000)

    async def handler(request: web.Request) -> web.StreamResponse:
        if request.path == "/compressed":
            return web.Response(body=gzip.compress(bytes(100_000)), headers={"Content-Encoding": "gzip"})
        if request.path != "/endless":
            return web.Response(body=bytes(int(request.path[1:])))
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(bytes(100_000))

    async with listening(handler) as url:
        assert len((await get(f"{url}/1000")).content) == 1000
        for path in ("1001", "endless"):
            with pytest.raises(FetchError, match="more than 1000 bytes"):
                await get(f"{url}/{path}")
        with pytest.raises(FetchError, match="encoded as gzip"):
            await get(f"{url}/compressed")


@pytest.mark.parametrize("timeouts", [{}, {"connect_timeout_ms": 5, "read_timeout_ms": 5}])
async def test_a_response_takes_bounded_time(
    monkeypatch: pytest.MonkeyPatch, timeouts: dict[str, int]
) -> None:
    monkeypatch.setattr(fetching, "TIMEOUT_S", 0.05)
    ended = asyncio.Event()

    async def drip(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await ended.wait()
        return response

    async with listening(drip) as url:
        with pytest.raises(FetchError, match="can't be asked"):
            await get(url, **timeouts)
        ended.set()
