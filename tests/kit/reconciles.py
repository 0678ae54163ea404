"""Reconciles without a cluster: the parts that they share, with the API server and the Events of a test."""

import asyncio
from typing import Any, cast

from quorate_operator.handlers.health import Liveness
from quorate_operator.handlers.metrics import OperatorMetrics
from quorate_operator.handlers.resources import ResourceStore
from quorate_operator.handlers.shared import Shared
from quorate_operator.models.selectors import LabelSelector
from quorate_operator.web.snapshots import SnapshotRegistry


class EventLog:
    """Stands in for `EventRecorder`: keeps reason and note of each Event."""

    def __init__(self) -> None:
        self.recorded: list[tuple[str, str]] = []

    async def record(self, _cluster: object, _about: object, reason: str, note: str, **_: object) -> None:
        self.recorded.append((reason, note))

    def settle(self, *_: object) -> None:
        pass


def shared_parts(**parts: Any) -> Shared:
    """The parts of an operator process; without an `api`, no request may be made."""
    defaults: dict[str, Any] = {
        "api": None,
        "store": ResourceStore(),
        "snapshots": SnapshotRegistry(),
        "events": EventLog(),
        "metrics": OperatorMetrics(),
        "liveness": Liveness(),
        "observations": asyncio.Semaphore(1),
        "identity": "operator",
        "selector": LabelSelector(),
    }
    return Shared(**cast("Any", defaults | parts))
