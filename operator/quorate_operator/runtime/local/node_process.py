"""The processes of a played node: the node itself, and the shipper of a controller's log if there is a history."""

import asyncio
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from quorate_operator import clock
from quorate_operator.models.started_listeners import StartedListeners
from quorate_operator.planning.cluster import Address, NodeState, ObservedNode, ObservedVolume, Role
from quorate_operator.planning.differences import Rendering
from quorate_operator.runtime.local.child_process import ChildProcess
from quorate_operator.runtime.local.layout import QUORATE, Layout

STABLE_AFTER_MS = 60_000
"""Uptime after which the crashes of a node are counted from zero again."""
SHIP_INTERVAL = "5s"
STOP_GRACE_MS = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedWith:
    """The settings of a process, which it can't change."""

    advertised: Mapping[str, Address]
    revision: Mapping[str, str] = field(default_factory=dict)
    rendering: Rendering = field(default_factory=dict)
    controllers: frozenset[int] = frozenset()
    """The controllers that its configuration names."""


class LocalNode:
    """A node and its process. `wake` is called whenever the process has ended."""

    def __init__(self, node_id: int, role: Role, wake: Callable[[], None]) -> None:
        self.node_id = node_id
        self.role = role
        self.process: ChildProcess | None = None
        self.started_with = StartedWith(advertised={})
        self._wake = wake
        self._started_at_ms: int | None = None
        self._exited_at_ms: int | None = None
        self._exit_reason: str | None = None
        self._exits_in_a_row = 0
        self._asked_to_stop = False

    @property
    def label(self) -> str:
        return self.role.label(self.node_id)

    @property
    def runs(self) -> bool:
        return self.process is not None and self.process.runs

    def start(self, command: Sequence[str], *, directory: Path, log: Path, started_with: StartedWith) -> None:
        """Start its process. Raises OSError."""
        self.process = ChildProcess.start(command, directory=directory, log=log, on_exit=self._on_exit)
        self._started_at_ms = clock.now_ms()
        self._asked_to_stop = False
        self.started_with = started_with

    async def stop(self, grace_ms: int) -> None:
        """Ask its process to end, and kill it after `grace_ms`. Raises PlayError if even that fails."""
        self._asked_to_stop = True  # also of one that has crashed: it is not to be started again
        if self.process is not None and self.process.runs:
            await self.process.stop(grace_ms)

    def kill(self) -> None:
        self._asked_to_stop = True
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)

    def observed(
        self,
        *,
        pool: str,
        directory_id: str | None,
        volumes: Mapping[int, ObservedVolume],
        revision: Mapping[str, str],
        advertised_last: Mapping[str, Address],
        listeners_last: StartedListeners | None = None,
    ) -> ObservedNode:
        """Return the node for the planner. `gateway.readiness` judges whether it is ready.

        `advertised_last` and `listeners_last` are stored at each start, also by an earlier supervisor.
        """
        if self.runs:
            state = NodeState.STARTING
        elif directory_id is None:
            state = NodeState.ABSENT
        elif self.process is None or self._asked_to_stop:
            state = NodeState.STOPPED
        else:
            state = NodeState.CRASHED
        return ObservedNode(
            node_id=self.node_id,
            role=self.role,
            state=state,
            pool=pool,
            directory_id=directory_id,
            has_volume=bool(volumes),
            volumes=volumes,
            started_at_ms=self._started_at_ms,
            exited_at_ms=self._exited_at_ms,
            exit_reason=self._exit_reason,
            exits_in_a_row=self._exits_in_a_row,
            problem=self._former_exit() if state is NodeState.STARTING else None,
            revision=revision if self.runs else {},
            rendering=self.started_with.rendering if self.runs else {},
            configured=self.started_with.advertised if self.runs else advertised_last,
            listeners=listeners_last,
        )

    def _former_exit(self) -> str | None:
        """Return how the former process crashed, as long as this one may end like it; None if it did not."""
        assert self._started_at_ms is not None, "it runs"
        if not self._exits_in_a_row or clock.now_ms() - self._started_at_ms >= STABLE_AFTER_MS:
            return None
        times = f", {self._exits_in_a_row} times in a row" if self._exits_in_a_row > 1 else ""
        return f"it died ({self._exit_reason}{times}) and was started again"

    def _on_exit(self) -> None:
        assert self.process is not None
        assert self._started_at_ms is not None
        self._exited_at_ms = clock.now_ms()
        error = self.process.last_error
        self._exit_reason = self.process.exit_reason + (f": {error}" if error else "")
        was_stable = self._exited_at_ms - self._started_at_ms >= STABLE_AFTER_MS
        if self._asked_to_stop:
            self._exits_in_a_row = 0
        else:
            self._exits_in_a_row = 1 if was_stable else self._exits_in_a_row + 1
        self._wake()


class Shippers:
    """The processes by node id. `wake` is called whenever one has ended."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._processes: dict[int, ChildProcess] = {}

    def run(self, layout: Layout, running: frozenset[int]) -> None:
        """Start missing processes, end the others, and trim their logs. Raises OSError.

        Active segments are shipped, too, so that the history is up to date at once.
        """
        wanted = {
            node_id: Role.CONTROLLER.label(node_id)
            for node_id in running
            if layout.desired.keeps_history and layout.identity.nodes[node_id].role is Role.CONTROLLER
        }
        for node_id, process in list(self._processes.items()):
            if not process.runs:
                del self._processes[node_id]
            elif node_id not in wanted:
                process.send_signal(signal.SIGTERM)
            else:
                process.trim_log()
        for node_id, label in wanted.items():
            if node_id not in self._processes:
                self._processes[node_id] = self._start(layout, label)

    async def close(self) -> None:
        """End all of them. Raises PlayError."""
        await asyncio.gather(*(process.stop(STOP_GRACE_MS) for process in self._processes.values()))

    def _start(self, layout: Layout, label: str) -> ChildProcess:
        command = [
            *QUORATE,
            "controller",
            "ship",
            "--follow",
            "--interval",
            SHIP_INTERVAL,
            "--include-active",
        ]
        command += [
            "--log-dir",
            str(layout.directory.node_data(label)),
            "--to",
            str(layout.directory.history),
        ]
        return ChildProcess.start(
            command,
            directory=layout.directory.path,
            log=layout.directory.ship_log(label),
            on_exit=self._wake,
        )
