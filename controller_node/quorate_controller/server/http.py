"""Pages for probes and scrapers: /metrics, /healthz, /readyz. Loaded only when a metrics listener is
configured.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

from aiohttp import web
from quorate_protocol.bounded_http.server import CachedPage, HttpServer

if TYPE_CHECKING:
    from quorate_protocol.bounded_http.places import HttpLimit

    from quorate_controller.node.port import NodePort
    from quorate_controller.node.status import NodeStatus
    from quorate_controller.server.counters import RequestCounters
    from quorate_controller.server.metrics import MetricsPage

log = logging.getLogger(__name__)

TURN_AGE_S_MAX: Final = 10.0
"""A node whose last turn is older is stuck, most likely on its disk."""

METRICS_CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class HttpPages:
    """The HTTP listener. Requests run on the event loop, so that a blocked loop fails the probes."""

    def __init__(self, node: NodePort, metrics: MetricsPage, counters: RequestCounters) -> None:
        self._node = node
        self._metrics = CachedPage(metrics.render, time.monotonic)
        self._counters = counters
        self.server = HttpServer(
            [
                web.get("/metrics", self._serve_metrics),
                web.get("/healthz", self._serve_health),
                web.get("/readyz", self._serve_readiness),
            ],
            report=self._report,
        )

    async def start(self, host: str, port: int) -> None:
        """Bind and serve. Raises OSError. An empty host or 0.0.0.0 binds all interfaces."""
        await self.server.start(host, port)

    @property
    def port(self) -> int:
        """The bound port."""
        return self.server.port

    async def close(self) -> None:
        """Stop serving."""
        await self.server.close()

    def _report(self, limit: HttpLimit, peer: str) -> None:
        self._counters.limited[limit] += 1
        log.info("http_limit_applied", extra={"facts": {"limit": limit.value, "peer": peer}})

    async def _serve_metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=self._metrics.get(), headers={"Content-Type": METRICS_CONTENT_TYPE})

    async def _serve_health(self, _: web.Request) -> web.Response:
        age_s = self._node.seconds_since_turn()
        is_alive = age_s <= TURN_AGE_S_MAX
        return web.json_response(
            {"alive": is_alive, "secondsSinceTurn": round(age_s, 3)}, status=200 if is_alive else 503
        )

    async def _serve_readiness(self, _: web.Request) -> web.Response:
        status = self._node.status()
        checks = readiness(status)
        missing = [name for name, is_met in checks.items() if not is_met]
        body = {
            "ready": not missing,
            "missing": missing,
            "checks": checks,
            "nodeId": status.node_id,
            "clusterId": status.cluster_id,
            "leaderId": status.leader_id,
            "leaderEpoch": status.leader_epoch,
            "state": status.current_state,
            "highWatermark": status.high_watermark,
            "lastAppliedOffset": status.last_applied_offset,
            "logEndOffset": status.log_end_offset,
        }
        return web.json_response(body, status=503 if missing else 200)


def readiness(status: NodeStatus) -> dict[str, bool]:
    """Return the conditions under which this node is a healthy part of its quorum, and whether each holds."""
    return {
        "voter": status.is_voter,
        "leaderKnown": status.leader_id >= 0,
        "caughtUp": status.is_caught_up,
    }
