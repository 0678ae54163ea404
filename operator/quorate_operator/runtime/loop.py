"""The reconcile loop of one cluster, the same under every runtime: observe, plan, apply what is due, report.

    desired_state  the host returns the desired cluster
    observe        the runtime completes it and observes; the planner plans; the runtime applies supporting objects
    apply          the due steps: FormCluster before all others, then the steps of each node in their order
    finished       the host reports the result of the pass, and returns when the next pass begins

No progress is stored. A process that is killed between any two lines here starts with an observation, which finds
what is left to do. `Host` is what differs between `quorate play` and the operator: what wakes the loop, which steps
need a lock, and where events and states are reported.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Protocol

from quorate_operator import clock
from quorate_operator.models.manifests import ManifestError, Manifests
from quorate_operator.planning.cluster import DesiredCluster, Lifecycle, ObservedCluster
from quorate_operator.planning.in_sync import brokers_in_sync
from quorate_operator.planning.listeners import has_other_listeners, stage
from quorate_operator.planning.planner import plan
from quorate_operator.planning.steps import Action, FormCluster, Plan, StartNode, StepError, WaitFor
from quorate_operator.runtime.composite import ClusterRuntime
from quorate_operator.runtime.concurrency import finish_all

Restage = Callable[[DesiredCluster], Awaitable[DesiredCluster]]
"""Completes a cluster again, with the listeners that its nodes have been staged with."""
UNCHANGED_FRACTION = 0.1
"""The rest between two passes, as a fraction of the time for which nothing has changed in the plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredState:
    """The desired cluster, and the manifests that it comes from."""

    cluster: DesiredCluster
    manifests: Manifests


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """A cluster at one time: what is desired, what was observed, and the plan."""

    desired: DesiredCluster
    observed: ObservedCluster
    plan: Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedStep:
    """A step that failed, and why."""

    action: Action
    error: StepError


@dataclass(frozen=True, slots=True, kw_only=True)
class PassResult:
    """The result of one pass of the loop.

    `observation` is None if no cluster is desired, or if observing failed. `error` is what ended the pass early;
    `failed` are the steps that failed while the others continued. `unchanged_ms` is the time for which the same steps
    have been left, of which none was done.
    """

    observation: Observation | None = None
    done: int = 0
    failed: tuple[FailedStep, ...] = ()
    error: Exception | None = None
    failures_in_a_row: int = 0
    duration_s: float = 0.0
    unchanged_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RequeuePolicy:
    """The time to the next pass: while steps are left, when none are, and while the cluster is paused or hibernates.

    After a failed pass it is `retry_ms_min`, doubled with each further failure in a row. While the same steps are
    left, it grows with the time that they have been left, up to `settled_ms`: a cluster that is stuck costs no more
    than one that needs nothing, and what is waited for is noticed after at most a tenth more of the time.
    """

    working_ms: int
    settled_ms: int
    asleep_ms: int
    retry_ms_min: int
    retry_ms_max: int
    lagging_ms: int = 5_000
    """The time while replicas are not in sync, because disruption budgets and readiness depend on them."""

    def after_failures(self, number: int) -> int:
        """Return the back-off in ms after this number of consecutive failures."""
        return min(self.retry_ms_min << min(number - 1, 16), self.retry_ms_max)

    def after(self, result: PassResult, now_ms: int) -> int:
        if result.failures_in_a_row:
            return self.after_failures(result.failures_in_a_row)
        observation = result.observation
        if observation is None:
            return self.asleep_ms
        if result.done:
            return 0
        if observation.plan.steps and not observation.plan.is_stalled:
            grown_ms = int(result.unchanged_ms * UNCHANGED_FRACTION)
            rest_ms = max(self.working_ms, min(grown_ms, self.settled_ms))
        elif observation.desired.lifecycle in (Lifecycle.PAUSED, Lifecycle.HIBERNATED):
            rest_ms = self.asleep_ms
        elif not all(broker.holds for broker in brokers_in_sync(observation.observed).values()):
            rest_ms = min(self.lagging_ms, self.settled_ms)
        else:
            rest_ms = self.settled_ms
        due_ms = observation.plan.look_again_at_ms
        return rest_ms if due_ms is None else min(rest_ms, max(0, due_ms - now_ms))


