"""The input of a diagnosis: the facts about a cluster at one moment, however they were collected."""

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import Self

from quorate_protocol.plain_data import dataclass

from quorate_admin.diagnosis.leadership import QuorumSearch
from quorate_admin.diagnosis.partition_facts import PartitionFacts
from quorate_admin.types.cluster import FeatureDescription, QuorumDescription


class Subject(StrEnum):
    """What an examination may not be able to see."""

    QUORUM = "quorum"
    REGISTRATIONS = "registrations"
    PARTITIONS = "partitions"
    MIN_INSYNC_REPLICAS = "min.insync.replicas"
    ADDRESSES = "addresses"


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
    """A registration that prevents a feature from having levels outside its range.

    `lowest` and `highest` are 0 for a node that does not have the feature. A controller that is not registered
    and has to be (`is_registered` is False) blocks every level.
    """

    kind: NodeKind
    node_id: int
    lowest: int = 0
    highest: int = 0
    is_registered: bool = True

    @classmethod
    def of(cls, node: RegisteredNode, feature: str) -> Self:
        """The blocker for a registered node, with the node's range of the feature."""
        low, high = (node.features or {}).get(feature, (0, 0))
        return cls(kind=node.kind, node_id=node.node_id, lowest=low, highest=high)


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureOutlook:
    """The levels that a feature could have: `target` is the highest level that any node supports.

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
class Examination:
    """The facts about a cluster at one moment. Unknown facts are None.

    `controllers` and `brokers` are the registrations by node id. They are complete if they were read from the
    metadata log (`is_log_read`); those from DescribeCluster lack registrations without listeners. `unreachable` has
    the reason for each node that was asked and did not answer, `misrouted` the address of each node at which
    another node answers. `answering` are the nodes that answer at their address and say who they are, `unidentified`
    those at whose address a server does not say who it is. `unexamined` has the reason for each subject of which
    nothing, or not everything, is known. The leader was elected at `leader_since_ms` or before, in Unix milliseconds
    of its clock. `search` has what each controller said by itself, if no leader was found.
    """

    cluster_id: str | None = None
    quorum: QuorumDescription | None = None
    quorum_problem: str | None = None
    leader_since_ms: int | None = None
    features: FeatureDescription | None = None
    outlooks: tuple[FeatureOutlook, ...] = ()
    outlook_problem: str | None = None
    controllers: Mapping[int, RegisteredNode] | None = None
    brokers: Mapping[int, RegisteredNode] | None = None
    is_log_read: bool = False
    unreachable: Mapping[int, str] = field(default_factory=dict)
    misrouted: Mapping[int, str] = field(default_factory=dict)
    search: QuorumSearch | None = None
    answering: frozenset[int] = frozenset()
    unidentified: frozenset[int] = frozenset()
    partitions: PartitionFacts | None = None
    unexamined: Mapping[Subject, str] = field(default_factory=dict)

    def finalized(self, feature: str) -> int:
        """Returns the finalized level of a feature, 0 if it has none."""
        return 0 if self.features is None else self.features.finalized.get(feature, 0)

    @property
    def is_through_brokers(self) -> bool:
        """Whether brokers were asked, not controllers: only they list brokers without the log."""
        return self.brokers is not None and not self.is_log_read

    def replicas_on(self, broker_id: int) -> int | None:
        """Returns the number of partitions with a replica on a broker; None if partitions were not examined."""
        if self.partitions is None or Subject.PARTITIONS in self.unexamined:
            return None
        return self.partitions.replicas.get(broker_id, 0)
