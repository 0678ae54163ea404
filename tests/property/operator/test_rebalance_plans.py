"""Whatever a cluster is like: plans of moves keep the rules and lead to an even cluster, which stays as it is."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from math import ceil

from hypothesis import assume, given
from hypothesis import strategies as st
from quorate_operator.placement.cluster import Broker, ObservedPartition, PartitionId
from quorate_operator.placement.evenness import BYTES_TOLERANCE
from quorate_operator.placement.goals import Goals, Mode, Move, RebalancePlan, plan_moves

TOPICS = ("orders", "payments", "audit")
SIZES = st.sampled_from([0, 1, 5, 10, 100, 1_000]) | st.integers(0, 500)
Cluster = tuple[list[Broker], list[ObservedPartition]]
ALL = Goals()


@st.composite
def clusters(draw: st.DrawFn, *, racked: bool = True, sick: bool = True) -> Cluster:
    """Brokers of which some may be fenced or leave, and partitions of which some can't be moved now."""
    racks = st.sampled_from([None, "a", "b", "c"]) if racked else st.none()
    states = st.sampled_from(["", "", "", "", "fenced", "leaving"]) if sick else st.just("")
    brokers = [
        Broker(
            broker_id=number,
            rack=draw(racks),
            is_in_service=state != "fenced",
            is_decommissioned=state == "leaving",
        )
        for number, state in enumerate(draw(st.lists(states, min_size=2, max_size=7)))
    ]
    partitions = []
    for number in range(draw(st.integers(0, 40))):
        factor = draw(st.integers(1, min(3, len(brokers))))
        replicas = tuple(draw(st.permutations(range(len(brokers))))[:factor])
        partition = ObservedPartition(
            partition=PartitionId(TOPICS[number % len(TOPICS)], number),
            replicas=replicas,
            isr=replicas,
            leader=replicas[0],
            size_bytes=draw(SIZES),
        )
        state = draw(st.sampled_from(["", "", "", "", "", "moving", "lost", "behind"])) if sick else ""
        if state == "behind":
            partition = replace(partition, isr=replicas[1:] or replicas)
        partitions.append(
            replace(
                partition,
                adding=replicas[:1] if state == "moving" else (),
                leader=None if state == "lost" else replicas[0],
            )
        )
    return brokers, partitions


def done(partitions: Sequence[ObservedPartition], moves: Sequence[Move]) -> list[ObservedPartition]:
    """The partitions after these moves."""
    target = {move.partition: move.target for move in moves}
    return [
        replace(
            partition,
            replicas=target[partition.partition],
            isr=target[partition.partition],
            leader=target[partition.partition][0],
        )
        if partition.partition in target
        else partition
        for partition in partitions
    ]


def racks_of(brokers: Sequence[Broker], replicas: Sequence[int]) -> int:
    """How many racks replicas are in; a broker without one is a rack of its own."""
    racks = {broker.broker_id: broker.rack or broker.broker_id for broker in brokers}
    return len({racks[replica] for replica in replicas})


def counts_of(brokers: Sequence[Broker], partitions: Sequence[ObservedPartition]) -> list[int]:
    """Number of replicas of each broker in service."""
    counts = Counter(replica for partition in partitions for replica in partition.replicas)
    return [
        counts[broker.broker_id]
        for broker in brokers
        if broker.is_in_service and not broker.is_decommissioned
    ]


def squares(numbers: Sequence[int]) -> int:
    """A measure of unevenness of numbers with the same sum."""
    return sum(number * number for number in numbers)


@given(clusters())
def test_moves_keep_the_rules(cluster: Cluster) -> None:
    brokers, partitions = cluster
    plan = plan_moves(ALL, brokers, partitions)
    takers = {broker.broker_id for broker in brokers if broker.is_in_service and not broker.is_decommissioned}
    leaving = {broker.broker_id for broker in brokers if broker.is_decommissioned}
    by_id = {partition.partition: partition for partition in partitions}
    assert len({move.partition for move in plan.moves}) == len(plan.moves)
    for move in plan.moves:
        partition = by_id[move.partition]
        assert (partition.is_moving, partition.leader is None, set(partition.isr)) == (
            False,
            False,
            set(partition.replicas),
        )
        assert leaving.isdisjoint(partition.replicas)
        assert len(set(move.target)) == len(move.target) == len(partition.replicas)
        assert set(move.adding) <= takers
        assert racks_of(brokers, move.target) >= racks_of(brokers, partition.replicas)
    after = done(partitions, plan.moves)
    has_separated = sum(racks_of(brokers, partition.replicas) for partition in after) > sum(
        racks_of(brokers, partition.replicas) for partition in partitions
    )
    if not has_separated:
        before_counts, after_counts = counts_of(brokers, partitions), counts_of(brokers, after)
        if sum(before_counts) == sum(after_counts):
            assert squares(after_counts) <= squares(before_counts)
    assert plan.after == plan_moves(replace(ALL, include=()), brokers, after).before


@given(clusters())
def test_a_plan_that_is_done_leaves_nothing(cluster: Cluster) -> None:
    brokers, partitions = cluster
    plan = plan_moves(ALL, brokers, partitions)
    assert plan_moves(ALL, brokers, done(partitions, plan.moves)).moves == ()
    assert plan_moves(ALL, brokers[::-1], partitions).moves == plan.moves


