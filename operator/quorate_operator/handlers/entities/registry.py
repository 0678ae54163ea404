"""All topics and users: each goes to the group of its Kafka cluster."""

import asyncio
from collections.abc import Callable, Iterable

from quorate_operator.handlers.cluster_tasks import CLOSE_TIMEOUT_S
from quorate_operator.handlers.entities.claims import Claims
from quorate_operator.handlers.entities.group import EntityGroup, requeue_policy_of
from quorate_operator.handlers.entities.kind_handlers import KindHandler
from quorate_operator.handlers.entities.targets import TargetKey, Targets
from quorate_operator.handlers.reconciler import Shared
from quorate_operator.handlers.resources import is_paused, put_newer
from quorate_operator.runtime.kubernetes.api import Kind, Object
from quorate_operator.web.port import ClusterKey


class Entities:
    """The running groups by target, in one event loop. Close it."""

    def __init__(
        self, shared: Shared, targets: Targets, handlers: Iterable[KindHandler], *, drift_interval_s: int
    ) -> None:
        self._shared = shared
        self._handlers = {handler.kind.name: handler for handler in handlers}
        self._known: dict[str, dict[ClusterKey, Object]] = {kind: {} for kind in self._handlers}
        self._target_of: dict[str, TargetKey] = {}
        self._numbers: dict[tuple[str, str], set[str]] = {}
        self._paused: dict[tuple[str, str], set[str]] = {}
        self._running: dict[TargetKey, tuple[EntityGroup, asyncio.Task[None]]] = {}
        claims, requeue_policy = Claims(), requeue_policy_of(drift_interval_s)
        self._make: Callable[[TargetKey], EntityGroup] = lambda key: EntityGroup(
            key, shared, targets, claims, requeue_policy
        )

    @property
    def kinds(self) -> tuple[Kind, ...]:
        return tuple(handler.kind for handler in self._handlers.values())

    def seen(self, body: Object) -> None:
        """Handles a created or changed resource: starts or wakes the group of its target."""
        is_changed = put_newer(self._known[body["kind"]], body)
        newest = self._known[body["kind"]][_name_of(body)]
        uid, key = newest["metadata"]["uid"], TargetKey.of(newest)
        before = self._target_of.get(uid)
        if before is not None and before != key:
            self._leave(uid)
        self._target_of[uid] = key
        if key not in self._running:
            group = self._make(key)
            name = f"keep what is in {key.namespace}/{key.cluster or key.servers}"
            self._running[key] = group, asyncio.create_task(group.run(), name=name)
        self._running[key][0].put(newest, self._handlers[body["kind"]], is_changed=is_changed)
        self._count(newest, is_there=True)

    def gone(self, body: Object) -> None:
        """Handles a deleted resource. A target without resources is forgotten."""
        known = self._known[body["kind"]]
        name, uid = _name_of(body), body["metadata"]["uid"]
        if name in known and known[name]["metadata"]["uid"] == uid:
            del known[name]
        self._leave(uid)
        self._count(body, is_there=False)

    async def wait_cleared(self, body: Object) -> None:
        """Waits until the resource may be removed: what its deletion deletes in Kafka is deleted."""
        key = self._target_of.get(body["metadata"]["uid"])
        if key is not None:
            await self._running[key][0].wait_cleared(body["metadata"]["uid"])

    async def close(self) -> None:
        """Cancels every group. Connections that are not closed in time end with the process."""
        tasks = [task for _, task in self._running.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=CLOSE_TIMEOUT_S)
        self._running.clear()

    def _leave(self, uid: str) -> None:
        key = self._target_of.pop(uid, None)
        if key is not None and not self._running[key][0].remove(uid):
            _, task = self._running.pop(key)
            task.cancel()

    def _count(self, body: Object, *, is_there: bool) -> None:
        key, uid = (body["kind"], body["metadata"]["namespace"]), body["metadata"]["uid"]
        for counted, gauge, is_in in (
            (self._numbers, self._shared.metrics.resources, is_there),
            (self._paused, self._shared.metrics.paused, is_there and is_paused(body)),
        ):
            uids = counted.setdefault(key, set())
            (uids.add if is_in else uids.discard)(uid)
            gauge.labels(*key).set(len(uids))


def _name_of(body: Object) -> ClusterKey:
    return ClusterKey(body["metadata"]["namespace"], body["metadata"]["name"])
