"""A model of a topic in a cluster: changes are carried out, reassignments complete later."""

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import replace

from quorate_operator.entities.plan import Change, ObservedKafka
from quorate_operator.entities.topics import (
    AddPartitions,
    AlterConfig,
    CreateTopic,
    DeleteTopic,
    ObservedTopic,
    ReassignReplicas,
)
from quorate_operator.placement.assignment import Assignment
from quorate_operator.placement.cluster import Broker, ObservedPartition, PartitionId

PARTITIONS_DEFAULT = 1


def kafka_of(
    racks: Iterable[str | None],
    unusable: frozenset[int] = frozenset(),
    reserved: frozenset[str] = frozenset(),
) -> ObservedKafka:
    """A cluster with a broker for each rack, ids from 0."""
    return ObservedKafka(
        cluster_id="c",
        reserved=reserved,
        brokers=tuple(
            Broker(broker_id=number, rack=rack, is_in_service=number not in unusable)
            for number, rack in enumerate(racks)
        ),
    )


def partitions_of(
    replicas: Mapping[int, tuple[int, ...]], topic: str = "orders"
) -> dict[int, ObservedPartition]:
    """Partitions of a topic with these replicas, all in sync, by number."""
    return {
        number: ObservedPartition(partition=PartitionId(topic, number), replicas=brokers, isr=brokers)
        for number, brokers in replicas.items()
    }


def assigned(topic: ObservedTopic, brokers: Iterable[Broker]) -> ObservedTopic:
    """The topic, observed alone, with the assignment in which its factor is changed."""
    return replace(topic, assignment=Assignment(brokers, tuple(topic.partitions.values())))


class TopicModel:
    """One topic, or none. Refuses what a cluster refuses."""

    def __init__(self, kafka: ObservedKafka, topic: ObservedTopic | None = None) -> None:
        self._kafka = kafka
        self.topic = topic
        self.max_moving = 0

    def apply(self, change: Change) -> None:
        """Carry out one change."""
        match change:
            case CreateTopic():
                assert self.topic is None
                factor = change.replication_factor or 1
                count = change.partitions or PARTITIONS_DEFAULT
                self.topic = ObservedTopic(
                    topic_id=uuid.UUID(int=1),
                    partitions=self._placed(range(count), factor),
                    config=dict(change.config),
                )
            case DeleteTopic():
                self.topic = None
            case AddPartitions():
                topic = self._there()
                assert change.count > len(topic.partitions)
                added = self._placed(
                    range(len(topic.partitions), change.count), len(topic.partitions[0].replicas)
                )
                self.topic = replace(topic, partitions={**topic.partitions, **added})
            case AlterConfig():
                topic = self._there()
                config = {**topic.config, **change.values}
                for name in change.resets:
                    del config[name]
                self.topic = replace(topic, config=config)
            case ReassignReplicas():
                topic = self._there()
                partitions = dict(topic.partitions)
                for number, replicas in change.replicas.items():
                    before = partitions[number]
                    assert not before.is_moving
                    assert len(set(replicas)) == len(replicas) > 0
                    assert {*replicas} <= {broker.broker_id for broker in self._kafka.brokers}
                    partitions[number] = replace(
                        before,
                        replicas=(*dict.fromkeys((*replicas, *before.replicas)),),
                        adding=tuple(replica for replica in replicas if replica not in before.replicas),
                        removing=tuple(replica for replica in before.replicas if replica not in replicas),
                    )
                self.topic = replace(topic, partitions=partitions)
                moving = sum(partition.is_moving for partition in partitions.values())
                self.max_moving = max(self.max_moving, moving)
            case _:
                raise AssertionError(f"{change!r}: no request does this")

    def complete(self) -> None:
        """What is being moved has been moved."""
        if self.topic is not None:
            moved = {number: _moved(partition) for number, partition in self.topic.partitions.items()}
            self.topic = replace(self.topic, partitions=moved)

    def _there(self) -> ObservedTopic:
        assert self.topic is not None
        return self.topic

    def _placed(self, numbers: Iterable[int], factor: int) -> dict[int, ObservedPartition]:
        ids = tuple(broker.broker_id for broker in self._kafka.brokers if broker.takes_replicas)[:factor]
        assert len(ids) == factor, "INVALID_REPLICATION_FACTOR"
        return partitions_of(dict.fromkeys(numbers, ids))


def _moved(partition: ObservedPartition) -> ObservedPartition:
    if not partition.is_moving:
        return partition
    return replace(
        partition,
        replicas=partition.assigned,
        isr=tuple(
            replica for replica in partition.assigned if replica in {*partition.isr, *partition.adding}
        ),
        adding=(),
        removing=(),
    )
