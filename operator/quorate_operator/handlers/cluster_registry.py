"""The reconciles of all clusters: one task for each KafkaController with its KafkaBrokers."""

from collections.abc import Callable

from quorate_operator.handlers.reconciler import ClusterReconciler
from quorate_operator.handlers.resources import is_paused
from quorate_operator.handlers.shared import ReconcileTasks, Shared
from quorate_operator.runtime.kubernetes.api import CONTROLLERS, Object
from quorate_operator.web.snapshots import ClusterKey

MakeReconciler = Callable[[ClusterKey, Shared], ClusterReconciler]


class Clusters:
    """The running reconciles by cluster, in one event loop. Close it."""

    def __init__(self, shared: Shared, make: MakeReconciler) -> None:
        self._shared = shared
        self._make = make
        self._tasks: ReconcileTasks[ClusterKey, ClusterReconciler] = ReconcileTasks()

    def seen(self, body: Object) -> None:
        """Handle a created or changed resource: start or wake its cluster's reconcile."""
        changed = self._shared.store.put(body)
        key = self._shared.store.cluster_of(body)
        if key not in self._tasks:
            reconciler = self._make(key, self._shared)
            self._tasks.start(key, reconciler, reconciler.run(), f"reconcile {key}")
        elif changed:
            self.wake(*key)
        self._count(body, exists=True)

    def gone(self, body: Object) -> None:
        """Handle a deleted resource. The reconcile of a cluster without resources ends."""
        store, metrics = self._shared.store, self._shared.metrics
        key = store.cluster_of(body)
        store.remove(body)
        metrics.set_state(body["kind"], key.namespace, body["metadata"]["name"], None)
        resources = store.of_cluster(key)
        if resources.quorum is None:
            self._shared.snapshots.forget(key)
            metrics.set_leader(*key, has_leader=None)
            metrics.set_certificates(*key, {})
        if resources.quorum is None and not resources.pools:
            self._tasks.stop(key)
        else:
            self.wake(*key)
        self._count(body, exists=False)

    def wake(self, namespace: str, cluster: str) -> None:
        reconciler = self._tasks.find(ClusterKey(namespace, cluster))
        if reconciler is not None:
            reconciler.wake()

    async def wait_cleared(self, body: Object) -> None:
        """Wait until none of the resource's pods is left, so that its deletion may complete."""
        reconciler = self._tasks.find(self._shared.store.cluster_of(body))
        if reconciler is not None:
            await reconciler.wait_cleared(body["metadata"]["uid"])

    async def close(self) -> None:
        """Stop every reconcile."""
        await self._tasks.close()

    def _count(self, body: Object, *, exists: bool) -> None:
        kind, metadata = body["kind"], body["metadata"]
        paused = exists and kind == CONTROLLERS.name and is_paused(body)  # a pool is paused by its quorum
        self._shared.metrics.count_resource(
            kind, metadata["namespace"], metadata["uid"], exists=exists, is_paused=paused
        )
