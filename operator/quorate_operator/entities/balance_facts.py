"""The facts and changes of a rebalance: the observed cluster, the stored status, requests to Kafka. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

from quorate_operator.models.rebalances import (
    KafkaRebalanceStatus,
    LoadStatus,
    MoveStatus,
    ProgressStatus,
    ProposalStatus,
)
from quorate_operator.placement.cluster import Broker, ObservedDirectory, ObservedPartition, PartitionId
from quorate_operator.placement.goals import Move
from quorate_operator.planning.cluster import Address
from quorate_operator.planning.steps import format_bytes
from quorate_operator.planning.throttles import FOLLOWER_RATE, LEADER_RATE

DIRECTORY_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
RATES = (LEADER_RATE, FOLLOWER_RATE, DIRECTORY_RATE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedBalance:
    """The cluster, as far as the plan needs it.

    `rates` has the dynamic defaults of brokers, `throttled` the throttled replicas of topics, by names of configs.
    """

    brokers: tuple[Broker, ...]
    partitions: Mapping[PartitionId, ObservedPartition] = field(default_factory=dict)
    directories: Mapping[int, Mapping[str, ObservedDirectory]] = field(default_factory=dict)
    """The log directories by path of brokers that have several and answered; `addresses` has where they did."""
    addresses: Mapping[int, Address] = field(default_factory=dict)
    rates: Mapping[str, str] = field(default_factory=dict)
    throttled: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRebalance:
    """What the status of the resource stores about the rebalance."""

    proposal: ProposalStatus | None = None
    progress: ProgressStatus = field(default_factory=ProgressStatus)
    loads: tuple[LoadStatus, ...] = ()
    slice: tuple[Move, ...] = ()
    slice_state: str | None = None
    rates: tuple[int, ...] = ()

    @classmethod
    def of_status(cls, status: Mapping[str, Any]) -> Self:
        known = KafkaRebalanceStatus.model_validate(status)
        moves = (
            Move(
                partition=PartitionId(move.topic, move.partition),
                replicas=move.replicas,
                target=move.target,
                size_bytes=move.size_bytes,
            )
            for move in known.slice
        )
        return cls(
            proposal=known.proposal,
            progress=known.progress or ProgressStatus(),
            loads=known.brokers,
            slice=tuple(moves),
            slice_state=known.slice_state,
            rates=known.rates,
        )

    def status(self, phase: str) -> dict[str, Any]:
        """Return every field of the status, None for one that is not known."""
        moves = [
            MoveStatus(
                topic=move.partition.topic,
                partition=move.partition.number,
                replicas=move.replicas,
                target=move.target,
                size_bytes=move.size_bytes,
            )
            for move in self.slice
        ]
        whole = KafkaRebalanceStatus(
            phase=phase,
            proposal=self.proposal,
            progress=self.progress if self.proposal else None,
            brokers=self.loads,
            slice=tuple(moves),
            slice_state=self.slice_state,
            rates=self.rates,
        )
        reported = whole.model_dump(mode="json", by_alias=True)
        own = ("phase", "proposal", "progress", "brokers", "slice", "sliceState", "rates")
        return {name: reported[name] or None for name in own}


NOTHING_STORED: Final = StoredRebalance()


@dataclass(frozen=True, slots=True, kw_only=True)
class SetRates:
    """Throttles of all brokers as dynamic defaults; None removes one."""

    rates: Mapping[str, str | None]

    @property
    def text(self) -> str:
        return "; ".join(
            f"remove {name}" if value is None else f"{name}: {value}" for name, value in self.rates.items()
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SetThrottled:
    """Throttled replicas of topics; None removes them."""

    topics: Mapping[str, Mapping[str, str | None]]

    @property
    def text(self) -> str:
        removes = all(value is None for topic in self.topics.values() for value in topic.values())
        return f"{'remove' if removes else 'set'} throttled replicas of {len(self.topics)} topic(s)"


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveReplicas:
    """AlterPartitionReassignments."""

    targets: Mapping[PartitionId, tuple[int, ...]]
    size_bytes: int

    @property
    def text(self) -> str:
        return f"move replicas of {len(self.targets)} partition(s), {format_bytes(self.size_bytes)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveToDirectories:
    """AlterReplicaLogDirs, by broker: the path of the directory for each replica."""

    targets: Mapping[int, Mapping[PartitionId, str]]
    addresses: Mapping[int, Address]
    size_bytes: int

    @property
    def text(self) -> str:
        count = sum(map(len, self.targets.values()))
        return (
            f"move {count} replica(s) to other directories of their brokers, {format_bytes(self.size_bytes)}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelMoves:
    """AlterPartitionReassignments without replicas: cancels the reassignments under way."""

    partitions: tuple[PartitionId, ...]

    @property
    def text(self) -> str:
        return f"cancel the moves of {len(self.partitions)} partition(s)"


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectLeaders:
    """ElectLeaders, of preferred leaders."""

    partitions: tuple[PartitionId, ...]

    @property
    def text(self) -> str:
        return f"elect the preferred leaders of {len(self.partitions)} partition(s)"


RebalanceChange = SetRates | SetThrottled | MoveReplicas | MoveToDirectories | CancelMoves | ElectLeaders
