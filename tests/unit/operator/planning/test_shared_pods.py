"""Controllers in the pods of brokers: what starts, stops and waits together."""

from kit.scenarios import NOW_MS, REVISION, Situation, briefly, healthy, untouched
from quorate_operator.planning.cluster import (
    FORCE,
    Formation,
    Lifecycle,
    NodeState,
    Role,
)
from quorate_operator.planning.pods import CONTROLLER, NO_POD
from quorate_operator.planning.steps import StartNode, StopNode

BESIDE = 3000
"""The id of the controller beside broker 0."""


def paired(situation: Situation, controllers: int = 3) -> Situation:
    """The same with controller 3000 in the pod of broker 0, and so on."""
    for place in range(controllers):
        revision = {**REVISION, CONTROLLER: str(BESIDE + place)}
        situation = situation.asking_node(place, pod_mate=BESIDE + place, revision=revision)
        situation = situation.asking_node(BESIDE + place, pod_mate=place)
        if situation.observed.nodes[place].state.runs:
            situation = situation.node(place, pod_mate=BESIDE + place, revision=revision)
            situation = situation.node(BESIDE + place, pod_mate=place)
    return situation


def small(brokers: int = 3) -> Situation:
    """Three controllers in the pods of three brokers."""
    return paired(healthy(3, brokers))


def asking_mate(situation: Situation, broker_id: int, mate: int | None) -> Situation:
    """A broker's pod is to have another controller in it, or none."""
    beside = {} if mate is None else {CONTROLLER: str(mate)}
    return situation.asking_node(broker_id, pod_mate=mate, revision={**REVISION, **beside})


def test_nothing_is_to_be_done_for_a_settled_cluster() -> None:
    assert small().plan().steps == ()


def test_a_pod_starts_when_both_of_its_nodes_can() -> None:
    stopped = small().down(1).down(3001)
    assert briefly(stopped.due()) == ["StartNode 3001", "StartNode 1"]


def test_a_broker_waits_for_the_disk_of_the_controller_in_its_pod() -> None:
    situation = small().down(1).down(3001, NodeState.ABSENT)
    assert briefly(situation.due()) == ["RemoveVoter 3001"]
    assert "controller-3001 to be able to start: broker-1 runs in the same pod" in situation.waits()
    removed = situation.no_voter(3001)
    assert briefly(removed.due()) == ["CreateNode 3001", "StartNode 3001", "StartNode 1"]


def test_a_new_cluster_starts_its_pods_once_every_founder_has_its_disk() -> None:
    formation = Formation(cluster_id="id", initial_voters={3000: "a", 3001: "b", 3002: "c"}, is_formed=False)
    forming = paired(untouched(3, 3)).seeing(formation=formation)
    assert {step.split()[0] for step in briefly(forming.due())} == {"CreateNode"}
    for node_id in (0, 1, 2, 3000, 3001):
        forming = forming.node(node_id, state=NodeState.STOPPED, has_volume=True)
    assert briefly(forming.due()) == ["CreateNode 3002"]
    formatted = forming.node(3002, state=NodeState.STOPPED, has_volume=True)
    assert len(formatted.due()) == 6


def test_a_change_of_the_controllers_restarts_pods_one_by_one_the_leader_last() -> None:
    situation = small().asking_config(role=Role.CONTROLLER)
    assert briefly(situation.due()) == ["StopNode 3001", "StopNode 1"]
    stops = [step for step in situation.due() if isinstance(step, StopNode)]
    assert {step.grace_ms for step in stops} == {120_000}, "a broker hands its leaderships over first"
    assert "controller-3001: config changed" in stops[1].reason
    order = [step.node_id for step in situation.plan().steps if isinstance(step, StopNode)]
    assert order == [3001, 1, 3002, 2, 3000, 0]


def test_a_change_of_both_restarts_each_pod_once() -> None:
    situation = small().asking_config()
    stops = [step.node_id for step in situation.plan().steps if isinstance(step, StopNode)]
    assert sorted(stops) == [0, 1, 2, 3000, 3001, 3002]


def test_other_brokers_restart_after_the_pods_with_controllers() -> None:
    situation = small(brokers=4).asking_config(role=Role.BROKER)
    order = [step.node_id for step in situation.plan().steps if isinstance(step, StopNode)]
    assert order[-1] == 3


def test_a_broken_broker_does_not_wait_for_the_pods_that_wait_for_it() -> None:
    situation = small(brokers=4).asking_config().node(3, state=NodeState.UNREADY)
    assert briefly(situation.due()) == ["StopNode 3"]


