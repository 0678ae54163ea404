"""Rolling restarts: who, when, why, and what stops them."""

from dataclasses import replace

import pytest
from kit.scenarios import NOW_MS, REVISION, Situation, briefly, healthy
from quorate_operator.placement.cluster import PartitionId
from quorate_operator.planning.cluster import (
    FORCE,
    Address,
    BrokerLoad,
    Implementation,
    NodeState,
    Role,
    RolloutPolicy,
)
from quorate_operator.planning.restart_obstacles import spare_brokers
from quorate_operator.planning.steps import (
    ROLLOUT_BLOCKED,
    ElectPreferredLeaders,
    StartNode,
    StopNode,
    WaitFor,
)


def stops(situation: Situation) -> list[int]:
    """The nodes that are to stop now."""
    return [step.node_id for step in situation.due() if isinstance(step, StopNode)]


def restarted(situation: Situation, node_id: int) -> Situation:
    """A node that runs with what is asked for."""
    (node,) = (node for node in situation.desired.nodes if node.node_id == node_id)
    return situation.node(node_id, revision=node.revision, started_at_ms=NOW_MS)


def test_controllers_roll_one_by_one_and_the_leader_last_then_brokers() -> None:
    situation = healthy(3, brokers=2).asking_config()
    order = []
    while found := stops(situation):
        order += found
        down = situation.down(found[0])
        assert briefly(down.due()) == [f"StartNode {found[0]}"]
        situation = restarted(situation, found[0])
    assert order == [3001, 3002, 3000, 0, 1]


def test_a_pool_may_say_how_long_its_nodes_take_to_stop() -> None:
    def graces(situation: Situation) -> list[tuple[int, int]]:
        stops = [step for step in situation.plan().steps if isinstance(step, StopNode)]
        return [(stop.node_id, stop.grace_ms) for stop in stops]

    situation = healthy(1, brokers=1).asking_config()
    assert graces(situation) == [(3000, 30_000), (0, 120_000)]
    given = {"brokers": RolloutPolicy(grace_ms=600_000), "quorum": RolloutPolicy(grace_ms=5_000)}
    assert graces(situation.asking(rollouts=given)) == [(3000, 5_000), (0, 600_000)]


def test_the_plan_tells_the_whole_roll() -> None:
    steps = healthy(3, brokers=1).asking_config().plan().steps
    reported = [step for step in steps if not isinstance(step, WaitFor)]
    assert [(type(step), step.node_id) for step in reported] == [
        (kind, node_id) for node_id in (3001, 3002, 3000, 0) for kind in (StopNode, StartNode)
    ]


@pytest.mark.parametrize(
    ("running", "asked", "reason"),
    [
        ({"version": "4.3.0"}, {"version": "4.3.1"}, "version: 4.3.0 -> 4.3.1"),
        (
            {"config": "a", "image": "x:1"},
            {"config": "b", "image": "x:2"},
            "image: x:1 -> x:2; config changed",
        ),
        ({"config": "a"}, {"config": "a", "restart": "now"}, "restart requested"),
        ({"config": "a", "restart": "1"}, {"config": "a", "restart": "2"}, "restart requested"),
        ({"resources": "a"}, {"resources": "b"}, "resources changed"),
        ({"config": "a", "secrets": "x"}, {"config": "a"}, "secrets changed"),
        ({"config": "a", "restart": "1"}, {"config": "a"}, None),
        ({}, {"config": "a"}, None),
    ],
)
def test_the_reason_names_what_changed(
    running: dict[str, str], asked: dict[str, str], reason: str | None
) -> None:
    situation = healthy(3).node(3001, revision=running).asking_node(3001, revision=asked)
    assert [step.reason for step in situation.due()] == ([reason] if reason else [])


def test_a_node_that_is_not_ready_after_its_restart_stops_the_roll() -> None:
    situation = restarted(healthy(3).asking_config(), 3001)
    situation = situation.node(3001, state=NodeState.STARTING, problem="listener port in use")
    situation = situation.voter(3001, caught_up=False)
    assert situation.due() == ()
    assert (
        "the restart of controller-3002 (config changed): controller-3001 is not ready (listener port in use), "
        "and the roll stops until it is"
    ) in situation.waits()


