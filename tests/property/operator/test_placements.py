"""Whichever goals move replicas, in any order: disks keep a tenth free, racks stay apart, no replica moves back.

The model puts each new replica into the fullest directory that Kafka may choose.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from hypothesis import given
from hypothesis import strategies as st
from quorate_operator.placement.assignment import Assignment
from quorate_operator.placement.cluster import (
    FREE_SHARE_MIN,
    IN_FLIGHT_MAX,
    Broker,
    ObservedDirectory,
    ObservedPartition,
    PartitionId,
    broker_room_bytes,
    directory_room_bytes,
)
from quorate_operator.placement.directories import empty_directories, even_directories
from quorate_operator.placement.goals import Goals, Mode, change_factor, plan_moves, remove_brokers

ROUNDS_MAX = 60
SIZES = st.sampled_from([0, 1, 5, 20]) | st.integers(0, 60)


@dataclass(slots=True)
class Disk:
    """The disk of a log directory, with replicas and files of others."""

    total: int
    foreign: int
    is_cordoned: bool = False
    replicas: set[PartitionId] = field(default_factory=set)


@dataclass(slots=True)
class World:
    """Brokers with disks, and partitions that are placed on them."""

    racks: dict[int, str | None]
    disks: dict[int, dict[str, Disk]]
    sizes: dict[PartitionId, int] = field(default_factory=dict)
    replicas: dict[PartitionId, tuple[int, ...]] = field(default_factory=dict)
    removed: set[int] = field(default_factory=set)
    left: dict[PartitionId, set[int]] = field(default_factory=dict)
    """The brokers that each partition has left, on the way to the present goal."""

    def free(self, disk: Disk) -> int:
        """How much is free on a disk."""
        return disk.total - disk.foreign - sum(self.sizes[key] for key in disk.replicas)

    def directories(self, broker_id: int) -> dict[str, ObservedDirectory]:
        """The log directories of a broker as it describes them."""
        return {
            path: ObservedDirectory(
                replicas={key: self.sizes[key] for key in disk.replicas},
                room_bytes=directory_room_bytes(self.free(disk), disk.total),
                is_cordoned=disk.is_cordoned,
            )
            for path, disk in self.disks[broker_id].items()
        }

    def brokers(self) -> list[Broker]:
        """The brokers with their room."""
        return [
            Broker(
                broker_id=broker_id,
                rack=rack,
                is_decommissioned=broker_id in self.removed,
                room_bytes=broker_room_bytes(self.directories(broker_id)),
            )
            for broker_id, rack in self.racks.items()
        ]

    def partitions(self) -> list[ObservedPartition]:
        """All partitions, none of which moves."""
        return [
            ObservedPartition(
                partition=key, replicas=brokers, isr=brokers, leader=brokers[0], size_bytes=self.sizes[key]
            )
            for key, brokers in self.replicas.items()
        ]

    def assignment(self) -> Assignment:
        """The present replicas, to be changed."""
        return Assignment(self.brokers(), self.partitions())

    def move(self, targets: dict[PartitionId, tuple[int, ...]]) -> bool:
        """Copy all new replicas, then delete the former ones. Returns whether there was anything to move."""
        for key, target in targets.items():
            assert len({*target}) == len(target) > 0
            for broker_id in {*target} - {*self.replicas[key]}:
                assert broker_id not in self.left.setdefault(key, set()), "it moves back"
                self._add(key, broker_id)
        for key, target in targets.items():
            for broker_id in {*self.replicas[key]} - {*target}:
                self.left.setdefault(key, set()).add(broker_id)
                for disk in self.disks[broker_id].values():
                    disk.replicas.discard(key)
            self.replicas[key] = target
        return bool(targets)

    def _add(self, key: PartitionId, broker_id: int) -> None:
        possible = [disk for disk in self.disks[broker_id].values() if not disk.is_cordoned]
        self.put(key, min(possible, key=self.free))

    def put(self, key: PartitionId, disk: Disk) -> None:
        """Copy a replica to a disk."""
        disk.replicas.add(key)
        assert self.free(disk) >= int(disk.total * FREE_SHARE_MIN) or self.sizes[key] == 0, "too full"

    def settle(self, goal: Callable[["World"], bool]) -> None:
        """Pursue a goal until nothing is left to do."""
        self.left.clear()
        for _ in range(ROUNDS_MAX):
            if not goal(self):
                return
        raise AssertionError("it does not end")

    def crowd(self, broker_id: int, replicas: Iterable[int]) -> int:
        """How many other replicas are in the broker's rack."""
        rack = self.racks[broker_id]
        return sum(rack is not None and self.racks[other] == rack for other in replicas if other != broker_id)

    def is_spread(self, assignment: Assignment, index: int, moved: Iterable[int]) -> bool:
        """Whether none of these replicas could be in a less crowded rack, on a broker that had room for it."""
        replicas = assignment.replicas[index]
        return not any(
            self.crowd(target, [replica for replica in replicas if replica != source])
            < self.crowd(source, replicas)
            for source in moved
            for target in assignment.targets
            if assignment.has_room(index, target)
        )