def test_a_broker_is_not_restarted_while_the_quorum_needs_the_controller_in_its_pod() -> None:
    behind = small().voter(3002, caught_up=False).asking_config(role=Role.BROKER)
    stopped = {step.node_id for step in behind.due()}
    assert not stopped & {0, 1, 3000, 3001}, behind.due()


def test_a_controller_is_not_restarted_while_partitions_need_the_broker_in_its_pod() -> None:
    situation = small().load(1, fragile=2).asking_config(role=Role.CONTROLLER)
    assert briefly(situation.due()) == ["StopNode 3002", "StopNode 2"]
    for broker_id in (0, 2):
        situation = situation.load(broker_id, fragile=1)
    assert situation.due() == ()
    assert "would fall below min.insync.replicas without it" in situation.waits()


def test_a_broken_controller_does_not_hold_up_the_restart_that_mends_it() -> None:
    broken = (
        small()
        .node(3001, state=NodeState.STARTING, has_opened=False, exits_in_a_row=6, problem="it ended")
        .node(3001, started_at_ms=None, waiting_since_ms=NOW_MS - 3_600_000)
        .voter(3001, caught_up=False)
        .asking_config(role=Role.CONTROLLER)
    )
    assert briefly(broken.due()) == ["StopNode 3001", "StopNode 1"]


def test_a_forced_restart_of_a_broker_never_costs_the_majority() -> None:
    behind = small().voter(3002, caught_up=False)
    forced = behind.asking_node(1, revision={**REVISION, CONTROLLER: "3001", FORCE: "now"})
    assert forced.due() == ()
    assert "only 3000 of 3 voters" in forced.waits()


def test_who_leaves_one_node_out_leaves_out_its_pod() -> None:
    situation = small().asking_config(role=Role.BROKER).asking_node(3001, skips_rollout=True)
    assert {1, 3001}.isdisjoint(step.node_id for step in situation.plan().steps if isinstance(step, StopNode))


def test_a_refused_version_of_a_broker_holds_back_its_controller() -> None:
    situation = small().asking_config(role=Role.CONTROLLER)
    for broker_id in range(3):
        situation = situation.node(broker_id, restart_refusal="no such image").asking_node(
            broker_id, revision={**REVISION, "config": "b", CONTROLLER: str(BESIDE + broker_id)}
        )
    assert not [step for step in situation.plan().steps if isinstance(step, StopNode)]
    assert "RestartRefused" in situation.refusals()


def test_a_controller_joins_by_the_restart_of_a_running_brokers_pod() -> None:
    """Scaled up from three to four: the voters are not yet the desired ones, and that does not hold it up."""
    asked = small(brokers=4).asking_controllers(3000, 3001, 3002, 3003)
    for place in range(3):
        asked = asked.asking_node(BESIDE + place, pod_mate=place)
    asked = asking_mate(asked.asking_node(3003, pod_mate=3), 3, 3003)
    assert briefly(asked.due()) == ["CreateNode 3003"]
    created = asked.node(3003, state=NodeState.STOPPED, has_volume=True, directory_id="disk-3003")
    assert briefly(created.due()) == ["StopNode 3"]
    assert "controller: none -> 3003" in created.due()[0].reason
    assert "the restart of broker-3, in whose pod controller-3003 is to run" in created.waits()


def test_a_broken_broker_is_restarted_though_a_controller_waits_to_join() -> None:
    """Each would wait for the other: the new controller's pod for a spare broker, the broken one for the voters."""
    asked = small(brokers=4).asking_controllers(3000, 3001, 3002, 3003)
    for place in range(3):
        asked = asked.asking_node(BESIDE + place, pod_mate=place)
    asked = asking_mate(asked.asking_node(3003, pod_mate=3), 3, 3003)
    created = asked.node(3003, state=NodeState.STOPPED, has_volume=True, directory_id="disk-3003")
    broken = created.node(1, state=NodeState.UNREADY).asking_config(role=Role.BROKER)
    assert briefly(broken.due()) == ["StopNode 3001", "StopNode 1"]


def test_a_controller_that_leaves_is_no_voter_before_its_pod_is_restarted() -> None:
    asked = small().asking(nodes=tuple(node for node in small().desired.nodes if node.node_id != 3002))
    asked = asking_mate(asked, 2, None)
    assert briefly(asked.due()) == ["RemoveVoter 3002"]
    removed = asked.no_voter(3002)
    assert briefly(removed.due()) == ["StopNode 3002", "StopNode 2"]
    assert "the pod of broker-2 to be restarted without controller-3002" in removed.waits()


