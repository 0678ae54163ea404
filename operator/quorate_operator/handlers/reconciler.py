"""Runs the reconcile loop of one cluster of custom resources: leases, Events, conditions, metrics.

kopf and the cache of objects wake the loop. Resources that are being deleted, and pools that leave, are cleared here.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from quorate_admin.errors import AdminError

from quorate_operator import clock
from quorate_operator.handlers.acceptance import Acceptance, accept
from quorate_operator.handlers.events import EventRecorder
from quorate_operator.handlers.health import Pulse
from quorate_operator.handlers.metrics import OperatorMetrics
from quorate_operator.handlers.resources import (
    ClusterResources,
    ResourceStore,
    claimed_node_ids,
    lacks_node_ids,
    named_node_ids,
)
from quorate_operator.handlers.sharing import (
    SPLIT_CLUSTER,
    is_guarded,
    is_selected,
    split_message,
    unselected,
)
from quorate_operator.handlers.statuses import (
    broker_status,
    controller_status,
    failed_status,
    has_leader,
    is_mere_progress,
    merged_status,
    overlaid,
    refused_status,
)
from quorate_operator.models.manifests import ManifestError
from quorate_operator.models.node_ids import first_node_id
from quorate_operator.models.selectors import EVERYTHING, LabelSelector
from quorate_operator.models.status import INVALID_MANIFEST
from quorate_operator.planning import steps
from quorate_operator.planning.cluster import DesiredCluster, Lifecycle, Role
from quorate_operator.planning.decommission import remaining_pools, with_pool_removal
from quorate_operator.planning.desired import desired_cluster
from quorate_operator.planning.lifecycle import GRACE_MS
from quorate_operator.planning.planner import PAUSED
from quorate_operator.runtime.kubernetes.api import (
    BROKERS,
    CONTROLLERS,
    ApiError,
    Kind,
    KubernetesApi,
    Object,
)
from quorate_operator.runtime.kubernetes.leases import Lease, LeaseLostError
from quorate_operator.runtime.loop import Asked, FailedStep, Look, Pace, ReconcileLoop, Turn
from quorate_operator.runtime.port import Removal, Reports, Runtime
from quorate_operator.web.port import ClusterKey, ClusterSnapshot
from quorate_operator.web.snapshots import SnapshotRegistry

LOOKS_AT_A_TIME_MAX = 16
"""How many clusters are looked at at the same time. Steps don't count: one may take a node's whole grace period."""
PACE = Pace(working_ms=1_000, settled_ms=15_000, asleep_ms=60_000, retry_ms_min=1_000, retry_ms_max=60_000)
"""How long loops rest. Changes of a cluster's resources and pods wake its loop at once."""
JITTER = 0.25
PROGRESS_INTERVAL_MS = 10_000
"""The shortest time between two status writes about mere progress: each write is sent to every watcher."""
LEASE_TIMEOUT_S = 60.0

