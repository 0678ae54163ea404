"""The room of one broker with uneven disks, as each goal sees it: the largest replica that it may get."""

from collections.abc import Callable, Mapping

import pytest
from kit.kafka_model import assigned
from kit.scenarios import NOW_MS, healthy
from quorate_admin.types.partitions import LogDirDescription
from quorate_operator.entities.topics import ObservedTopic, plan_factor
from quorate_operator.gateway.facts import observed_directories
from quorate_operator.placement.cluster import (
    Broker,
    ObservedDirectory,
    ObservedPartition,
    PartitionId,
    broker_room_bytes,
)
from quorate_operator.placement.directories import empty_directories
from quorate_operator.placement.goals import Goals, Mode, plan_moves
from quorate_operator.planning.cluster import BrokerLoad
from quorate_operator.planning.decommission import plan_decommission
from quorate_operator.planning.steps import ReassignPartitions

GIB = 2**30
Directories = Mapping[str, ObservedDirectory]


def directories(first_gib: int, second_gib: int, cordoned: str = "") -> Directories:
    """Two disks of 100 GiB with this much free space, as a broker describes them."""
    return observed_directories(
        {
            path: LogDirDescription(
                error=None,
                replicas={},
                total_bytes=100 * GIB,
                usable_bytes=free_gib * GIB,
                is_cordoned=path == cordoned,
            )
            for path, free_gib in (("/a", first_gib), ("/b", second_gib))
        }
    )


def partition(size_gib: int) -> ObservedPartition:
    """A partition on broker 0."""
    return ObservedPartition(
        partition=PartitionId("t", 0), replicas=(0,), isr=(0,), leader=0, size_bytes=size_gib * GIB
    )


def drained(own: Directories, size_gib: int) -> bool:
    """Whether a drain of broker 0 moves the partition to broker 1."""
    situation = healthy(brokers=2)
    nodes = tuple(node for node in situation.desired.nodes if node.node_id != 0)
    situation = situation.asking(nodes=nodes).kafka(
        partitions=(partition(size_gib),), loads={1: BrokerLoad(room_bytes=broker_room_bytes(own))}
    )
    plan = plan_decommission(situation.desired, situation.observed, NOW_MS)
    return any(isinstance(step, ReassignPartitions) for step in plan.due)


def brokers(own: Directories) -> tuple[Broker, Broker]:
    """Broker 0, and broker 1 with these directories."""
    return Broker(broker_id=0), Broker(broker_id=1, room_bytes=broker_room_bytes(own))


def rebalanced(own: Directories, size_gib: int) -> bool:
    """Whether a rebalance away from broker 0 moves it."""
    goals = Goals(mode=Mode.REMOVE_BROKERS, brokers=frozenset({0}))
    return bool(plan_moves(goals, brokers(own), [partition(size_gib)]).moves)


def grown(own: Directories, size_gib: int) -> bool:
    """Whether another replication factor adds a replica on it."""
    observed = ObservedTopic(topic_id=None, partitions={0: partition(size_gib)}, config={})
    return bool(plan_factor(2, assigned(observed, brokers(own))).replicas)


def removed(own: Directories, size_gib: int) -> bool:
    """Whether the removal of a third volume moves its replica to one of the directories."""
    third = ObservedDirectory(replicas={PartitionId("t", 0): size_gib * GIB}, is_cordoned=True)
    targets, _ = empty_directories({**own, "/c": third}, {"/c"})
    return bool(targets)


BETWEEN_BROKERS = (drained, rebalanced, grown)


def room_gib(asked: Callable[[Directories, int], bool], own: Directories) -> int:
    """The size of the largest replica that it may get; -1 if not even an empty one."""
    return max((size_gib for size_gib in range(101) if asked(own, size_gib)), default=-1)


@pytest.mark.parametrize(("first_gib", "room"), [(8, 0), (10, 0), (22, 12), (90, 80)])
def test_drain_rebalance_and_factor_see_the_room_of_the_fullest_disk(first_gib: int, room: int) -> None:
    """The broker chooses the directory, whatever its free space."""
    own = directories(first_gib, 90)
    assert {asked.__name__: room_gib(asked, own) for asked in BETWEEN_BROKERS} == {
        asked.__name__: room for asked in BETWEEN_BROKERS
    }


@pytest.mark.parametrize(("cordoned", "room"), [("/b", 12), ("/a", 80)])
def test_with_one_directory_left_all_four_see_the_same_room(cordoned: str, room: int) -> None:
    own = directories(22, 90, cordoned)
    for asked in (*BETWEEN_BROKERS, removed):
        assert room_gib(asked, own) == room


def test_the_removal_of_a_volume_names_the_directory_and_sees_its_room() -> None:
    assert room_gib(removed, directories(8, 90)) == 80


def test_a_broker_whose_directories_are_all_cordoned_or_offline_gets_nothing() -> None:
    own = {
        "/a": ObservedDirectory(is_cordoned=True, room_bytes=GIB),
        "/b": ObservedDirectory(error="KAFKA_STORAGE_ERROR"),
    }
    for asked in BETWEEN_BROKERS:
        assert room_gib(asked, own) == -1


def test_a_broker_that_does_not_report_its_disks_has_no_limit() -> None:
    own = {"/a": ObservedDirectory(), "/b": ObservedDirectory()}
    assert broker_room_bytes(own) is None
    for asked in BETWEEN_BROKERS:
        assert room_gib(asked, own) == 100


def test_replicas_on_their_way_into_a_directory_take_its_room() -> None:
    moving = PartitionId("t", 1)
    own = {
        "/a": ObservedDirectory(room_bytes=10, incoming=frozenset({moving})),
        "/b": ObservedDirectory(room_bytes=30, replicas={moving: 8}),
    }
    assert broker_room_bytes(own) == 2
