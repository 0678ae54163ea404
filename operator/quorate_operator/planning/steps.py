"""The steps a plan is made of. Each says what is done, to which node, and why."""

from dataclasses import dataclass
from itertools import takewhile


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateNode:
    """Give the node its directory, its configuration and its formatted storage."""

    node_id: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StartNode:
    """Start the process of a node that has its storage."""

    node_id: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StopNode:
    """Ask the node's process to leave, and end it when it is still there after `grace_ms`."""

    node_id: int
    reason: str
    grace_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitFor:
    """Nothing after this may be done before `reason` holds; time alone changes that at `until_ms`, if set."""

    reason: str
    node_ids: tuple[int, ...] = ()
    until_ms: int | None = None


Action = CreateNode | StartNode | StopNode
Step = Action | WaitFor


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is left to do, in order. Nothing of it is stored: it is computed again from what is observed."""

    steps: tuple[Step, ...]

    @property
    def due(self) -> tuple[Action, ...]:
        """The actions in front of the first wait. Those of different nodes may be done at the same time."""
        front = takewhile(lambda step: not isinstance(step, WaitFor), self.steps)
        return tuple(step for step in front if not isinstance(step, WaitFor))

    @property
    def waits(self) -> tuple[WaitFor, ...]:
        """What is waited for."""
        return tuple(step for step in self.steps if isinstance(step, WaitFor))

    @property
    def look_again_at_ms(self) -> int | None:
        """When time alone changes the plan, or None."""
        return min((wait.until_ms for wait in self.waits if wait.until_ms is not None), default=None)
