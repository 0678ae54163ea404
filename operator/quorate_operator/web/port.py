"""Snapshots of clusters for the status page, and its commands pause, resume and restart.

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

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterEvent:
    """An event, as in a Kubernetes Event or on the terminal."""

    at_ms: int
    text: str
    is_warning: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSnapshot:
    """The observation and plan of a cluster's last reconcile.

    `desired`, `observed` and `plan` are None until the cluster was observed once. `problem` is why that, or a later
    look, failed.
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
        return view_of(self.key.name, self.desired, self.observed, self.plan, problem=self.problem)


class CommandError(Exception):
    """A command was refused or failed. The message is for the user."""


class Commands(Protocol):
    """The commands of users with a token. Each sets an annotation, and the operator does the rest."""

    async def pause(self, key: ClusterKey, *, paused: bool) -> None:
        """Sets or removes `quorate.dev/pause`. Raises CommandError."""

    async def restart_node(self, key: ClusterKey, node_id: int) -> None:
        """Sets `quorate.dev/restart-<nodeId>` to a new value. Raises CommandError."""
