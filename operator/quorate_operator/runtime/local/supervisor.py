"""Keeps a played cluster as its manifest wants it: observe, plan, apply, until it is asked to stop."""

import asyncio
import logging
import signal
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from typing import Any

from quorate_operator import clock
from quorate_operator.planning.cluster import DesiredCluster, Implementation, NodeState, ObservedCluster
from quorate_operator.planning.planner import plan
from quorate_operator.planning.steps import Action, FormCluster, KafkaAction, Plan, StartNode, StepError
from quorate_operator.runtime.composite import ClusterRuntime
from quorate_operator.runtime.describing import label_in, running_status
from quorate_operator.runtime.local.control_socket import serve
from quorate_operator.runtime.local.errors import PlayError
from quorate_operator.runtime.local.infrastructure import LocalInfrastructure
from quorate_operator.runtime.local.layout import Layout
from quorate_operator.runtime.status import ClusterStatus
from quorate_operator.view.wording import in_words, plan_as_json

EVENTS_MAX = 1_000
LOOK_EVERY_MS = 200
LOOK_EVERY_MS_STEADY = 5_000
RETRY_MS_MIN = 500
RETRY_MS_MAX = 30_000

Replay = Callable[[Mapping[str, Any], Layout, frozenset[int]], Layout]
"""A layout from the arguments of a command that brings a manifest, the layout so far, and the nodes that run.
Raises PlayError."""

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
    """One played cluster. `woken` is set by the infrastructure when a process ended.

    `settle` makes a layout of an edited manifest and writes nothing; `adopt` writes it down.
    """

    def __init__(
        self,
        infrastructure: LocalInfrastructure,
        runtime: ClusterRuntime,
        woken: asyncio.Event,
        *,
        settle: Replay,
        adopt: Callable[[Mapping[str, Any], Layout], None],
    ) -> None:
        self._infrastructure = infrastructure
        self._runtime = runtime
        self._woken = woken
        self._settle = settle
        self._adopt = adopt
        self._running = True
        self._looking = asyncio.Lock()
        self._events: deque[Event] = deque(maxlen=EVENTS_MAX)
        self._happened = 0
        self._observed: ObservedCluster | None = None
        self._plan = Plan(steps=())
        self._has_served = False
        self._failure: str | None = None
        self._trouble: str | None = None
        self._failures_in_a_row = 0
        self._told_of_plan: frozenset[str] = frozenset()

    @property
    def stopping(self) -> bool:
        """Whether the cluster is on its way down."""
        return not self._running

    def request_stop(self) -> None:
        """Stop the cluster in order; asked a second time, kill what is left."""
        if self._running:
            self._running = False
            self._tell("stopping")
        else:
            self._infrastructure.kill_all()
        self._woken.set()

    async def run(self) -> None:
        """Keep the cluster until a stop was requested and done.

        Raises StepError when a step failed before the cluster ever served; it was stopped then.
        """
        try:
            async with serve(self._infrastructure.layout.directory, self._handle):
                await self._infrastructure.open()
                await self._keep()
        finally:
            await self._infrastructure.close()
            await self._runtime.close()

    async def snapshot(self, since: int = 0) -> Snapshot:
        """The state now, with the events after the one numbered `since`."""
        observed = await self._look()
        return Snapshot(
            status=running_status(
                self._infrastructure,
                observed,
                self._plan,
                ready=self._running and self._serves(observed),
                trouble=self._trouble,
            ),
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

    @property
    def _desired(self) -> DesiredCluster:
        return replace(self._infrastructure.layout.desired, running=self._running)

    async def _keep(self) -> None:
        while True:
            self._woken.clear()
            await self._look()
            if self._plan.due:
                await self._do(self._plan.due)
            elif not self._running:
                if self._failure is not None:
                    raise StepError(self._failure)
                return
            else:
                self._infrastructure.trim_logs()
                self._keep_history()
                every_ms = LOOK_EVERY_MS if self._plan.steps else LOOK_EVERY_MS_STEADY
                look_at_ms = self._plan.look_again_at_ms
                await self._pause(
                    every_ms if look_at_ms is None else min(every_ms, max(0, look_at_ms - clock.now_ms()))
                )

    def _keep_history(self) -> None:
        try:
            self._infrastructure.keep_history()
        except OSError as error:
            logger.error("the history is not kept: %s", error)  # noqa: TRY400 - no traceback

    async def _look(self) -> ObservedCluster:
        async with self._looking:
            desired = self._desired
            observed = await self._runtime.observe(desired)
            self._tell_changes(observed)
            self._observed = observed
            self._plan = plan(desired, observed, clock.now_ms())
            self._has_served = self._has_served or self._serves(observed)
            self._tell_of_plan()
            return observed

    def _serves(self, observed: ObservedCluster) -> bool:
        return observed.quorum is not None and all(
            node.node_id in observed.nodes and observed.nodes[node.node_id].state is NodeState.READY
            for node in self._infrastructure.layout.desired.nodes
        )

    async def _do(self, actions: Sequence[Action]) -> None:
        """Those of each node in order, different nodes at the same time; the cluster is formed before anything."""

        async def do_all(of_one_node: Iterable[Action]) -> None:
            for action in of_one_node:
                self._tell(self._describe(action))
                try:
                    await self._runtime.apply(action, self._desired)
                except StepError as error:
                    raise _FailedStepError(action, error) from error

        def place(action: Action) -> int:
            return -1 if action.node_id is None else action.node_id

        forming = [action for action in actions if isinstance(action, FormCluster)]
        others = sorted((action for action in actions if action not in forming), key=place)
        results = await _gather([do_all(forming)])
        if not any(results):
            results = await _gather([do_all(list(group)) for _, group in groupby(others, key=place)])
        failed = [result for result in results if isinstance(result, _FailedStepError)]
        for result in results:
            if result is not None and result not in failed:
                raise result
        if not failed:
            self._failures_in_a_row, self._trouble = 0, None
        for step in failed:
            self._fail(step)
        if failed and self._failure is None:
            self._failures_in_a_row += 1
            await self._pause(min(RETRY_MS_MIN << min(self._failures_in_a_row - 1, 16), RETRY_MS_MAX))

    def _fail(self, failed: "_FailedStepError") -> None:
        """What failed before the cluster ever served ends the play: trying again would not bring what it needs.

        Later, or when it was Kafka that did not do it, it is tried again.
        """
        message = str(failed.error)
        is_lasting = not self._running or not (self._has_served or isinstance(failed.action, KafkaAction))
        if is_lasting and self._failure is not None:
            raise failed.error  # stopping after the first failure failed too
        if is_lasting or message != self._trouble:
            self._tell(f"failed: {message}")
        self._trouble = message
        if is_lasting:
            self._failure = message
            self.request_stop()

    async def _pause(self, pause_ms: int) -> None:
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
            case "play":
                return self._replay(arguments)
            case "plan":
                return await self._plan_for(arguments)
        raise PlayError(f"the supervisor knows no command {command!r}")

    def _replay(self, arguments: Mapping[str, Any]) -> int:
        """Go on with an edited manifest; the number of the last event before it."""
        if self.stopping:
            raise PlayError("the cluster is being stopped; play it again when it has")
        before = self._happened
        layout = self._settle(arguments, self._infrastructure.layout, self._infrastructure.running)
        self._adopt(arguments, layout)
        self._infrastructure.use(layout)
        self._tell("another manifest is played")
        self._woken.set()
        return before

    async def _plan_for(self, arguments: Mapping[str, Any]) -> Any:
        """What would be done if a manifest were played; nothing is."""
        layout = self._settle(arguments, self._infrastructure.layout, self._infrastructure.running)
        observed = await self._runtime.observe(layout.desired)
        return plan_as_json(plan(layout.desired, observed, clock.now_ms()), label_in(layout))

    def _kill(self, node_id: int, number: signal.Signals) -> int:
        pid = self._infrastructure.send_signal(node_id, number)
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
            was = before.nodes[node_id].state if before and node_id in before.nodes else NodeState.ABSENT
            label = f"{node.role}-{node_id}"
            if node.state is was:
                continue
            if node.state is NodeState.CRASHED:
                self._tell(f"{label} died ({node.exit_reason})")
            elif node.state is NodeState.STOPPED and was.runs:
                self._tell(f"{label} stopped")
            elif node.state is NodeState.READY or (node.state is NodeState.UNREADY and not self.stopping):
                self._tell(f"{label} is {node.state}")

    def _tell_of_plan(self) -> None:
        """What is refused, once for each time that it comes up."""
        refused = frozenset(f"refused ({one.code}): {one.message}" for one in self._plan.refusals)
        for text in sorted(refused - self._told_of_plan):
            self._tell(text)
        self._told_of_plan = refused

    def _describe(self, action: Action) -> str:
        text = in_words(action, label_in(self._infrastructure.layout), under_way=True)
        if isinstance(action, StartNode):
            nodes = self._infrastructure.layout.identity.nodes
            if nodes[action.node_id].implementation is Implementation.JAVA:
                return text.replace(": ", ", which takes a JVM some seconds: ", 1)
        return text

    def _tell(self, text: str) -> None:
        self._happened += 1
        self._events.append(Event(sequence=self._happened, text=text))
        logger.info("%s", text)


class _FailedStepError(Exception):
    """A step that failed, and why."""

    def __init__(self, action: Action, error: StepError) -> None:
        super().__init__(str(error))
        self.action = action
        self.error = error


async def _gather(works: Sequence[Awaitable[None]]) -> list[BaseException | None]:
    return await asyncio.gather(*works, return_exceptions=True)