EXPECTED_ERRORS = (ApiError, steps.StepError, AdminError, OSError)
"""Failures of other parts: reported by their message. Any other error is a fault of the operator."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """What the reconciles of all clusters share."""

    api: KubernetesApi
    store: ResourceStore
    snapshots: SnapshotRegistry
    events: EventRecorder
    metrics: OperatorMetrics
    pulse: Pulse
    looks: asyncio.Semaphore
    identity: str
    lease_duration_s: int = 15
    selector: LabelSelector = EVERYTHING
    """The labels of the resources that are seen."""


class ClusterReconciler:
    """Reconciles one cluster with its resources until they are deleted: the host of its loop."""

    def __init__(
        self,
        key: ClusterKey,
        shared: Shared,
        runtime: Runtime,
        removal: Removal,
        reports: Reports,
    ) -> None:
        self.key = key
        self._shared = shared
        self._runtime = runtime
        self._removal = removal
        self._reports = reports
        self._loop = ReconcileLoop(self, runtime, jitter=JITTER)
        self._resources = shared.store.of_cluster(key)
        """As the look under way, or the last one, found them."""
        self._acceptance = Acceptance(manifests=None, accepted={}, refused={})
        self._problem: str | None = None
        self._is_split = False
        """Whether resources of the cluster exist that this operator does not select."""
        self._cleared: frozenset[str] = frozenset()
        self._has_cleared = asyncio.Event()
        self._faults_in_a_row = 0
        self._progress_told: dict[str, int] = {}
        """When the status of each resource was written last, by uid, in Unix ms."""

    def wake(self) -> None:
        self._loop.wake()

    async def wait_cleared(self, uid: str) -> None:
        """Waits until the resource with this uid may be removed: nothing is left that has to be deleted before it."""
        while uid not in self._cleared:
            await self._has_cleared.wait()

    async def run(self) -> None:
        """Reconciles until it is cancelled. After a fault of its own, which no turn reports, it begins again."""
        try:
            while True:
                try:
                    await self._loop.run()
                except Exception as error:
                    await asyncio.sleep(self._faulted(error) / 1000)
        finally:
            self._shared.pulse.recovered(self.key)
            await self._runtime.close()

    def _faulted(self, error: Exception) -> int:
        """Reports what ended the loop; returns for how many milliseconds to rest before it begins again."""
        self._faults_in_a_row += 1
        rest_ms = PACE.after_failures(self._faults_in_a_row)
        log.error(
            "%s/%s: a fault of the operator; reconciles again in %d ms", *self.key, rest_ms, exc_info=error
        )
        self._shared.metrics.faults.labels(CONTROLLERS.name, self.key.namespace).inc()
        self._shared.pulse.faulted(self.key, repr(error))
        return rest_ms

    # The loop's host

    def looking(self) -> AbstractAsyncContextManager[object]:
        return self._shared.looks

    async def asked(self) -> Asked | None:
        """Returns the cluster of the resources; None if the KafkaController can't be used, or if it is missing.

        A pool that can't be used is left out, or kept as it was; its conditions say why.
        """
        self._resources = resources = await self._look_for_resources()
        if await self._refuse_split(resources) or resources.quorum is None:
            return None
        if await self._choose_node_ids(resources):
            self._resources = resources = self._shared.store.of_cluster(self.key)
        assert resources.quorum is not None
        self._acceptance = accepted = accept(resources, self._acceptance.accepted)
        if accepted.manifests is None:
            await self.refused(ManifestError(accepted.refusal_of(resources.quorum) or ""))
            return None
        for kind, body in resources.used:
            message = accepted.refusal_of(body)
            if message is not None:
                # The status also stores the spec that is used instead, for an operator that starts.
                await self._refuse(kind, body, message)
        desired = desired_cluster(accepted.manifests)
        running = desired.running and not resources.is_deleted
        return Asked(desired=replace(desired, running=running), manifests=accepted.manifests)

    async def _refuse_split(self, resources: ClusterResources) -> bool:
        """Reports whether resources of the cluster exist that this operator does not select. If so, nothing is done.

        They are looked for after `resources` were taken from the store: one that left the store before is found.
        """
        selector = self._shared.selector
        has_quorum = resources.quorum is not None
        others = await unselected(self._shared.api, selector, self.key, has_quorum=has_quorum)
        was_split, self._is_split = self._is_split, bool(others)
        if not others:
            return False
        message = split_message(selector, self.key, others)
        if not was_split:
            log.warning("%s/%s: %s", *self.key, message)
        bodies = [(BROKERS, body) for body in resources.pools.values()]
        if resources.quorum is not None:
            bodies.append((CONTROLLERS, resources.quorum))
            snapshot = ClusterSnapshot(key=self.key, at_ms=clock.now_ms(), problem=message)
            self._shared.snapshots.put(snapshot)
        for kind, body in bodies:
            status = refused_status(message, body["metadata"]["generation"], reason=SPLIT_CLUSTER)
            await self._write_status(kind, body, status)
            await self._shared.events.record(self.key, body, SPLIT_CLUSTER, message, is_warning=True)
        return True

    async def _look_for_resources(self) -> ClusterResources:
        """Returns the resources; looks for an unseen KafkaController, without which deleted pools are not drained."""
        store = self._shared.store
        if store.of_cluster(self.key).quorum is None:
            quorum = await self._shared.api.get(CONTROLLERS, *self.key)
            if quorum is not None and is_selected(self._shared.selector, quorum):
                store.put(quorum)
        return store.of_cluster(self.key)

    async def _choose_node_ids(self, resources: ClusterResources) -> bool:
        """Stores node ids in valid pools that name none. Returns whether there were any."""
        bodies = [body for _, body in resources.used]
        missing = [body for body in bodies if "nodeIds" not in body["spec"] and lacks_node_ids(body)]
        there = self._removal.pools_of_nodes() if missing else {}
        taken = {node_id for body in bodies for node_id in (*claimed_node_ids(body), *named_node_ids(body))}
        for body in sorted(missing, key=lambda body: str(body["metadata"].get("creationTimestamp"))):
            name = body["metadata"]["name"]
            own = named_node_ids(body) or {node_id for node_id, pool in there.items() if pool == name}
            first = first_node_id(own, taken | there.keys())
            patch = {"spec": {"nodeIds": {"first": first}}}
            written = await self._shared.api.merge(BROKERS, self.key.namespace, name, patch)
            self._shared.store.put(written)
            taken |= set(claimed_node_ids(written))
        return bool(missing)

    async def refused(self, error: ManifestError) -> None:
        """Reports invalid manifests in the conditions. Until they change, only deleted resources are cleared."""
        resources, message = self._resources, str(error)
        assert resources.quorum is not None
        await self._clear(resources)
        if resources.is_deleted:
            return
        self._problem = None
        snapshot = ClusterSnapshot(key=self.key, at_ms=clock.now_ms(), problem=message)
        self._shared.snapshots.put(snapshot)
        for kind, body in resources.used:
            await self._refuse(kind, body, message)

    async def _refuse(self, kind: Kind, body: Object, message: str) -> None:
        """Reports a resource that can't be used as it is."""
        spec = self._acceptance.spec_of(body)
        await self._write_status(
            kind, body, refused_status(message, body["metadata"]["generation"], accepted_spec=spec)
        )
        await self._shared.events.record(self.key, body, INVALID_MANIFEST, message, is_warning=True)

    async def planned(self, look: Look) -> steps.Plan:
        """Returns the plan together with what is due for brokers of pools that are deleted."""
        resources = self._resources
        if resources.is_deleted:
            return look.plan
        leaving = await self._removal.departing(resources.leaving_pools)
        left = remaining_pools(leaving, resources.drained_pools, look.desired, look.observed.kafka)
        self._mark_cleared(resources.pools[name] for name in resources.leaving_pools - left)
        plan = replace(look.plan, refusals=(*look.plan.refusals, *self._refusals()))
        if look.desired.lifecycle is Lifecycle.PAUSED:
            return plan
        ended = {node_id: node for node_id, node in leaving.items() if node.pool in resources.ended_pools}
        return with_pool_removal(plan, ended)

    def _refusals(self) -> tuple[steps.Refusal, ...]:
        """Returns the resources that are not used as they are, without a pool that has the quorum's own name."""
        return tuple(
            steps.Refusal(INVALID_MANIFEST, message, pool=name)
            for (kind, name), message in self._acceptance.refused.items()
            if kind == CONTROLLERS.name or name != self.key.name
        )

    async def looked(self, look: Look) -> None:
        """Publishes the look: as the status page's snapshot, the resources' statuses, and Events of refusals."""
        await self._publish(self._resources, look)

    def alone(self, action: steps.Action) -> AbstractAsyncContextManager[Callable[[], bool]] | None:
        """Returns a Lease of the cluster for what only one process may do at a time; None for other steps."""
        return self._leased() if is_guarded(action, self._shared.selector) else None

    @asynccontextmanager
    async def _leased(self) -> AsyncIterator[Callable[[], bool]]:
        lease = Lease(
            self._shared.api,
            self.key.namespace,
            f"quorate-{self.key.name}",
            self._shared.identity,
            duration_s=self._shared.lease_duration_s,
        )
        try:
            async with lease.held(LEASE_TIMEOUT_S):
                yield lambda: lease.is_held
        except (LeaseLostError, ApiError, AdminError) as error:
            raise steps.StepError(str(error)) from error

    async def applying(self, look: Look, action: steps.Action) -> None:
        name, note = type(action).__name__, f"{_label(look.desired, action)}: {action.reason}"
        await self._shared.events.record(self.key, self._about(look.desired, action), name, note)
        log.info("%s/%s: %s %s", *self.key, name, note)

    async def applied(self, look: Look, action: steps.Action) -> None:
        name, note = type(action).__name__, f"{_label(look.desired, action)}: {action.reason}"
        log.info("%s/%s: done: %s %s", *self.key, name, note)
        self._shared.events.settle(self._about(look.desired, action), name, note)
        self._shared.metrics.steps.labels(name, "done").inc()

    async def failed(self, look: Look, failed: FailedStep) -> None:
        name = type(failed.action).__name__
        self._shared.metrics.steps.labels(name, "failed").inc()
        about = self._about(look.desired, failed.action)
        note = f"{_label(look.desired, failed.action)}: {failed.error}"
        await self._shared.events.record(self.key, about, f"{name}Failed", note, is_warning=True)

    async def settled(self, look: Look | None) -> None:
        """Clears what is left of a deleted KafkaController, or of deleted pools without a KafkaController."""
        resources = self._resources
        if self._is_split:
            return
        if resources.quorum is None:
            await self._refuse_orphans(resources)
        elif look is not None and resources.is_deleted:
            await self._clear(resources)

    async def after(self, turn: Turn) -> int:
        """Counts the turn, reports what failed in the conditions, and returns how long to rest."""
        metrics, labels = self._shared.metrics, (CONTROLLERS.name, self.key.namespace)
        metrics.reconciliations.labels(*labels).inc()
        metrics.duration.labels(*labels).observe(turn.duration_s)
        problem = self._problem_of(turn)
        if problem is not None:
            metrics.failed.labels(*labels).inc()
            self._problem = problem
            await self._report_failure(problem)
            return PACE.after(turn, clock.now_ms())
        metrics.successful.labels(*labels).inc()
        self._faults_in_a_row = 0
        self._shared.pulse.recovered(self.key)
        if turn.look is None:
            return PACE.working_ms if self._resources.is_deleted else PACE.asleep_ms
        had_problem, self._problem = self._problem is not None, None
        return 0 if had_problem else PACE.after(turn, clock.now_ms())

    def _problem_of(self, turn: Turn) -> str | None:
        """Logs and returns what failed in a turn, or None."""
        error = turn.error or (turn.failed[0].error if turn.failed else None)
        if error is None:
            return None
        if isinstance(error, EXPECTED_ERRORS):
            log.warning("%s/%s: %s", *self.key, error)
            return str(error)
        log.error("%s/%s: a fault of the operator", *self.key, exc_info=error)
        return f"a fault of the operator: {error!r}"

    async def _clear(self, resources: ClusterResources) -> None:
        """Stops pods and deletes volumes of deleted resources, by their policy. No plan has these nodes.

        Pools that are to be drained wait for a plan, unless none of their objects is left.
        """
        pools = None if resources.is_deleted else resources.ended_pools
        await self._removal.stop_pods(GRACE_MS, pools)
        await self._removal.delete_volumes(resources.emptied_pools - resources.drained_pools)
        leaving = await self._removal.departing(resources.drained_pools)
        left = remaining_pools(leaving, resources.drained_pools)
        gone = [resources.pools[name] for name in resources.leaving_pools - left]
        if resources.quorum is not None and resources.is_deleted:
            gone.append(resources.quorum)
        self._mark_cleared(gone)

    def _mark_cleared(self, gone: Iterable[Object]) -> None:
        self._cleared = frozenset(body["metadata"]["uid"] for body in gone)
        self._has_cleared.set()
        self._has_cleared = asyncio.Event()

    # Reports

    async def _publish(self, resources: ClusterResources, look: Look) -> None:
        assert resources.quorum is not None
        snapshot = ClusterSnapshot(
            key=self.key,
            at_ms=clock.now_ms(),
            desired=look.desired,
            observed=look.observed,
            plan=look.plan,
            problem=self._problem,
        )
        self._shared.snapshots.put(snapshot)
        view = snapshot.view()
        generation = resources.quorum["metadata"]["generation"]
        history = self._reports.history()
        status = controller_status(view, generation=generation, history=history)
        self._shared.metrics.set_leader(*self.key, has_leader=has_leader(view))
        await self._publish_status(CONTROLLERS, resources.quorum, status)
        for pool, body in resources.pools.items():
            if pool not in resources.ended_pools:
                status = broker_status(
                    view,
                    pool=pool,
                    generation=body["metadata"]["generation"],
                    listeners=self._reports.listeners(look.desired, look.observed, pool),
                )
                await self._publish_status(BROKERS, body, status)
        for refusal in look.plan.refusals:
            about = resources.pools.get(refusal.pool or "", resources.quorum)
            await self._shared.events.record(
                self.key, about, refusal.code, refusal.message, is_warning=refusal.code != PAUSED
            )

    async def _publish_status(self, kind: Kind, body: Object, status: dict[str, Any]) -> None:
        """Writes what was observed of a resource that is used, together with why it is not used as it is."""
        message, spec = self._acceptance.refusal_of(body), self._acceptance.spec_of(body)
        if message is not None:
            if spec is None:
                return  # `asked` has said why
            generation = body["metadata"]["generation"]
            status = overlaid(status, refused_status(message, generation, accepted_spec=spec))
        await self._write_status(kind, body, status)

    async def _report_failure(self, problem: str) -> None:
        """Reports a failure in conditions and on the status page, also if the turn ended before its look did."""
        snapshot = self._shared.snapshots.find(self.key) or ClusterSnapshot(key=self.key, at_ms=0)
        self._shared.snapshots.put(replace(snapshot, at_ms=clock.now_ms(), problem=problem))
        resources = self._shared.store.of_cluster(self.key)
        bodies = [
            (BROKERS, body) for name, body in resources.pools.items() if name not in resources.ended_pools
        ]
        if resources.quorum is not None:
            bodies.append((CONTROLLERS, resources.quorum))
        for kind, body in bodies:
            with contextlib.suppress(ApiError):  # `problem` is logged, and written after the next failure too
                await self._write_status(kind, body, failed_status(problem, body["metadata"]["generation"]))

    async def _refuse_orphans(self, resources: ClusterResources) -> None:
        """Refuses pools whose KafkaController doesn't exist."""
        await self._clear(resources)
        for name, body in resources.pools.items():
            if name not in resources.leaving_pools:
                message = (
                    f"spec.controllers: {self.key.name!r}: no such KafkaController in {self.key.namespace}"
                )
                status = refused_status(message, body["metadata"]["generation"])
                await self._write_status(BROKERS, body, status)

    async def _write_status(self, kind: Kind, body: Object, status: dict[str, Any]) -> None:
        before = body.get("status") or {}
        patch = merged_status(before, status, datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))
        name = body["metadata"]["name"]
        ready = next((one for one in status["conditions"] if one["type"] == "Ready"), None)
        if ready is not None:
            reason = "" if ready["status"] == "True" else str(ready["reason"])
            self._shared.metrics.set_state(kind.name, self.key.namespace, name, reason)
        if patch is None or not self._is_due(body, before, patch):
            return
        try:
            written = await self._shared.api.merge(
                kind, self.key.namespace, name, {"status": patch}, subresource="status"
            )
        except ApiError as error:
            if error.is_missing:
                return
            raise
        self._shared.store.put(written)

    def _is_due(self, body: Object, before: dict[str, Any], patch: dict[str, Any]) -> bool:
        """Whether a status is written now: mere progress is written from time to time."""
        uid, now_ms = body["metadata"]["uid"], clock.now_ms()
        is_recent = now_ms - self._progress_told.get(uid, 0) < PROGRESS_INTERVAL_MS
        if is_recent and is_mere_progress(before, patch):
            return False
        self._progress_told = {
            known: at_ms
            for known, at_ms in self._progress_told.items()
            if now_ms - at_ms < PROGRESS_INTERVAL_MS
        } | {uid: now_ms}
        return True

    def _about(self, desired: DesiredCluster, action: steps.Action) -> Object:
        """Returns the resource for an Event about a step: the node's pool, or the quorum."""
        resources = self._resources
        assert resources.quorum is not None
        pools = {node.node_id: node.pool for node in desired.nodes_with_settings if node.role is Role.BROKER}
        pool = pools.get(action.node_id) if action.node_id is not None else None
        return resources.pools.get(pool or "", resources.quorum)


def _label(desired: DesiredCluster, action: steps.Action) -> str:
    if action.node_id is None:
        return desired.name
    labels = {node.node_id: node.label for node in desired.nodes_with_settings}
    return labels.get(action.node_id, f"node {action.node_id}")
