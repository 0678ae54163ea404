"""The goals that move replicas between brokers: remove brokers, change a factor, rebalance. Pure.

Each changes an `Assignment`, by the same rules: racks apart as far as there are racks, the least loaded broker, a
tenth of each disk free. The same cluster gives the same plan. The result of a plan gives no further plan, and after
any number of its moves, planning again leads to the goal.
"""

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase

from quorate_operator.placement.assignment import Assignment
from quorate_operator.placement.cluster import Broker, ObservedPartition, PartitionId
from quorate_operator.placement.evenness import even_leaders, even_out


def remove_brokers(
    assignment: Assignment, removed: Container[int], indexes: Iterable[int], *, is_limited: bool
) -> list[int]:
    """Replace the replicas on removed brokers. Returns the partitions that keep one, because no broker has room.

    With `is_limited`, no more partitions begin to move than `InFlight` admits. A partition that moves already is
    redirected if it moves to a removed broker.
    """
    stuck = []
    for index in indexes:
        if not any(replica in removed for replica in assignment.replicas[index]):
            continue
        is_new = not assignment.partitions[index].adding
        if is_limited and is_new and not assignment.in_flight.admits(assignment.size(index)):
            break
        if not assignment.evacuate(index, removed):
            stuck.append(index)
        elif is_new:
            assignment.in_flight.add(assignment.size(index))
    return stuck


def change_factor(assignment: Assignment, factor: int, indexes: Iterable[int]) -> list[int]:
    """Give partitions `factor` replicas, within the limit in flight. Returns those for which no broker has room.

    Replicas that can stay keep their order. A partition keeps a replica that is in sync. A smaller factor copies
    nothing.
    """
    short = []
    for index in indexes:
        copied_bytes = assignment.size(index) if len(assignment.replicas[index]) < factor else 0
        if not assignment.in_flight.admits(copied_bytes):
            break
        if not _resize(assignment, index, factor):
            short.append(index)
        else:
            assignment.in_flight.add(copied_bytes)
    return short


def _resize(assignment: Assignment, index: int, factor: int) -> bool:
    """Change the number of replicas of a partition. Returns False, without a change, if too few brokers have room."""
    replicas, isr = assignment.replicas[index], assignment.partitions[index].isr
    chosen = list(replicas)
    while len(chosen) < factor:
        target = assignment.choose(index, chosen)
        if target is None:
            return False
        chosen.append(target)
    for target in chosen[len(replicas) :]:
        assignment.add(index, target)
    kept = next(replica for replica in replicas if replica in isr)
    while len(replicas) > factor:
        crowded = max(
            (replica for replica in replicas if replica != kept),
            key=lambda replica: (
                replica not in isr,
                assignment.crowd(replica, replicas),
                assignment.counts[replica],
                replica,
            ),
        )
        assignment.remove(index, crowded)
    return True


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
    """The goals of a rebalance. `brokers` are those of the mode; `*` in the name of a topic stands for any text."""

    mode: Mode = Mode.FULL
    brokers: frozenset[int] = frozenset()
    include: tuple[str, ...] = ("*",)
    exclude: tuple[str, ...] = ()

    def covers(self, topic: str) -> bool:
        """Whether replicas of the topic may be moved."""
        return _matches(topic, self.include) and not _matches(topic, self.exclude)

    @property
    def removed(self) -> frozenset[int]:
        return self.brokers if self.mode is Mode.REMOVE_BROKERS else frozenset()


def _matches(topic: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(topic, pattern) for pattern in patterns)


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


