"""The reconcile loop of one cluster, the same under every runtime: look, plan, apply what is due, report.

    asked       the host returns the cluster that is asked for
    look        the runtime completes it and observes; the planner plans; the runtime keeps what surrounds the nodes
    apply       the due steps: FormCluster before all others, then the steps of each node in their order
    after       the host reports the turn, and returns when the next one begins

No progress is stored. A process that is killed between any two lines here starts with a look, which finds what is
left to do. `Host` is what differs between `quorate play` and the operator: who wakes the loop, what may be applied
alone, and where events and states are reported.
"""

import asyncio
import random
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Protocol

from quorate_operator import clock
from quorate_operator.models.manifests import ManifestError, Manifests
from quorate_operator.planning.cluster import DesiredCluster, Lifecycle, ObservedCluster
from quorate_operator.planning.in_sync import brokers_in_sync
from quorate_operator.planning.planner import plan
from quorate_operator.planning.steps import Action, FormCluster, Plan, StepError
from quorate_operator.runtime.port import Runtime


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The cluster that is asked for, and the manifests that it comes from."""

    desired: DesiredCluster
    manifests: Manifests


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One look at a cluster: what is desired, what was observed, and the way from one to the other."""

    desired: DesiredCluster
    observed: ObservedCluster
    plan: Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedStep:
    """A step that failed, and why."""

    action: Action
    error: StepError


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One turn of the loop.

    `look` is None if no cluster was asked for, or if the look failed. `error` is what ended the turn early;
    `failed` are steps that failed, after which the others went on.
    """

    look: Look | None = None
    done: int = 0
    failed: tuple[FailedStep, ...] = ()
    error: Exception | None = None
    failures_in_a_row: int = 0
    duration_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RequeuePolicy:
    """How long the loop rests: while steps are left, when none are, and while the cluster is paused or hibernates.

    After a failed turn it rests for `retry_ms_min`, and twice as long after each further one.
    """

    working_ms: int
    settled_ms: int
    asleep_ms: int
    retry_ms_min: int
    retry_ms_max: int
    lagging_ms: int = 5_000
    """The rest while replicas are not in sync, because disruption budgets and readiness depend on them."""

    def after_failures(self, number: int) -> int:
        """Returns how long to rest after so many failures in a row."""
        return min(self.retry_ms_min << min(number - 1, 16), self.retry_ms_max)

    def after(self, turn: Turn, now_ms: int) -> int:
        if turn.failures_in_a_row:
            return self.after_failures(turn.failures_in_a_row)
        if turn.look is None:
            return self.asleep_ms
        if turn.done:
            return 0
        if turn.look.plan.steps:
            rest_ms = self.working_ms
        elif turn.look.desired.lifecycle in (Lifecycle.PAUSED, Lifecycle.HIBERNATED):
            rest_ms = self.asleep_ms
        elif not all(broker.holds for broker in brokers_in_sync(turn.look.observed).values()):
            rest_ms = min(self.lagging_ms, self.settled_ms)
        else:
            rest_ms = self.settled_ms
        look_at_ms = turn.look.plan.look_again_at_ms
        return rest_ms if look_at_ms is None else min(rest_ms, max(0, look_at_ms - now_ms))


class Host(Protocol):
    """Whose loop it is: `quorate play` or the operator."""

    def looking(self) -> AbstractAsyncContextManager[object]:
        """Entered around each look. Bounds how many looks run at a time."""

    async def asked(self) -> Asked | None:
        """Returns the cluster that is asked for; None if there is none, or none that can be used."""

    async def refused(self, error: ManifestError) -> None:
        """Reports manifests that can't be used in this place."""

    async def planned(self, look: Look) -> Plan:
        """Returns the plan of a look together with what only the host knows to be due."""

    async def looked(self, look: Look) -> None:
        """Reports a look, before anything of its plan is applied."""

    def alone(self, action: Action) -> AbstractAsyncContextManager[Callable[[], bool]] | None:
        """Returns a lock for a step that only one process may apply, on a fresh look. It tells whether it is held.

        None for a step that needs no lock. Entering raises StepError if the lock can't be had.
        """

    async def applying(self, look: Look, action: Action) -> None:
        """Reports that a step begins."""

    async def applied(self, look: Look, action: Action) -> None:
        """Reports that a step was done."""

    async def failed(self, look: Look, failed: FailedStep) -> None:
        """Reports that a step failed."""

    async def settled(self, look: Look | None) -> None:
        """Does what follows a plan without steps, or what is left to do if no cluster is asked for."""

    async def after(self, turn: Turn) -> int | None:
        """Reports a turn; returns for how many milliseconds to rest, or None to end the loop."""


@dataclass(slots=True)
class _Applied:
    done: int = 0
    failed: list[FailedStep] = field(default_factory=list)