def test_a_decommissioned_broker_stays_until_its_controller_has_left_the_quorum() -> None:
    """The next broker's controller joins first, then the voter leaves, then the pod goes."""
    kept = tuple(node for node in small(4).desired.nodes if node.node_id not in (1, 3001))
    asked = (
        small(brokers=4)
        .asking(nodes=kept, decommission=frozenset({1, 3001}))
        .asking_controllers(3000, 3002, 3003)
    )
    for node_id, mate in ((3000, 0), (3002, 2), (3003, 3)):
        asked = asked.asking_node(node_id, pod_mate=mate)
    asked = asking_mate(asked, 3, 3003)
    joined = paired_with(asked.observer(3003), 3, 3003)
    assert briefly(joined.due()) == ["AddVoter 3003"]
    assert "controller-3001, in the pod of broker-1, to leave the quorum" in joined.waits()
    four = joined.voter(3003)
    assert briefly(four.due()) == ["RemoveVoter 3001"]
    left = four.no_voter(3001)
    assert briefly(left.due()) == ["StopNode 3001", "StopNode 1"]


def paired_with(situation: Situation, broker_id: int, controller_id: int) -> Situation:
    """A controller runs in the pod of a broker."""
    revision = {**REVISION, CONTROLLER: str(controller_id)}
    situation = situation.node(broker_id, pod_mate=controller_id, revision=revision)
    return situation.node(controller_id, pod_mate=broker_id)


def test_a_hibernating_cluster_stops_the_last_majority_together() -> None:
    """Brokers ask the active controller for their controlled shutdown: with less than a majority, in vain."""
    asleep = small(brokers=4).asking(lifecycle=Lifecycle.HIBERNATED)
    groups: list[list[int]] = [[]]
    for step in asleep.plan().steps:
        if isinstance(step, StopNode):
            groups[-1].append(step.node_id)
        else:
            groups.append([])
    assert groups == [[3], [3001, 1], [3002, 2, 3000, 0]]


def test_a_running_cluster_does_not_move_its_controllers() -> None:
    alone = healthy(3, 3)
    for place in range(3):
        alone = alone.asking_node(BESIDE + place, pod_mate=place).asking_node(place, pod_mate=BESIDE + place)
    assert alone.plan().steps == ()
    assert "run in pods of their own" in alone.refusals()["PlacementChanged"]
    apart = small()
    for place in range(3):
        apart = apart.asking_node(BESIDE + place, pod_mate=None)
    assert "run in the pods of brokers" in apart.refusals()["PlacementChanged"]


def test_a_rebuilt_quorum_starts_the_pod_of_its_survivor_alone() -> None:
    formation = Formation(cluster_id="id", initial_voters={3001: "b"}, is_formed=False, is_rebuilt=True)
    lost = small().seeing(kafka=None, quorum=None, formation=formation)
    for node_id in (0, 1, 2, 3001):
        lost = lost.down(node_id)
    for node_id in (3000, 3002):
        lost = lost.down(node_id, NodeState.ABSENT)
    assert briefly(lost.due()) == ["StartNode 3001", "StartNode 1"]


def test_a_pod_that_starts_before_its_controller_has_left_starts_with_it() -> None:
    """Without it, a voter would be gone that the quorum may need for its next leader."""
    asked = small().asking(nodes=tuple(node for node in small().desired.nodes if node.node_id != 3002))
    down = asking_mate(asked, 2, None).down(2).down(3002)
    starts = {step.node_id: step for step in down.due() if isinstance(step, StartNode)}
    assert list(starts) == [3002, 2]
    assert starts[2].beside == 3002
    left = down.no_voter(3002)
    assert [step.beside for step in left.due() if isinstance(step, StartNode)] == [None]


def test_a_controller_that_the_quorum_needs_and_whose_broker_leaves_has_no_pod() -> None:
    kept = tuple(node for node in small(4).desired.nodes if node.node_id not in (1, 3001))
    asked = small(brokers=4).asking(nodes=kept, decommission=frozenset({1, 3001})).down(1).down(3001)
    needed = asked.leaderless()
    assert not [step for step in needed.due() if isinstance(step, StartNode)]
    (wait,) = [wait for wait in needed.plan().waits if wait.code == NO_POD]
    assert "controller-3001 to leave the quorum, which has no leader without it" in wait.reason
    assert wait.is_stalled
