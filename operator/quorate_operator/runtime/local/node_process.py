"""A node of a played cluster: its process, and its history since this supervisor began."""

import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from quorate_operator import clock
from quorate_operator.planning.cluster import Address, NodeState, ObservedNode, ObservedVolume, Role
from quorate_operator.planning.differences import Rendering
from quorate_operator.runtime.local.child_process import ChildProcess

STABLE_AFTER_MS = 60_000
"""The crashes of a node that was up for so long are counted from zero again."""


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
        """Starts its process. Raises OSError."""
        self.process = ChildProcess.start(command, directory=directory, log=log, on_exit=self._on_exit)
        self._started_at_ms = clock.now_ms()
        self._asked_to_stop = False
        self.started_with = started_with

    async def stop(self, grace_ms: int) -> None:
        """Asks its process to end, and kills it after `grace_ms`. Raises PlayError if even that fails."""
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
    ) -> ObservedNode:
        """Returns the node for the planner. `gateway.readiness` judges whether it is ready.

        `advertised_last` is stored at each start, also by an earlier supervisor.
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
            revision=revision if self.runs else {},
            rendering=self.started_with.rendering if self.runs else {},
            configured=self.started_with.advertised if self.runs else advertised_last,
        )

    def _on_exit(self) -> None:
        assert self.process is not None
        assert self._started_at_ms is not None
        self._exited_at_ms = clock.now_ms()
        self._exit_reason = self.process.exit_reason
        was_stable = self._exited_at_ms - self._started_at_ms >= STABLE_AFTER_MS
        self._exits_in_a_row = 1 if was_stable else self._exits_in_a_row + 1
        self._wake()