def test_what_is_broken_is_restarted_first_once_it_had_its_time() -> None:
    hanging = healthy(3).asking_config().node(3001, state=NodeState.UNREADY).voter(3001, caught_up=False)
    assert stops(hanging) == [3001]
    young = hanging.node(3001, started_at_ms=NOW_MS - 1_000)
    assert stops(young) == []


MINUTE_MS = 60_000


@pytest.mark.parametrize("minutes", [1, 2, 20, 600])
def test_a_broker_that_recovers_its_logs_is_not_restarted(minutes: int) -> None:
    """A kill starts the recovery again: a process that has not served yet is left alone, however long."""
    due = healthy(3, brokers=3).asking_config(role=Role.BROKER)
    recovering = due.node(0, state=NodeState.STARTING, started_at_ms=NOW_MS - minutes * MINUTE_MS)
    assert stops(recovering) == []
    assert "the restart of broker-0 (config changed): it has been starting since 19" in recovering.waits()
    closed = recovering.node(0, has_opened=False, problem="the container tracer ended with status 1")
    assert stops(closed) == [], "a problem of a sidecar"


def test_a_broker_that_has_just_recovered_has_time_to_enter_service() -> None:
    """It opens its ports before it is unfenced."""
    due = healthy(3, brokers=3).asking_config(role=Role.BROKER)
    opened = due.node(0, state=NodeState.UNREADY, opened_at_ms=NOW_MS - 1_000)
    assert stops(opened) == []
    assert stops(opened.node(0, opened_at_ms=NOW_MS - 2 * MINUTE_MS)) == [0]


def test_a_node_without_a_process_waits_for_no_other() -> None:
    due = healthy(3, brokers=3).asking_config(role=Role.BROKER)
    recovering = restarted(due, 1).node(1, state=NodeState.STARTING, started_at_ms=NOW_MS - 20 * MINUTE_MS)
    broken = recovering.node(
        0, state=NodeState.STARTING, started_at_ms=None, waiting_since_ms=NOW_MS - 2 * MINUTE_MS
    )
    assert stops(broken) == [0]


@pytest.mark.parametrize("node_id", [3001, 0])
def test_a_node_without_a_process_is_restarted_once_it_had_its_time(node_id: int) -> None:
    """An image that can't be pulled, or no machine for it: a restart loses nothing."""
    due = healthy(3, brokers=3).asking_config(role=Role.BROKER if node_id == 0 else Role.CONTROLLER)
    waiting = due.node(node_id, state=NodeState.STARTING, started_at_ms=None, problem="ImagePullBackOff: no")
    waiting = waiting if node_id == 0 else waiting.voter(node_id, caught_up=False)
    assert stops(waiting.node(node_id, waiting_since_ms=NOW_MS - 1_000)) == []
    assert stops(waiting.node(node_id, waiting_since_ms=NOW_MS - 2 * MINUTE_MS)) == [node_id]


def test_a_controller_that_waits_for_its_peers_is_restarted_and_one_that_loads_is_not() -> None:
    due = healthy(3).asking_config().voter(3001, caught_up=False)
    waiting = due.node(3001, state=NodeState.STARTING, started_at_ms=NOW_MS - 2 * MINUTE_MS)
    assert stops(waiting) == stops(waiting.node(3001, has_opened=True)) == [3001]
    assert stops(waiting.node(3001, has_opened=False)) == []


def test_no_controller_stops_while_a_broker_is_on_its_way_back() -> None:
    """One node at a time, whatever its role; a controller that does not serve may be what the broker needs."""
    due = healthy(3, brokers=2).asking_config(role=Role.CONTROLLER)
    starting = due.node(0, state=NodeState.STARTING, started_at_ms=NOW_MS - 2 * MINUTE_MS)
    assert stops(due) == [3001]
    assert stops(starting) == []
    assert "(config changed): broker-0 is not ready (starting since 1970-01-01 02:44 UTC)" in starting.waits()
    pending = starting.node(0, started_at_ms=None, waiting_since_ms=NOW_MS)
    assert stops(pending) == []
    assert stops(pending.node(0, problem="the process ended with status 1, 7 times so far")) == [3001]
    assert stops(starting.node(0, unreachable_host=True)) == [3001]
    assert stops(starting.node(3002, state=NodeState.UNREADY).voter(3002, caught_up=False)) == [3002]


