"""The supervisor's loop over a runtime and a planner that are only pretended."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kit.waiting import HANG_S, UNTIL_EVERY_S
from quorate_operator.models.manifests import Manifests
from quorate_operator.planning.cluster import (
    DesiredCluster,
    NodeState,
    ObservedCluster,
    ObservedNode,
    ObservedQuorum,
)
from quorate_operator.planning.steps import (
    Action,
    CreateNode,
    ElectPreferredLeaders,
    FormCluster,
    Plan,
    Refusal,
    StartNode,
    Step,
    StepError,
    StopNode,
    WaitFor,
)
from quorate_operator.runtime import loop
from quorate_operator.runtime.local import play_session, supervisor
from quorate_operator.runtime.local.errors import PlayError
from quorate_operator.runtime.local.layout import Layout
from quorate_operator.runtime.local.status import ClusterStatus, QuorumStatus
from quorate_operator.runtime.local.supervisor import Snapshot, Supervisor

pytestmark = pytest.mark.usefixtures("own_ports")

MANIFEST = """\
apiVersion: quorate.dev/v1alpha1
kind: KafkaController
metadata: {name: quorum}
spec: {replicas: 2}
"""


def pretended_plan(desired: DesiredCluster, observed: ObservedCluster, now_ms: int) -> Plan:
    """Create what is absent, start what does not run, and stop the leader last."""
    del now_ms
    states = {node.node_id: observed.nodes[node.node_id].state for node in desired.nodes}
    steps: list[Step] = []
    if desired.running:
        for node_id, state in states.items():
            if state is NodeState.ABSENT:
                steps.append(CreateNode(node_id=node_id, reason="it has no formatted directory"))
            if not state.runs:
                reason = observed.nodes[node_id].exit_reason if state is NodeState.CRASHED else "does not run"
                steps.append(StartNode(node_id=node_id, reason=f"it {reason}"))
        if Stage.elects:
            steps.append(ElectPreferredLeaders(reason="a roll is over"))
        return Plan(steps=tuple(steps), refusals=Stage.refusals)
    leader = observed.quorum.leader_id if observed.quorum else None
    for node_id in sorted(
        (node_id for node_id, state in states.items() if state.runs), key=lambda node_id: node_id == leader
    ):
        if steps:
            steps.append(WaitFor(reason="the turn of the active controller"))
        steps.append(StopNode(node_id=node_id, grace_ms=1, reason="the cluster is to stop"))
    return Plan(steps=tuple(steps))


class Pretended:
    """Runtime and infrastructure of nodes that come up at once by default."""

    def __init__(self, layout: Layout, woken: asyncio.Event) -> None:
        self.layout = layout
        self._woken = woken
        self.states = {node.node_id: NodeState.ABSENT for node in layout.desired.nodes}
        self.exits = dict.fromkeys(self.states, 0)
        self.applied: list[Action] = []
        self.failing: type[Action] | None = None
        self.may_stop = asyncio.Event()
        self.may_stop.set()
        self.closed = False
        self.observing, self.may_observe = asyncio.Event(), asyncio.Event()
        self.may_observe.set()

    @property
    def running(self) -> frozenset[int]:
        return frozenset(node_id for node_id, state in self.states.items() if state.runs)

    def use(self, layout: Layout) -> None:
        self.layout = layout
        for node in layout.desired.nodes:
            self.states.setdefault(node.node_id, NodeState.ABSENT)
            self.exits.setdefault(node.node_id, 0)

    async def open(self) -> None:
        pass

    async def observe(self, desired: DesiredCluster) -> ObservedCluster:
        self.observing.set()
        await self.may_observe.wait()
        leader = next((node_id for node_id, state in self.states.items() if state is NodeState.READY), None)
        return ObservedCluster(
            nodes={
                node.node_id: ObservedNode(
                    node_id=node.node_id,
                    role=node.role,
                    state=self.states.get(node.node_id, NodeState.ABSENT),
                    exited_at_ms=int(time.time() * 1000) - 60_000,
                    exit_reason="was killed by SIGKILL",
                    exits_in_a_row=self.exits.get(node.node_id, 0),
                )
                for node in desired.nodes
            },
            quorum=None
            if leader is None
            else ObservedQuorum(
                leader_id=leader, leader_epoch=leader - 2999, high_watermark=1, kraft_version=1
            ),
        )

    async def apply(self, action: Action, desired: DesiredCluster) -> None:
        del desired
        self.applied.append(action)
        if self.failing is not None and isinstance(action, self.failing):
            raise StepError("no disk")
        match action:
            case CreateNode():
                self.states[action.node_id] = NodeState.STOPPED
            case StartNode():
                self.states[action.node_id] = NodeState.READY
            case StopNode():
                await self.may_stop.wait()
                self.states[action.node_id] = NodeState.STOPPED

    def send_signal(self, node_id: int, _: signal.Signals) -> int | None:
        if not self.states[node_id].runs:
            return None
        self.states[node_id] = NodeState.CRASHED
        self.exits[node_id] += 1
        self._woken.set()
        return 4711

    def process_of(self, _: int) -> None:
        return None

    def kill_all(self) -> None:
        self.may_stop.set()

    async def complete(self, desired: DesiredCluster, _: Manifests) -> DesiredCluster:
        return desired

    def permitted(self, plan: Plan, _: DesiredCluster) -> Plan:
        return plan

    async def apply_supporting_objects(self, *_: object) -> None:
        pass

    async def close(self) -> None:
        self.closed = True


class Stage:
    """A supervisor, its runtime, and the directory through which commands come."""

    elects = False
    refusals: tuple[Refusal, ...] = ()

    def __init__(self, path: Path) -> None:
        woken = asyncio.Event()
        layout = play_session.prepare(MANIFEST, "test", path, {}, lambda _: None).layout
        self.directory = layout.directory
        self.runtime = Pretended(layout, woken)
        self.supervisor = Supervisor(
            self.runtime,  # type: ignore[arg-type]
            self.runtime,  # type: ignore[arg-type]
            woken,
            settle=play_session.settle_edited,
            adopt=play_session.adopt_edited,
        )

    def request(self, manifest: str) -> play_session.Request:
        """An edited manifest, as a command brings it."""
        return play_session.ask_for(manifest, "edited", self.directory.path, {}, lambda _: None)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[asyncio.Task[None]]:
        """The supervisor at work, and its end."""
        task = asyncio.create_task(self.supervisor.run())
        try:
            yield task
        finally:
            self.supervisor.request_stop()
            self.supervisor.request_stop()
            await asyncio.wait([task], timeout=HANG_S)
            self.directory.release()

    async def until(self, holds: Callable[[Snapshot], bool]) -> Snapshot:
        """The first snapshot, taken over the socket, for which something holds."""
        return await until(lambda: play_session.ask_snapshot(self.directory), holds)


async def until(take: Callable[[], Awaitable[Snapshot]], holds: Callable[[Snapshot], bool]) -> Snapshot:
    """Take snapshots until one will do."""
    deadline = time.monotonic() + HANG_S
    while True:
        try:
            snapshot = await take()
            if holds(snapshot):
                return snapshot
        except PlayError:
            pass  # it does not listen yet
        assert time.monotonic() < deadline, "it did not come to that"
        await asyncio.sleep(UNTIL_EVERY_S)


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """A supervisor that has not begun."""
    monkeypatch.setattr(loop, "plan", pretended_plan)
    return Stage(tmp_path / "quorum")


async def test_it_creates_starts_and_reports_ready(stage: Stage) -> None:
    async with stage.running():
        snapshot = await stage.until(lambda snapshot: snapshot.status.ready)
        texts = [event.text for event in snapshot.events]
        assert texts[0] == "creating controller-3000: it has no formatted directory"
        assert texts[-3:] == [
            "controller-3000 leads the quorum in epoch 1",
            "controller-3000 is ready",
            "controller-3001 is ready",
        ]
        assert [event.sequence for event in snapshot.events] == list(range(1, len(texts) + 1))
        assert [event.milestone for event in snapshot.events][-3:] == [None, "ready 3000", "ready 3001"]
        assert snapshot.events[0].milestone == "CreateNode 3000"
        later = await play_session.ask_snapshot(stage.directory, since=len(texts) - 1)
        assert [event.text for event in later.events] == texts[-1:]


async def test_a_step_that_is_done_during_an_observation_is_observed_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A snapshot never mixes the states before and after a step."""
    supervisor, observe = stage.supervisor, stage.supervisor._loop.observe
    during = iter([supervisor.step_started, supervisor.step_done])
    observations = 0

    async def observe_during_a_step() -> Any:
        nonlocal observations
        observations += 1
        observation = await observe()
        if (change := next(during, None)) is not None:
            assert observation is not None
            await change(observation, observation.plan.due[0])
        return observation

    monkeypatch.setattr(supervisor._loop, "observe", observe_during_a_step)
    await supervisor.snapshot()
    assert observations == 3
    stage.directory.release()


