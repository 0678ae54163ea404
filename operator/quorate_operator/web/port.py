"""What the status page needs from its server: snapshots of clusters, and the commands pause, resume and restart.

Times are Unix milliseconds.
"""

from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from quorate_operator.planning.cluster import DesiredCluster, ObservedCluster
from quorate_operator.planning.steps import Plan
from quorate_operator.view.cluster import ClusterView, view_of


class ClusterKey(NamedTuple):
    """A cluster by the namespace and name of its KafkaController; local clusters are in namespace `local`."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterEvent:
    """An event, as in a Kubernetes Event or on the terminal."""

    at_ms: int
    text: str
    is_warning: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSnapshot:
    """What the last reconcile of a cluster saw and planned.

    `desired`, `observed` and `plan` are None as long as nothing is known: a manifest that is refused, a cluster
    that could not be looked at yet. `problem` says why, and also why a later look failed.
    """

    key: ClusterKey
    at_ms: int
    desired: DesiredCluster | None = None
    observed: ObservedCluster | None = None
    plan: Plan | None = None
    events: tuple[ClusterEvent, ...] = field(default=())
    """The latest ones, oldest first."""
    problem: str | None = None

    def view(self) -> ClusterView:
        """What every surface shows of it."""
        return view_of(self.key.name, self.desired, self.observed, self.plan, problem=self.problem)


class Snapshots(Protocol):
    """The latest snapshot of each cluster."""

    @property
    def version(self) -> int:
        """Grows with each change of any snapshot."""

    def clusters(self) -> tuple[ClusterSnapshot, ...]:
        """All of them, by namespace and name."""

    def find(self, key: ClusterKey) -> ClusterSnapshot | None:
        """The one of a cluster."""

    async def changed(self, seen: int) -> int:
        """Wait until `version` is greater than `seen`; the version then."""


class CommandError(Exception):
    """A command that was refused or failed. The message is for the person who gave it."""


class Commands(Protocol):
    """What may be done from the page with a token: each sets an annotation, and the operator does the rest."""

    async def pause(self, key: ClusterKey, *, paused: bool) -> None:
        """Set or remove `quorate.dev/pause`. Raises CommandError."""

    async def restart_node(self, key: ClusterKey, node_id: int) -> None:
        """Set `quorate.dev/restart-<nodeId>` to a new value. Raises CommandError."""
