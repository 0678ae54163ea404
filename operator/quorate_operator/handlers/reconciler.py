"""The reconcile of one cluster: look, plan, do what is due, say what was seen. Run again, it goes on.

Nothing about progress is kept: whoever is killed between any two lines here, the next look finds out what is left.
"""

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from quorate_admin.errors import AdminError

from quorate_operator import clock
from quorate_operator.handlers.events import EventTeller
from quorate_operator.handlers.health import Pulse
from quorate_operator.handlers.metrics import OperatorMetrics
from quorate_operator.handlers.resources import ClusterResources, ResourceStore
from quorate_operator.handlers.snapshots import SnapshotRegistry
from quorate_operator.handlers.statuses import (
    broker_status,
    controller_status,
    failed_status,
    merged_status,
    refused_status,
)
from quorate_operator.models.manifests import ManifestError
from quorate_operator.planning.cluster import DesiredCluster, Lifecycle, ObservedCluster, Role
from quorate_operator.planning.departure import has_pod, with_departure
from quorate_operator.planning.desired import desired_cluster
from quorate_operator.planning.planner import plan as plan_of
from quorate_operator.planning.shutdown import GRACE_MS
from quorate_operator.planning.steps import (
    Action,
    AddVoter,
    Plan,
    RebuildQuorum,
    RefreshRegistration,
    RemoveVoter,
    StepError,
    UnregisterBroker,
    UnregisterController,
)
from quorate_operator.runtime.composite import ClusterRuntime
from quorate_operator.runtime.kubernetes.api import (
    BROKERS,
    CONTROLLERS,
    ApiError,
    Kind,
    KubernetesApi,
    Object,
)
from quorate_operator.runtime.kubernetes.infrastructure import KubernetesInfrastructure
from quorate_operator.runtime.kubernetes.leases import Lease, LeaseLostError
from quorate_operator.web.port import ClusterKey, ClusterSnapshot

LOOKS_AT_A_TIME_MAX = 16
"""Looks of different clusters at the same time. Steps don't count: one may take a node's whole grace."""
WORKING_INTERVAL_S = 1.0
SETTLED_INTERVAL_S = 15.0
ASLEEP_INTERVAL_S = 60.0
"""How often a cluster is looked at that is being changed, as desired, or paused, hibernated or refused.
Changes of its resources and pods wake it at once."""
FAILED_INTERVAL_S_MAX = 60.0
JITTER = 0.25
LEASE_TIMEOUT_S = 60.0