@pytest.mark.parametrize(("first", "second"), [(3001, 3002), (0, 1)])
def test_what_is_not_ready_waits_for_what_was_just_started(first: int, second: int) -> None:
    """A broker that is fenced or behind for a moment is not taken away while another is on its way back."""
    rolling = restarted(healthy(3, brokers=3).asking_config(), first)
    if first < 3000:
        for node_id in range(3000, 3003):
            rolling = restarted(rolling, node_id)
    rolling = rolling.node(second, state=NodeState.UNREADY).node(first, state=NodeState.STARTING)
    for since_ms, expected in ((NOW_MS - 1_000, []), (NOW_MS - 61_000, [second])):
        assert stops(rolling.node(first, started_at_ms=since_ms, has_opened=True)) == expected
        assert stops(rolling.node(first, started_at_ms=None, waiting_since_ms=since_ms)) == expected


def test_without_a_leader_only_what_hangs_is_restarted_one_after_another() -> None:
    """Expired certificates heal, a healthy quorum that is not observed is spared."""
    blind = healthy(3).asking_config().leaderless()
    assert stops(blind) == [3000]
    assert stops(restarted(blind, 3000)) == []
    # A controller that is down explains the missing leader.
    crashed = blind.down(3002, NodeState.CRASHED, exited_at_ms=NOW_MS, exits_in_a_row=4)
    assert stops(crashed) == []
    assert "no leader of the quorum answers, and these have to be started first: 3002" in crashed.waits()


def test_one_that_leaves_may_be_all_that_a_quorum_without_a_leader_lacks() -> None:
    """A quorum that only we don't see is spared."""
    two = healthy(2).node(3001, unreachable_host=True).asking_controllers(3000).asking_config().leaderless()
    assert stops(two) == []
    assert "no leader of the quorum answers, and these have to be started first: 3001" in two.waits()
    three = healthy(3).node(3002, unreachable_host=True).asking_controllers(3000, 3001)
    assert stops(three.asking_config().leaderless()) == [3000]


@pytest.mark.parametrize(
    ("controllers", "dead", "expected"), [(1, 0, [3000]), (2, 0, [3001]), (2, 1, []), (5, 1, [])]
)
def test_rule_one_for_restarts(controllers: int, dead: int, expected: list[int]) -> None:
    """A majority stays, with the exception for one and two voters."""
    situation = healthy(controllers)
    for node_id in range(3000 + controllers - dead, 3000 + controllers):
        situation = situation.node(node_id, state=NodeState.UNREADY).voter(node_id, caught_up=False)
        situation = restarted(situation.asking_config(), node_id)
    assert stops(situation.asking_config()) == expected


def test_nobody_restarts_while_voters_change() -> None:
    situation = healthy(3, brokers=1).asking_controllers(*range(3000, 3004)).observer(3003, caught_up=False)
    assert stops(situation.asking_config()) == []
    assert "the quorum's voters change" in situation.asking_config().waits()


def test_a_voter_whose_new_address_does_not_show_stops_the_roll() -> None:
    new = {"CONTROLLER": Address("new-3001", 9092)}
    situation = restarted(healthy(3).asking_config(), 3001).asking_node(3001, advertised=new)
    situation = situation.node(3001, configured=new)
    assert stops(situation) == []
    assert "controller-3001 has not registered its new addresses yet" in situation.waits()


def test_a_machine_that_does_not_answer_is_not_asked_to_stop() -> None:
    away = healthy(3).node(3001, revision={**REVISION, "config": "old"}, unreachable_host=True)
    assert away.due() == ()
    assert "the restart of controller-3001 (config changed): its machine does not answer" in away.waits()


BROKERS = {"role": Role.BROKER}


def test_brokers_roll_within_their_budget() -> None:
    situation = healthy(3, brokers=4).asking_config(**BROKERS)  # type: ignore[arg-type]
    starting = restarted(situation, 0).node(0, state=NodeState.STARTING)
    assert stops(starting) == []
    assert (
        "broker-0 is not ready (starting since 1970-01-01 02:46 UTC), and the roll stops" in starting.waits()
    )
    two = starting.asking(rollouts={"brokers": RolloutPolicy(max_unavailable=2)})
    assert stops(two) == [1]