@given(clusters(racked=False, sick=False))
def test_without_racks_everything_is_even_with_as_few_moves_as_can_be(cluster: Cluster) -> None:
    """Numbers of replicas differ by one at most, and no data moves that need not."""
    brokers, partitions = cluster
    partitions = [replace(partition, size_bytes=10) for partition in partitions]
    plan = plan_moves(ALL, brokers, partitions)
    counts = [load.replicas for load in plan.after.values()]
    assert max(counts) - min(counts) <= 1
    moved = sum(len(move.adding) for move in plan.moves)
    assert moved == fewest([load.replicas for load in plan.before.values()])


def fewest(counts: Sequence[int]) -> int:
    """How many replicas have to move until numbers differ by one at most."""
    low, more = divmod(sum(counts), len(counts))
    ordered = sorted(counts, reverse=True)
    return sum(max(0, count - low - (place < more)) for place, count in enumerate(ordered))


@given(clusters(sick=False), st.integers(1, 7))
def test_planning_goes_on_after_any_slice(cluster: Cluster, at_a_time: int) -> None:
    """A plan that is cut off and made again ends, even, with bounded work."""
    brokers, partitions = cluster
    whole = plan_moves(ALL, brokers, partitions)
    moved_bytes, left = 0, len(partitions) * 3 + 10
    while moves := plan_moves(ALL, brokers, partitions).moves:
        partitions = done(partitions, moves[:at_a_time])
        moved_bytes += sum(move.moved_bytes for move in moves[:at_a_time])
        left -= 1
        assert left, "it does not end"
    ends = plan_moves(ALL, brokers, partitions)
    assert spread(ends) <= max(1, spread(whole) + 1)
    assert moved_bytes <= sum(partition.size_bytes * len(partition.replicas) for partition in partitions) * 2


def spread(plan: RebalancePlan) -> int:
    """The difference between the most and the fewest replicas afterwards."""
    counts = [load.replicas for load in plan.after.values()]
    return max(counts) - min(counts)


@given(clusters(racked=False, sick=False))
def test_bytes_become_even_where_sizes_allow(cluster: Cluster) -> None:
    brokers, partitions = cluster
    assume(partitions)
    partitions = [
        replace(partition, replicas=partition.replicas[:1], isr=partition.replicas[:1])
        for partition in partitions
    ]
    plan = plan_moves(ALL, brokers, partitions)
    sizes = [load.size_bytes for load in plan.after.values()]
    mean = sum(sizes) / len(sizes)
    largest = max(partition.size_bytes for partition in partitions)
    assert max(sizes) <= mean * (1 + BYTES_TOLERANCE) + largest + 1


@given(clusters(), st.data())
def test_brokers_that_are_added_or_removed(cluster: Cluster, data: st.DataObject) -> None:
    """Replicas go to the named brokers alone, or leave them alone."""
    brokers, partitions = cluster
    ids = data.draw(st.sets(st.sampled_from([broker.broker_id for broker in brokers]), min_size=1))
    added = Goals(mode=Mode.ADD_BROKERS, brokers=frozenset(ids))
    plan = plan_moves(added, brokers, partitions)
    assert all(set(move.adding) <= ids for move in plan.moves)
    assert plan_moves(added, brokers, done(partitions, plan.moves)).moves == ()
    removed = Goals(mode=Mode.REMOVE_BROKERS, brokers=frozenset(ids))
    plan = plan_moves(removed, brokers, partitions)
    for move in plan.moves:
        assert set(move.replicas) - set(move.target) <= ids
        assert ids.isdisjoint(move.adding)
        assert not ids.isdisjoint(move.replicas)
    stuck = len(plan.obstacles)
    left = sum(len(ids & set(move.target)) for move in plan.moves)
    assert left <= stuck
    assert len(plan_moves(removed, brokers, done(partitions, plan.moves)).obstacles) == stuck


@given(clusters(racked=False, sick=False), st.lists(st.integers(0, 300), min_size=7, max_size=7))
def test_no_disk_gets_more_than_it_has_room_for(cluster: Cluster, rooms: list[int]) -> None:
    brokers, partitions = cluster
    brokers = [replace(broker, room_bytes=rooms[broker.broker_id]) for broker in brokers]
    for goals in (ALL, Goals(mode=Mode.REMOVE_BROKERS, brokers=frozenset({0}))):
        moves = plan_moves(goals, brokers, partitions).moves
        for broker in brokers:
            added = sum(move.size_bytes for move in moves if broker.broker_id in move.adding)
            assert added <= rooms[broker.broker_id]


@given(st.integers(1, 6), st.integers(1, 60), st.integers(1, 3))
def test_a_new_broker_gets_its_share(old: int, partitions: int, factor: int) -> None:
    """A scale-up by one ends even, and moves the newcomer's share alone."""
    factor = min(factor, old)
    there = [
        ObservedPartition(
            partition=PartitionId("orders", number),
            replicas=tuple((number + place) % old for place in range(factor)),
            isr=tuple((number + place) % old for place in range(factor)),
            leader=number % old,
            size_bytes=100,
        )
        for number in range(partitions)
    ]
    brokers = [Broker(broker_id=number) for number in range(old + 1)]
    share = partitions * factor / (old + 1)
    whole = plan_moves(ALL, brokers, there)
    assert sum(len(move.adding) for move in whole.moves) == fewest(
        [load.replicas for load in whole.before.values()]
    )
    leaders = [load.leaders for load in whole.after.values()]
    assert max(leaders) - min(leaders) <= 1
    added = plan_moves(Goals(mode=Mode.ADD_BROKERS, brokers=frozenset({old})), brokers, there)
    assert sum(len(move.adding) for move in added.moves) <= ceil(share)
    for plan in (whole, added):
        assert plan.after[old].replicas in (int(share), ceil(share))
    assert added.after[old].leaders <= ceil(partitions / (old + 1))
