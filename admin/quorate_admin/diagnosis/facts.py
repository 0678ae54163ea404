"""What a diagnosis is made from: facts of one moment, however they were found out."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from quorate_admin.types.cluster import QuorumDescription, ReplicaDescription
from quorate_admin.types.features import FeatureDescription

FETCH_SILENCE_MS = 10_000
"""A node that has not fetched for so long does not follow the log: a live one fetches every 500 ms or so."""


class NodeKind(StrEnum):
    """What a node is registered as."""

    BROKER = "broker"
    CONTROLLER = "controller"


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredNode:
    """A registration in the metadata log.

    `endpoints` are host and port; `features` has the lowest and highest level by name, and is None where only
    the node's existence is known. `fenced` has a meaning for brokers.
    """

    kind: NodeKind
    node_id: int
    endpoints: tuple[tuple[str, int], ...] = ()
    features: Mapping[str, tuple[int, int]] | None = None
    fenced: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocker:
    """A registration that keeps a feature from the levels outside its range.

    `lowest` and `highest` are 0 for a node that does not have the feature. A controller that is not registered
    and has to be (`is_registered` is False) blocks every level.
    """

    kind: NodeKind
    node_id: int
    lowest: int = 0
    highest: int = 0
    is_registered: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureOutlook:
    """How far a feature could go: `target` is the highest level that any node runs.

    `reachable` is the highest level that the cluster would take now, with nothing else changed. `obstacle` is
    another reason for which the target is refused, in the controller's words.
    """

    feature: str
    finalized: int
    target: int
    reachable: int
    blockers: tuple[Blocker, ...] = ()
    obstacle: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """A cluster at one moment. What could not be found out is None.

    `controllers` and `brokers` are the registrations by node id. They are complete when they were read from the
    metadata log; those from DescribeCluster lack registrations without listeners (`is_log_read`).
    `unreachable` says of nodes that did not answer why not; it names only nodes that were asked.
    """

    cluster_id: str | None = None
    quorum: QuorumDescription | None = None
    quorum_problem: str | None = None
    features: FeatureDescription | None = None
    outlooks: tuple[FeatureOutlook, ...] = ()
    outlook_problem: str | None = None
    controllers: Mapping[int, RegisteredNode] | None = None
    brokers: Mapping[int, RegisteredNode] | None = None
    is_log_read: bool = False
    unreachable: Mapping[int, str] = field(default_factory=dict)

    def finalized(self, feature: str) -> int:
        """The finalized level; 0 where there is none."""
        return 0 if self.features is None else self.features.finalized.get(feature, 0)

    def silence_ms(self, node_id: int) -> int | None:
        """How long before the leader's answer a replica of the log last fetched; None if it is no replica.

        -1 for a replica that has not fetched since the leader leads.
        """
        if self.quorum is None:
            return None
        replicas = [one for one in (*self.quorum.voters, *self.quorum.observers) if one.node_id == node_id]
        return min((self._silence_of(one) for one in replicas), key=_freshest_first, default=None)

    def follows(self, node_id: int) -> bool | None:
        """Whether a node follows the metadata log; None where no leader tells."""
        if self.quorum is None:
            return None
        silence_ms = self.silence_ms(node_id)
        return silence_ms is not None and 0 <= silence_ms <= FETCH_SILENCE_MS

    def fetches(self, replica: ReplicaDescription) -> bool:
        """Whether this very replica, node and directory, follows: the leader lists one that stopped for minutes."""
        return 0 <= self._silence_of(replica) <= FETCH_SILENCE_MS

    def _silence_of(self, replica: ReplicaDescription) -> int:
        assert self.quorum is not None
        if replica.node_id == self.quorum.leader_id:
            return 0
        return -1 if replica.last_fetch_ms is None else max(0, self.leader_now_ms - replica.last_fetch_ms)

    @property
    def leader_now_ms(self) -> int:
        """The leader's clock when it described the quorum: the newest time that it told."""
        assert self.quorum is not None
        replicas = (*self.quorum.voters, *self.quorum.observers)
        return max((one.last_fetch_ms or 0 for one in replicas), default=0)


def _freshest_first(silence_ms: int) -> tuple[bool, int]:
    return silence_ms < 0, silence_ms
