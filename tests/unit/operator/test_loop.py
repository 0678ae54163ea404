"""The reconcile loop alone: a host that takes notes, a runtime that fails when it is asked to, plans of the test."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, cast

import pytest
from kit.waiting import HANG_S
from quorate_operator.models.manifests import ManifestError, Manifests, load_manifests
from quorate_operator.planning.cluster import DesiredCluster, Lifecycle, ObservedCluster
from quorate_operator.planning.desired import desired_cluster
from quorate_operator.planning.steps import (
    Action,
    CreateNode,
    ElectPreferredLeaders,
    FormCluster,
    Plan,
    StartNode,
    Step,
    StepError,
    UnregisterBroker,
    WaitFor,
)
from quorate_operator.runtime import loop
from quorate_operator.runtime.loop import (
    DesiredState,
    FailedStep,
    Observation,
    PassResult,
    ReconcileLoop,
    RequeuePolicy,
)

MANIFESTS = load_manifests(
    "{apiVersion: quorate.dev/v1alpha1, kind: KafkaController, metadata: {name: c}, spec: {replicas: 3}}",
    "test",
)
FORM = FormCluster(node_ids=(3000,), cluster_id=None, reason="new")
CREATE, START = CreateNode(node_id=3000, reason="new"), StartNode(node_id=3000, reason="new")
OTHER, ELECT = StartNode(node_id=3001, reason="new"), ElectPreferredLeaders(reason="rolled")
REQUEUE_POLICY = RequeuePolicy(
    working_ms=1, settled_ms=15_000, asleep_ms=60_000, retry_ms_min=100, retry_ms_max=1_000
)


class Stage:
    """Host and runtime at once. Each pass uses the next plan; without one, the loop ends."""

    def __init__(self, *plans: tuple[Step, ...]) -> None:
        self.plans = [Plan(steps=steps) for steps in plans]
        self.failing: dict[type[Action], Exception] = {}
        self.applied_actions: list[Action] = []
        self.results: list[PassResult] = []
        self.refusal: ManifestError | None = None
        self.refusals: list[str] = []
        self.guarded: type[Action] | None = None
        self.holds = True
        self.notes: list[str] = []
        self.applied_objects = 0
        self.manifests = [MANIFESTS]
        """What is desired, by look; the last one stays."""
        self.fails_once = False
        self._lock = asyncio.Lock()

    # The runtime

    async def complete(self, desired: DesiredCluster, _: Manifests) -> DesiredCluster:
        if self.refusal is not None:
            raise self.refusal
        return desired

    async def observe(self, _: DesiredCluster) -> ObservedCluster:
        return ObservedCluster(nodes={}, quorum=None)

    def permitted(self, plan: Plan, _: DesiredCluster) -> Plan:
        return plan

    async def apply(self, action: Action, _: DesiredCluster) -> None:
        self.applied_actions.append(action)
        error = self.failing.get(type(action))
        if error is not None:
            raise error

    async def apply_supporting_objects(self, *_: object) -> None:
        self.applied_objects += 1

    async def close(self) -> None:
        pass

    # The host

    def observing(self) -> AbstractAsyncContextManager[object]:
        return self._lock

    async def desired_state(self) -> DesiredState | None:
        manifests = self.manifests.pop(0) if len(self.manifests) > 1 else self.manifests[0]
        return DesiredState(cluster=desired_cluster(manifests), manifests=manifests)

    async def refused(self, error: ManifestError) -> None:
        self.refusals.append(str(error))

    async def complete_plan(self, observation: Observation) -> Plan:
        return observation.plan

    async def observed(self, observation: Observation) -> None:
        assert self.applied_objects, "supporting objects are applied before an observation is reported"
        self.notes.append(f"observed: {len(observation.plan.steps)}")

    def lock_for(self, action: Action) -> AbstractAsyncContextManager[Callable[[], bool]] | None:
        return self._guard() if self.guarded is not None and isinstance(action, self.guarded) else None

    @asynccontextmanager
    async def _guard(self) -> AsyncIterator[Callable[[], bool]]:
        yield lambda: self.holds

    async def step_started(self, _: Observation, action: Action) -> None:
        self.notes.append(f"applying {type(action).__name__}")

    async def step_done(self, _: Observation, action: Action) -> None:
        self.notes.append(f"applied {type(action).__name__}")

    async def step_failed(self, _: Observation, failed: FailedStep) -> None:
        self.notes.append(f"failed {type(failed.action).__name__}: {failed.error}")

    async def plan_done(self, observation: Observation | None) -> None:
        self.notes.append("plan done" if observation else "nothing desired")

    async def finished(self, result: PassResult) -> int | None:
        self.results.append(result)
        if self.fails_once:
            self.failing = {}
        return 0 if self.plans else None

    async def run(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Run the loop until the plans are used up."""
        monkeypatch.setattr(loop, "plan", lambda *_: self.plans.pop(0))
        await asyncio.wait_for(ReconcileLoop(self, cast("Any", self)).run(), HANG_S)