class Host(Protocol):
    """Callbacks of the process that embeds the loop: `quorate play` or the operator."""

    def observing(self) -> AbstractAsyncContextManager[object]:
        """Entered around each observation. Bounds the number of concurrent ones."""

    async def desired_state(self) -> DesiredState | None:
        """Return the desired cluster; None without one, or while its manifests are invalid."""

    async def refused(self, error: ManifestError) -> None:
        """Report manifests that the runtime refuses."""

    async def complete_plan(self, observation: Observation) -> Plan:
        """Return the plan together with the steps that only the host knows."""

    async def observed(self, observation: Observation) -> None:
        """Report an observation, before anything of its plan is applied."""

    def lock_for(self, action: Action) -> AbstractAsyncContextManager[Callable[[], bool]] | None:
        """Return the lock of a step that one process at a time may apply; None for other steps.

        Entering returns a function that reports whether the lock is still held. It raises StepError on a timeout.
        """

    async def step_started(self, observation: Observation, action: Action) -> None:
        """Report that a step begins."""

    async def step_done(self, observation: Observation, action: Action) -> None:
        """Report that a step was done."""

    async def step_failed(self, observation: Observation, failed: FailedStep) -> None:
        """Report that a step failed."""

    async def plan_done(self, observation: Observation | None) -> None:
        """Continue after a plan without steps, or without a desired cluster."""

    async def finished(self, result: PassResult) -> int | None:
        """Report a pass; returns the time to the next one in ms, or None to end the loop."""


@dataclass(slots=True)
class _Applied:
    done: int = 0
    failed: list[FailedStep] = field(default_factory=list)