def changed(assignment: Assignment) -> dict[PartitionId, tuple[int, ...]]:
    """The new replicas of the partitions that were changed."""
    assert assignment.in_flight.partitions <= IN_FLIGHT_MAX
    return {
        assignment.partitions[index].partition: tuple(assignment.replicas[index])
        for index in assignment.order
    }


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Uneven disks, some too full, some cordoned; racks of any size."""
    racks = draw(st.lists(st.sampled_from([None, "a", "b", "c"]), min_size=2, max_size=6))
    disks = {
        broker_id: {
            f"/{number}": Disk(
                total=total,
                foreign=total * draw(st.sampled_from([0, 0, 20, 60, 92])) // 100,
                is_cordoned=draw(st.sampled_from([False, False, False, True])),
            )
            for number, total in enumerate(
                draw(st.lists(st.sampled_from([100, 200, 1000]), min_size=1, max_size=3))
            )
        }
        for broker_id in range(len(racks))
    }
    world = World(dict(enumerate(racks)), disks)
    for number in range(draw(st.integers(1, 25))):
        key = PartitionId("ab"[number % 2], number)
        factor = draw(st.integers(1, min(3, len(racks))))
        world.sizes[key] = draw(SIZES)
        world.replicas[key] = tuple(draw(st.permutations(range(len(racks))))[:factor])
        for broker_id in world.replicas[key]:
            path = draw(st.sampled_from(sorted(disks[broker_id])))
            disks[broker_id][path].replicas.add(key)
    return world


def drain(broker_id: int) -> Callable[[World], bool]:
    """Remove a broker."""

    def goal(world: World) -> bool:
        world.removed.add(broker_id)
        assignment = world.assignment()
        stuck = remove_brokers(assignment, world.removed, range(len(assignment.partitions)), is_limited=True)
        assert all(
            world.is_spread(
                assignment, index, {*assignment.replicas[index]} - {*assignment.partitions[index].replicas}
            )
            for index in assignment.order
        )
        for index in stuck:
            assert assignment.replicas[index] == list(assignment.partitions[index].replicas)
        return world.move(changed(assignment))

    return goal


def resize(factor: int) -> Callable[[World], bool]:
    """Change the replication factor of a topic."""

    def goal(world: World) -> bool:
        assignment = world.assignment()
        wrong = [
            index
            for index, partition in enumerate(assignment.partitions)
            if partition.partition.topic == "a" and len(partition.replicas) != factor
        ]
        change_factor(assignment, factor, wrong)
        assert all(
            world.is_spread(
                assignment, index, {*assignment.replicas[index]} - {*assignment.partitions[index].replicas}
            )
            for index in assignment.order
        )
        return world.move(changed(assignment))

    return goal


def rebalance(goals: Goals) -> Callable[[World], bool]:
    """Carry out a whole plan."""

    def goal(world: World) -> bool:
        moves = plan_moves(goals, world.brokers(), world.partitions()).moves
        if not moves and goals.mode is Mode.FULL:
            assignment = world.assignment()
            assert all(
                world.is_spread(assignment, index, replicas)
                for index, replicas in enumerate(assignment.replicas)
                if world.removed.isdisjoint(replicas)
            )
        if goals.mode is Mode.FULL:
            # Room that the previous plan has freed allows a more even cluster; `settle` asserts that this ends.
            world.left.clear()
        return world.move({move.partition: move.target for move in moves})

    return goal


def empty_disk(broker_id: int) -> Callable[[World], bool]:
    """Remove the last volume of a broker."""

    def goal(world: World) -> bool:
        disks = world.disks[broker_id]
        path = max(disks)
        disks[path].is_cordoned = True
        targets, _ = empty_directories(world.directories(broker_id), {path})
        for key, target in targets.items():
            world.put(key, disks[target])
        for key in targets:
            disks[path].replicas.discard(key)
        return bool(targets)

    return goal


def even_disks(world: World) -> bool:
    """Even out the directories of all brokers."""
    moves = even_directories(Goals(), {broker_id: world.directories(broker_id) for broker_id in world.disks})
    for move in moves:
        world.put(move.partition, world.disks[move.broker_id][move.target])
    for move in moves:
        for path, disk in world.disks[move.broker_id].items():
            if path != move.target:
                disk.replicas.discard(move.partition)
    return bool(moves)


GOALS = st.one_of(
    st.integers(0, 1).map(drain),
    st.integers(1, 3).map(resize),
    st.just(rebalance(Goals())),
    st.integers(0, 1).map(
        lambda broker_id: rebalance(Goals(mode=Mode.REMOVE_BROKERS, brokers=frozenset({broker_id})))
    ),
    st.integers(0, 1).map(
        lambda broker_id: rebalance(Goals(mode=Mode.ADD_BROKERS, brokers=frozenset({broker_id})))
    ),
    st.integers(0, 1).map(empty_disk),
    st.just(even_disks),
)


@given(worlds(), st.lists(GOALS, min_size=1, max_size=4))
def test_all_goals_keep_the_rules(world: World, goals: list[Callable[[World], bool]]) -> None:
    for goal in goals:
        world.settle(goal)


@given(worlds(), st.integers(1, 3))
def test_what_is_under_way_counts_as_done_and_occupies_its_target(world: World, factor: int) -> None:
    """Two plans, the second one while the moves of the first are under way, together leave a tenth free."""
    assignment = world.assignment()
    change_factor(assignment, factor, range(len(assignment.partitions)))
    under_way = [
        replace(
            partition,
            replicas=(*replicas, *removing),
            adding=tuple(replica for replica in replicas if replica not in partition.replicas),
            removing=removing,
        )
        for partition, replicas in zip(assignment.partitions, assignment.replicas, strict=True)
        for removing in [tuple(replica for replica in partition.replicas if replica not in replicas)]
    ]
    first = changed(assignment)
    world.removed.add(0)
    second = Assignment(world.brokers(), under_way)
    rest = [index for index, partition in enumerate(under_way) if not partition.is_moving]
    remove_brokers(second, {0}, rest, is_limited=True)
    assert first.keys().isdisjoint(changed(second))
    world.move({**first, **changed(second)})
