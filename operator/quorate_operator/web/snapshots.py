"""Snapshots of clusters, which the operator stores and the status page shows. Times are Unix milliseconds."""

import asyncio
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

from quorate_operator.planning.cluster import DesiredCluster, ObservedCluster
from quorate_operator.planning.steps import Plan
from quorate_operator.view.cluster import ClusterView, view_of

EVENTS_MAX = 50
"""How many of its latest events are kept for each cluster."""


class ClusterKey(NamedTuple):
    """A cluster by the namespace and name of its KafkaController; local clusters are in namespace `local`."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterEvent:
    """An event, as in a Kubernetes Event or on the terminal."""

    at_ms: int
    text: str
    is_warning: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSnapshot:
    """The observation and plan of a cluster's last reconcile.

    `desired`, `observed` and `plan` are None until the cluster was observed once. `problem` is why observing failed.
    """

    key: ClusterKey
    at_ms: int
    desired: DesiredCluster | None = None
    observed: ObservedCluster | None = None
    plan: Plan | None = None
    events: tuple[ClusterEvent, ...] = field(default=())
    """The latest ones, oldest first."""
    problem: str | None = None

    def view(self) -> ClusterView:
        return view_of(self.key.name, self.desired, self.observed, self.plan, problem=self.problem)


class CommandError(Exception):
    """A command was refused or failed. The message is for the user."""


class Commands(Protocol):
    """The commands of users with a token. Each sets an annotation, and the operator does the rest."""

    async def pause(self, key: ClusterKey, *, paused: bool) -> None:
        """Set or remove `quorate.dev/pause`. Raises CommandError."""

    async def restart_node(self, key: ClusterKey, node_id: int) -> None:
        """Set `quorate.dev/restart-<nodeId>` to a new value. Raises CommandError."""


class SnapshotRegistry:
    """The latest snapshot of each cluster, in one event loop."""

    def __init__(self) -> None:
        self._snapshots: dict[ClusterKey, ClusterSnapshot] = {}
        self._version = 0
        self._change = asyncio.Event()

    @property
    def version(self) -> int:
        """A number that grows with each change of any snapshot."""
        return self._version

    def clusters(self) -> tuple[ClusterSnapshot, ...]:
        return tuple(snapshot for _, snapshot in sorted(self._snapshots.items()))

    def find(self, key: ClusterKey) -> ClusterSnapshot | None:
        return self._snapshots.get(key)

    async def changed(self, seen: int) -> int:
        """Wait until `version` is greater than `seen`; returns it."""
        while self._version <= seen:
            await self._change.wait()
        return self._version

    def put(self, snapshot: ClusterSnapshot) -> None:
        """Replace the snapshot of a cluster, with the events added so far. An equal snapshot is no change."""
        before = self._snapshots.get(snapshot.key)
        new = replace(snapshot, events=before.events if before is not None else ())
        self._snapshots[snapshot.key] = new
        if before is None or replace(before, at_ms=new.at_ms) != new:
            self._notify()

    def add_event(self, key: ClusterKey, event: ClusterEvent) -> None:
        """Add an event to the snapshot of its cluster. Without a snapshot, there may be no such cluster."""
        if snapshot := self._snapshots.get(key):
            self._snapshots[key] = replace(snapshot, events=(*snapshot.events, event)[-EVENTS_MAX:])
            self._notify()

    def forget(self, key: ClusterKey) -> None:
        if self._snapshots.pop(key, None) is not None:
            self._notify()

    def _notify(self) -> None:
        self._version += 1
        self._change.set()
        self._change = asyncio.Event()
