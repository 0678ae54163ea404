"""The types of a rebalance: the present brokers and partitions, goals, moves, and the loads of brokers. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase

from quorate_operator.planning.cluster import PartitionId


class Mode(StrEnum):
    """The brokers over which replicas are balanced, as in `spec.mode`."""

    FULL = "Full"
    """All brokers."""
    ADD_BROKERS = "AddBrokers"
    """Replicas move only to the named brokers."""
    REMOVE_BROKERS = "RemoveBrokers"
    """Replicas move only away from the named brokers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Goals:
    """The requested goals. `brokers` are those of the mode; `*` in the name of a topic stands for any text."""

    mode: Mode = Mode.FULL
    brokers: frozenset[int] = frozenset()
    include: tuple[str, ...] = ("*",)
    exclude: tuple[str, ...] = ()

    def covers(self, topic: str) -> bool:
        """Whether replicas of the topic may be moved."""
        return _is_one_of(topic, self.include) and not _is_one_of(topic, self.exclude)


def _is_one_of(topic: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(topic, pattern) for pattern in patterns)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerState:
    """A registered broker.

    `is_leaving`: it is decommissioned, so `planning.drain` moves its replicas. `room_bytes` is how much may be added
    to its disks, None if that is unknown.
    """

    broker_id: int
    rack: str | None = None
    is_in_service: bool = True
    is_leaving: bool = False
    room_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """A partition; `replicas` are those that it has, or will have after the present reassignment."""

    partition: PartitionId
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int | None
    is_moving: bool = False
    size_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """New replicas of a partition, or the same in another order, which changes the preferred leader alone."""

    partition: PartitionId
    replicas: tuple[int, ...]
    target: tuple[int, ...]
    size_bytes: int

    @property
    def adding(self) -> tuple[int, ...]:
        """Brokers that get a replica."""
        return tuple(broker for broker in self.target if broker not in self.replicas)

    @property
    def moved_bytes(self) -> int:
        """How many bytes are copied between brokers."""
        return len(self.adding) * self.size_bytes


@dataclass(frozen=True, slots=True)
class Load:
    """What a broker has: replicas, how many of them are preferred as leaders, and their bytes."""

    replicas: int = 0
    leaders: int = 0
    size_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalancePlan:
    """Moves in their order, the loads of brokers without and with them, and why some replicas can't be moved."""

    moves: tuple[Move, ...] = ()
    before: Mapping[int, Load] = field(default_factory=dict)
    after: Mapping[int, Load] = field(default_factory=dict)
    obstacles: tuple[str, ...] = ()