async def test_a_killed_node_is_started_again(stage: Stage) -> None:
    async with stage.running():
        await stage.until(lambda snapshot: snapshot.status.ready)
        assert await play_session.ask_kill(stage.directory, 3001, signal.SIGKILL) == 4711
        await stage.until(lambda snapshot: snapshot.status.ready)
        restart = stage.runtime.applied[-1]
        assert restart == StartNode(node_id=3001, reason="it was killed by SIGKILL")


async def test_stop_ends_it_in_order(stage: Stage) -> None:
    async with stage.running() as task:
        await stage.until(lambda snapshot: snapshot.status.ready)
        await play_session.ask_stop(stage.directory)
        await asyncio.wait_for(task, HANG_S)
    stops = [action.node_id for action in stage.runtime.applied if isinstance(action, StopNode)]
    assert stops == [3001, 3000]
    assert stage.runtime.closed
    assert not (stage.directory.path / "control.sock").exists()


async def test_a_second_request_does_not_wait(stage: Stage) -> None:
    """Ctrl-C twice ends what does not end by itself."""
    async with stage.running() as task:
        await stage.until(lambda snapshot: snapshot.status.ready)
        stage.runtime.may_stop.clear()
        stage.supervisor.request_stop()
        stopping = await stage.until(lambda snapshot: bool(stage.runtime.applied[-1:]) and snapshot.stopping)
        assert not stopping.status.ready
        stage.supervisor.request_stop()
        await asyncio.wait_for(task, HANG_S)


