"""The latest snapshot of each cluster, which the operator stores and the status page shows."""

import asyncio
from collections import deque
from dataclasses import replace

from quorate_operator.web.port import ClusterEvent, ClusterKey, ClusterSnapshot

EVENTS_MAX = 50
"""How many of its latest events are kept for each cluster."""


class SnapshotRegistry:
    """The latest snapshot of each cluster, in one event loop."""

    def __init__(self) -> None:
        self._snapshots: dict[ClusterKey, ClusterSnapshot] = {}
        self._events: dict[ClusterKey, deque[ClusterEvent]] = {}
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
        """Waits until `version` is greater than `seen`; returns it."""
        while self._version <= seen:
            await self._change.wait()
        return self._version

    def put(self, snapshot: ClusterSnapshot) -> None:
        """Replaces the snapshot of a cluster, with the events added so far. An equal snapshot is no change."""
        new = replace(snapshot, events=tuple(self._events.get(snapshot.key, ())))
        before = self._snapshots.get(snapshot.key)
        self._snapshots[snapshot.key] = new
        if before is None or replace(before, at_ms=new.at_ms) != new:
            self._notify()

    def add_event(self, key: ClusterKey, event: ClusterEvent) -> None:
        events = self._events.setdefault(key, deque(maxlen=EVENTS_MAX))
        events.append(event)
        if snapshot := self._snapshots.get(key):
            self._snapshots[key] = replace(snapshot, events=tuple(events))
            self._notify()

    def forget(self, key: ClusterKey) -> None:
        self._events.pop(key, None)
        if self._snapshots.pop(key, None) is not None:
            self._notify()

    def _notify(self) -> None:
        self._version += 1
        self._change.set()
        self._change = asyncio.Event()