@pytest.mark.parametrize(
    ("load", "kafka", "wait"),
    [
        ({"fragile": 3}, {}, "3 partitions would fall below min.insync.replicas without it"),
        (
            {"fragile": 3, "fragile_first": (PartitionId("orders", 0), PartitionId("orders", 7))},
            {},
            "3 partitions (orders-0, orders-7 and 1 more) would fall below min.insync.replicas without it",
        ),
        ({}, {"loads": {}}, "its replicas are not known yet"),
    ],
)
def test_a_broker_stays_while_partitions_would_suffer(
    load: dict[str, int], kafka: dict[str, object], wait: str
) -> None:
    situation = healthy(3, brokers=1).asking_config(**BROKERS).load(0, **load).kafka(**kafka)  # type: ignore[arg-type]
    assert stops(situation) == []
    assert wait in situation.waits()


@pytest.mark.parametrize(
    ("situation", "spare"),
    [
        (healthy(3, brokers=3), 1),
        (healthy(3, brokers=3).load(1, fragile=1), 0),
        (healthy(3, brokers=3).kafka(offline_partitions=1).load(1, awaited=1), 1),
        (healthy(3, brokers=3).kafka(loads={}), 0),
        (healthy(3, brokers=3).node(2, state=NodeState.STARTING), 0),
        (healthy(3, brokers=3).down(2), 0),
        (healthy(3, brokers=3).leaderless(), 0),
        (healthy(3, brokers=1), 1),
        (healthy(3, brokers=1).node(0, state=NodeState.STARTING), 1),
    ],
)
def test_brokers_are_spared_as_in_a_roll(situation: Situation, spare: int) -> None:
    """Draining one machine after another never takes a partition below min.insync.replicas."""
    assert spare_brokers(situation.desired, situation.observed) == spare


def test_a_partition_without_a_leader_holds_up_no_broker() -> None:
    """It can't get worse. The broker that may lead it is restarted, too, if it does not serve."""
    due = healthy(3, brokers=3).asking_config(role=Role.BROKER).kafka(offline_partitions=1)
    assert stops(due.load(1, awaited=1)) == [0]
    assert stops(due.load(1, awaited=1).node(1, state=NodeState.UNREADY)) == [1]


def test_a_broker_that_the_operator_does_not_reach_is_judged_by_its_partitions() -> None:
    due = healthy(3, brokers=3).asking_config(role=Role.BROKER).node(1, state=NodeState.UNREADY)
    assert stops(due) == [1]
    assert stops(due.load(1, fragile=1)) == []


def test_a_broker_that_was_unregistered_is_restarted() -> None:
    """A broker registers at its start alone. One at a time, and once for each time that it was in service."""
    lost = healthy(3, brokers=3)
    for broker_id in (1, 2):
        lost = lost.unregistered(broker_id).node(broker_id, state=NodeState.UNREADY)
    lost = lost.kafka(loads={0: BrokerLoad()})
    (stop,) = lost.due()
    assert isinstance(stop, StopNode)
    assert (stop.node_id, stop.reason) == (
        1,
        "its registration was removed while it ran, and a start registers it again",
    )
    assert stop.grace_ms == 3_000, "its controlled shutdown is refused, however long it asks"
    restarted_one = lost.node(1, state=NodeState.STARTING, started_at_ms=NOW_MS - MINUTE_MS)
    assert stops(restarted_one) == [], "it starts, and the other one waits for it"
    back = lost.registered(1, Role.BROKER, endpoints=lost.desired.nodes[4].advertised).load(1)
    assert stops(back.node(1, state=NodeState.READY)) == [2]
    assert stops(lost.node(1, started_at_ms=NOW_MS - 1_000)) == [], "a minute between restarts"
    never_served = restarted_one.node(2, state=NodeState.STARTING, started_at_ms=NOW_MS - MINUTE_MS)
    assert stops(never_served) == []
    assert stops(never_served.node(1, has_opened=True).node(2, has_opened=True)) == []
    assert stops(lost.leaderless()) == []
    assert stops(lost.asking_node(1, skips_rollout=True)) == [2]


