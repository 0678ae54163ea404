"""How partitions and replicas are named."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

__all__ = ("TopicPartition", "TopicPartitionReplica", "partitions_by_topic")


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    """A partition of a topic; written `topic-partition`."""

    topic: str
    partition: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """`topic-partition`; the topic may have hyphens. Raises ValueError."""
        topic, hyphen, partition = text.rpartition("-")
        if not hyphen or not topic or not (partition.isascii() and partition.isdigit()):
            raise ValueError(f"{text!r} is not topic-partition")
        return cls(topic, int(partition))

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True, order=True)
class TopicPartitionReplica:
    """The replica of a partition on a broker; written `topic-partition-broker`."""

    topic: str
    partition: int
    broker_id: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}-{self.broker_id}"


def partitions_by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Partition numbers by topic, each once and in order."""
    by_topic: dict[str, list[int]] = defaultdict(list)
    for one in sorted(set(partitions)):
        by_topic[one.topic].append(one.partition)
    return dict(by_topic)
