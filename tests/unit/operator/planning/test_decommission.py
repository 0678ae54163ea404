"""Brokers that leave: where their partitions go, in which batches, what is refused, and the goodbye."""

from dataclasses import replace

from kit.scenarios import NOW_MS, Situation, briefly, healthy
from quorate_operator.placement.cluster import IN_FLIGHT_MAX, ObservedPartition, PartitionId
from quorate_operator.planning.cluster import (
    Address,
    BrokerLoad,
    Lifecycle,
    NodeState,
    Publication,
    Role,
    RolloutPolicy,
    VolumePolicy,
)
from quorate_operator.planning.decommission import DecommissionPlan, plan_decommission
from quorate_operator.planning.steps import ReassignPartitions, format_bytes

GIB = 1024**3


def partition(number: int, *replicas: int, topic: str = "orders", **more: object) -> ObservedPartition:
    """A partition of one GiB that is in sync."""
    given = {"isr": replicas, "leader": replicas[0], "size_bytes": GIB} | more
    return ObservedPartition(partition=PartitionId(topic, number), replicas=replicas, **given)  # type: ignore[arg-type]


def leaving(node_id: int, *partitions: ObservedPartition, brokers: int = 4) -> Situation:
    """A healthy cluster that one broker is to leave."""
    situation = healthy(brokers=brokers)
    nodes = tuple(node for node in situation.desired.nodes if node.node_id != node_id)
    return situation.asking(nodes=nodes).kafka(partitions=partitions)


def deleted(*partitions: ObservedPartition, others: int = 0, brokers: int = 2) -> Situation:
    """A healthy cluster whose pool of the first brokers is deleted with its volumes; `others` are in another pool."""
    situation = healthy(brokers=brokers + others)
    for node in situation.desired.of_role(Role.BROKER)[brokers:]:
        situation = situation.node(node.node_id, pool="others").asking_node(node.node_id, pool="others")
    pool = situation.desired.of_role(Role.BROKER)[:brokers]
    return situation.asking(
        nodes=tuple(node for node in situation.desired.nodes if node not in pool),
        decommission=frozenset(node.node_id for node in pool),
        drained_pools=frozenset({"brokers"}),
        drained=tuple(pool),
        rollouts={"brokers": RolloutPolicy(volumes=VolumePolicy.DELETE)},
    ).kafka(partitions=partitions)


def planned(situation: Situation) -> DecommissionPlan:
    """The plan for it."""
    return plan_decommission(situation.desired, situation.observed, NOW_MS)


def targets(plan: DecommissionPlan) -> dict[int, tuple[int, ...]]:
    """New replicas by partition number."""
    return {
        name.number: replicas
        for step in plan.due
        if isinstance(step, ReassignPartitions)
        for name, replicas in step.targets.items()
    }


def test_who_stays_is_left_alone() -> None:
    """No plan for a cluster as desired, or for a broker that is not managed here."""
    assert planned(healthy(brokers=2).registered(9, Role.BROKER)) == DecommissionPlan()


def test_replicas_go_to_the_least_loaded_brokers_and_the_others_keep_their_places() -> None:
    situation = leaving(3, partition(0, 3, 0), partition(1, 1, 3))
    situation = situation.load(0, replicas=9).load(1, replicas=5).load(2, replicas=5)
    plan = planned(situation)
    assert targets(plan) == {0: (1, 0), 1: (1, 2)}
    assert plan.rest[0].reason == "broker-3 to be drained: 2 partitions left, 2.0 GiB; 0 are on the move"


def test_replicas_stay_in_different_racks() -> None:
    situation = leaving(3, partition(0, 3, 0)).load(1, replicas=0).load(2, replicas=50)
    assert situation.observed.kafka is not None
    racks = {0: "a", 1: "a", 2: "b", 3: "b"}
    registrations = {
        node_id: replace(registration, rack=racks.get(node_id))
        for node_id, registration in situation.observed.kafka.registrations.items()
    }
    assert targets(planned(situation.kafka(registrations=registrations))) == {0: (2, 0)}


def test_a_disk_keeps_a_tenth_free() -> None:
    full = BrokerLoad(room_bytes=0, replicas=1)
    situation = leaving(3, partition(0, 3), partition(1, 3))
    loads = {0: full, 1: replace(full, room_bytes=GIB), 2: full}
    plan = planned(situation.kafka(loads=loads))
    assert targets(plan) == {0: (1,)}
    assert [refusal.code for refusal in plan.refusals] == ["TooLittleSpace"]
    assert "orders-1 (1.0 GiB) can't leave broker-3: broker(s) 0, 1, 2 would keep less than 10%" in (
        plan.refusals[0].message
    )