def plan_moves(
    goals: Goals, brokers: Sequence[Broker], partitions: Sequence[ObservedPartition]
) -> RebalancePlan:
    """Plan moves of partitions, each of which ends with as many replicas as it has.

    In this order: replicas off the brokers that are to be removed, racks distinct as far as there are racks, even
    numbers of replicas, even bytes, even preferred leaders.
    """
    decommissioned = {broker.broker_id for broker in brokers if broker.is_decommissioned}
    movable = [
        index
        for index, partition in enumerate(partitions)
        if goals.covers(partition.partition.topic) and is_movable(partition, goals.removed, decommissioned)
    ]
    assignment = Assignment(brokers, partitions, movable)
    stuck: list[int] = []
    match goals.mode:
        case Mode.REMOVE_BROKERS:
            assignment.targets = [target for target in assignment.targets if target not in goals.removed]
            stuck = remove_brokers(assignment, goals.removed, movable, is_limited=False)
        case Mode.ADD_BROKERS:
            added = [target for target in assignment.targets if target in goals.brokers]
            even_out(assignment, assignment.targets, added, bytes_too=False)
            changeable = (
                index for index in movable if not goals.brokers.isdisjoint(assignment.replicas[index])
            )
            even_leaders(assignment, assignment.targets, changeable)
        case Mode.FULL:
            _separate(assignment)
            even_out(assignment, assignment.targets, assignment.targets, bytes_too=True)
            even_leaders(assignment, assignment.targets, movable)
    ids = [broker.broker_id for broker in brokers]
    return RebalancePlan(
        moves=_moves(assignment),
        before=_loads(((partition.assigned, partition.size_bytes or 0) for partition in partitions), ids),
        after=_loads(
            ((replicas, assignment.size(index)) for index, replicas in enumerate(assignment.replicas)), ids
        ),
        obstacles=tuple(
            f"{partitions[index].partition.topic}-{partitions[index].partition.number} on broker(s) "
            f"{', '.join(str(broker) for broker in assignment.replicas[index] if broker in goals.removed)}"
            for index in stuck
        ),
    )


def is_movable(partition: ObservedPartition, removed: frozenset[int], decommissioned: set[int]) -> bool:
    """Whether a partition may be moved now: it rests, has a leader, and lacks no replica but those to be removed."""
    return (
        not partition.is_moving
        and partition.leader is not None
        and decommissioned.isdisjoint(partition.replicas)
        and set(partition.replicas) - removed <= set(partition.isr)
    )


def _separate(assignment: Assignment) -> None:
    """Move replicas that share a rack to racks without one, as far as there are any."""
    for index in assignment.movable:
        while any(
            assignment.crowd(replica, assignment.replicas[index]) for replica in assignment.replicas[index]
        ):
            better = [
                (assignment.crowd_change(index, source, target), assignment.counts[target], target, source)
                for source in assignment.replicas[index]
                for target in assignment.targets
                if assignment.has_room(index, target)
            ]
            change, _, target, source = min(better, default=(0, 0, 0, 0))
            if change >= 0:
                break
            assignment.move(index, source, target)


def _moves(assignment: Assignment) -> tuple[Move, ...]:
    """Return the moves in the order in which they were found, those of data first."""
    moves = [
        Move(
            partition=assignment.partitions[index].partition,
            replicas=assignment.partitions[index].replicas,
            target=tuple(assignment.replicas[index]),
            size_bytes=assignment.size(index),
        )
        for index in sorted(assignment.order, key=assignment.order.__getitem__)
    ]
    changed = [move for move in moves if move.target != move.replicas]
    return tuple(sorted(changed, key=lambda move: not move.adding))


def _loads(partitions: Iterable[tuple[Sequence[int], int]], brokers: Iterable[int]) -> dict[int, Load]:
    """Return the loads of brokers from pairs of replicas and size in bytes, also of brokers without replicas."""
    replicas: Counter[int] = Counter()
    leaders: Counter[int] = Counter()
    sizes: Counter[int] = Counter()
    for placed, size_bytes in partitions:
        leaders[placed[0]] += 1
        for broker in placed:
            replicas[broker] += 1
            sizes[broker] += size_bytes
    return {
        broker: Load(replicas[broker], leaders[broker], sizes[broker])
        for broker in sorted({*brokers, *replicas})
    }
