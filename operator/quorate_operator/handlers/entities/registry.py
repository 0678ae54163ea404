"""The reconciles of all topics, users and rebalances: one task for the resources of each Kafka cluster."""

from collections.abc import Callable, Iterable

from quorate_operator.handlers.entities.claims import Claims
from quorate_operator.handlers.entities.group import EntityGroup
from quorate_operator.handlers.entities.kind_handlers import KindHandler
from quorate_operator.handlers.entities.targets import TargetKey, Targets
from quorate_operator.handlers.resources import ResourceMap, is_paused, key_of, put_newer
from quorate_operator.handlers.shared import ReconcileTasks, Shared
from quorate_operator.runtime.kubernetes.api import Kind, Object
from quorate_operator.runtime.loop import RequeuePolicy


def requeue_policy_of(drift_interval_s: int) -> RequeuePolicy:
    """Return the policy of resources that are compared with Kafka each `drift_interval_s`."""
    settled_ms = drift_interval_s * 1000
    return RequeuePolicy(
        working_ms=min(1_000, settled_ms),
        settled_ms=settled_ms,
        asleep_ms=settled_ms,
        retry_ms_min=1_000,
        retry_ms_max=15_000,
    )


class Entities:
    """The running groups by target, in one event loop. Close it."""

    def __init__(
        self, shared: Shared, targets: Targets, handlers: Iterable[KindHandler], *, drift_interval_s: int
    ) -> None:
        self._shared = shared
        self._handlers = {handler.kind.name: handler for handler in handlers}
        self._known: dict[str, ResourceMap] = {kind: {} for kind in self._handlers}
        self._target_of: dict[str, TargetKey] = {}
        self._tasks: ReconcileTasks[TargetKey, EntityGroup] = ReconcileTasks()
        claims, requeue_policy = Claims(), requeue_policy_of(drift_interval_s)
        self._make: Callable[[TargetKey], EntityGroup] = lambda key: EntityGroup(
            key, shared, targets, claims, requeue_policy
        )

    @property
    def kinds(self) -> tuple[Kind, ...]:
        return tuple(handler.kind for handler in self._handlers.values())

    def seen(self, body: Object) -> None:
        """Handle a created or changed resource: start or wake the group of its target."""
        known = self._known[body["kind"]]
        is_changed = put_newer(known, body)
        newest = known[key_of(body)]
        uid, key = newest["metadata"]["uid"], TargetKey.of(newest)
        before = self._target_of.get(uid)
        if before is not None and before != key:
            self._leave(uid)
        self._target_of[uid] = key
        group = self._tasks.find(key)
        if group is None:
            group = self._make(key)
            name = f"reconcile entities of {key}"
            self._tasks.start(key, group, group.run(), name)
        group.put(newest, self._handlers[body["kind"]], is_changed=is_changed)
        self._count(newest, exists=True)

    def gone(self, body: Object) -> None:
        """Handle a deleted resource. The task of a target without resources ends."""
        known = self._known[body["kind"]]
        name, uid = key_of(body), body["metadata"]["uid"]
        if name in known and known[name]["metadata"]["uid"] == uid:
            del known[name]
        self._leave(uid)
        self._count(body, exists=False)

    async def wait_cleared(self, body: Object) -> None:
        """Wait until the resource may be removed: what its deletion deletes in Kafka is deleted."""
        uid = body["metadata"]["uid"]
        key = self._target_of.get(uid)
        group = None if key is None else self._tasks.find(key)
        if group is not None:
            await group.wait_cleared(uid)

    async def close(self) -> None:
        """Stop every group."""
        await self._tasks.close()

    def _leave(self, uid: str) -> None:
        key = self._target_of.pop(uid, None)
        group = None if key is None else self._tasks.find(key)
        if key is not None and group is not None and not group.remove(uid):
            self._tasks.stop(key)

    def _count(self, body: Object, *, exists: bool) -> None:
        metadata, paused = body["metadata"], exists and is_paused(body)
        self._shared.metrics.count_resource(
            body["kind"], metadata["namespace"], metadata["uid"], exists=exists, is_paused=paused
        )
