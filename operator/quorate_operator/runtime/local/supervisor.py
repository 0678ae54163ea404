"""Runs the reconcile loop of a played cluster until it is stopped; answers the commands of `quorate play`."""

import asyncio
import logging
import signal
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any

from quorate_operator import clock
from quorate_operator.models.manifests import ManifestError
from quorate_operator.planning.cluster import DesiredCluster, Implementation, NodeState, ObservedCluster
from quorate_operator.planning.steps import Action, KafkaAction, Plan, StartNode, StepError
from quorate_operator.runtime.composite import ClusterRuntime
from quorate_operator.runtime.local.control_socket import serve
from quorate_operator.runtime.local.errors import PlayError
from quorate_operator.runtime.local.infrastructure import LocalInfrastructure
from quorate_operator.runtime.local.layout import Layout
from quorate_operator.runtime.local.machine_addresses import complete
from quorate_operator.runtime.local.status import (
    ClusterStatus,
    Report,
    label_in,
    plan_as_json,
    played_view,
    running_status,
)
from quorate_operator.runtime.loop import (
    DesiredState,
    FailedStep,
    Observation,
    PassResult,
    ReconcileLoop,
    RequeuePolicy,
)
from quorate_operator.view.cluster import is_serving
from quorate_operator.view.texts import step_text

EVENTS_MAX = 1_000
OBSERVATIONS_MAX = 5
"""How often a command observes until no step begins or ends meanwhile."""
REQUEUE_POLICY = RequeuePolicy(
    working_ms=200, settled_ms=5_000, asleep_ms=5_000, retry_ms_min=500, retry_ms_max=30_000
)

Replay = Callable[[Mapping[str, Any], Layout, frozenset[int]], Layout]
"""Returns a layout, from the arguments of a command with a manifest, the present layout, and the running nodes.
Raises PlayError."""

logger = logging.getLogger(__name__)


class Event(Report):
    """An event as text. `sequence` counts from 1."""

    sequence: int
    text: str
    milestone: str | None = None
    """What has been reached, such as `StartNode 3000`; None for what can happen again and again without progress.

    A milestone may be reached more than once, as in a node that crashes and is started again.
    """


class Snapshot(Report):
    """What a supervisor reports: the status of the cluster, the waits of its plan, and events."""

    status: ClusterStatus
    stopping: bool
    waits: tuple[str, ...]
    failure: str | None
    """Why the cluster is being stopped, if no stop was requested."""
    exits_in_a_row: dict[int, int]
    """By node id, for nodes that crashed."""
    events: tuple[Event, ...]