GUARDED = (AddVoter, RemoveVoter, UnregisterController, RefreshRegistration, UnregisterBroker, RebuildQuorum)
"""Changes of membership: done by one process alone, on a fresh look."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """What the reconciles of all clusters share."""

    api: KubernetesApi
    store: ResourceStore
    snapshots: SnapshotRegistry
    events: EventTeller
    metrics: OperatorMetrics
    pulse: Pulse
    looks: asyncio.Semaphore
    identity: str
    lease_duration_s: int = 15


class ClusterReconciler:
    """Keeps one cluster as it is desired, until it is deleted."""

    def __init__(
        self,
        key: ClusterKey,
        shared: Shared,
        infrastructure: KubernetesInfrastructure,
        runtime: ClusterRuntime,
    ) -> None:
        self.key = key
        self._shared = shared
        self._infrastructure = infrastructure
        self._runtime = runtime
        self._woken = asyncio.Event()
        self._failures = 0
        self._problem: str | None = None
        self._cleared: frozenset[str] = frozenset()
        self._has_cleared = asyncio.Event()

    def wake(self) -> None:
        """Look at once, or right after the look that is under way."""
        self._woken.set()

    async def wait_cleared(self, uid: str) -> None:
        """Wait until nothing is left that has to go before the KafkaController or KafkaBroker with this uid."""
        while uid not in self._cleared:
            await self._has_cleared.wait()

    async def run(self) -> None:
        """Reconcile until cancelled."""
        try:
            while True:
                self._woken.clear()
                # Many clusters are not to be looked at in step.
                pause_s = await self._reconcile_safely() * random.uniform(1 - JITTER, 1 + JITTER)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause_s):
                        await self._woken.wait()
        finally:
            await self._runtime.close()

    async def _reconcile_safely(self) -> float:
        """One reconcile; how long to wait for the next in seconds. No error ends the loop."""
        metrics, began = self._shared.metrics, time.monotonic()
        labels = (CONTROLLERS.name, self.key.namespace)
        metrics.reconciliations.labels(*labels).inc()
        try:
            pause_s = await self._reconcile()
        except (ApiError, StepError, AdminError, LeaseLostError, OSError) as error:
            log.warning("%s/%s: %s", *self.key, error)
            return await self._failed(str(error))
        except Exception as error:
            log.exception("%s/%s: a fault of the operator", *self.key)
            return await self._failed(f"a fault of the operator: {error!r}")
        finally:
            self._shared.pulse.end(self.key)
            metrics.duration.labels(*labels).observe(time.monotonic() - began)
        metrics.successful.labels(*labels).inc()
        return pause_s

    async def _failed(self, problem: str) -> float:
        self._shared.metrics.failed.labels(CONTROLLERS.name, self.key.namespace).inc()
        self._failures += 1
        self._problem = problem
        seen = self._shared.snapshots.find(self.key)
        snapshot = seen or ClusterSnapshot(key=self.key, at_ms=clock.now_ms())
        self._shared.snapshots.put(replace(snapshot, at_ms=clock.now_ms(), problem=problem))
        await self._tell_failure(problem)
        return min(2.0 ** min(self._failures - 1, 10), FAILED_INTERVAL_S_MAX)

    async def _reconcile(self) -> float:
        resources = self._shared.store.of_cluster(self.key)
        if resources.quorum is None:
            await self._look_after_orphans(resources)
            return ASLEEP_INTERVAL_S
        async with self._shared.looks:
            seen = await self._look_and_tell(resources)
        if seen is None:
            return WORKING_INTERVAL_S if resources.is_deleted else ASLEEP_INTERVAL_S
        desired, plan = seen
        if desired.lifecycle is Lifecycle.PAUSED and not resources.is_deleted:
            return ASLEEP_INTERVAL_S
        done = await self._do(resources, desired, plan)
        if resources.is_deleted and not plan.steps:
            await self._clear(resources)
        self._failures = 0
        was_told, self._problem = self._problem, None
        return 0.0 if was_told else self._pause_s(desired, plan, done)

    async def _look_and_tell(self, resources: ClusterResources) -> tuple[DesiredCluster, Plan] | None:
        """Look, keep what is around the nodes, and say what was seen. None for a manifest that can't be used."""
        try:
            manifests = resources.manifests()
            desired = await self._infrastructure.complete(desired_cluster(manifests), manifests)
        except ManifestError as error:
            await self._refuse(resources, str(error))
            return None
        desired = replace(desired, running=desired.running and not resources.is_deleted)
        observed, plan = await self._look(resources, desired)
        if desired.lifecycle is not Lifecycle.PAUSED and not resources.is_deleted:
            await self._infrastructure.keep_objects(desired, observed)
        await self._publish(resources, desired, observed, plan)
        return desired, plan

    async def _look(
        self, resources: ClusterResources, desired: DesiredCluster
    ) -> tuple[ObservedCluster, Plan]:
        self._shared.pulse.begin(self.key)
        try:
            observed = await self._runtime.observe(desired)
        finally:
            self._shared.pulse.end(self.key)
        plan = self._infrastructure.checked(plan_of(desired, observed, clock.now_ms()), desired)
        if resources.is_deleted:
            return observed, plan
        emptied, leaving = resources.emptied_pools, resources.leaving_pools
        departing = await self._infrastructure.departing(leaving)
        left = {
            node.pool
            for node in departing.values()
            if has_pod(node) or (node.has_volume and node.pool in emptied)
        }
        self._tell_cleared(resources.pools[name] for name in leaving - left)
        if desired.lifecycle is Lifecycle.PAUSED:
            return observed, plan
        return observed, with_departure(plan, departing, emptied, observed.kafka)

    def _pause_s(self, desired: DesiredCluster, plan: Plan, done: int) -> float:
        if done:
            return 0.0
        if plan.steps:
            return WORKING_INTERVAL_S
        if desired.lifecycle is Lifecycle.HIBERNATED:
            return ASLEEP_INTERVAL_S
        return SETTLED_INTERVAL_S

    # Steps

    async def _do(self, resources: ClusterResources, desired: DesiredCluster, plan: Plan) -> int:
        """Do what is due, steps of different nodes at the same time; how many were done.

        Raises StepError, ApiError and others when one failed, after all have ended.
        """
        by_node: dict[int | None, list[Action]] = {}
        for action in plan.due:
            by_node.setdefault(action.node_id, []).append(action)
        results = await asyncio.gather(
            *(self._do_in_turn(resources, desired, actions) for actions in by_node.values()),
            return_exceptions=True,
        )
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return sum(result for result in results if isinstance(result, int))

    async def _do_in_turn(
        self, resources: ClusterResources, desired: DesiredCluster, actions: Sequence[Action]
    ) -> int:
        done = 0
        for action in actions:
            done += await self._do_one(resources, desired, action)
        return done

    async def _do_one(self, resources: ClusterResources, desired: DesiredCluster, action: Action) -> int:
        about = self._about(resources, desired, action)
        name = type(action).__name__
        label = _label(desired, action)
        note = f"{label}: {action.reason}"
        events, steps = self._shared.events, self._shared.metrics.steps
        await events.tell(self.key, about, name, note)
        log.info("%s/%s: %s %s", *self.key, name, note)
        try:
            if isinstance(action, GUARDED):
                if not await self._do_guarded(resources, desired, action):
                    return 0
            else:
                await self._runtime.apply(action, desired)
        except (StepError, ApiError, AdminError, LeaseLostError) as error:
            steps.labels(name, "failed").inc()
            await events.tell(self.key, about, f"{name}Failed", f"{label}: {error}", is_warning=True)
            raise
        log.info("%s/%s: done: %s %s", *self.key, name, note)
        events.settle(about, name, note)
        steps.labels(name, "done").inc()
        return 1

    async def _do_guarded(self, resources: ClusterResources, desired: DesiredCluster, action: Action) -> bool:
        """Do it if it is still due when nobody else changes membership. Whether it was done."""
        lease = Lease(
            self._shared.api,
            self.key.namespace,
            f"quorate-{self.key.name}",
            self._shared.identity,
            duration_s=self._shared.lease_duration_s,
        )
        async with lease.held(LEASE_TIMEOUT_S):
            _, plan = await self._look(resources, desired)
            if not any(_is_same(action, due) for due in plan.due):
                return False
            if not lease.is_held:
                raise LeaseLostError("the look took longer than the Lease lasts")
            await self._runtime.apply(action, desired)
        return True

    async def _clear(self, resources: ClusterResources) -> None:
        """Take away what no plan does of resources that are deleted: pods that are left, then volumes by policy."""
        pools = None if resources.is_deleted else resources.leaving_pools
        await self._infrastructure.stop_pods(GRACE_MS, pools)
        await self._infrastructure.delete_volumes(resources.emptied_pools)
        gone = [resources.pools[name] for name in resources.leaving_pools]
        if resources.quorum is not None and resources.is_deleted:
            gone.append(resources.quorum)
        self._tell_cleared(gone)

    def _tell_cleared(self, gone: Iterable[Object]) -> None:
        self._cleared = frozenset(body["metadata"]["uid"] for body in gone)
        self._has_cleared.set()
        self._has_cleared = asyncio.Event()

    # What is told

    async def _publish(
        self, resources: ClusterResources, desired: DesiredCluster, observed: ObservedCluster, plan: Plan
    ) -> None:
        assert resources.quorum is not None
        snapshot = ClusterSnapshot(
            key=self.key,
            at_ms=clock.now_ms(),
            desired=desired,
            observed=observed,
            plan=plan,
            problem=self._problem,
        )
        self._shared.snapshots.put(snapshot)
        view = snapshot.view()
        generation = resources.quorum["metadata"]["generation"]
        history = self._infrastructure.history()
        status = controller_status(view, generation=generation, history=history)
        await self._write_status(CONTROLLERS, resources.quorum, status)
        for pool, body in resources.pools.items():
            if pool not in resources.leaving_pools:
                status = broker_status(view, pool=pool, generation=body["metadata"]["generation"])
                await self._write_status(BROKERS, body, status)
        for refusal in plan.refusals:
            await self._shared.events.tell(
                self.key, resources.quorum, refusal.code, refusal.message, is_warning=True
            )

    async def _tell_failure(self, problem: str) -> None:
        """Say it in the conditions: the look may have ended before anything else was told."""
        resources = self._shared.store.of_cluster(self.key)
        bodies = [
            (BROKERS, body) for name, body in resources.pools.items() if name not in resources.leaving_pools
        ]
        if resources.quorum is not None:
            bodies.append((CONTROLLERS, resources.quorum))
        for kind, body in bodies:
            with contextlib.suppress(ApiError):
                await self._write_status(kind, body, failed_status(problem, body["metadata"]["generation"]))

    async def _refuse(self, resources: ClusterResources, message: str) -> None:
        """A manifest that can't be used: said in the conditions, until it changes. Only what is deleted goes."""
        assert resources.quorum is not None
        await self._clear(resources)
        if resources.is_deleted:
            return
        self._problem = None
        snapshot = ClusterSnapshot(key=self.key, at_ms=clock.now_ms(), problem=message)
        self._shared.snapshots.put(snapshot)
        staying = [body for name, body in resources.pools.items() if name not in resources.leaving_pools]
        kinds = [(CONTROLLERS, resources.quorum), *((BROKERS, body) for body in staying)]
        for kind, body in kinds:
            generation = body["metadata"]["generation"]
            await self._write_status(kind, body, refused_status(message, generation))
            await self._shared.events.tell(self.key, body, "InvalidManifest", message, is_warning=True)

    async def _look_after_orphans(self, resources: ClusterResources) -> None:
        """Pools whose KafkaController isn't there: nothing is known of their brokers."""
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
            self._shared.metrics.tell_state(kind.name, self.key.namespace, name, reason)
        if patch is None:
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

    def _about(self, resources: ClusterResources, desired: DesiredCluster, action: Action) -> Object:
        """The resource that an Event about a step belongs to: the node's pool, or the quorum."""
        assert resources.quorum is not None
        pools = {node.node_id: node.pool for node in desired.nodes if node.role is Role.BROKER}
        pool = pools.get(action.node_id) if action.node_id is not None else None
        return resources.pools.get(pool or "", resources.quorum)


def _label(desired: DesiredCluster, action: Action) -> str:
    if action.node_id is None:
        return desired.name
    labels = {node.node_id: node.label for node in desired.nodes}
    return labels.get(action.node_id, f"node {action.node_id}")


def _is_same(one: Action, other: Action) -> bool:
    """Whether two plans mean the same step; the reason may have changed."""
    return replace(one, reason="") == replace(other, reason="")