def test_a_broker_that_was_unregistered_while_it_started_holds_up_no_roll() -> None:
    """It would start forever. A broker that can't register ends by itself, after a minute by default."""
    due = (
        healthy(3, brokers=3).asking_config().unregistered(1).kafka(loads={0: BrokerLoad(), 2: BrokerLoad()})
    )
    starting = due.node(1, state=NodeState.STARTING, started_at_ms=NOW_MS - MINUTE_MS)
    assert stops(starting) == [], "it may still register"
    assert stops(starting.node(1, started_at_ms=NOW_MS - 2 * MINUTE_MS)) == [3001], "controllers come first"
    limit = {"initial.broker.registration.timeout.ms": f"{10 * MINUTE_MS}"}
    patient = starting.node(1, started_at_ms=NOW_MS - 19 * MINUTE_MS).asking_node(1, config=limit)
    assert stops(patient) == [], "it is given the time that its config gives it"
    assert stops(patient.node(1, started_at_ms=NOW_MS - 20 * MINUTE_MS)) == [3001]
    hasty = {"initial.broker.registration.timeout.ms": "1000"}
    assert stops(starting.asking_node(1, config=hasty)) == [], "it may run with the former config"
    brokers = healthy(3, brokers=3).unregistered(1).kafka(loads={0: BrokerLoad(), 2: BrokerLoad()})
    assert stops(brokers.node(1, state=NodeState.STARTING, started_at_ms=NOW_MS - 2 * MINUTE_MS)) == [1]


def test_what_only_a_user_can_end_stalls_a_roll() -> None:
    due = healthy(3, brokers=3).asking_config(role=Role.BROKER)
    for broker_id in range(3):
        due = due.load(broker_id, fragile=1, fragile_first=(PartitionId("orders", broker_id),))
    wait = due.plan().waits[0]
    assert wait.code == ROLLOUT_BLOCKED
    assert "1 partition (orders-0) would fall below min.insync.replicas without it; no node" in wait.reason
    assert "quorate.dev/force-restart-0 restarts the broker all the same" in wait.reason
    assert due.node(2, started_at_ms=NOW_MS - 14 * MINUTE_MS).plan().waits[0].code == "", "may catch up"
    pending = healthy(3, brokers=3).asking_config(role=Role.BROKER)
    pending = restarted(pending, 0).node(
        0, state=NodeState.STARTING, started_at_ms=None, waiting_since_ms=NOW_MS - 6 * MINUTE_MS
    )
    assert [wait.code for wait in pending.plan().waits if wait.code] == []
    (blocked,) = [wait for wait in pending.node(0, problem="Unschedulable").plan().waits if wait.code]
    assert 'quorate.dev/skip-rollout-0: "true" has the others restarted' in blocked.reason


def forcing(situation: Situation, node_id: int) -> Situation:
    (node,) = (node for node in situation.desired.nodes if node.node_id == node_id)
    return situation.asking_node(node_id, revision={**node.revision, FORCE: "now"})


def test_a_user_may_insist_on_a_restart() -> None:
    """Once for each value of the annotation, and never at the cost of the quorum."""
    fragile = healthy(3, brokers=2).asking_config(role=Role.BROKER).load(0, fragile=1).load(1, fragile=1)
    forced = forcing(fragile, 1)
    assert [(step.node_id, step.reason) for step in forced.due()] == [(1, "restart forced; config changed")]
    assert stops(restarted(forced, 1)) == []
    recovering = fragile.node(1, state=NodeState.STARTING, started_at_ms=NOW_MS)
    assert (stops(recovering), stops(forcing(recovering, 1))) == ([], [1])
    assert stops(forced.node(1, unreachable_host=True)) == []
    behind = healthy(3).node(3001, state=NodeState.UNREADY).voter(3001, caught_up=False)
    assert stops(forcing(behind, 3002)) == []
    assert stops(forcing(behind, 3001)) == [3001]


def test_a_forced_restart_of_a_broker_waits_for_no_roll_of_controllers() -> None:
    blocked = restarted(healthy(3, brokers=2).asking_config(), 3001).voter(3001, caught_up=False)
    blocked = blocked.node(3001, state=NodeState.UNREADY)
    assert stops(blocked) == []
    assert stops(forcing(blocked, 1)) == [1]


