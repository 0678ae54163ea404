"""The runtime of local processes: a node is a directory and a child process of this one."""

import asyncio
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from quorate_operator.planning.cluster import (
    DesiredNode,
    NodeState,
    ObservedCluster,
    ObservedNode,
    Role,
)
from quorate_operator.planning.steps import Action, CreateNode, StartNode, StopNode
from quorate_operator.runtime.errors import PlayError, StepError
from quorate_operator.runtime.health import Health, HealthProbe
from quorate_operator.runtime.layout import Layout
from quorate_operator.runtime.processes import ChildProcess
from quorate_operator.runtime.status import ClusterStatus, NodeStatus

FORMAT_TIMEOUT_S = 60
STABLE_AFTER_MS = 60_000
"""A node that was up for so long and then died starts counting its crashes anew."""


@dataclass(slots=True)
class _Node:
    """What this process knows of a node since it began to supervise."""

    desired: DesiredNode
    process: ChildProcess | None = None
    started_at_ms: int | None = None
    exited_at_ms: int | None = None
    exit_reason: str | None = None
    exits_in_a_row: int = 0
    was_ready: bool = False
    asked_to_stop: bool = False

    @property
    def runs(self) -> bool:
        return self.process is not None and self.process.runs


class LocalRuntime:
    """Runs the nodes of a layout as child processes. Implements the port `Runtime`.

    `wake` is called whenever a process ended.
    """

    def __init__(
        self, layout: Layout, probe: HealthProbe, environment: Mapping[str, str], wake: Callable[[], None]
    ) -> None:
        self._layout = layout
        self._probe = probe
        self._environment = environment
        self._wake = wake
        self._nodes = {node.node_id: _Node(desired=node) for node in layout.desired.nodes}

    async def observe(self) -> ObservedCluster:
        """The cluster as it is now, with every node that is desired."""
        running = [node.desired for node in self._nodes.values() if node.runs]
        health = await self._probe.probe(
            controllers=[node.node_id for node in running if node.role is Role.CONTROLLER],
            brokers=[node.node_id for node in running if node.role is Role.BROKER],
        )
        nodes = {node_id: self._observe_node(node, health) for node_id, node in self._nodes.items()}
        return ObservedCluster(nodes=nodes, quorum=health.quorum)

    async def apply(self, action: Action) -> None:
        """Do one step; returns when it is done. Raises StepError."""
        node = self._nodes[action.node_id]
        try:
            match action:
                case CreateNode():
                    await self._create(node.desired)
                case StartNode():
                    self._start(node)
                case StopNode(grace_ms=grace_ms):
                    await self._stop(node, grace_ms)
        except StepError:
            raise
        except (OSError, PlayError) as error:
            raise StepError(f"{node.desired.label}: {error}") from error

    def send_signal(self, node_id: int, number: signal.Signals) -> int | None:
        """Send a node's process a signal. Its pid, or None if it has no process."""
        process = self._nodes[node_id].process
        if process is None or not process.runs:
            return None
        process.send_signal(number)
        return process.pid

    def kill_all(self) -> None:
        """End every process at once."""
        for node in self._nodes.values():
            node.asked_to_stop = True
            if node.process is not None:
                node.process.send_signal(signal.SIGKILL)

    def trim_logs(self) -> None:
        """Keep the nodes' logs bounded."""
        for node in self._nodes.values():
            if node.process is not None:
                node.process.trim_log()

    async def close(self) -> None:
        """End what still runs, and close connections."""
        self.kill_all()
        processes = [node.process for node in self._nodes.values() if node.process is not None]
        await asyncio.gather(*(process.stop(grace_ms=0) for process in processes if process.runs))
        await self._probe.close()

    def status(self, observed: ObservedCluster, *, ready: bool) -> ClusterStatus:
        """The state of the cluster as it was observed, with what only its processes tell."""
        return ClusterStatus(
            name=self._layout.desired.name,
            cluster_id=self._layout.identity.cluster_id,
            ready=ready,
            bootstrap_servers=self._layout.bootstrap(Role.BROKER),
            bootstrap_controllers=self._layout.bootstrap(Role.CONTROLLER),
            quorum=observed.quorum,
            nodes=tuple(
                _node_status(self._layout, observed.nodes[node_id], node.process)
                for node_id, node in self._nodes.items()
            ),
        )

    def _observe_node(self, node: _Node, health: Health) -> ObservedNode:
        desired = node.desired
        directory_id = self._layout.directory.directory_id_of(desired.label, self._layout.identity.cluster_id)
        if node.runs:
            ready = _in_service(node, health)
            node.was_ready = node.was_ready or ready
            state = NodeState.STARTING if not node.was_ready else NodeState.UNREADY
            state = NodeState.READY if ready else state
        elif directory_id is None:
            state = NodeState.ABSENT
        elif node.process is None or node.asked_to_stop:
            state = NodeState.STOPPED
        else:
            state = NodeState.CRASHED
        return ObservedNode(
            node_id=desired.node_id,
            role=desired.role,
            state=state,
            directory_id=directory_id,
            started_at_ms=node.started_at_ms,
            exited_at_ms=node.exited_at_ms,
            exit_reason=node.exit_reason,
            exits_in_a_row=node.exits_in_a_row,
        )

    async def _create(self, node: DesiredNode) -> None:
        directory = self._layout.directory
        data = directory.node_data(node.label)
        if node.role is Role.CONTROLLER and directory.node_log(node.label).exists():
            raise StepError(
                f"{node.label} has run before, and {data} is gone. A voter that forgot what it voted and "
                "stored could undo what was committed, so it is not created again: bring its data back, or "
                "play in another --dir"
            )
        data.mkdir(parents=True, exist_ok=True)
        self._layout.write_config(node)
        log = directory.node(node.label) / "format.log"
        formatting = ChildProcess.start(
            self._layout.format_command(node),
            directory=directory.node(node.label),
            log=log,
            on_exit=lambda: None,
        )
        if not await formatting.wait(FORMAT_TIMEOUT_S):
            await formatting.stop(grace_ms=0)
            raise StepError(f"{node.label} could not be formatted in {FORMAT_TIMEOUT_S} s; see {log}")
        if not formatting.succeeded:
            said = "\n".join(f"  {line}" for line in log.read_text(errors="replace").splitlines()[-8:])
            raise StepError(f"{node.label} could not be formatted ({formatting.exit_reason}):\n{said}")

    def _start(self, node: _Node) -> None:
        desired = node.desired
        self._layout.write_config(desired)
        process = ChildProcess.start(
            self._layout.run_command(desired, self._environment),
            directory=self._layout.directory.node(desired.label),
            log=self._layout.directory.node_log(desired.label),
            on_exit=lambda: self._on_exit(node),
        )
        node.process = process
        node.started_at_ms = _now_ms()
        node.was_ready = node.asked_to_stop = False

    async def _stop(self, node: _Node, grace_ms: int) -> None:
        if node.process is not None and node.process.runs:
            node.asked_to_stop = True
            await node.process.stop(grace_ms)

    def _on_exit(self, node: _Node) -> None:
        assert node.process is not None
        assert node.started_at_ms is not None
        node.exited_at_ms = _now_ms()
        node.exit_reason = node.process.exit_reason
        was_stable = node.exited_at_ms - node.started_at_ms >= STABLE_AFTER_MS
        node.exits_in_a_row = 1 if was_stable else node.exits_in_a_row + 1
        self._wake()


