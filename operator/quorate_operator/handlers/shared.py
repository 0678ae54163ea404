"""What the reconciles of clusters and of entities share: status writes, step reports, faults, tasks."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from quorate_operator import clock
from quorate_operator.handlers.dropped_statuses import DroppedStatuses
from quorate_operator.handlers.events import EventRecorder
from quorate_operator.handlers.health import Liveness
from quorate_operator.handlers.metrics import OperatorMetrics
from quorate_operator.handlers.resources import ResourceStore
from quorate_operator.handlers.status_patches import merged_status, without_watermark
from quorate_operator.models.selectors import EVERYTHING, LabelSelector
from quorate_operator.models.tenant_policy import DEFAULT_POLICY, TenantPolicy
from quorate_operator.runtime.kubernetes.api import ApiError, Kind, KubernetesApi, Object
from quorate_operator.runtime.loop import RequeuePolicy
from quorate_operator.view.texts import iso_time
from quorate_operator.web.snapshots import ClusterKey, SnapshotRegistry

CONCURRENT_OBSERVATIONS_MAX = 16
"""How many clusters are observed at the same time. Steps don't count: one may take a node's whole grace period."""
CONCURRENT_ENTITY_PASSES_MAX = 32
"""How many Kafka clusters' topics, users and rebalances are reconciled at the same time. Some of these clusters are
servers outside of Kubernetes, which may not answer: clusters have places of their own."""
JITTER = 0.25
CLOSE_TIMEOUT_S = 5.0

K = TypeVar("K", bound=Hashable)
R = TypeVar("R")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What a report is about: its label in the log, the cluster of the status page, and the resource of Events."""

    label: str
    cluster: ClusterKey | None
    """None: no status page shows it."""
    resource: Object


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """The parts of the process that all reconciles use, and the reports that all of them write."""

    api: KubernetesApi
    store: ResourceStore
    snapshots: SnapshotRegistry
    events: EventRecorder
    metrics: OperatorMetrics
    liveness: Liveness
    observations: asyncio.Semaphore
    identity: str
    lease_duration_s: int = 15
    selector: LabelSelector = EVERYTHING
    """The labels of the resources that are reconciled."""
    policy: TenantPolicy = DEFAULT_POLICY
    """What the owners of resources may ask for."""
    dropped: DroppedStatuses = field(default_factory=DroppedStatuses)
    entity_passes: asyncio.Semaphore = field(
        default_factory=lambda: asyncio.Semaphore(CONCURRENT_ENTITY_PASSES_MAX)
    )

    async def write_status(
        self,
        kind: Kind,
        body: Object,
        status: dict[str, Any],
        is_due: Callable[[dict[str, Any]], bool] = lambda _: True,
    ) -> Object | None:
        """Write what changed in a status, and set the metric of the resource's state. Raises ApiError.

        Returns the resource as it was written; None if nothing changed, nothing is due, or it is gone.
        """
        namespace, name = body["metadata"]["namespace"], body["metadata"]["name"]
        ready = next((condition for condition in status["conditions"] if condition["type"] == "Ready"), None)
        if ready is not None:
            reason = "" if ready["status"] == "True" else str(ready["reason"])
            self.metrics.set_state(kind.name, namespace, name, reason)
        now = iso_time(clock.now_ms())
        uid, before = str(body["metadata"]["uid"]), body.get("status") or {}
        patch = merged_status(before, status, now)
        sent = without_watermark(status)
        if patch is None or not is_due(patch) or self.dropped.is_known(uid, sent, before):
            return None
        try:
            written = await self.api.merge(kind, namespace, name, {"status": patch}, subresource="status")
        except ApiError as error:
            if error.is_missing:
                return None
            if error.is_invalid:
                self.dropped.put(uid, sent, before)
            raise
        stored = written.get("status") or {}
        if merged_status(stored, status, now) is None:
            self.dropped.forget(uid)
        elif self.dropped.put(uid, sent, stored):
            log.warning(
                "%s %s/%s: parts of its status are not stored: the definitions are of an older release",
                kind.name,
                namespace,
                name,
            )
        return written

    async def step_started(self, subject: Subject, step: object, note: str) -> None:
        name = type(step).__name__
        log.info("%s: %s %s", subject.label, name, note)
        await self.events.record(subject.cluster, subject.resource, name, note)

    def step_done(self, subject: Subject, step: object, note: str) -> None:
        name = type(step).__name__
        log.info("%s: done: %s %s", subject.label, name, note)
        self.events.settle(subject.resource, name, note)
        self.metrics.steps.labels(name, "done").inc()

    async def step_failed(self, subject: Subject, step: object, note: str) -> None:
        name = type(step).__name__
        self.metrics.steps.labels(name, "failed").inc()
        await self.warn(subject, f"{name}Failed", note)

    async def warn(self, subject: Subject, reason: str, note: str) -> None:
        """Log a warning, and record it as an Event."""
        log.warning("%s: %s: %s", subject.label, reason, note)
        await self.events.record(subject.cluster, subject.resource, reason, note, is_warning=True)

    def fault(self, about: object, error: Exception, labels: Iterable[tuple[str, str]]) -> str:
        """Log a fault of the operator, and count it; returns the message for conditions and Events.

        It counts once for each kind and namespace in `labels`, those of the resources that it affects.
        An unforeseen error may quote a secret, so only the log has its text.
        """
        log.error("%s: a fault of the operator", about, exc_info=error)
        for kind, namespace in {*labels}:
            self.metrics.faults.labels(kind, namespace).inc()
        return fault_message(error)


