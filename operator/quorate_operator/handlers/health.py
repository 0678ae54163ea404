"""The operator's health, and its HTTP endpoints: /healthz, /readyz, /metrics."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

from aiohttp import web
from prometheus_client import generate_latest
from quorate_protocol.bounded_http.server import CachedPage, HttpServer

from quorate_operator.handlers.metrics import OperatorMetrics
from quorate_operator.web.limits import LimitLog

BEAT_S = 1.0
BEAT_AGE_S_MAX = 30.0
"""An event loop that has not run for so long is stuck."""
LOOK_AGE_S_MAX = 300.0
"""A look at a cluster takes seconds; each request in it is bounded."""


class Pulse:
    """Records when the event loop last ran, and since when each look has been under way."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._beat = clock()
        self._looks: dict[object, tuple[object, float]] = {}
        """By look: a cluster that comes again may be looked at before the last look at it has ended."""
        self._faults: dict[object, str] = {}
        self.is_ready = False

    async def run(self) -> None:
        while True:
            self._beat = self._clock()
            await asyncio.sleep(BEAT_S)

    @contextmanager
    def look(self, key: object) -> Iterator[None]:
        """Marks a look at a cluster as under way while the context is open."""
        one = object()
        self._looks[one] = (key, self._clock())
        try:
            yield
        finally:
            del self._looks[one]

    def faulted(self, key: object, error: str) -> None:
        """Records that a fault ended the loop of a cluster, which begins again, or the look at a resource."""
        self._faults[key] = error

    def recovered(self, key: object) -> None:
        """Records that the loop of a cluster has completed a turn without any fault, or has ended."""
        self._faults.pop(key, None)

    def notes(self) -> list[str]:
        """Returns a line for each cluster that had a fault and has not completed a turn without one since."""
        return [f"{key}: a fault of the operator: {error}" for key, error in self._faults.items()]

    def fault(self) -> str | None:
        """Returns what is stuck, or None."""
        now = self._clock()
        if now - self._beat > BEAT_AGE_S_MAX:
            return f"the event loop has not run for {now - self._beat:.0f} s"
        stuck = [
            f"{key}: {now - since:.0f} s"
            for key, since in self._looks.values()
            if now - since > LOOK_AGE_S_MAX
        ]
        return f"looks do not end: {', '.join(stuck)}" if stuck else None


def health_server(pulse: Pulse, metrics: OperatorMetrics) -> HttpServer:
    """Serves /healthz: nothing is stuck; /readyz: it reconciles or waits for the Lease; /metrics for Prometheus."""
    page = CachedPage(lambda: generate_latest(metrics.registry), time.monotonic)

    async def live(_: web.Request) -> web.Response:
        fault = pulse.fault()
        text = "\n".join((fault or "ok", *pulse.notes()))
        return web.Response(text=f"{text}\n", status=503 if fault else 200)

    async def ready(_: web.Request) -> web.Response:
        return web.Response(
            text="ok\n" if pulse.is_ready else "starting\n", status=200 if pulse.is_ready else 503
        )

    async def scrape(_: web.Request) -> web.Response:
        return web.Response(body=page.get(), headers={"Content-Type": "text/plain; version=0.0.4"})

    return HttpServer(
        [web.get("/healthz", live), web.get("/readyz", ready), web.get("/metrics", scrape)],
        report=LimitLog("health", metrics.http_limit_counter("health")),
    )


@asynccontextmanager
async def served(server: HttpServer, host: str, port: int) -> AsyncIterator[None]:
    """Serves while the context is open. Raises OSError if the port is not available."""
    try:
        await server.start(host, port)
        yield
    finally:
        await server.close()
