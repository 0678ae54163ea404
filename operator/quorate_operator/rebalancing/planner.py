"""Plans a rebalance: from a cluster as it is and goals to moves in their order. Pure.

The goals in their order: replicas off the brokers that are to be removed, racks distinct as far as there are racks,
even numbers of replicas, even bytes, even preferred leaders. The same cluster gives the same plan, and what a plan
leads to gives none: after any number of its moves, planning again leads on to an even cluster.
"""

from collections.abc import Sequence

from quorate_operator.rebalancing.assignment import Assignment, loads
from quorate_operator.rebalancing.cluster import BrokerState, Goals, Mode, Move, PartitionState, RebalancePlan
from quorate_operator.rebalancing.evenness import even_out
from quorate_operator.rebalancing.leaders import even_leaders


def plan_moves(
    goals: Goals, brokers: Sequence[BrokerState], partitions: Sequence[PartitionState]
) -> RebalancePlan:
    """Plans moves of partitions, each of which ends with as many replicas as it has."""
    removed = goals.brokers if goals.mode is Mode.REMOVE_BROKERS else frozenset()
    leaving = {broker.broker_id for broker in brokers if broker.is_leaving}
    takers = sorted(
        broker.broker_id
        for broker in brokers
        if broker.is_in_service and not broker.is_leaving and broker.broker_id not in removed
    )
    movable = [
        index
        for index, one in enumerate(partitions)
        if goals.covers(one.partition.topic) and is_movable(one, removed, leaving)
    ]
    of = Assignment(brokers, partitions, movable)
    obstacles: list[str] = []
    match goals.mode:
        case Mode.REMOVE_BROKERS:
            obstacles = _evacuate(of, removed, takers)
        case Mode.ADD_BROKERS:
            added = [one for one in takers if one in goals.brokers]
            even_out(of, takers, added, bytes_too=False)
            even_leaders(
                of, takers, (one for one in movable if not goals.brokers.isdisjoint(of.replicas[one]))
            )
        case Mode.FULL:
            _separate(of, takers)
            even_out(of, takers, takers, bytes_too=True)
            even_leaders(of, takers, movable)
    ids = [broker.broker_id for broker in brokers]
    return RebalancePlan(
        moves=_moves(of),
        before=loads(((partition.replicas, partition.size_bytes) for partition in partitions), ids),
        after=loads(
            ((replicas, one.size_bytes) for replicas, one in zip(of.replicas, partitions, strict=True)), ids
        ),
        obstacles=tuple(obstacles),
    )


def is_movable(one: PartitionState, removed: frozenset[int], leaving: set[int]) -> bool:
    """Whether a partition may be moved now: it rests, has a leader, and lacks no replica but those to be removed."""
    return (
        not one.is_moving
        and one.leader is not None
        and leaving.isdisjoint(one.replicas)
        and set(one.replicas) - removed <= set(one.isr)
    )


def _evacuate(of: Assignment, removed: frozenset[int], takers: Sequence[int]) -> list[str]:
    """Replaces replicas on brokers that are to be removed; returns what can't be."""
    stuck: list[str] = []
    for index in of.movable:
        for source in [one for one in of.replicas[index] if one in removed]:
            possible = [one for one in takers if of.has_room(index, one)]
            if not possible:
                key = of.partitions[index].partition
                stuck.append(f"{key.topic}-{key.number} on broker {source}")
                continue
            best = min(
                possible,
                key=lambda one: (of.crowd_after(index, source, one), of.counts[one], of.bytes[one], one),
            )
            of.move(index, source, best)
    return stuck


def _separate(of: Assignment, takers: Sequence[int]) -> None:
    """Moves replicas that share a rack to racks without one, as far as there are any."""
    for index in of.movable:
        while True:
            replicas = of.replicas[index]
            crowd = of.crowd(replicas)
            if crowd == len(replicas):
                break
            better = [
                (of.crowd_after(index, source, target), of.counts[target], target, source)
                for source in replicas
                for target in takers
                if of.has_room(index, target)
            ]
            found = min(better, default=None)
            if found is None or found[0] >= crowd:
                break
            of.move(index, found[3], found[2])


def _moves(of: Assignment) -> tuple[Move, ...]:
    """Returns the moves in the order in which they were found, those of data first."""
    moves = [
        Move(
            partition=of.partitions[index].partition,
            replicas=of.partitions[index].replicas,
            target=tuple(of.replicas[index]),
            size_bytes=of.size(index),
        )
        for index in sorted(of.order, key=of.order.__getitem__)
    ]
    changed = [move for move in moves if move.target != move.replicas]
    return tuple(sorted(changed, key=lambda one: not one.adding))
