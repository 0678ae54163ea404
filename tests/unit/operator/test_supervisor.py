"""The supervisor's loop over a runtime that is only pretended."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from quorate_operator.models.manifests import load_manifests
from quorate_operator.planning.cluster import (
    NodeState,
    ObservedCluster,
    ObservedNode,
    ObservedQuorum,
)
from quorate_operator.planning.desired import desired_cluster
from quorate_operator.planning.steps import Action, CreateNode, StartNode, StopNode
from quorate_operator.runtime import session
from quorate_operator.runtime.directory import PlayDirectory
from quorate_operator.runtime.errors import PlayError, StepError
from quorate_operator.runtime.status import ClusterStatus
from quorate_operator.runtime.supervisor import Snapshot, Supervisor

MANIFEST = """\
apiVersion: quorate.dev/v1alpha1
kind: KafkaController
metadata: {name: quorum}
spec: {replicas: 2}
"""
DESIRED = desired_cluster(load_manifests(MANIFEST, "test"))


class PretendedRuntime:
    """Nodes that come up at once, unless told otherwise."""

    def __init__(self, woken: asyncio.Event) -> None:
        self._woken = woken
        self.states = {node.node_id: NodeState.ABSENT for node in DESIRED.nodes}
        self.exits = dict.fromkeys(self.states, 0)
        self.applied: list[Action] = []
        self.failing: type[Action] | None = None
        self.may_stop = asyncio.Event()
        self.may_stop.set()
        self.closed = False

    async def observe(self) -> ObservedCluster:
        leader = next((node_id for node_id, state in self.states.items() if state is NodeState.READY), None)
        return ObservedCluster(
            nodes={
                node.node_id: ObservedNode(
                    node_id=node.node_id,
                    role=node.role,
                    state=self.states[node.node_id],
                    exited_at_ms=int(time.time() * 1000) - 60_000,
                    exit_reason="killed by SIGKILL",
                    exits_in_a_row=self.exits[node.node_id],
                )
                for node in DESIRED.nodes
            },
            quorum=None
            if leader is None
            else ObservedQuorum(
                leader_id=leader, leader_epoch=leader - 2999, high_watermark=1, kraft_version=1
            ),
        )

    async def apply(self, action: Action) -> None:
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

    def kill_all(self) -> None:
        self.may_stop.set()

    def trim_logs(self) -> None:
        pass

    async def close(self) -> None:
        self.closed = True

    def status(self, observed: ObservedCluster, *, ready: bool) -> ClusterStatus:
        return ClusterStatus(
            name="quorum",
            cluster_id="id",
            ready=ready,
            bootstrap_servers="",
            bootstrap_controllers="h:1,h:2",
            quorum=observed.quorum,
        )


class Stage:
    """A supervisor, its runtime, and the directory through which commands come."""

    def __init__(self, path: Path) -> None:
        woken = asyncio.Event()
        self.directory = PlayDirectory(path)
        self.directory.take()
        self.runtime = PretendedRuntime(woken)
        self.supervisor = Supervisor(self.directory, DESIRED, self.runtime, woken)  # type: ignore[arg-type]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[asyncio.Task[None]]:
        """The supervisor at work, and its end."""
        task = asyncio.create_task(self.supervisor.run())
        try:
            yield task
        finally:
            self.supervisor.request_stop()
            self.supervisor.request_stop()
            await asyncio.wait([task], timeout=10)
            self.directory.release()

    async def until(self, holds: Callable[[Snapshot], bool]) -> Snapshot:
        """The first snapshot, taken over the socket, for which something holds."""
        return await until(lambda: session.ask_snapshot(self.directory), holds)


async def until(take: Callable[[], Awaitable[Snapshot]], holds: Callable[[Snapshot], bool]) -> Snapshot:
    """Take snapshots until one will do."""
    deadline = time.monotonic() + 10
    while True:
        try:
            snapshot = await take()
            if holds(snapshot):
                return snapshot
        except PlayError:
            pass  # it does not listen yet
        assert time.monotonic() < deadline, "it did not come to that"
        await asyncio.sleep(0.01)


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    """A supervisor that has not begun."""
    return Stage(tmp_path / "quorum")


async def test_it_creates_starts_and_reports_ready(stage: Stage) -> None:
    """Goal: from nothing to ready. Method: run, ask over the socket, read the events."""
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
        later = await session.ask_snapshot(stage.directory, since=len(texts) - 1)
        assert [event.text for event in later.events] == texts[-1:]


async def test_a_killed_node_is_started_again(stage: Stage) -> None:
    """Goal: what dies comes back. Method: kill one over the socket."""
    async with stage.running():
        await stage.until(lambda snapshot: snapshot.status.ready)
        assert await session.ask_kill(stage.directory, 3001, signal.SIGKILL) == 4711
        await stage.until(lambda snapshot: snapshot.status.ready)
        restart = stage.runtime.applied[-1]
        assert restart == StartNode(node_id=3001, reason="it died (killed by SIGKILL)")


async def test_stop_ends_it_in_order(stage: Stage) -> None:
    """Goal: the active controller last, then the loop ends. Method: stop over the socket."""
    async with stage.running() as task:
        await stage.until(lambda snapshot: snapshot.status.ready)
        await session.ask_stop(stage.directory)
        await asyncio.wait_for(task, 10)
    stops = [action.node_id for action in stage.runtime.applied if isinstance(action, StopNode)]
    assert stops == [3001, 3000]
    assert stage.runtime.closed
    assert not (stage.directory.path / "control.sock").exists()


async def test_a_second_request_does_not_wait(stage: Stage) -> None:
    """Goal: Ctrl-C twice ends what does not end by itself. Method: a node that is stuck while stopping."""
    async with stage.running() as task:
        await stage.until(lambda snapshot: snapshot.status.ready)
        stage.runtime.may_stop.clear()
        stage.supervisor.request_stop()
        stopping = await stage.until(lambda snapshot: bool(stage.runtime.applied[-1:]) and snapshot.stopping)
        assert not stopping.status.ready
        stage.supervisor.request_stop()
        await asyncio.wait_for(task, 10)


async def test_a_step_that_fails_ends_the_play(stage: Stage) -> None:
    """Goal: no endless trying, and the reason is told. Method: starting fails."""
    stage.runtime.failing = StartNode
    async with stage.running() as task:
        with pytest.raises(StepError, match="no disk"):
            await asyncio.wait_for(task, 10)
    assert stage.supervisor.stopping
    assert "failed: no disk" in [event.text for event in stage.supervisor.events_after(0)]


async def test_wrong_commands_are_refused(stage: Stage) -> None:
    """Goal: a clear answer. Method: a node without a process."""
    async with stage.running():
        await stage.until(lambda snapshot: snapshot.status.ready)
        stage.runtime.states[3000] = NodeState.STOPPED
        with pytest.raises(PlayError, match="node 3000 has no process"):
            await session.ask_kill(stage.directory, 3000, signal.SIGTERM)


def test_snapshots_survive_the_socket() -> None:
    """Goal: nothing is lost between supervisor and command. Method: to JSON and back, with and without a quorum."""
    for quorum in (None, ObservedQuorum(leader_id=1, leader_epoch=2, high_watermark=3, kraft_version=1)):
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