def test_a_broker_that_has_room_is_not_blamed() -> None:
    """Both replicas leave: broker 0 has room for one of them, and no other broker for the second one."""
    situation = leaving(3, partition(0, 2, 3))
    nodes = tuple(node for node in situation.desired.nodes if node.node_id != 2)
    situation = situation.asking(nodes=nodes)
    full = planned(situation.kafka(loads={0: BrokerLoad(room_bytes=GIB), 1: BrokerLoad(room_bytes=0)}))
    assert targets(full) == {}
    assert "orders-0 (1.0 GiB) can't leave broker-2: broker(s) 1 would keep less than 10%" in (
        full.refusals[0].message
    )
    away = planned(situation.down(1))
    assert away.refusals == ()
    assert "a broker that can take a replica of orders-0 to be in service: 1 of 2 are" in {
        wait.reason for wait in away.rest
    }


def test_batches_are_bounded_by_number_and_by_size() -> None:
    many = leaving(3, *(partition(number, 3, size_bytes=1) for number in range(200)))
    assert len(targets(planned(many))) == IN_FLIGHT_MAX
    large = leaving(3, *(partition(number, 3, size_bytes=10 * GIB) for number in range(3)))
    assert len(targets(planned(large))) == 1
    moving = partition(0, 0, 3, adding=(0,), removing=(3,), isr=(3,), size_bytes=10 * GIB)
    busy = leaving(3, moving, partition(1, 3, size_bytes=10 * GIB))
    assert targets(planned(busy)) == {}
    assert "1 are on the move" in planned(busy).rest[-1].reason


def test_too_few_brokers_are_refused_with_the_topics() -> None:
    plan = planned(leaving(2, partition(0, 0, 1, 2), partition(1, 2), brokers=3))
    assert plan.refusals[0].code == "TooFewBrokers"
    assert "2 broker(s) stay, and topics have more replicas: orders (3)" in plan.refusals[0].message
    assert plan.due == ()


def test_two_that_leave_move_nothing_to_each_other() -> None:
    situation = leaving(3, partition(0, 2, 3))
    nodes = tuple(node for node in situation.desired.nodes if node.node_id != 2)
    assert targets(planned(situation.asking(nodes=nodes))) == {0: (0, 1)}


def test_a_move_to_a_broker_that_leaves_now_is_directed_elsewhere() -> None:
    moving = partition(0, 3, 0, 2, adding=(3,), removing=(2,), isr=(0, 2))
    assert targets(planned(leaving(3, moving))) == {0: (1, 0)}


def test_who_is_taken_back_keeps_what_is_under_way() -> None:
    moving = partition(0, 0, 3, adding=(0,), removing=(3,), isr=(3,))
    assert planned(healthy(brokers=4).kafka(partitions=(moving,))) == DecommissionPlan()


def test_a_broker_that_holds_the_only_copy_is_started_to_be_drained() -> None:
    alone = leaving(3, partition(0, 3, 0, isr=(3,), leader=-1)).down(3, NodeState.CRASHED)
    assert "StartNode 3" in briefly(planned(alone).due)
    spared = leaving(3, partition(0, 3, 0, isr=(0,), leader=0)).down(3, NodeState.CRASHED)
    assert briefly(planned(spared).due) == ["ReassignPartitions 3"]
    lost = leaving(3, partition(0, 3, isr=(3,), leader=-1)).down(3, NodeState.ABSENT)
    assert "PartitionsLost" in {refusal.code for refusal in planned(lost).refusals}


def test_the_goodbye_goes_one_step_after_the_other() -> None:
    """Rule 4: stopped, fenced, unregistered, volume, forgotten."""
    situation = leaving(3).asking(rollouts={"brokers": RolloutPolicy(volumes=VolumePolicy.DELETE)})
    assert briefly(planned(situation).due) == ["StopNode 3"]
    stopped = situation.down(3)
    assert planned(stopped).rest[0].reason == "broker-3, which was stopped, to be fenced"
    assert stopped.observed.kafka is not None
    registrations = dict(stopped.observed.kafka.registrations)
    registrations[3] = replace(registrations[3], fenced=True)
    assert briefly(planned(stopped.kafka(registrations=registrations)).due) == ["UnregisterBroker 3"]
    gone = stopped.unregistered(3)
    assert briefly(planned(gone).due) == ["DeleteVolume 3"]
    assert briefly(planned(gone.node(3, has_volume=False)).due) == ["ForgetNode 3"]
    kept = gone.asking(rollouts={})
    assert briefly(planned(kept).due) == ["ForgetNode 3"]
    name = Publication(address=Address("b", 1), node_id=3, listener="PLAINTEXT", since_ms=0)
    assert planned(kept.seeing(publications=(name,))).due == ()


def test_nothing_is_concluded_without_a_leader_or_of_a_machine_that_does_not_answer() -> None:
    assert planned(leaving(3).leaderless()).due == ()
    away = planned(leaving(3).node(3, unreachable_host=True))
    assert away.due == ()
    assert "the machine of broker-3 to answer" in away.rest[0].reason


