"""Reconciles one cluster of custom resources: the loop's host, with leases, Events, conditions and metrics.

kopf and the cache of objects wake the loop. Resources that are being deleted, and pools that leave, are cleared here.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import Any

from quorate_admin.errors import AdminError

from quorate_operator import clock
from quorate_operator.handlers.resources import (
    ClusterResources,
    claimed_node_ids,
    lacks_node_ids,
    named_node_ids,
)
from quorate_operator.handlers.selection import (
    SPLIT_CLUSTER,
    is_guarded,
    is_selected,
    lease_name,
    split_message,
    unselected,
)
from quorate_operator.handlers.shared import JITTER, FaultGuard, Shared, Subject
from quorate_operator.handlers.status_patches import is_mere_progress, overlaid
from quorate_operator.handlers.statuses import (
    UNKNOWN_FIELDS,
    broker_status,
    controller_status,
    failed_status,
    has_leader,
    refused_status,
    unknown_fields_note,
    with_unknown_fields,
)
from quorate_operator.handlers.validation import ValidationResult, named, validate
from quorate_operator.models.manifests import ManifestError
from quorate_operator.models.nodes import first_node_id
from quorate_operator.planning import steps
from quorate_operator.planning.cluster import DesiredCluster, Lifecycle, Role
from quorate_operator.planning.decommission import remaining_pools, with_pool_removal
from quorate_operator.planning.desired import desired_cluster
from quorate_operator.planning.planner import PAUSED
from quorate_operator.runtime.composite import ClusterRuntime
from quorate_operator.runtime.kubernetes.api import BROKERS, CONTROLLERS, ApiError, Kind, Object
from quorate_operator.runtime.kubernetes.infrastructure import KubernetesInfrastructure
from quorate_operator.runtime.kubernetes.leases import Lease, LeaseLostError
from quorate_operator.runtime.loop import (
    DesiredState,
    FailedStep,
    Observation,
    PassResult,
    ReconcileLoop,
    RequeuePolicy,
)
from quorate_operator.web.snapshots import ClusterKey, ClusterSnapshot

REQUEUE_POLICY = RequeuePolicy(
    working_ms=1_000, settled_ms=15_000, asleep_ms=60_000, retry_ms_min=1_000, retry_ms_max=60_000
)
"""The time between two passes. Changes of a cluster's resources and pods wake its loop at once."""
PROGRESS_INTERVAL_MS = 10_000
"""The shortest time between two status writes about mere progress: each write is sent to every watcher."""
LEASE_TIMEOUT_S = 60.0

EXPECTED_ERRORS = (ApiError, steps.StepError, AdminError, OSError)
"""Failures of other parts: reported by their message. Any other error is a fault of the operator."""

log = logging.getLogger(__name__)


