"""Indexes of partitions, updated with each change, so that common queries do not scan all partitions."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Final
from uuid import UUID

from quorate_protocol.image.partitions import NO_LEADER, PartitionRegistration

if TYPE_CHECKING:
    from quorate_protocol.image.topics import TopicImage

COUNTED_PARTITIONS_MIN: Final = 128
"""A topic with this many partitions has counts of its replicas on each broker: looking through all its partitions for
each replica that leaves takes quadratic time. For smaller topics, counts would take more memory than they save time.
"""

_LEADERLESS: Final = 1
_IMBALANCED: Final = 2
_REASSIGNING: Final = 4
_WITH_ELR: Final = 8


class PartitionSet:
    """A set of (topic id, partition id) with its size; small while few partitions are unusual."""

    __slots__ = ("_by_topic", "_size")

    def __init__(self) -> None:
        self._by_topic: dict[UUID, set[int]] = {}
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[tuple[UUID, int]]:
        """Yield the partitions; the set may change in between, so that some are no longer in it."""
        for topic_id in self.topic_ids:
            for partition_id in self.of_topic(topic_id):
                yield topic_id, partition_id

    def __contains__(self, key: tuple[UUID, int]) -> bool:
        return key[1] in self._by_topic.get(key[0], ())

    @property
    def topic_ids(self) -> tuple[UUID, ...]:
        """The topics with partitions in the set."""
        return tuple(self._by_topic)

    def of_topic(self, topic_id: UUID) -> frozenset[int]:
        """Partition ids of one topic."""
        return frozenset(self._by_topic.get(topic_id, ()))

    def discard_topic(self, topic_id: UUID) -> None:
        """Remove all partitions of a topic."""
        self._size -= len(self._by_topic.pop(topic_id, ()))

    def toggle(self, topic_id: UUID, partition_id: int) -> None:
        """Add a partition that is not in the set; remove one that is."""
        partitions = self._by_topic.setdefault(topic_id, set())
        if partition_id in partitions:
            partitions.remove(partition_id)
            self._size -= 1
            if not partitions:
                del self._by_topic[topic_id]
        else:
            partitions.add(partition_id)
            self._size += 1


class TopicsByBroker:
    """The topics with a replica on each broker: one bit per pair, since there are millions of pairs.

    Each topic has a number while it has partitions, and each broker the bits of all numbers. A set of topics
    per broker would take some 65 bytes for each pair, in large clusters as much as the partitions themselves.
    """

    __slots__ = ("_bits", "_free", "_names", "_numbers")

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._names: list[str] = []
        self._free: list[int] = []
        self._bits: dict[int, bytearray] = {}

    def brokers(self) -> tuple[int, ...]:
        """Return the ids of the brokers that have, or had, replicas."""
        return tuple(self._bits)

    def topics(self, broker_id: int) -> Iterator[str]:
        """Return the names of the topics with a replica on ``broker_id``."""
        for found in _USED.finditer(self._bits.get(broker_id, b"")):
            place, byte = found.start(), found[0][0]
            for bit in range(8):
                if byte >> bit & 1:
                    yield self._names[place * 8 + bit]

    def add(self, name: str, broker_ids: Iterable[int]) -> None:
        """Note that the topic has a replica on each of these brokers; repeating it changes nothing."""
        number = self._numbers.get(name)
        if number is None:
            number = self._new_number(name)
        place, mask = number >> 3, 1 << (number & 7)
        for broker_id in broker_ids:
            bits = self._bits.get(broker_id)
            if bits is None:
                bits = self._bits[broker_id] = bytearray()
            if place >= len(bits):
                bits.extend(bytes(place + 1 - len(bits)))
            bits[place] |= mask

    def discard(self, name: str, broker_id: int) -> None:
        """Note that the topic has no replica on this broker any more."""
        number = self._numbers[name]
        self._bits[broker_id][number >> 3] &= ~(1 << (number & 7))

    def forget(self, name: str) -> None:
        """Note that the topic has no partitions any more; its number may be reused."""
        self._free.append(self._numbers.pop(name))

    def _new_number(self, name: str) -> int:
        if self._free:
            number = self._free.pop()
            self._names[number] = name
        else:
            number = len(self._names)
            self._names.append(name)
        self._numbers[name] = number
        return number


class PartitionIndex:
    """Topics by broker, leaderships by broker, and partitions in an unusual state."""

    __slots__ = (
        "_counts",
        "_leaderships",
        "_topics_by_broker",
        "imbalanced",
        "leaderless",
        "num_partitions",
        "reassigning",
        "revision",
        "with_elr",
    )

    def __init__(self) -> None:
        self.num_partitions = 0
        self.revision = 0
        """Number of changes: while it stays the same, so does each partition."""
        self.leaderless = PartitionSet()
        """Partitions without a leader: Kafka's OfflinePartitionsCount."""
        self.imbalanced = PartitionSet()
        """Partitions that are not led by their preferred replica: Kafka's PreferredReplicaImbalanceCount."""
        self.reassigning = PartitionSet()
        """Partitions with adding or removing replicas."""
        self.with_elr = PartitionSet()
        """Partitions with eligible leader replicas, or last known ones (KIP-966)."""
        self._topics_by_broker = TopicsByBroker()
        self._leaderships: dict[int, int] = {}
        self._counts: dict[UUID, Counter[int]] = {}
        """Of each large topic, the number of replicas on each broker."""

    def leaderships(self, broker_id: int) -> int:
        """Return the number of partitions that ``broker_id`` leads."""
        return self._leaderships.get(broker_id, 0)

    def brokers_with_topics(self) -> tuple[int, ...]:
        """Return the ids of the brokers that have, or had, replicas; registered or not."""
        return self._topics_by_broker.brokers()

    def topics_of_broker(self, broker_id: int) -> Iterator[str]:
        """Return the names of the topics with a replica on ``broker_id``."""
        return self._topics_by_broker.topics(broker_id)

    def on_change(
        self,
        topic: "TopicImage",
        partition_id: int,
        old: PartitionRegistration | None,
        new: PartitionRegistration | None,
    ) -> None:
        """Update the indexes: a partition was created (``old`` is None), changed, or removed (``new`` is None)."""
        self.num_partitions += (old is None) - (new is None)
        self.revision += 1
        old, new = old or _NO_PARTITION, new or _NO_PARTITION
        if old.replicas is not new.replicas:
            self._move_replicas(topic, old.replicas, new.replicas)
        if old.leader != new.leader:
            self._move_leadership(old.leader, new.leader)
        changed = _state(old) ^ _state(new)
        if changed:
            self._toggle(topic.topic_id, partition_id, changed)

    def on_topic_removed(self, topic: "TopicImage") -> None:
        """Forget a topic and its partitions. The passes over the partitions are loops of the interpreter."""
        partitions = topic.partitions.values()
        self.num_partitions -= len(partitions)
        self.revision += 1
        for leader, count in Counter(map(_LEADER, partitions)).items():
            if leader != NO_LEADER:
                self._add_leaderships(leader, -count)
        for broker_id in _brokers_of(partitions):
            self._topics_by_broker.discard(topic.name, broker_id)
        if partitions:
            self._topics_by_broker.forget(topic.name)
        self._counts.pop(topic.topic_id, None)
        for unusual in (self.leaderless, self.imbalanced, self.reassigning, self.with_elr):
            unusual.discard_topic(topic.topic_id)

    def on_topic_restored(self, topic: "TopicImage") -> None:
        """Put a topic back with its partitions."""
        partitions = topic.partitions
        self.num_partitions += len(partitions)
        self.revision += 1
        for leader, count in Counter(map(_LEADER, partitions.values())).items():
            if leader != NO_LEADER:
                self._add_leaderships(leader, count)
        if partitions:
            self._topics_by_broker.add(topic.name, _brokers_of(partitions.values()))
        for partition_id, partition in partitions.items():
            if state := _state(partition):
                self._toggle(topic.topic_id, partition_id, state)

    def _toggle(self, topic_id: UUID, partition_id: int, changed: int) -> None:
        if changed & _LEADERLESS:
            self.leaderless.toggle(topic_id, partition_id)
        if changed & _IMBALANCED:
            self.imbalanced.toggle(topic_id, partition_id)
        if changed & _REASSIGNING:
            self.reassigning.toggle(topic_id, partition_id)
        if changed & _WITH_ELR:
            self.with_elr.toggle(topic_id, partition_id)

    def _move_replicas(self, topic: "TopicImage", old: tuple[int, ...], new: tuple[int, ...]) -> None:
        self._topics_by_broker.add(topic.name, new)
        counts = self._counts.get(topic.topic_id)
        if counts is not None:
            for broker_id in new:
                counts[broker_id] += 1
            for broker_id in old:
                counts[broker_id] -= 1
        elif len(topic.partitions) >= COUNTED_PARTITIONS_MIN:
            counts = self._counts[topic.topic_id] = Counter(
                chain.from_iterable(map(_REPLICAS, topic.partitions.values()))
            )
        for broker_id in old:
            if broker_id not in new and not _has_replica(topic, counts, broker_id):
                self._topics_by_broker.discard(topic.name, broker_id)
        if not topic.partitions:
            self._topics_by_broker.forget(topic.name)
            self._counts.pop(topic.topic_id, None)

    def _move_leadership(self, old: int, new: int) -> None:
        if new != NO_LEADER:
            self._add_leaderships(new, 1)
        if old != NO_LEADER:
            self._add_leaderships(old, -1)

    def _add_leaderships(self, broker_id: int, change: int) -> None:
        count = self._leaderships.get(broker_id, 0) + change
        if count:
            self._leaderships[broker_id] = count
        else:
            del self._leaderships[broker_id]


