"""Reconciles without a cluster: the parts that they share, with the API server and the Events of a test."""

import asyncio
from collections.abc import Mapping
from typing import Any, cast

from quorate_operator.handlers.health import Liveness
from quorate_operator.handlers.metrics import OperatorMetrics
from quorate_operator.handlers.resources import ResourceStore
from quorate_operator.handlers.shared import Shared
from quorate_operator.models.selectors import LabelSelector
from quorate_operator.runtime.kubernetes.api import Kind, Object
from quorate_operator.web.snapshots import ClusterKey, SnapshotRegistry


def resource(
    kind: Kind, name: str, labels: Mapping[str, str] | None = None, *, is_deleted: bool = False, **spec: Any
) -> Object:
    """A resource as the API server has it, with its name as uid."""
    metadata: Object = {
        "name": name,
        "namespace": "kafka",
        "uid": name,
        "generation": 1,
        "resourceVersion": "1",
        "labels": dict(labels or {}),
    }
    if is_deleted:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata, "spec": spec}


class EventLog:
    """Stands in for `EventRecorder`: keeps reason and note of each Event, and which are shown on a page."""

    def __init__(self) -> None:
        self.recorded: list[tuple[str, str]] = []
        self.shown: list[tuple[ClusterKey, str, str]] = []
        """Cluster of the page, name of the resource, and reason."""

    async def record(
        self, cluster: ClusterKey | None, about: Object, reason: str, note: str, **_: object
    ) -> None:
        self.recorded.append((reason, note))
        if cluster is not None:
            self.shown.append((cluster, about["metadata"]["name"], reason))

    def settle(self, *_: object) -> None:
        pass


async def filled() -> None:
    """A cache that has all objects."""


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