def test_sizes_are_written_for_people() -> None:
    assert [format_bytes(size) for size in (5, 2048, 3 * GIB + GIB // 10, 2048 * GIB)] == [
        "5 B",
        "2.0 KiB",
        "3.1 GiB",
        "2.0 TiB",
    ]


def test_a_deleted_pool_is_drained_before_its_brokers_stop() -> None:
    situation = deleted(partition(0, 0, 2), partition(1, 0), others=2)
    plan = planned(situation)
    assert sorted(briefly(plan.due)) == ["ReassignPartitions 0", "StopNode 1"]
    assert targets(plan) == {0: (3, 2), 1: (2,)}
    assert plan.refusals == ()
    assert plan.node_ids == {0, 1}


def test_a_deleted_pool_deletes_its_volumes() -> None:
    evicted = deleted(brokers=1).down(0, NodeState.CRASHED)
    assert briefly(planned(evicted).due) == ["StopNode 0"]
    stopped = evicted.down(0)
    assert "to be fenced" in planned(stopped).rest[0].reason
    assert briefly(planned(stopped.unregistered(0)).due) == ["DeleteVolume 0"]


def test_a_deleted_pool_that_cannot_be_drained_stays_whole() -> None:
    """Nothing is stopped or moved, and the message has the replicas and what can be done."""
    for others in (0, 1):
        partitions = (partition(0, 0, 1), partition(1, 0, 1), partition(2, 2, topic="narrow"))
        situation = deleted(*partitions, others=others, brokers=3)
        plan = planned(situation)
        assert plan.due == ()
        (refusal,) = plan.refusals
        assert (refusal.code, refusal.pool) == ("TooFewBrokers", "brokers")
        for reported in (
            "none of its brokers is stopped: broker-0 holds 2 replica(s)",
            "broker-1 holds 2 replica(s), broker-2 holds 1 replica(s).",
            f"{others} broker(s) stay, and topics have more replicas: orders (2)",
            "Make room with another pool of brokers",
            "set storage.onDeletion of brokers to Retain",
            "delete KafkaController quorum as well",
        ):
            assert reported in refusal.message
        assert plan.rest[0].node_ids == (0, 1, 2)
    stopped = deleted(partition(0, 0, 1), others=1).down(1)
    assert briefly(planned(stopped).due) == ["StartNode 1"]


def test_full_disks_stop_no_broker_of_a_deleted_pool() -> None:
    full = BrokerLoad(room_bytes=0)
    plan = planned(deleted(partition(0, 0), others=1).kafka(loads={2: full}))
    assert plan.due == ()
    assert [(refusal.code, refusal.pool) for refusal in plan.refusals] == [("TooLittleSpace", "brokers")]
    assert "broker-0 holds 1 replica(s)" in plan.refusals[0].message


def test_a_deleted_pool_is_told_to_be_stuck_once_nothing_moves() -> None:
    moving = partition(0, 0, 2, adding=(2,), removing=(0,), isr=(0,))
    stuck = partition(1, 1, 0)
    for partitions, count in (((moving, stuck), 0), ((stuck,), 1)):
        plan = planned(deleted(*partitions, others=1))
        assert len(plan.refusals) == count
        assert plan.due == ()
        assert "KafkaBroker brokers, which is deleted, to be drained" in {wait.reason for wait in plan.rest}
    room = BrokerLoad(room_bytes=GIB)
    part = planned(deleted(partition(0, 0), partition(1, 0), others=1).kafka(loads={2: room}))
    assert (briefly(part.due), part.refusals) == (["ReassignPartitions 0"], ())


def test_another_drain_goes_on_beside_a_pool_that_cannot_be_drained() -> None:
    situation = deleted(partition(0, 0, 1), others=2)
    nodes = tuple(node for node in situation.desired.nodes if node.node_id != 3)
    plan = planned(situation.asking(nodes=nodes, decommission=situation.desired.decommission | {3}))
    assert briefly(plan.due) == ["StopNode 3"]


def test_a_hibernated_cluster_says_that_it_drains_no_pool() -> None:
    situation = deleted(partition(0, 0)).asking(lifecycle=Lifecycle.HIBERNATED)
    (refusal,) = situation.plan().refusals
    assert (refusal.code, refusal.pool) == ("Hibernated", "brokers")
    assert "set state of KafkaController quorum to Running" in refusal.message


def test_a_scale_down_can_be_refused() -> None:
    """Brokers that are left over stay while they hold replicas; those that are named are drained."""
    rollouts = {"brokers": RolloutPolicy(drains_on_scale_down=False)}
    situation = leaving(3, partition(0, 3, 0)).asking(rollouts=rollouts)
    plan = planned(situation)
    assert plan.due == ()
    (refusal,) = plan.refusals
    assert (refusal.code, refusal.pool) == ("ScaleDownRefused", "brokers")
    assert refusal.message == (
        "broker-3 stays, as drain.onScaleDown of brokers asks, because it holds 1 replica(s): set replicas back; or "
        "have the broker drained, by its id in decommission or by a KafkaRebalance of mode RemoveBrokers"
    )
    assert briefly(planned(situation.down(3)).due) == ["StartNode 3"]
    assert targets(planned(situation.asking(decommission=frozenset({3})))) == {0: (1, 0)}
    assert briefly(planned(situation.kafka(partitions=())).due) == ["StopNode 3"]