_NO_PARTITION: Final = PartitionRegistration(
    replicas=(), directories=(), isr=(), leader=NO_LEADER, leader_epoch=-1, partition_epoch=-1
)


_USED: Final = re.compile(rb"[^\0]")
"""A byte with a bit: most topics have no replica on a broker of a large cluster."""
_LEADER: Final = attrgetter("leader")
_REPLICAS: Final = attrgetter("replicas")


def _brokers_of(partitions: Iterable[PartitionRegistration]) -> set[int]:
    return set(chain.from_iterable(map(_REPLICAS, partitions)))


def _has_replica(topic: "TopicImage", counts: Counter[int] | None, broker_id: int) -> bool:
    if counts is not None:
        return counts[broker_id] > 0
    return any(broker_id in partition.replicas for partition in topic.partitions.values())


def _state(partition: PartitionRegistration) -> int:
    if partition is _NO_PARTITION:
        return 0
    leader, replicas = partition.leader, partition.replicas
    state = 0 if leader != NO_LEADER else _LEADERLESS
    if leader != (replicas[0] if replicas else NO_LEADER):
        state |= _IMBALANCED
    if partition.adding_replicas or partition.removing_replicas:
        state |= _REASSIGNING
    if partition.elr or partition.last_known_elr:
        state |= _WITH_ELR
    return state
