"""The partitions that are in trouble: how many, on which brokers, and a few by name. Pure, and bounded."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from typing import Final

from quorate_protocol.image import NO_LEADER, MetadataImage
from quorate_protocol.image.views import min_insync_replicas
from quorate_protocol.plain_data import dataclass

EXAMPLES_MAX: Final = 5
"""The number of partitions in the same trouble that are named."""


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
            unregistered={node_id: one.total() for node_id, one in sorted(self._unregistered.items())},
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
