"""Partitions and their replicas: names, reassignments (KIP-455), log directories of brokers (KIP-113)."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

from quorate_admin.errors import ServerError


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
    for partition in sorted(set(partitions)):
        by_topic[partition.topic].append(partition.partition)
    return dict(by_topic)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionReassignment:
    """A reassignment in progress: all current replicas, and which of them are being added and removed."""

    replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    removing_replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaInfo:
    """A replica in a log directory.

    `offset_lag` is the distance to the high watermark. A replica that `is_future` replaces the current replica
    when it has caught up; its lag is the distance to that replica.
    """

    size_bytes: int
    offset_lag: int
    is_future: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirDescription:
    """A log directory. With an `error`, for instance KAFKA_STORAGE_ERROR if it is offline, nothing else is known.

    `total_bytes` and `usable_bytes` of its volume are None if the server does not return them.
    """

    error: ServerError | None
    replicas: Mapping[TopicPartition, ReplicaInfo]
    total_bytes: int | None
    usable_bytes: int | None
    is_cordoned: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaLogDirInfo:
    """The log directory of a replica, and the one that it moves to. Without one, it is None and the lag -1."""

    current_log_dir: str | None = None
    current_offset_lag: int = -1
    future_log_dir: str | None = None
    future_offset_lag: int = -1
