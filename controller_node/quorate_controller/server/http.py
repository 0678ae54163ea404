"""Pages for probes and scrapers: /metrics, /healthz, /readyz. Loaded only when a metrics listener is
configured.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aiohttp import web

if TYPE_CHECKING:
    from quorate_controller.node.port import NodePort
    from quorate_controller.node.status import NodeStatus
    from quorate_controller.server.metrics import MetricsPage

TURN_AGE_S_MAX: Final = 10.0
"""A node whose last turn is older is stuck, most likely on its disk."""

METRICS_CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class HttpPages:
    """The HTTP listener. Requests run on the event loop, so that a blocked loop answers nobody."""

    def __init__(self, node: NodePort, metrics: MetricsPage) -> None:
        self._node = node
        self._metrics = metrics
        app = web.Application()
        app.router.add_get("/metrics", self._serve_metrics)
        app.router.add_get("/healthz", self._serve_health)
        app.router.add_get("/readyz", self._serve_readiness)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        self._site: web.TCPSite | None = None

    async def start(self, host: str, port: int) -> None:
        """Bind and serve; raises OSError. An empty host means all interfaces."""
        await self._runner.setup()
        self._site = web.TCPSite(self._runner, host or None, port)
        await self._site.start()

    @property
    def port(self) -> int:
        """The bound port."""
        address: tuple[str, int] = self._runner.addresses[0]
        return address[1]

    async def close(self) -> None:
        """Stop serving."""
        await self._runner.cleanup()

    async def _serve_metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=self._metrics.render(), headers={"Content-Type": METRICS_CONTENT_TYPE})

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