class ReconcileLoop:
    """Brings one cluster to what is asked for, turn after turn. `woken` ends a rest early.

    `jitter` is the part by which each rest varies, so that many clusters are not looked at in step.
    """

    def __init__(
        self,
        host: Host,
        runtime: Runtime,
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

    def wake(self) -> None:
        """Begins the next turn at once, or right after the present one."""
        self._woken.set()

    async def run(self) -> None:
        """Reconciles until the host ends it. Raises what `Host.after` raises."""
        while True:
            self._woken.clear()
            rest_ms = await self._host.after(await self._turn())
            if rest_ms is None:
                return
            await self._rest(rest_ms * random.uniform(1 - self._jitter, 1 + self._jitter))

    async def look(self) -> Look | None:
        """Observes, plans, keeps what surrounds the nodes, and reports. None if no cluster is asked for."""
        async with self._host.looking():
            asked = await self._host.asked()
            if asked is None:
                return None
            try:
                completed = await self._runtime.complete(asked.desired, asked.manifests)
            except ManifestError as error:
                await self._host.refused(error)
                return None
            look = await self.look_at(replace(completed, running=asked.desired.running))
            if look.desired.running:
                await self._runtime.keep(look.desired, look.observed)
            await self._host.looked(look)
            return look

    async def look_at(self, desired: DesiredCluster) -> Look:
        """Observes and plans for a completed cluster. Changes and reports nothing."""
        observed = await self._runtime.observe(desired)
        steps = self._runtime.permitted(plan(desired, observed, self._now_ms()), desired)
        look = Look(desired=desired, observed=observed, plan=steps)
        return replace(look, plan=await self._host.planned(look))

    async def _turn(self) -> Turn:
        began_s = time.monotonic()
        look: Look | None = None
        applied = _Applied()
        error: Exception | None = None
        try:
            look = await self.look()
            if look is not None and look.plan.due:
                await self._apply_due(look, applied)
            if look is None or not look.plan.steps:
                await self._host.settled(look)
        except Exception as raised:
            error = raised
        has_failed = bool(error or applied.failed)
        self._failures_in_a_row = self._failures_in_a_row + 1 if has_failed else 0
        return Turn(
            look=look,
            done=applied.done,
            failed=tuple(applied.failed),
            error=error,
            failures_in_a_row=self._failures_in_a_row,
            duration_s=time.monotonic() - began_s,
        )

    async def _rest(self, rest_ms: float) -> None:
        if rest_ms <= 0:
            await asyncio.sleep(0)  # other clusters' loops have their turn
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(rest_ms / 1000):
                await self._woken.wait()

    async def _apply_due(self, look: Look, applied: _Applied) -> None:
        """Applies the steps of each node in order, different nodes at the same time, FormCluster first.

        Raises the first error that is no StepError, after all have ended.
        """

        def place(action: Action) -> int:
            return -1 if action.node_id is None else action.node_id

        forming = [action for action in look.plan.due if isinstance(action, FormCluster)]
        others = sorted((action for action in look.plan.due if action not in forming), key=place)
        await self._apply_together(look, [forming], applied)
        if not applied.failed:
            await self._apply_together(
                look, [list(group) for _, group in groupby(others, key=place)], applied
            )

    async def _apply_together(self, look: Look, lists: Iterable[Sequence[Action]], applied: _Applied) -> None:
        results = await asyncio.gather(
            *(self._apply_in_order(look, actions, applied) for actions in lists), return_exceptions=True
        )
        for result in results:
            if result is not None:
                raise result

    async def _apply_in_order(self, look: Look, actions: Sequence[Action], applied: _Applied) -> None:
        """Applies the steps of one node, until one fails."""
        for action in actions:
            await self._host.applying(look, action)
            try:
                is_done = await self._apply(look, action)
            except StepError as error:
                failed = FailedStep(action=action, error=error)
                applied.failed.append(failed)
                await self._host.failed(look, failed)
                return
            if is_done:
                applied.done += 1
                await self._host.applied(look, action)

    async def _apply(self, look: Look, action: Action) -> bool:
        """Applies a step; with a lock, only if a fresh look has it due. Returns whether it was done."""
        lock = self._host.alone(action)
        if lock is None:
            await self._runtime.apply(action, look.desired)
            return True
        async with lock as is_held:
            fresh = await self.look_at(look.desired)
            if not any(_is_same(action, due) for due in fresh.plan.due):
                return False
            if not is_held():
                raise StepError("the look took longer than the lock is held for")
            await self._runtime.apply(action, look.desired)
        return True


def _is_same(one: Action, other: Action) -> bool:
    """Whether two steps differ in nothing but their reason."""
    return replace(one, reason="") == replace(other, reason="")