def fault_message(error: Exception) -> str:
    """Return what conditions, Events and /healthz report of a fault: not its text, which may quote a secret."""
    return f"a fault of the operator, see its log: {type(error).__name__}"


class FaultGuard:
    """Restarts one reconcile after each fault of the operator, with a growing back-off.

    The faults count for the resources' kinds and namespaces, `labels`, which may change.
    """

    def __init__(
        self,
        shared: Shared,
        key: object,
        requeue_policy: RequeuePolicy,
        labels: Callable[[], Iterable[tuple[str, str]]],
    ) -> None:
        self._shared = shared
        self._key = key
        self._requeue_policy = requeue_policy
        self._labels = labels
        self._faults_in_a_row = 0

    async def run(self, reconcile: Callable[[], Awaitable[None]]) -> None:
        """Repeat `reconcile` until it is cancelled."""
        try:
            while True:
                try:
                    await reconcile()
                except Exception as error:
                    self.report(error)
                    self._faults_in_a_row += 1
                    rest_ms = self._requeue_policy.after_failures(self._faults_in_a_row)
                    await asyncio.sleep(rest_ms / 1000)
        finally:
            self._shared.liveness.recovered(self._key)

    def report(self, error: Exception) -> str:
        """Log and count a fault, and note it at /healthz; returns the message for conditions."""
        message = self._shared.fault(self._key, error, self._labels())
        self._shared.liveness.faulted(self._key, message)
        return message

    def recovered(self) -> None:
        """End the back-off after a pass without a fault."""
        self._faults_in_a_row = 0
        self._shared.liveness.recovered(self._key)


class ReconcileTasks(Generic[K, R]):
    """The running reconciles by key, each in a task of its own: none waits for another. Close it."""

    def __init__(self) -> None:
        self._running: dict[K, tuple[R, asyncio.Task[None]]] = {}

    def __contains__(self, key: object) -> bool:
        return key in self._running

    def find(self, key: K) -> R | None:
        running = self._running.get(key)
        return None if running is None else running[0]

    def start(self, key: K, reconcile: R, work: Coroutine[Any, Any, None], name: str) -> None:
        """Run `work` of `reconcile` until it is stopped."""
        self._running[key] = reconcile, asyncio.create_task(work, name=name)

    def stop(self, key: K) -> None:
        running = self._running.pop(key, None)
        if running is not None:
            running[1].cancel()

    async def close(self) -> None:
        """Stop all of them. Connections that are not closed in time end with the process."""
        tasks = [task for _, task in self._running.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=CLOSE_TIMEOUT_S)
        self._running.clear()