def test_a_user_may_leave_a_node_out_of_rolls() -> None:
    due = healthy(3, brokers=3).asking_config(role=Role.BROKER)
    down = due.node(0, state=NodeState.STARTING, started_at_ms=None, waiting_since_ms=NOW_MS)
    assert stops(down) == []
    skipped = down.asking_node(0, skips_rollout=True)
    assert stops(skipped) == [1]
    assert skipped.refusals() == {
        "RestartSkipped": "broker-0 is not restarted (config changed), as the annotation "
        "quorate.dev/skip-rollout-0 of brokers asks"
    }
    behind = healthy(5).asking_config().node(3001, state=NodeState.UNREADY).voter(3001, caught_up=False)
    assert stops(restarted(behind, 3001)) == []
    assert stops(restarted(behind, 3001).asking_node(3001, skips_rollout=True)) == [3002]


def test_a_pool_that_waits_holds_up_no_other() -> None:
    situation = healthy(3, brokers=2).asking_config(**BROKERS).load(0, fragile=1)  # type: ignore[arg-type]
    assert stops(situation) == [1]


def test_a_machine_that_is_gone_holds_up_no_roll_that_the_quorum_can_spare() -> None:
    for controllers, expected in ((5, [3001]), (3, [])):
        away = 3000 + controllers - 1
        lost = healthy(controllers, brokers=2).node(away, state=NodeState.UNREADY, unreachable_host=True)
        lost = lost.voter(away, caught_up=False)
        assert stops(lost.asking_config(role=Role.CONTROLLER)) == expected
        assert stops(lost.asking_config(role=Role.BROKER)) == [0]


def test_brokers_wait_for_controllers_that_are_down() -> None:
    situation = healthy(3, brokers=1).asking_config(**BROKERS)  # type: ignore[arg-type]
    crashed = situation.down(3002, NodeState.CRASHED, exited_at_ms=NOW_MS, exits_in_a_row=4)
    assert stops(crashed) == []


def test_leadership_goes_back_after_a_roll() -> None:
    """The last broker to restart leads again."""
    situation = healthy(3, brokers=2).load(1, unpreferred=4)
    assert situation.due() == ()
    (elect,) = situation.node(1, started_at_ms=NOW_MS - 5_000).due()
    assert isinstance(elect, ElectPreferredLeaders)
    assert "4 partitions are not led by their preferred replica" in elect.reason


def test_a_release_that_does_not_know_the_finalized_level_is_refused() -> None:
    older = healthy(3, brokers=1).asking_node(
        0, kafka_version="4.2.0", revision={**REVISION, "version": "4.2.0"}
    )
    assert older.due() == ()
    assert "Lower spec.metadataVersion first" in older.refusals()["UnsafeDowngrade"]
    assert stops(older.finalized(metadata_version=29)) == [0]
    ours = replace(older.desired.nodes[-1], implementation=Implementation.PYTHON)
    assert stops(older.asking(nodes=(*older.desired.nodes[:-1], ours))) == [0]


def test_a_node_that_could_not_start_again_is_not_stopped() -> None:
    """A template that the place refuses costs no node, and holds up no other pool."""
    changed = healthy(3, brokers=2).asking_config()
    refused = changed.node(0, restart_refusal="cpu above limit").node(1, restart_refusal="cpu above limit")
    assert stops(refused) == [3001]
    (refusal,) = refused.plan().refusals
    assert (refusal.code, refusal.pool) == ("RestartRefused", "brokers")
    assert refusal.message == (
        "brokers: 0 and 1 run on as they are, because they could not be started again: cpu above limit"
    )
    assert stops(healthy(3, brokers=2).node(0, restart_refusal="cpu above limit")) == []
    assert stops(changed.node(3001, restart_refusal="no such class")) == [3002]


def test_the_leader_finishes_what_it_is_asked_for_before_it_restarts() -> None:
    situation = healthy(1).asking_config().finalized(metadata_version=33).registered(3099, Role.CONTROLLER)
    assert briefly(situation.due()) == ["UnregisterController 3099"]
    assert "the active controller has other changes to make first" in situation.waits()


def test_a_start_says_what_to_advertise() -> None:
    (start,) = healthy(3).down(3001).due()
    assert isinstance(start, StartNode)
    assert start.advertised == {"CONTROLLER": Address("controller-3001", 9092)}