class Supervisor:
    """One played cluster: the host of its loop. The infrastructure sets `woken` when a process has ended.

    `settle` returns the layout of an edited manifest and writes nothing; `adopt` stores it.
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
        self._loop = ReconcileLoop(self, runtime, woken=woken)
        self._settle = settle
        self._adopt = adopt
        self._running = True
        self._observing = asyncio.Lock()
        self._events: deque[Event] = deque(maxlen=EVENTS_MAX)
        self._step_changes = 0
        """How often a step has begun or ended."""
        self._happened = 0
        self._observed: ObservedCluster | None = None
        self._plan = Plan(steps=())
        self._has_served = False
        self._failure: str | None = None
        self._trouble: str | None = None
        self._refused: frozenset[str] = frozenset()

    @property
    def stopping(self) -> bool:
        return not self._running

    def request_stop(self) -> None:
        """Stop the cluster in order; a second request kills what is left."""
        if self._running:
            self._running = False
            self._report("stopping")
        else:
            self._infrastructure.kill_all()
        self._loop.wake()

    async def run(self) -> None:
        """Run the cluster until a requested stop is done.

        Raises StepError if a step failed before the cluster ever served; then it was stopped.
        """
        try:
            async with serve(self._infrastructure.layout.directory, self._handle):
                await self._infrastructure.open()
                await self._loop.run()
        finally:
            await self._infrastructure.close()
            await self._runtime.close()

    async def snapshot(self, since: int = 0) -> Snapshot:
        """Return the present state, with the events after number `since`."""
        for _ in range(OBSERVATIONS_MAX):
            began = self._step_changes
            observation = await self._loop.observe()
            # A step that ends during an observation makes it inconsistent: nothing may seem to be left to do.
            if self._step_changes == began:
                break
        assert observation is not None, "a played cluster always has a manifest"
        observed = observation.observed
        return Snapshot(
            status=running_status(
                self._infrastructure,
                observed,
                self._plan,
                is_stopping=self.stopping,
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
        """Return the known events after this number."""
        return tuple(event for event in self._events if event.sequence > sequence)

    # The loop's host

    def observing(self) -> AbstractAsyncContextManager[object]:
        """Allow one observation at a time, because commands observe, too."""
        return self._observing

    async def desired_state(self) -> DesiredState:
        layout = self._infrastructure.layout
        return DesiredState(
            cluster=replace(layout.desired, running=self._running), manifests=layout.manifests
        )

    async def refused(self, error: ManifestError) -> None:
        """End the play: its manifest was checked before. Raises PlayError."""
        raise PlayError(str(error)) from error

    async def complete_plan(self, observation: Observation) -> Plan:
        return observation.plan

    async def observed(self, observation: Observation) -> None:
        """Report what changed, and what the plan refuses, once."""
        self._report_changes(observation.observed)
        self._observed, self._plan = observation.observed, observation.plan
        self._has_served = self._has_served or is_serving(
            self._infrastructure.layout.desired, observation.observed
        )
        refused = frozenset(
            f"refused ({refusal.code}): {refusal.message}" for refusal in observation.plan.refusals
        )
        for text in sorted(refused - self._refused):
            self._report(text)
        self._refused = refused

    def lock_for(self, action: Action) -> None:
        """Return None: the lock of the directory excludes other supervisors."""
        del action

    async def step_started(self, observation: Observation, action: Action) -> None:
        del observation
        self._step_changes += 1
        self._report(self._describe(action), milestone=f"{type(action).__name__} {action.node_id}")

    async def step_done(self, observation: Observation, action: Action) -> None:
        """Report nothing: the next observation finds what a step changed."""
        del observation, action
        self._step_changes += 1

    async def step_failed(self, observation: Observation, failed: FailedStep) -> None:
        """Report nothing yet: `finished` decides whether the failure ends the play."""

    async def plan_done(self, observation: Observation | None) -> None:
        """Do nothing: a played cluster has nothing to clear."""

    async def finished(self, result: PassResult) -> int | None:
        """Return the time to the next pass; None when the cluster has been stopped. Raises what ends the play."""
        if result.error is not None:
            raise result.error
        assert result.observation is not None, "a played cluster always has a manifest"
        for failed in result.failed:
            self._fail(failed)
        if result.observation.plan.due:
            if not result.failed:
                self._trouble = None
        elif not result.observation.desired.running:
            if self._failure is not None:
                raise StepError(self._failure)
            return None
        return 0 if self._failure is not None else REQUEUE_POLICY.after(result, clock.now_ms())

    def _fail(self, failed: FailedStep) -> None:
        """End the play if the cluster has never served: another attempt would not help.

        Later, or if Kafka failed, the loop tries again.
        """
        message = str(failed.error)
        is_lasting = not self._running or not (self._has_served or isinstance(failed.action, KafkaAction))
        if is_lasting and self._failure is not None:
            raise failed.error  # stopping after the first failure has failed, too
        if is_lasting or message != self._trouble:
            self._report(f"failed: {message}")
        self._trouble = message
        if is_lasting:
            self._failure = message
            self.request_stop()

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
        """Continue with an edited manifest. Return the number of the last event before it."""
        if self.stopping:
            raise PlayError("the cluster is being stopped; start it again once it has stopped")
        before = self._happened
        layout = self._settle(arguments, self._infrastructure.layout, self._infrastructure.running)
        self._adopt(arguments, layout)
        self._infrastructure.use(layout)
        self._report("applying another manifest")
        self._loop.wake()
        return before

    async def _plan_for(self, arguments: Mapping[str, Any]) -> Any:
        """Return the plan for an edited manifest. Changes nothing."""
        layout = self._settle(arguments, self._infrastructure.layout, self._infrastructure.running)

        async def restage(staged: DesiredCluster) -> DesiredCluster:
            return complete(layout.manifests, staged, layout.identity)

        observation = await self._loop.plan_for(layout.desired, restage)
        return plan_as_json(played_view(layout, observation.observed, observation.plan))

    def _kill(self, node_id: int, number: signal.Signals) -> int:
        pid = self._infrastructure.send_signal(node_id, number)
        if pid is None:
            raise PlayError(f"node {node_id} has no process")
        self._report(f"sent {number.name} to node {node_id} (pid {pid})")
        return pid

    def _report_changes(self, observed: ObservedCluster) -> None:
        before, quorum = self._observed, observed.quorum
        known = before.quorum if before else None
        if quorum and (known is None or known.leader_epoch != quorum.leader_epoch):
            self._report(f"controller-{quorum.leader_id} leads the quorum in epoch {quorum.leader_epoch}")
        for node_id, node in observed.nodes.items():
            was = before.nodes[node_id].state if before and node_id in before.nodes else NodeState.ABSENT
            if node.state is was:
                continue
            if node.state is NodeState.CRASHED:
                self._report(f"{node.label} died ({node.exit_reason})")
            elif node.state is NodeState.STOPPED and was.runs:
                self._report(f"{node.label} stopped", milestone=f"stopped {node_id}")
            elif node.state is NodeState.READY:
                self._report(f"{node.label} is {node.state}", milestone=f"ready {node_id}")
            elif node.state is NodeState.UNREADY and not self.stopping:
                self._report(f"{node.label} is {node.state}")

    def _describe(self, action: Action) -> str:
        text = step_text(action, label_in(self._infrastructure.layout), under_way=True)
        if isinstance(action, StartNode):
            nodes = self._infrastructure.layout.identity.nodes
            if nodes[action.node_id].implementation is Implementation.JAVA:
                return text.replace(": ", ", which takes a JVM some seconds: ", 1)
        return text

    def _report(self, text: str, *, milestone: str | None = None) -> None:
        self._happened += 1
        self._events.append(Event(sequence=self._happened, text=text, milestone=milestone))
        logger.info("%s", text)