async def test_the_cluster_is_formed_before_all_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """No other step is applied until the identity is settled."""
    stage = Stage((CREATE, OTHER, FORM), (CREATE, OTHER, FORM))
    stage.failing = {FormCluster: StepError("no disk")}
    stage.fails_once = True
    await stage.run(monkeypatch)
    assert stage.applied_actions[:2] == [FORM, FORM]
    assert stage.applied_actions[2:] == [CREATE, OTHER]
    assert [(result.done, result.failures_in_a_row) for result in stage.results] == [(0, 1), (3, 0)]


async def test_a_failed_step_ends_its_node_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage((CREATE, START, OTHER))
    stage.failing = {CreateNode: StepError("no disk")}
    await stage.run(monkeypatch)
    assert stage.applied_actions == [CREATE, OTHER]
    (result,) = stage.results
    assert result.failed[0].action == CREATE
    assert (result.done, result.error) == (1, None)
    assert "failed CreateNode: no disk" in stage.notes
    assert "applied StartNode" in stage.notes


async def test_nothing_behind_a_wait_is_applied(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage((ELECT, WaitFor(reason="a leader"), START), ())
    await stage.run(monkeypatch)
    assert stage.applied_actions == [ELECT]
    assert stage.notes[-2:] == ["observed: 0", "plan done"]


async def test_a_guarded_step_is_applied_only_while_due(monkeypatch: pytest.MonkeyPatch) -> None:
    add = UnregisterBroker(node_id=3001, reason="gone")
    again = UnregisterBroker(node_id=3001, reason="gone for long")
    stage = Stage((add,), (again,))
    stage.guarded = UnregisterBroker
    await stage.run(monkeypatch)
    assert (stage.applied_actions, stage.results[0].done) == ([add], 1)

    stage = Stage((add,), ())
    stage.guarded = UnregisterBroker
    await stage.run(monkeypatch)
    assert (stage.applied_actions, stage.results[0].done, stage.results[0].failed) == ([], 0, ())
    assert not [note for note in stage.notes if "UnregisterBroker" in note], "another process did it"

    stage = Stage((add,), (add,))
    stage.guarded, stage.holds = UnregisterBroker, False
    await stage.run(monkeypatch)
    assert stage.applied_actions == []
    assert "lock" in str(stage.results[0].failed[0].error)


async def test_an_unexpected_error_is_the_hosts_to_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault ends no loop by itself, and hides no other step."""
    stage = Stage((CREATE, OTHER))
    stage.failing = {CreateNode: RuntimeError("a fault")}
    await stage.run(monkeypatch)
    assert stage.applied_actions == [CREATE, OTHER]
    assert isinstance(stage.results[0].error, RuntimeError)
    assert stage.results[0].failures_in_a_row == 1


async def test_a_manifest_that_the_place_refuses_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage()
    stage.refusal = ManifestError("no such host")
    await stage.run(monkeypatch)
    assert (stage.refusals, stage.applied_actions, stage.notes) == (["no such host"], [], ["nothing desired"])
    assert stage.results[0].observation is None


@pytest.mark.parametrize(
    ("steps", "lifecycle", "done", "failures", "rest_ms"),
    [
        ((START,), Lifecycle.RUNNING, 1, 0, 0),
        ((WaitFor(reason="a leader"),), Lifecycle.RUNNING, 0, 0, 1),
        ((WaitFor(reason="time", until_ms=1_000),), Lifecycle.RUNNING, 0, 0, 1),
        ((), Lifecycle.RUNNING, 0, 0, 15_000),
        ((), Lifecycle.HIBERNATED, 0, 0, 60_000),
        ((), Lifecycle.PAUSED, 0, 0, 60_000),
        ((START,), Lifecycle.RUNNING, 1, 1, 100),
        ((START,), Lifecycle.RUNNING, 0, 3, 400),
        ((START,), Lifecycle.RUNNING, 0, 99, 1_000),
    ],
)
def test_requeue_policy(
    steps: tuple[Step, ...], lifecycle: Lifecycle, done: int, failures: int, rest_ms: int
) -> None:
    """Busy clusters are observed often, quiet ones seldom, failing ones less and less."""
    desired = DesiredCluster(
        name="c", cluster_id=None, metadata_version=None, dynamic_quorum=True, nodes=(), lifecycle=lifecycle
    )
    observed = ObservedCluster(nodes={}, quorum=None)
    observation = Observation(desired=desired, observed=observed, plan=Plan(steps=steps))
    result = PassResult(observation=observation, done=done, failures_in_a_row=failures)
    assert REQUEUE_POLICY.after(result, now_ms=0) == rest_ms


def test_a_cluster_that_waits_for_its_user_is_observed_as_seldom_as_a_healthy_one() -> None:
    def rest_ms(*steps: Step) -> int:
        desired, observed = desired_cluster(MANIFESTS), ObservedCluster(nodes={}, quorum=None)
        observation = Observation(desired=desired, observed=observed, plan=Plan(steps=steps))
        return REQUEUE_POLICY.after(PassResult(observation=observation), now_ms=0)

    stalled = WaitFor(reason="an address", code="AddressMisrouted", is_stalled=True)
    assert rest_ms(stalled) == rest_ms() == REQUEUE_POLICY.settled_ms
    assert rest_ms(stalled, START) == REQUEUE_POLICY.working_ms


@pytest.mark.parametrize(
    ("unchanged_ms", "rest_ms"), [(0, 1_000), (9_000, 1_000), (60_000, 6_000), (3_600_000, 15_000)]
)
def test_a_stuck_cluster_costs_no_more_than_a_healthy_one(unchanged_ms: int, rest_ms: int) -> None:
    requeue_policy = RequeuePolicy(
        working_ms=1_000, settled_ms=15_000, asleep_ms=60_000, retry_ms_min=1, retry_ms_max=1
    )
    observed = ObservedCluster(nodes={}, quorum=None)
    plan = Plan(steps=(WaitFor(reason="a leader"),))
    observation = Observation(desired=desired_cluster(MANIFESTS), observed=observed, plan=plan)
    result = PassResult(observation=observation, unchanged_ms=unchanged_ms)
    assert requeue_policy.after(result, now_ms=0) == rest_ms


async def test_a_plan_is_unchanged_while_only_numbers_in_its_reasons_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_ms = 0

    def later() -> int:
        nonlocal now_ms
        now_ms += 1_000
        return now_ms

    waits = [(WaitFor(reason=f"broker-0: {left} left", node_ids=(0,)),) for left in (9, 8)]
    stage = Stage(*waits, (WaitFor(reason="a leader"),), (ELECT,), (ELECT,))
    monkeypatch.setattr(loop, "plan", lambda *_: stage.plans.pop(0))
    await asyncio.wait_for(ReconcileLoop(stage, cast("Any", stage), now_ms=later).run(), HANG_S)
    assert [result.unchanged_ms > 0 for result in stage.results] == [False, True, False, False, False]


async def test_a_guarded_step_waits_for_the_next_pass_if_another_cluster_is_desired(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While the lock was waited for, the spec was changed: the step may be the opposite of what is due now."""
    changed = load_manifests(
        "{apiVersion: quorate.dev/v1alpha1, kind: KafkaController, metadata: {name: c}, spec: {replicas: 5}}",
        "test",
    )
    stage = Stage((START,), (START,), (START,))
    stage.guarded = StartNode
    stage.manifests = [MANIFESTS, changed]
    await stage.run(monkeypatch)
    assert stage.applied_actions == [START], "in the second pass"
    assert [result.done for result in stage.results] == [0, 1]


def test_time_alone_shortens_a_rest() -> None:
    requeue_policy = RequeuePolicy(
        working_ms=1_000, settled_ms=1, asleep_ms=1, retry_ms_min=1, retry_ms_max=1
    )
    desired = desired_cluster(MANIFESTS)
    for until_ms, rest_ms in ((300, 200), (50, 0), (9_999, 1_000)):
        plan = Plan(steps=(WaitFor(reason="time", until_ms=until_ms),))
        observation = Observation(desired=desired, observed=ObservedCluster(nodes={}, quorum=None), plan=plan)
        assert requeue_policy.after(PassResult(observation=observation), now_ms=100) == rest_ms
