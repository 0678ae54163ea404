"""A model of a cluster that is rebalanced: reassignments complete one by one, and throttles are kept."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from quorate_operator.entities.balance_facts import (
    CancelMoves,
    ElectLeaders,
    MoveReplicas,
    ObservedBalance,
    SetRates,
    SetThrottled,
)
from quorate_operator.entities.plan import Change
from quorate_operator.models.manifests import load_entity
from quorate_operator.models.rebalances import KafkaRebalance
from quorate_operator.placement.cluster import Broker, ObservedPartition, PartitionId


@dataclass(slots=True)
class BalanceModel:
    """Refuses what a cluster refuses."""

    brokers: tuple[Broker, ...]
    partitions: dict[PartitionId, ObservedPartition]
    moving: dict[PartitionId, tuple[int, ...]] = field(default_factory=dict)
    rates: dict[str, str] = field(default_factory=dict)
    throttled: dict[str, dict[str, str]] = field(default_factory=dict)
    moved: int = 0
    moving_max: int = 0

    def observed(self) -> ObservedBalance:
        """The cluster as the gateway reports it."""
        return ObservedBalance(
            brokers=self.brokers,
            partitions={key: self._described(partition) for key, partition in self.partitions.items()},
            rates=dict(self.rates),
            throttled={topic: dict(values) for topic, values in self.throttled.items()},
        )

    def _described(self, partition: ObservedPartition) -> ObservedPartition:
        """A partition with the replicas that its reassignment adds and removes."""
        target = self.moving.get(partition.partition)
        if target is None:
            return partition
        removing = tuple(replica for replica in partition.replicas if replica not in target)
        return replace(
            partition,
            replicas=(*target, *removing),
            adding=tuple(replica for replica in target if replica not in partition.replicas),
            removing=removing,
        )

    def apply(self, change: Change) -> None:
        """Carry out one change."""
        match change:
            case SetRates(rates=rates):
                _set(self.rates, rates)
            case SetThrottled(topics=topics):
                for topic, values in topics.items():
                    _set(self.throttled.setdefault(topic, {}), values)
                self.throttled = {topic: values for topic, values in self.throttled.items() if values}
            case MoveReplicas(targets=targets):
                for key, target in targets.items():
                    self._move(key, target)
                self.moving_max = max(self.moving_max, len(self.moving))
            case CancelMoves(partitions=partitions):
                for key in partitions:
                    del self.moving[key]
            case ElectLeaders(partitions=partitions):
                for key in partitions:
                    partition = self.partitions[key]
                    assert partition.replicas[0] in partition.isr, "PREFERRED_LEADER_NOT_AVAILABLE"
                    self.partitions[key] = replace(partition, leader=partition.replicas[0])
            case _:
                raise AssertionError(f"{change!r}: no request does this")

    def _move(self, key: PartitionId, target: tuple[int, ...]) -> None:
        partition = self.partitions[key]
        assert len(target) == len(set(target)) == len(partition.replicas), "INVALID_REPLICATION_FACTOR"
        assert set(target) <= {broker.broker_id for broker in self.brokers}
        assert self.moving.get(key, target) == target, "somebody else's"
        if set(target) == set(partition.replicas):
            self.partitions[key] = replace(partition, replicas=target)
        else:
            self.moving[key] = target

    def complete(self, number: int | None = None) -> None:
        """Complete this number of reassignments; None for all."""
        for key in list(self.moving)[:number]:
            target, partition = self.moving.pop(key), self.partitions[key]
            leader = partition.leader if partition.leader in target else target[0]
            self.partitions[key] = replace(partition, replicas=target, isr=target, leader=leader)
            self.moved += 1


def _set(values: dict[str, str], changes: Mapping[str, str | None]) -> None:
    for name, value in changes.items():
        if value is None:
            values.pop(name, None)
        else:
            values[name] = value


def spread_of(model: BalanceModel) -> int:
    """The difference between the most and the fewest replicas of brokers that stay."""
    counts = {broker.broker_id: 0 for broker in model.brokers if not broker.is_decommissioned}
    for partition in model.partitions.values():
        for broker in partition.replicas:
            counts[broker] = counts.get(broker, 0) + 1
    return max(counts.values()) - min(counts.values())


def scaled_up(old: int = 2, new: int = 1, partitions: int = 12, factor: int = 2) -> BalanceModel:
    """A cluster to which brokers were added."""
    brokers = tuple(Broker(broker_id=number) for number in range(old + new))
    there = {}
    for number in range(partitions):
        key = PartitionId(f"t{number % 2}", number)
        replicas = tuple((number + place) % old for place in range(factor))
        there[key] = ObservedPartition(
            partition=key, replicas=replicas, isr=replicas, leader=replicas[0], size_bytes=100
        )
    return BalanceModel(brokers=brokers, partitions=there)


def rebalance(annotations: Mapping[str, str] | None = None, **spec: Any) -> KafkaRebalance:
    """A resource as the API server has it."""
    body = {
        "apiVersion": "quorate.dev/v1alpha1",
        "kind": "KafkaRebalance",
        "metadata": {"name": "even", "namespace": "kafka", "annotations": dict(annotations or {})},
        "spec": {"cluster": "quorum", **spec},
    }
    return load_entity(body, "test")