async def test_a_step_that_fails_ends_the_play(stage: Stage) -> None:
    stage.runtime.failing = StartNode
    async with stage.running() as task:
        with pytest.raises(StepError, match="no disk"):
            await asyncio.wait_for(task, HANG_S)
    assert stage.supervisor.stopping
    assert "failed: no disk" in [event.text for event in stage.supervisor.events_after(0)]


async def test_a_cluster_is_formed_before_anything_else(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    forming = FormCluster(node_ids=(3000, 3001), cluster_id=None, reason="it is new")
    creating = CreateNode(node_id=3000, reason="it is new")
    plans = [Plan(steps=(creating, forming))]
    monkeypatch.setattr(loop, "plan", lambda *_: plans.pop() if plans else Plan(steps=()))
    stage.runtime.failing = FormCluster
    async with stage.running() as task:
        with pytest.raises(StepError, match="no disk"):
            await asyncio.wait_for(task, HANG_S)
    assert stage.runtime.applied == [forming]


async def test_a_stop_during_an_observation_still_stops_in_order(stage: Stage) -> None:
    """No node is killed because the stop came at a bad moment."""
    async with stage.running() as task:
        await stage.until(lambda snapshot: snapshot.status.settled)
        stage.runtime.may_observe.clear()
        stage.runtime.observing.clear()
        stage.runtime.send_signal(3000, signal.SIGKILL)  # wakes the loop
        stage.runtime.states[3000] = NodeState.READY
        await asyncio.wait_for(stage.runtime.observing.wait(), HANG_S)
        stage.supervisor.request_stop()
        stage.runtime.may_observe.set()
        await asyncio.wait_for(task, HANG_S)
    stops = [action.node_id for action in stage.runtime.applied if isinstance(action, StopNode)]
    assert stops == [3001, 3000]


async def test_what_kafka_did_not_do_is_tried_again(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster that serves is not stopped because a step failed."""
    monkeypatch.setattr(supervisor, "REQUEUE_POLICY", replace(supervisor.REQUEUE_POLICY, retry_ms_max=10))
    monkeypatch.setattr(Stage, "elects", True)
    stage.runtime.failing = ElectPreferredLeaders
    async with stage.running():
        election = ElectPreferredLeaders(reason="a roll is over")
        failed = await stage.until(lambda _: stage.runtime.applied.count(election) > 2)
        assert (failed.status.ready, failed.status.settled, failed.status.trouble) == (True, False, "no disk")
        assert [event.text for event in failed.events].count("failed: no disk") == 1
        stage.runtime.failing = None
        await stage.until(lambda snapshot: snapshot.status.trouble is None)
        monkeypatch.setattr(Stage, "elects", False)
        await stage.until(lambda snapshot: snapshot.status.settled)


async def test_an_edited_manifest_is_gone_on_with(stage: Stage) -> None:
    async with stage.running():
        await stage.until(lambda snapshot: snapshot.status.settled)
        request = stage.request(MANIFEST.replace("2", "3"))
        steps = (await play_session.ask_plan(request))["steps"]
        assert [(step["step"], step["nodeId"], step["due"]) for step in steps] == [
            ("CreateNode", 3002, True),
            ("StartNode", 3002, True),
        ]
        assert (await play_session.ask_snapshot(stage.directory)).status.settled  # nothing was done
        since = await play_session.ask_play(request)
        await stage.until(lambda snapshot: snapshot.status.settled and len(snapshot.status.nodes) == 3)
        texts = [event.text for event in (await play_session.ask_snapshot(stage.directory, since)).events]
        assert texts[:2] == [
            "applying another manifest",
            "creating controller-3002: it has no formatted directory",
        ]
        assert "3" in stage.directory.manifest.read_text()


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("name: quorum", "name: other", "holds the cluster 'quorum'"),
        ("replicas: 2", "quorum: static", "can't become static"),
    ],
)
async def test_a_manifest_that_can_not_be_played_changes_nothing(
    stage: Stage, old: str, new: str, fault: str
) -> None:
    async with stage.running():
        await stage.until(lambda snapshot: snapshot.status.settled)
        before = stage.directory.identity_file.read_text()
        with pytest.raises(PlayError, match=fault):
            await play_session.ask_play(stage.request(MANIFEST.replace(old, new)))
        assert stage.directory.identity_file.read_text() == before
        assert stage.directory.manifest.read_text() == MANIFEST


async def test_what_is_refused_is_told_once(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Stage, "refusals", (Refusal("TooFew", "two brokers are needed"),))
    async with stage.running():
        await stage.until(lambda snapshot: snapshot.status.settled)
        snapshot = await play_session.ask_snapshot(stage.directory)
        assert snapshot.status.plan["refusals"] == [{"code": "TooFew", "message": "two brokers are needed"}]
        texts = [event.text for event in snapshot.events]
        assert texts.count("refused (TooFew): two brokers are needed") == 1


async def test_wrong_commands_are_refused(stage: Stage) -> None:
    async with stage.running():
        await stage.until(lambda snapshot: snapshot.status.ready)
        stage.runtime.states[3000] = NodeState.STOPPED
        with pytest.raises(PlayError, match="node 3000 has no process"):
            await play_session.ask_kill(stage.directory, 3000, signal.SIGTERM)


def test_snapshots_survive_the_socket() -> None:
    led = QuorumStatus(leader_id=1, leader_epoch=2, high_watermark=3, kraft_version=1, voters=(1, 2))
    for quorum in (None, led):
        status = ClusterStatus(
            name="n",
            cluster_id="c",
            ready=False,
            bootstrap_servers="s",
            bootstrap_controllers="b",
            quorum=quorum,
        )
        snapshot = Snapshot(
            status=status, stopping=True, waits=("w",), failure="f", exits_in_a_row={3: 1}, events=()
        )
        assert Snapshot.from_json(snapshot.as_json()) == snapshot
