"""The input of a diagnosis: the facts about a cluster at one moment, however they were collected."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from typing import Final, Self

from quorate_protocol.image import NO_LEADER, MetadataImage
from quorate_protocol.image.views import min_insync_replicas
from quorate_protocol.plain_data import dataclass

from quorate_admin.diagnosis.client_facts import ClientFacts
from quorate_admin.diagnosis.quorum_search import QuorumSearch
from quorate_admin.types.cluster import FeatureDescription, QuorumDescription

EXAMPLES_MAX: Final = 5
"""The number of partitions in the same trouble that are named."""


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
class TroubledPartitions:
    """The partitions in one kind of trouble.

    `examples` names the first of them, as topic-partition. `brokers` has the number of their replicas that matter by
    broker id: all replicas of partitions without a leader, otherwise those that are not in sync.
    """

    count: int = 0
    examples: tuple[str, ...] = ()
    brokers: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFacts:
    """All partitions that were examined.

    `offline` have no leader (Kafka's OfflinePartitionsCount). `under_min_isr` have one, and fewer replicas in sync
    than the lower of `min.insync.replicas` and their replicas (Kafka's UnderMinIsrPartitionCount). `replicas` has the
    number of partitions by broker id, `unregistered` by broker id the partitions with a replica on a broker that is
    not registered. `min_isr_unknown` is the number of partitions that lack replicas in sync, and whose
    `min.insync.replicas` could not be read.
    """

    topics: int = 0
    partitions: int = 0
    offline: TroubledPartitions = field(default_factory=TroubledPartitions)
    under_min_isr: TroubledPartitions = field(default_factory=TroubledPartitions)
    replicas: Mapping[int, int] = field(default_factory=dict)
    unregistered: Mapping[int, TroubledPartitions] = field(default_factory=dict)
    min_isr_unknown: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """The facts about a cluster at one moment. Unknown facts are None.

    `controllers` and `brokers` are the registrations by node id. They are complete if they were read from the
    metadata log (`is_log_read`); those from DescribeCluster lack registrations without listeners. `unreachable` has
    the reason for each node that was asked and did not answer, `misrouted` the address of each node at which
    another node answers. `answering` are the nodes that answer at their address and say who they are, `unidentified`
    those at whose address a server does not say who it is. `unexamined` has the reason for each subject of which
    nothing, or not everything, is known. The leader was elected at `leader_since_ms` or before, in Unix milliseconds
    of its clock. `search` has what each controller said by itself, if no leader was found. `clients` are those that
    the brokers' metrics have, None if they were not asked for.
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
    clients: ClientFacts | None = None

    def finalized(self, feature: str) -> int:
        """Return the finalized level of a feature, 0 if it has none."""
        return 0 if self.features is None else self.features.finalized.get(feature, 0)

    @property
    def is_through_brokers(self) -> bool:
        """Whether brokers were asked, not controllers: only they list brokers without the log."""
        return self.brokers is not None and not self.is_log_read

    def replicas_on(self, broker_id: int) -> int | None:
        """Return the number of partitions with a replica on a broker; None if partitions were not examined."""
        if self.partitions is None or Subject.PARTITIONS in self.unexamined:
            return None
        return self.partitions.replicas.get(broker_id, 0)


class _Tally:
    """Counts partitions of one kind."""

    __slots__ = ("brokers", "count", "examples")

    def __init__(self) -> None:
        self.count = 0
        self.examples: list[str] = []
        self.brokers: Counter[int] = Counter()

    def add(self, topic: str, partition: int, broker_ids: Collection[int] = ()) -> None:
        self.count += 1
        if len(self.examples) < EXAMPLES_MAX:
            self.examples.append(f"{topic}-{partition}")
        self.brokers.update(broker_ids)

    def total(self) -> TroubledPartitions:
        return TroubledPartitions(
            count=self.count, examples=tuple(self.examples), brokers=dict(sorted(self.brokers.items()))
        )


class PartitionTally:
    """Counts partitions, one after the other. `registered` are the ids of the registered brokers."""

    def __init__(self, registered: Collection[int]) -> None:
        self._registered = frozenset(registered)
        self._topics = 0
        self._partitions = 0
        self._min_isr_unknown = 0
        self._offline, self._under_min_isr = _Tally(), _Tally()
        self._replicas: Counter[int] = Counter()
        self._unregistered: dict[int, _Tally] = {}

    def add_topic(self) -> None:
        """Count a topic; `add` counts its partitions."""
        self._topics += 1

    def add(
        self,
        topic: str,
        partition: int,
        *,
        replicas: Sequence[int],
        isr: Sequence[int],
        has_leader: bool,
        min_isr: int | None,
    ) -> None:
        """Count a partition. `min_isr` is its `min.insync.replicas`, None if that is unknown."""
        self._partitions += 1
        self._replicas.update(replicas)
        for broker_id in replicas:
            if broker_id not in self._registered:
                self._unregistered.setdefault(broker_id, _Tally()).add(topic, partition)
        if not has_leader:
            self._offline.add(topic, partition, replicas)
        elif len(isr) < len(replicas):
            if min_isr is None:
                self._min_isr_unknown += 1
            elif len(isr) < min_isr:
                self._under_min_isr.add(topic, partition, {*replicas}.difference(isr))

    def facts(self) -> PartitionFacts:
        """What was counted so far."""
        return PartitionFacts(
            topics=self._topics,
            partitions=self._partitions,
            offline=self._offline.total(),
            under_min_isr=self._under_min_isr.total(),
            replicas=dict(sorted(self._replicas.items())),
            unregistered={node_id: tally.total() for node_id, tally in sorted(self._unregistered.items())},
            min_isr_unknown=self._min_isr_unknown,
        )


def partitions_of_image(image: MetadataImage) -> PartitionFacts:
    """Count the partitions of a metadata image.

    The image has dynamic configs only. A topic without any is counted in `min_isr_unknown`, because its brokers may
    have `min.insync.replicas` in their own files.
    """
    general, own = min_insync_replicas(image, 0)
    tally = PartitionTally(image.cluster.brokers)
    for name, topic in sorted(image.topics.by_name.items()):
        tally.add_topic()
        min_isr = own.get(name, general) or None
        for number, partition in sorted(topic.partitions.items()):
            tally.add(
                name,
                number,
                replicas=partition.replicas,
                isr=partition.isr,
                has_leader=partition.leader != NO_LEADER,
                min_isr=min_isr,
            )
    return tally.facts()
