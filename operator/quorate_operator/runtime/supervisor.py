"""Keeps a played cluster as its manifest wants it: observe, plan, apply, until it is asked to stop."""

import asyncio
import logging
import signal
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from typing import Any

from quorate_operator.planning.cluster import DesiredCluster, Implementation, NodeState, ObservedCluster
from quorate_operator.planning.planner import plan
from quorate_operator.planning.steps import Action, CreateNode, Plan, StartNode, StopNode
from quorate_operator.runtime.control import serve
from quorate_operator.runtime.directory import PlayDirectory
from quorate_operator.runtime.errors import PlayError, StepError
from quorate_operator.runtime.local import LocalRuntime
from quorate_operator.runtime.status import ClusterStatus

EVENTS_MAX = 1_000
LOOK_EVERY_MS = 200
LOOK_EVERY_MS_STEADY = 5_000

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened, in words. `sequence` counts from 1."""

    sequence: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What a supervisor tells about itself: the cluster, what is waited for, and what happened."""

    status: ClusterStatus
    stopping: bool
    waits: tuple[str, ...]
    failure: str | None
    """Why the cluster is being stopped, if nobody asked for it."""
    exits_in_a_row: Mapping[int, int]
    """By node id, for nodes that crashed."""
    events: tuple[Event, ...]

    def as_json(self) -> dict[str, Any]:
        """For the control socket."""
        return {
            "status": self.status.as_json(),
            "stopping": self.stopping,
            "waits": list(self.waits),
            "failure": self.failure,
            "exitsInARow": {str(node_id): exits for node_id, exits in self.exits_in_a_row.items()},
            "events": [asdict(event) for event in self.events],
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "Snapshot":
        """What `as_json` gave, back."""
        return cls(
            status=ClusterStatus.from_json(content["status"]),
            stopping=content["stopping"],
            waits=tuple(content["waits"]),
            failure=content["failure"],
            exits_in_a_row={int(node_id): exits for node_id, exits in content["exitsInARow"].items()},
            events=tuple(Event(**event) for event in content["events"]),
        )


class Supervisor:
    """One played cluster. `woken` is set by the runtime when a process ended."""

    def __init__(
        self, directory: PlayDirectory, desired: DesiredCluster, runtime: LocalRuntime, woken: asyncio.Event
    ) -> None:
        self._directory = directory
        self._desired = desired
        self._runtime = runtime
        self._woken = woken
        self._looking = asyncio.Lock()
        self._events: deque[Event] = deque(maxlen=EVENTS_MAX)
        self._happened = 0
        self._observed: ObservedCluster | None = None
        self._plan = Plan(steps=())
        self._failure: str | None = None

    @property
    def stopping(self) -> bool:
        """Whether the cluster is on its way down."""
        return not self._desired.running

    def request_stop(self) -> None:
        """Stop the cluster in order; asked a second time, kill what is left."""
        if self._desired.running:
            self._desired = replace(self._desired, running=False)
            self._tell("stopping")
        else:
            self._runtime.kill_all()
        self._woken.set()

    async def run(self) -> None:
        """Keep the cluster until a stop was requested and done.

        Raises StepError when a step failed; the cluster was stopped then.
        """
        try:
            async with serve(self._directory, self._handle):
                await self._keep()
        finally:
            await self._runtime.close()

    async def snapshot(self, since: int = 0) -> Snapshot:
        """The state now, with the events after the one numbered `since`."""
        observed = await self._look()
        ready = self._desired.running and not self._plan.steps
        return Snapshot(
            status=self._runtime.status(observed, ready=ready),
            stopping=self.stopping,
            waits=tuple(wait.reason for wait in self._plan.waits),
            failure=self._failure,
            exits_in_a_row={
                node_id: node.exits_in_a_row
                for node_id, node in observed.nodes.items()
                if node.exits_in_a_row and node.state is not NodeState.READY
            },
            events=self.events_after(since),
        )

    def events_after(self, sequence: int) -> tuple[Event, ...]:
        """What happened since the event of this number, as far as it is still known."""
        return tuple(event for event in self._events if event.sequence > sequence)

    async def _keep(self) -> None:
        while True:
            self._woken.clear()
            await self._look()
            if self._plan.due:
                await self._do(self._plan.due)
            elif not self._desired.running:
                if self._failure is not None:
                    raise StepError(self._failure)
                return
            else:
                self._runtime.trim_logs()
                await self._pause()

    async def _look(self) -> ObservedCluster:
        async with self._looking:
            observed = await self._runtime.observe()
            self._tell_changes(observed)
            self._observed = observed
            self._plan = plan(self._desired, observed, _now_ms())
            return observed

    async def _do(self, actions: Sequence[Action]) -> None:
        """Those of one node one after the other, those of different nodes at the same time.

        One that fails ends the play: what it needs is not there, and trying again would not bring it.
        """

        async def do_all(of_one_node: Iterable[Action]) -> None:
            for action in of_one_node:
                self._tell(self._describe(action))
                await self._runtime.apply(action)

        by_node = groupby(
            sorted(actions, key=lambda action: action.node_id), key=lambda action: action.node_id
        )
        results = await asyncio.gather(
            *(do_all(list(of_one_node)) for _, of_one_node in by_node), return_exceptions=True
        )
        for result in results:
            if isinstance(result, StepError):
                self._fail(result)
            elif result is not None:
                raise result

    def _fail(self, error: StepError) -> None:
        if self._failure is not None:
            raise error  # stopping after the first failure failed too
        self._failure = str(error)
        self._tell(f"failed: {error}")
        self.request_stop()

    async def _pause(self) -> None:
        every_ms = LOOK_EVERY_MS if self._plan.steps else LOOK_EVERY_MS_STEADY
        look_at_ms = self._plan.look_again_at_ms
        pause_ms = every_ms if look_at_ms is None else min(every_ms, max(0, look_at_ms - _now_ms()))
        with suppress(TimeoutError):
            await asyncio.wait_for(self._woken.wait(), pause_ms / 1000)

    async def _handle(self, command: str, arguments: Mapping[str, Any]) -> Any:
        match command:
            case "status":
                return (await self.snapshot(int(arguments.get("since", 0)))).as_json()
            case "stop":
                self.request_stop()
                return None
            case "kill":
                return self._kill(arguments["nodeId"], signal.Signals[arguments["signal"]])
        raise PlayError(f"the supervisor knows no command {command!r}")

    def _kill(self, node_id: int, number: signal.Signals) -> int:
        pid = self._runtime.send_signal(node_id, number)
        if pid is None:
            raise PlayError(f"node {node_id} has no process")
        self._tell(f"sent {number.name} to node {node_id} (pid {pid})")
        return pid

    def _tell_changes(self, observed: ObservedCluster) -> None:
        before, quorum = self._observed, observed.quorum
        known = before.quorum if before else None
        if quorum and (known is None or known.leader_epoch != quorum.leader_epoch):
            self._tell(f"controller-{quorum.leader_id} leads the quorum in epoch {quorum.leader_epoch}")
        for node_id, node in observed.nodes.items():
            was = before.nodes[node_id].state if before else NodeState.ABSENT
            label = f"{node.role}-{node_id}"
            if node.state is was:
                continue
            if node.state is NodeState.CRASHED:
                self._tell(f"{label} died ({node.exit_reason})")
            elif node.state is NodeState.STOPPED and was.runs:
                self._tell(f"{label} stopped")
            elif node.state is NodeState.READY or (node.state is NodeState.UNREADY and not self.stopping):
                self._tell(f"{label} is {node.state}")

    def _describe(self, action: Action) -> str:
        verb = {CreateNode: "creating", StartNode: "starting", StopNode: "stopping"}[type(action)]
        node = next(node for node in self._desired.nodes if node.node_id == action.node_id)
        if isinstance(action, StartNode) and node.implementation is Implementation.JAVA:
            return f"{verb} {node.label}, which takes a JVM some seconds: {action.reason}"
        return f"{verb} {node.label}: {action.reason}"

    def _tell(self, text: str) -> None:
        self._happened += 1
        self._events.append(Event(sequence=self._happened, text=text))
        logger.info("%s", text)


def _now_ms() -> int:
    return int(time.time() * 1000)
