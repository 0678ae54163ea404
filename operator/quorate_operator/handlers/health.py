"""The operator's health and metrics over HTTP: /healthz, /readyz, /metrics."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

from aiohttp import web
from prometheus_client import generate_latest
from quorate_protocol.bounded_http.server import CachedPage, HttpServer

from quorate_operator.handlers.metrics import OperatorMetrics
from quorate_operator.runtime.kubernetes.api import ApiError, KubernetesApi
from quorate_operator.runtime.kubernetes.reachability import Reachability
from quorate_operator.web.limits import LimitLog

BEAT_S = 1.0
BEAT_AGE_S_MAX = 30.0
"""Event-loop lag after which liveness fails."""
PASS_AGE_S_MAX = 300.0
"""Observing a cluster takes seconds; each request is bounded."""
UNREAD_S_MAX = 60.0
"""Readiness is lost when the API server has answered no request for longer than this."""
PROBE_INTERVAL_S = 15.0
"""An API server that nothing was requested from for this time is requested, so that its absence is noticed."""


class Liveness:
    """Records when the event loop last ran, and when each pass under way began."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._beat = clock()
        self._passes: dict[object, tuple[object, float]] = {}
        """By pass: a cluster that is created again may be observed before its last pass has ended."""
        self._faults: dict[object, str] = {}
        self.is_ready = False
        self.reachability = Reachability(clock)

    async def run(self) -> None:
        while True:
            self._beat = self._clock()
            await asyncio.sleep(BEAT_S)

    @contextmanager
    def pass_of(self, key: object) -> Iterator[None]:
        """Mark a pass over a cluster or its entities as under way while the context is open."""
        mark = object()
        self._passes[mark] = (key, self._clock())
        try:
            yield
        finally:
            del self._passes[mark]

    def faulted(self, key: object, error: str) -> None:
        """Record a fault of the operator in a reconcile, which is restarted or tried again."""
        self._faults[key] = error

    def recovered(self, key: object) -> None:
        """Record that a reconcile has completed a pass without a fault, or has ended."""
        self._faults.pop(key, None)

    def notes(self) -> list[str]:
        """Return a line for each reconcile that has not completed a pass without a fault since its last fault."""
        return [f"{key}: {error}" for key, error in self._faults.items()]

    def fault(self) -> str | None:
        """Return what is stuck, or None."""
        now = self._clock()
        if now - self._beat > BEAT_AGE_S_MAX:
            return f"the event loop has not run for {now - self._beat:.0f} s"
        stuck = [
            f"{key}: {now - since:.0f} s"
            for key, since in self._passes.values()
            if now - since > PASS_AGE_S_MAX
        ]
        return f"passes do not end: {', '.join(stuck)}" if stuck else None

    def unreadiness(self) -> str | None:
        """Return why the operator can't do its work, or None."""
        if not self.is_ready:
            return "starting"
        unread_s = self.reachability.unread_s
        if unread_s <= UNREAD_S_MAX:
            return None
        return f"the API server has answered no request for {unread_s:.0f} s: {self.reachability.problem}"


async def probe(api: KubernetesApi) -> None:
    """Request something now and then, until cancelled. `Reachability` counts what fails."""
    while True:
        if api.reachability.quiet_s >= PROBE_INTERVAL_S:
            with suppress(ApiError):
                await api.probe()
        await asyncio.sleep(PROBE_INTERVAL_S * random.uniform(0.5, 1.0))


def health_server(liveness: Liveness, metrics: OperatorMetrics) -> HttpServer:
    """Serve /healthz: nothing is stuck; /readyz: it reconciles or waits for the Lease, and the API server answers;
    /metrics for Prometheus.
    """
    page = CachedPage(lambda: generate_latest(metrics.registry), time.monotonic)

    async def live(_: web.Request) -> web.Response:
        fault = liveness.fault()
        text = "\n".join((fault or "ok", *liveness.notes()))
        return web.Response(text=f"{text}\n", status=503 if fault else 200)

    async def ready(_: web.Request) -> web.Response:
        reason = liveness.unreadiness()
        return web.Response(text=f"{reason or 'ok'}\n", status=503 if reason else 200)

    async def scrape(_: web.Request) -> web.Response:
        return web.Response(body=page.get(), headers={"Content-Type": "text/plain; version=0.0.4"})

    return HttpServer(
        [web.get("/healthz", live), web.get("/readyz", ready), web.get("/metrics", scrape)],
        report=LimitLog("health", metrics.http_limit_counter("health")),
    )


@asynccontextmanager
async def served(server: HttpServer, host: str, port: int) -> AsyncIterator[None]:
    """Serve while the context is open. Raises OSError if the port is not available."""
    try:
        await server.start(host, port)
        yield
    finally:
        await server.close()
