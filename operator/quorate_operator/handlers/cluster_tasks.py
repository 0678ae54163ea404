"""One task for each cluster, so that no cluster waits for another."""

import asyncio
from collections.abc import Callable

from quorate_operator.handlers.reconciler import ClusterReconciler, Shared
from quorate_operator.runtime.kubernetes.api import CONTROLLERS, Object
from quorate_operator.web.port import ClusterKey

CLOSE_TIMEOUT_S = 5.0

MakeReconciler = Callable[[ClusterKey, Shared], ClusterReconciler]


class Clusters:
    """The running reconciles by cluster, in one event loop. Close it."""

    def __init__(self, shared: Shared, make: MakeReconciler) -> None:
        self._shared = shared
        self._make = make
        self._running: dict[ClusterKey, tuple[ClusterReconciler, asyncio.Task[None]]] = {}

    def seen(self, body: Object) -> None:
        """Handles a created or changed resource: starts or wakes its cluster's reconcile."""
        changed = self._shared.store.put(body)
        key = self._shared.store.cluster_of(body)
        if key not in self._running:
            reconciler = self._make(key, self._shared)
            task = asyncio.create_task(reconciler.run(), name=f"reconcile {key.namespace}/{key.name}")
            self._running[key] = reconciler, task
        elif changed:
            self._running[key][0].wake()
        self._count()

    def gone(self, body: Object) -> None:
        """Handles a deleted resource. A cluster without resources is forgotten."""
        store, metrics = self._shared.store, self._shared.metrics
        key = store.cluster_of(body)
        store.remove(body)
        metrics.set_state(body["kind"], key.namespace, body["metadata"]["name"], None)
        resources = store.of_cluster(key)
        if resources.quorum is None:
            self._shared.snapshots.forget(key)
            metrics.set_leader(*key, has_leader=None)
        if resources.quorum is None and not resources.pools:
            running = self._running.pop(key, None)
            if running is not None:
                running[1].cancel()
        else:
            self.wake(*key)
        self._count()

    def wake(self, namespace: str, cluster: str) -> None:
        running = self._running.get(ClusterKey(namespace, cluster))
        if running is not None:
            running[0].wake()

    async def wait_cleared(self, body: Object) -> None:
        """Waits until none of the resource's pods is left, so that its deletion may complete."""
        running = self._running.get(self._shared.store.cluster_of(body))
        if running is not None:
            await running[0].wait_cleared(body["metadata"]["uid"])

    async def close(self) -> None:
        """Cancels every reconcile. Connections that are not closed in time end with the process."""
        tasks = [task for _, task in self._running.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=CLOSE_TIMEOUT_S)
        self._running.clear()

    def _count(self) -> None:
        metrics = self._shared.metrics
        for (kind, namespace), number in self._shared.store.count().items():
            metrics.resources.labels(kind, namespace).set(number)
            if kind == CONTROLLERS.name:
                paused = self._shared.store.count_paused(namespace)
                metrics.paused.labels(kind, namespace).set(paused)