class ReconcileLoop:
    """Reconciles one cluster. `woken` starts the next pass early.

    `jitter` is the fraction by which each rest varies, so that many clusters are not observed in step.
    """

    def __init__(
        self,
        host: Host,
        runtime: ClusterRuntime,
        *,
        woken: asyncio.Event | None = None,
        jitter: float = 0.0,
        now_ms: Callable[[], int] = clock.now_ms,
    ) -> None:
        self._host = host
        self._runtime = runtime
        self._woken = woken or asyncio.Event()
        self._jitter = jitter
        self._now_ms = now_ms
        self._failures_in_a_row = 0
        self._manifests: Manifests | None = None
        self._left: tuple[object, ...] = ()
        """The steps of the last plan and their nodes, without their reasons, in which numbers change."""
        self._left_since_ms = 0

    def wake(self) -> None:
        """Begin the next pass at once, or right after the present one."""
        self._woken.set()

    async def run(self) -> None:
        """Reconcile until the host ends it. Raises what `Host.finished` raises."""
        while True:
            self._woken.clear()
            rest_ms = await self._host.finished(await self._pass())
            if rest_ms is None:
                return
            await self._rest(rest_ms * random.uniform(1 - self._jitter, 1 + self._jitter))

    async def observe(self) -> Observation | None:
        """Observe, plan, apply supporting objects, and report. None if no cluster is desired."""
        async with self._host.observing():
            state = await self._host.desired_state()
            if state is None:
                return None
            self._manifests = state.manifests
            try:
                completed = await self._complete(state)
            except ManifestError as error:
                await self._host.refused(error)
                return None
            observation = await self.plan_for(completed, self._restage_for(state))
            if observation.desired.running:
                await self._runtime.apply_supporting_objects(observation.desired, observation.observed)
            await self._host.observed(observation)
            return observation

    async def plan_for(self, desired: DesiredCluster, restage: Restage) -> Observation:
        """Observe and plan for a completed cluster. Change and report nothing.

        By which listeners nodes connect to each other depends on what is observed, and revisions depend on that:
        `restage` completes the cluster again.
        """
        observed = await self._runtime.observe(desired)
        staged = stage(desired, observed)
        desired = await restage(staged) if has_other_listeners(desired, staged) else staged
        permitted = self._runtime.permitted(plan(desired, observed, self._now_ms()), desired)
        observation = Observation(desired=desired, observed=observed, plan=permitted)
        return replace(observation, plan=await self._host.complete_plan(observation))

    async def _pass(self) -> PassResult:
        began_s = time.monotonic()
        observation: Observation | None = None
        applied = _Applied()
        error: Exception | None = None
        try:
            observation = await self.observe()
            if observation is not None and observation.plan.due:
                await self._apply_due(observation, applied)
            if observation is None or not observation.plan.steps:
                await self._host.plan_done(observation)
        except Exception as raised:
            error = raised
        unchanged_ms = self._unchanged_ms(observation, applied)
        has_failed = bool(error or applied.failed)
        self._failures_in_a_row = self._failures_in_a_row + 1 if has_failed else 0
        return PassResult(
            observation=observation,
            done=applied.done,
            failed=tuple(applied.failed),
            error=error,
            failures_in_a_row=self._failures_in_a_row,
            duration_s=time.monotonic() - began_s,
            unchanged_ms=unchanged_ms,
        )

    def _unchanged_ms(self, observation: Observation | None, applied: _Applied) -> int:
        """Return how long the same steps have been left, of which none was done."""
        steps = observation.plan.steps if observation is not None else ()
        left = tuple(
            (type(step), step.node_ids if isinstance(step, WaitFor) else step.node_id) for step in steps
        )
        now_ms = self._now_ms()
        if applied.done or left != self._left:
            self._left, self._left_since_ms = left, now_ms
        return now_ms - self._left_since_ms

    async def _rest(self, rest_ms: float) -> None:
        if rest_ms <= 0:
            await asyncio.sleep(0)  # the loops of other clusters run
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(rest_ms / 1000):
                await self._woken.wait()

    async def _apply_due(self, observation: Observation, applied: _Applied) -> None:
        """Apply the steps of each pod in order, those of different pods at the same time, FormCluster first.

        Raises the first error that is no StepError, after all have ended.
        """
        mates = {node.node_id: node.pod_mate for node in observation.desired.nodes}
        starts = [action for action in observation.plan.due if isinstance(action, StartNode)]
        mates |= {step.beside: step.node_id for step in starts if step.beside is not None}
        mates |= {step.node_id: step.beside for step in starts if step.beside is not None}

        def place(action: Action) -> int:
            node_id = -1 if action.node_id is None else action.node_id
            mate = mates.get(node_id)
            return node_id if mate is None else min(node_id, mate)

        forming = [action for action in observation.plan.due if isinstance(action, FormCluster)]
        others = sorted((action for action in observation.plan.due if action not in forming), key=place)
        await self._apply_together(observation, [forming], applied)
        if not applied.failed:
            await self._apply_together(
                observation, [list(group) for _, group in groupby(others, key=place)], applied
            )

    async def _apply_together(
        self, observation: Observation, lists: Iterable[Sequence[Action]], applied: _Applied
    ) -> None:
        await finish_all(self._apply_in_order(observation, actions, applied) for actions in lists)

    async def _apply_in_order(
        self, observation: Observation, actions: Sequence[Action], applied: _Applied
    ) -> None:
        """Apply the steps of one pod, until one fails."""
        for action in actions:
            try:
                is_done = await self._apply(observation, action)
            except StepError as error:
                failed = FailedStep(action=action, error=error)
                applied.failed.append(failed)
                await self._host.step_failed(observation, failed)
                return
            if is_done:
                applied.done += 1
                await self._host.step_done(observation, action)

    async def _apply(self, observation: Observation, action: Action) -> bool:
        """Apply a step; with a lock, only if a fresh plan has it due. Returns whether it was done."""
        lock = self._host.lock_for(action)
        if lock is None:
            await self._host.step_started(observation, action)
            await self._runtime.apply(action, observation.desired)
            return True
        async with lock as is_held:
            fresh = await self._fresh_observation()
            if fresh is None or not any(_is_same(action, due) for due in fresh.plan.due):
                return False
            if not is_held():
                raise StepError("observing took longer than the lock is held")
            # Not before: another process may have done it while the lock was waited for.
            await self._host.step_started(observation, action)
            await self._runtime.apply(action, fresh.desired)
        return True

    async def _fresh_observation(self) -> Observation | None:
        """Observe from the beginning: while a lock was waited for, another process may have changed everything.

        What is desired depends on what was observed, as addresses and revisions do. None if no cluster is desired, or
        another one than in this pass: the steps that are under way are applied with its manifests.
        """
        state = await self._host.desired_state()
        if state is None or state.manifests != self._manifests:
            return None
        try:
            completed = await self._complete(state)
        except ManifestError:
            return None  # the next pass reports it
        return await self.plan_for(completed, self._restage_for(state))

    def _restage_for(self, state: DesiredState) -> Restage:
        async def restage(staged: DesiredCluster) -> DesiredCluster:
            completed = await self._runtime.restage(staged)
            return replace(completed, running=state.cluster.running)

        return restage

    async def _complete(self, state: DesiredState) -> DesiredCluster:
        """Return the desired cluster with what the runtime adds. Raises ManifestError."""
        completed = await self._runtime.complete(state.cluster, state.manifests)
        return replace(completed, running=state.cluster.running)


def _is_same(action: Action, other: Action) -> bool:
    """Whether two steps differ in nothing but their reason."""
    return replace(action, reason="") == replace(other, reason="")