class ClusterReconciler:
    """Reconciles one cluster with its resources until they are deleted: the host of its loop."""

    def __init__(
        self,
        key: ClusterKey,
        shared: Shared,
        runtime: ClusterRuntime,
        infrastructure: KubernetesInfrastructure,
        *,
        fill: Callable[[], Awaitable[None]],
    ) -> None:
        """`fill` waits until all existing objects of the namespace are cached. It raises ApiError."""
        self.key = key
        self._fill = fill
        self._shared = shared
        self._runtime = runtime
        self._infrastructure = infrastructure
        self._loop = ReconcileLoop(self, runtime, jitter=JITTER)
        self._guard = FaultGuard(shared, key, REQUEUE_POLICY, lambda: ((CONTROLLERS.name, key.namespace),))
        self._resources = shared.store.of_cluster(key)
        """As the present pass, or the last one, found them."""
        self._validation = ValidationResult(manifests=None, accepted={}, refused={})
        self._problem: str | None = None
        self._is_split = False
        """Whether resources of the cluster exist that this operator does not select."""
        self._cleared: frozenset[str] = frozenset()
        self._has_cleared = asyncio.Event()
        self._lease = Lease(
            shared.api,
            key.namespace,
            lease_name(key.name),
            shared.identity,
            duration_s=shared.lease_duration_s,
        )
        self._written_ms: dict[str, int] = {}
        """When the status of each resource was written last, by uid, in Unix ms."""

    def wake(self) -> None:
        self._loop.wake()

    async def wait_cleared(self, uid: str) -> None:
        """Wait until the resource with this uid may be removed: nothing is left that has to be deleted before it."""
        while uid not in self._cleared:
            await self._has_cleared.wait()

    async def run(self) -> None:
        """Reconcile until it is cancelled."""
        try:
            await self._guard.run(self._reconcile)
        finally:
            await self._runtime.close()

    async def _reconcile(self) -> None:
        # Without its pods in the cache, a running cluster would be taken for one that was never started.
        while not await self._is_filled():
            pass
        await self._loop.run()

    async def _is_filled(self) -> bool:
        """Wait until the cache is filled. Returns False after a time, in which that failed, which is reported."""
        try:
            await self._fill()
        except ApiError as error:
            log.warning("%s/%s: %s", *self.key, error)
            await self._report_failure(str(error))
            return False
        return True

    # The loop's host

    def observing(self) -> AbstractAsyncContextManager[object]:
        return self._shared.observations

    async def desired_state(self) -> DesiredState | None:
        """Return the cluster of the resources; None if the KafkaController is invalid or missing.

        An invalid pool is left out, or used with its last valid spec; its conditions report that.
        """
        self._resources = resources = await self._current_resources()
        if await self._refuse_split(resources) or resources.quorum is None:
            return None
        if await self._choose_node_ids(resources):
            self._resources = resources = self._shared.store.of_cluster(self.key)
        assert resources.quorum is not None
        self._validation = validation = validate(resources, self._validation.accepted, self._shared.policy)
        if validation.manifests is None:
            await self.refused(ManifestError(validation.refusal_of(resources.quorum) or ""))
            return None
        for kind, body in resources.used:
            message = validation.refusal_of(body)
            if message is not None:
                # The status also stores the spec that is used instead, for an operator that starts.
                await self._refuse(kind, body, message, validation.reason_of(named(body)))
        cluster = desired_cluster(validation.manifests)
        running = cluster.running and not resources.is_deleted and not self._is_terminating()
        return DesiredState(cluster=replace(cluster, running=running), manifests=validation.manifests)

    def _is_terminating(self) -> bool:
        """Whether the namespace is being deleted: nothing can be created in it, and all in it is deleted."""
        return self._shared.api.is_terminating(self.key.namespace)

    async def _refuse_split(self, resources: ClusterResources) -> bool:
        """Return whether resources of the cluster exist that this operator does not select, and report them.

        They are requested after `resources` were read from the store: a resource that left the store before is found.
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

    async def _current_resources(self) -> ClusterResources:
        """Return the resources; requests an unseen KafkaController, without which deleted pools are not drained."""
        store = self._shared.store
        if store.of_cluster(self.key).quorum is None:
            quorum = await self._shared.api.get(CONTROLLERS, *self.key)
            if quorum is not None and is_selected(self._shared.selector, quorum):
                store.put(quorum)
        return store.of_cluster(self.key)

    async def _choose_node_ids(self, resources: ClusterResources) -> bool:
        """Store node ids in valid pools that name none. Returns whether there were any."""
        bodies = [body for _, body in resources.used]
        missing = [body for body in bodies if "nodeIds" not in body["spec"] and lacks_node_ids(body)]
        existing = self._infrastructure.pools_of_nodes() if missing else {}
        taken = {node_id for body in bodies for node_id in (*claimed_node_ids(body), *named_node_ids(body))}
        for body in sorted(missing, key=lambda body: str(body["metadata"].get("creationTimestamp"))):
            name = body["metadata"]["name"]
            own = named_node_ids(body) or {node_id for node_id, pool in existing.items() if pool == name}
            first = first_node_id(own, taken | existing.keys())
            patch = {"spec": {"nodeIds": {"first": first}}}
            written = await self._shared.api.merge(BROKERS, self.key.namespace, name, patch)
            self._shared.store.put(written)
            taken |= set(claimed_node_ids(written))
        return bool(missing)

    async def refused(self, error: ManifestError) -> None:
        """Report invalid manifests in the conditions. Until they change, only deleted resources are cleared."""
        resources, message = self._resources, str(error)
        assert resources.quorum is not None
        await self._clear(resources)
        if resources.is_deleted:
            return
        self._problem = None
        reason = self._validation.reason_of(named(resources.quorum))
        snapshot = ClusterSnapshot(key=self.key, at_ms=clock.now_ms(), problem=message)
        self._shared.snapshots.put(snapshot)
        for kind, body in resources.used:
            await self._refuse(kind, body, message, reason)

    async def _refuse(self, kind: Kind, body: Object, message: str, reason: str) -> None:
        """Report an invalid resource."""
        spec = self._validation.spec_of(body)
        generation = body["metadata"]["generation"]
        await self._write_status(
            kind, body, refused_status(message, generation, accepted_spec=spec, reason=reason)
        )
        if self._shared.snapshots.find(self.key) is None:
            # Before the cluster is observed: the status page keeps Events of clusters with a snapshot alone.
            self._shared.snapshots.put(ClusterSnapshot(key=self.key, at_ms=clock.now_ms()))
        await self._shared.events.record(self.key, body, reason, message, is_warning=True)

    async def complete_plan(self, observation: Observation) -> steps.Plan:
        """Return the plan together with the steps for brokers of pools that are deleted."""
        resources = self._resources
        if resources.is_deleted:
            return observation.plan
        leaving = await self._infrastructure.departing(resources.leaving_pools)
        left = remaining_pools(
            leaving, resources.drained_pools, observation.desired, observation.observed.kafka
        )
        self._mark_cleared(resources.pools[name] for name in resources.leaving_pools - left)
        plan = replace(observation.plan, refusals=(*observation.plan.refusals, *self._refusals()))
        if observation.desired.lifecycle is Lifecycle.PAUSED:
            return plan
        ended = {node_id: node for node_id, node in leaving.items() if node.pool in resources.ended_pools}
        return with_pool_removal(plan, ended)

    def _refusals(self) -> tuple[steps.Refusal, ...]:
        """Return a refusal for each invalid resource, except a pool that has the quorum's own name."""
        return tuple(
            steps.Refusal(self._validation.reason_of(about), message, pool=about.name)
            for about, message in self._validation.refused.items()
            if about.kind == CONTROLLERS.name or about.name != self.key.name
        )

    async def observed(self, observation: Observation) -> None:
        """Publish the status page's snapshot, the resources' statuses, and Events of refusals."""
        await self._publish(self._resources, observation)

    def lock_for(self, action: steps.Action) -> AbstractAsyncContextManager[Callable[[], bool]] | None:
        """Return the Lease of the cluster for steps that one process at a time may apply; None for others.

        In a namespace that is being deleted no Lease can be created, and no node starts again.
        """
        return self._leased() if is_guarded(action) and not self._is_terminating() else None

    @asynccontextmanager
    async def _leased(self) -> AsyncIterator[Callable[[], bool]]:
        try:
            async with self._lease.held(LEASE_TIMEOUT_S):
                # Another operator may have changed pods of which the watch has not reported yet.
                await self._infrastructure.refresh()
                yield lambda: self._lease.is_held
        except (LeaseLostError, ApiError, AdminError) as error:
            raise steps.StepError(str(error)) from error

    async def step_started(self, observation: Observation, action: steps.Action) -> None:
        note = _note(observation.desired, action, action.reason)
        await self._shared.step_started(self._subject(observation.desired, action), action, note)

    async def step_done(self, observation: Observation, action: steps.Action) -> None:
        note = _note(observation.desired, action, action.reason)
        self._shared.step_done(self._subject(observation.desired, action), action, note)

    async def step_failed(self, observation: Observation, failed: FailedStep) -> None:
        note = _note(observation.desired, failed.action, failed.error)
        await self._shared.step_failed(self._subject(observation.desired, failed.action), failed.action, note)

    async def plan_done(self, observation: Observation | None) -> None:
        """Clear what is left of a deleted KafkaController, or of deleted pools without a KafkaController."""
        resources = self._resources
        if self._is_split:
            return
        if resources.quorum is None:
            await self._refuse_orphans(resources)
        elif observation is not None and resources.is_deleted:
            await self._clear(resources)

    async def finished(self, result: PassResult) -> int:
        """Count the pass, report a failure in the conditions, and return the time to the next pass."""
        problem = self._problem_of(result)
        self._shared.metrics.count_pass(
            CONTROLLERS.name, self.key.namespace, result.duration_s, has_failed=problem is not None
        )
        if problem is not None:
            self._problem = problem
            await self._report_failure(problem)
            return REQUEUE_POLICY.after(result, clock.now_ms())
        self._guard.recovered()
        if result.observation is None:
            return REQUEUE_POLICY.working_ms if self._resources.is_deleted else REQUEUE_POLICY.asleep_ms
        had_problem, self._problem = self._problem is not None, None
        return 0 if had_problem else REQUEUE_POLICY.after(result, clock.now_ms())

    def _problem_of(self, result: PassResult) -> str | None:
        """Return what failed in a pass, or None. Failed steps were logged already."""
        error = result.error
        if error is None:
            return str(result.failed[0].error) if result.failed else None
        if isinstance(error, EXPECTED_ERRORS):
            log.warning("%s/%s: %s", *self.key, error)
            return str(error)
        return self._guard.report(error)

    async def _clear(self, resources: ClusterResources) -> None:
        """Stop pods and delete volumes of deleted resources, by their policy. No plan has these nodes.

        Pools that are to be drained wait for a plan, unless none of their objects is left.
        """
        pools = None if resources.is_deleted else resources.ended_pools
        await self._infrastructure.stop_pods(pools)
        await self._infrastructure.delete_volumes(resources.emptied_pools - resources.drained_pools)
        leaving = await self._infrastructure.departing(resources.drained_pools)
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

    async def _publish(self, resources: ClusterResources, observation: Observation) -> None:
        assert resources.quorum is not None
        snapshot = ClusterSnapshot(
            key=self.key,
            at_ms=clock.now_ms(),
            desired=observation.desired,
            observed=observation.observed,
            plan=observation.plan,
            problem=self._problem,
        )
        self._shared.snapshots.put(snapshot)
        view = snapshot.view()
        generation = resources.quorum["metadata"]["generation"]
        history = self._infrastructure.history()
        status = controller_status(view, generation=generation, history=history)
        self._shared.metrics.set_leader(*self.key, has_leader=has_leader(view))
        self._shared.metrics.set_certificates(*self.key, self._infrastructure.certificate_times())
        await self._publish_status(CONTROLLERS, resources.quorum, status)
        for pool, body in resources.pools.items():
            if pool not in resources.ended_pools:
                status = broker_status(
                    view,
                    pool=pool,
                    generation=body["metadata"]["generation"],
                    listeners=self._infrastructure.listeners(observation.desired, observation.observed, pool),
                )
                await self._publish_status(BROKERS, body, status)
        for refusal in observation.plan.refusals:
            about = resources.pools.get(refusal.pool or "", resources.quorum)
            await self._shared.events.record(
                self.key, about, refusal.code, refusal.message, is_warning=refusal.code != PAUSED
            )

    async def _publish_status(self, kind: Kind, body: Object, status: dict[str, Any]) -> None:
        """Write the observed status of a resource, together with why its present spec is not used."""
        message, spec = self._validation.refusal_of(body), self._validation.spec_of(body)
        if message is not None:
            if spec is None:
                return  # `desired_state` has reported it
            generation = body["metadata"]["generation"]
            reason = self._validation.reason_of(named(body))
            refused = refused_status(message, generation, accepted_spec=spec, reason=reason)
            status = overlaid(status, refused)
        unknown = self._validation.unknown_of(body)
        await self._write_status(kind, body, with_unknown_fields(status, unknown))
        if unknown:
            note = unknown_fields_note(unknown)
            await self._shared.events.record(self.key, body, UNKNOWN_FIELDS, note, is_warning=True)

    async def _report_failure(self, problem: str) -> None:
        """Report a failure in conditions and on the status page, also if the pass ended before the observation."""
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
        """Refuse pools whose KafkaController doesn't exist."""
        await self._clear(resources)
        for name, body in resources.pools.items():
            if name not in resources.leaving_pools:
                message = (
                    f"spec.controllers: {self.key.name!r}: no such KafkaController in {self.key.namespace}"
                )
                status = refused_status(message, body["metadata"]["generation"])
                await self._write_status(BROKERS, body, status)

    async def _write_status(self, kind: Kind, body: Object, status: dict[str, Any]) -> None:
        try:
            written = await self._shared.write_status(
                kind, body, status, lambda patch: self._is_write_due(body, patch)
            )
        except ApiError as error:
            if not error.is_invalid:
                raise
            # The definitions are of another release. Steps do not wait for them.
            log.warning("%s/%s: the status of %s is refused: %s", *self.key, kind.name, error)
            return
        if written is not None:
            self._shared.store.put(written)

    def _is_write_due(self, body: Object, patch: dict[str, Any]) -> bool:
        """Whether a status is written now: mere progress is written from time to time."""
        uid, now_ms = body["metadata"]["uid"], clock.now_ms()
        is_recent = now_ms - self._written_ms.get(uid, 0) < PROGRESS_INTERVAL_MS
        if is_recent and is_mere_progress(body.get("status") or {}, patch):
            return False
        recent = {
            known: at_ms for known, at_ms in self._written_ms.items() if now_ms - at_ms < PROGRESS_INTERVAL_MS
        }
        self._written_ms = recent | {uid: now_ms}
        return True

    def _subject(self, desired: DesiredCluster, action: steps.Action) -> Subject:
        """Return the subject of a step: the node's pool, or the quorum."""
        resources = self._resources
        assert resources.quorum is not None
        pools = {node.node_id: node.pool for node in desired.nodes_with_settings if node.role is Role.BROKER}
        pool = pools.get(action.node_id) if action.node_id is not None else None
        resource = resources.pools.get(pool or "", resources.quorum)
        return Subject(label=f"{self.key}", cluster=self.key, resource=resource)


def _note(desired: DesiredCluster, action: steps.Action, text: object) -> str:
    """Return a text after the node, or the cluster, that a step is about."""
    if action.node_id is None:
        return f"{desired.name}: {text}"
    labels = {node.node_id: node.label for node in desired.nodes_with_settings}
    return f"{labels.get(action.node_id, f'node {action.node_id}')}: {text}"
