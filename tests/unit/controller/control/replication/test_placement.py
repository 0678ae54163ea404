"""Placement of new replicas over racks and brokers."""

from collections import Counter
from random import Random

import pytest
from quorate_controller.control.assignments import Placing, usable_brokers
from quorate_protocol.placement import PlacementError, Placer, UsableBroker, place_replicas
from quorate_protocol.records.generated import BrokerRegistrationChangeRecord, FenceBrokerRecord


def brokers(*racks: str | None, fenced: frozenset[int] = frozenset()) -> list[UsableBroker]:
    """Brokers 0, 1, 2... in these racks."""
    return [
        UsableBroker(broker_id=broker_id, rack=rack, fenced=broker_id in fenced)
        for broker_id, rack in enumerate(racks)
    ]


@pytest.mark.parametrize("seed", range(20))
def test_replicas_of_a_partition_are_in_different_racks(seed: int) -> None:
    racks = "aaabbbccc"
    for replicas in place_replicas(brokers(*racks), 50, 3, Random(seed)):
        assert {racks[broker_id] for broker_id in replicas} == set("abc")


@pytest.mark.parametrize("seed", range(20))
def test_leaders_and_replicas_are_spread_evenly(seed: int) -> None:
    placed = place_replicas(brokers(*"aabbcc"), 60, 3, Random(seed))
    assert set(Counter(replicas[0] for replicas in placed).values()) == {10}
    assert set(Counter(broker_id for replicas in placed for broker_id in replicas).values()) == {30}


def test_partitions_of_one_round_start_one_rack_further_each() -> None:
    racks = "aabbcc"
    placed = place_replicas(brokers(*racks), 6, 2, Random(3))
    leaders = "".join(racks[replicas[0]] for replicas in placed)
    assert leaders in "abcabcabc"


@pytest.mark.parametrize("seed", range(20))
def test_fenced_brokers_come_last_and_never_lead(seed: int) -> None:
    away = frozenset({1, 3})
    for replicas in place_replicas(brokers(None, None, None, None, None, fenced=away), 30, 4, Random(seed)):
        assert not away & set(replicas[:3])
        assert replicas[3] in away


def test_a_rack_that_is_fenced_as_a_whole_gets_no_leader() -> None:
    placed = place_replicas(brokers("a", "b", "a", fenced=frozenset({1})), 10, 2, Random(0))
    assert all(replicas[0] in {0, 2} and replicas[1] == 1 for replicas in placed)


def test_a_single_unfenced_broker_leads_everything() -> None:
    placed = place_replicas(brokers(None, None, fenced=frozenset({0})), 20, 2, Random(0))
    assert placed == [(1, 0)] * 20


def test_the_same_random_gives_the_same_placement() -> None:
    given = brokers(*"abcabc")
    assert place_replicas(given, 40, 3, Random(5)) == place_replicas(given, 40, 3, Random(5))
    assert place_replicas(given, 40, 3, Random(5)) != place_replicas(given, 40, 3, Random(6))


@pytest.mark.parametrize(
    ("given", "replication_factor", "message"),
    [
        (brokers("a"), 0, "Invalid replication factor 0: the replication factor must be positive."),
        (
            brokers("a", fenced=frozenset({0})),
            1,
            "All brokers are currently fenced, or have all their log directories cordoned.",
        ),
        ([], 1, "All brokers are currently fenced, or have all their log directories cordoned."),
        (
            brokers("a", "b"),
            3,
            (
                "The target replication factor of 3 cannot be reached because only 2 broker(s) are "
                "registered "
                "or some "
                "brokers have all their log directories cordoned."
            ),
        ),
    ],
)
def test_impossible_placements_are_refused(
    given: list[UsableBroker], replication_factor: int, message: str
) -> None:
    with pytest.raises(PlacementError) as refused:
        place_replicas(given, 1, replication_factor, Random(0))
    assert str(refused.value) == message


def test_brokers_that_shut_down_or_are_cordoned_get_nothing(make_cluster) -> None:
    cluster = make_cluster()
    cluster.add_broker(1)
    cluster.add_broker(2, shutting_down=True)
    cluster.add_broker(3, shutting_down=True, fenced=True)
    cluster.add_broker(4, directories=2)
    cluster.add_broker(5, directories=2)
    for broker_id, cordoned in ((4, 1), (5, 2)):
        cluster.replay(
            BrokerRegistrationChangeRecord(
                broker_id=broker_id,
                broker_epoch=1000 + broker_id,
                cordoned_log_dirs=tuple(cluster.directory(broker_id, n) for n in range(cordoned)),
            )
        )
    offered = {broker.broker_id: broker.fenced for broker in usable_brokers(cluster.image)}
    assert offered == {1: False, 3: True, 4: False}


def test_brokers_are_read_again_when_they_have_changed(cluster) -> None:
    """A broker that was fenced since the last topic leads none."""
    placing = Placing(cluster.image, Random(0))
    assert {assignment.isr for assignment in placing.place(30, 1)} == {(1,), (2,), (3,)}
    for broker_id in (1, 2):
        cluster.replay(FenceBrokerRecord(id=broker_id, epoch=1000 + broker_id))
    assert {assignment.isr for assignment in placing.place(30, 1)} == {(3,)}


def test_each_topic_begins_anywhere() -> None:
    placer = Placer(brokers(*"aabbc"), Random(2))
    leaders = Counter(placer.place(1, 2)[0][0] for _ in range(3000))
    of_racks = Counter("aabbc"[leader] for leader in leaders.elements())
    assert all(900 < count < 1100 for count in of_racks.values()), of_racks
    assert all(400 < leaders[broker_id] < 600 for broker_id in range(4)), leaders