def _in_service(node: _Node, health: Health) -> bool:
    if node.desired.role is Role.BROKER:
        return node.desired.node_id in health.unfenced
    # The leader remembers a voter that died: what it fetched before this process began does not count.
    seen_ms = health.seen_ms.get(node.desired.node_id)
    return seen_ms is not None and node.started_at_ms is not None and seen_ms >= node.started_at_ms


def idle_status(layout: Layout) -> ClusterStatus:
    """The state of a cluster that nobody runs."""
    identity = layout.identity
    nodes = []
    for node in layout.desired.nodes:
        directory_id = layout.directory.directory_id_of(node.label, identity.cluster_id)
        state = NodeState.ABSENT if directory_id is None else NodeState.STOPPED
        observed = ObservedNode(node_id=node.node_id, role=node.role, state=state, directory_id=directory_id)
        nodes.append(_node_status(layout, observed, None))
    return ClusterStatus(
        name=layout.desired.name,
        cluster_id=identity.cluster_id,
        ready=False,
        bootstrap_servers=layout.bootstrap(Role.BROKER),
        bootstrap_controllers=layout.bootstrap(Role.CONTROLLER),
        quorum=None,
        nodes=tuple(nodes),
    )


def _node_status(layout: Layout, observed: ObservedNode, process: ChildProcess | None) -> NodeStatus:
    node = layout.node(observed.node_id)
    running = process if process is not None and process.runs else None
    return NodeStatus(
        node_id=node.node_id,
        role=node.role,
        pid=running.pid if running else None,
        state=observed.state,
        directory_id=observed.directory_id,
        address=layout.address(node),
        dir=str(layout.directory.node(node.label)),
        rss_bytes=running.rss_bytes if running else None,
    )


def _now_ms() -> int:
    return int(time.time() * 1000)
