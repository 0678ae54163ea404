"""Voters that come and go: the order, and what the quorum bears."""

import pytest
from kit.scenarios import NOW_MS, Situation, briefly, controller, healthy, voter
from quorate_operator.planning.cluster import (
    NodeState,
    ObservedVoter,
    Publication,
    Role,
    RolloutPolicy,
    VolumePolicy,
)
from quorate_operator.planning.steps import AddVoter, RemoveVoter


def test_a_new_controller_is_created_started_and_added_when_it_has_caught_up() -> None:
    asked = healthy(3).asking_controllers(3000, 3001, 3002, 3003)
    assert briefly(asked.due()) == ["CreateNode 3003", "StartNode 3003"]
    assert [getattr(step, "is_initial", None) for step in asked.due()] == [False, None]
    behind = asked.observer(3003, caught_up=False)
    assert behind.due() == ()
    assert "controller-3003 to catch up with the metadata log, before it becomes a voter" in behind.waits()
    (add,) = asked.observer(3003).due()
    assert add == AddVoter(
        node_id=3003,
        directory_id="disk-3003",
        endpoints=controller(3003).advertised,
        reason="it has caught up as an observer, and becomes one of 4 voters",
    )


def test_an_observer_is_added_by_what_it_fetched_since_its_start() -> None:
    """The leader remembers for a while that the former process had caught up."""
    asked = healthy(3).asking_controllers(*range(3000, 3004)).observer(3003)
    assert asked.node(3003, state=NodeState.STARTING, started_at_ms=NOW_MS - 300).due() == ()


def test_one_voter_is_added_at_a_time() -> None:
    both = healthy(3).asking_controllers(*range(3000, 3005)).observer(3003).observer(3004)
    assert briefly(both.due()) == ["AddVoter 3003"]
    assert "the turn of controller-3004 to become a voter" in both.waits()


def test_an_observer_with_a_former_disk_is_not_added() -> None:
    asked = healthy(3).asking_controllers(*range(3000, 3004)).observer(3003)
    assert asked.node(3003, directory_id="disk-new", state=NodeState.STARTING).due() == ()


@pytest.mark.parametrize(
    ("controllers", "dead", "due"),
    [
        (1, (), ["AddVoter"]),
        (2, (), ["AddVoter"]),
        (3, (), ["AddVoter"]),
        (3, (3001,), []),
        (5, (3001,), ["AddVoter"]),
    ],
)
def test_a_voter_is_added_while_the_others_are_a_majority(
    controllers: int, dead: tuple[int, ...], due: list[str]
) -> None:
    new = 3000 + controllers
    situation = healthy(controllers).asking_controllers(*range(3000, new + 1)).observer(new)
    for node_id in dead:
        situation = situation.node(node_id, state=NodeState.UNREADY).voter(node_id, caught_up=False)
    assert [type(step).__name__ for step in situation.due()] == due


def test_who_leaves_goes_step_by_step() -> None:
    """Rule 4, remove, stop, unregister, volume, forget."""
    leaving = healthy(4).asking_controllers(3000, 3001, 3002).finalized(metadata_version=33)
    leaving = leaving.asking(rollouts={"quorum": RolloutPolicy(volumes=VolumePolicy.DELETE)})
    assert briefly(leaving.due()) == ["RemoveVoter 3003"]
    removed = leaving.no_voter(3003)
    assert briefly(removed.due()) == ["StopNode 3003"]
    stopped = removed.down(3003)
    assert briefly(stopped.due()) == ["UnregisterController 3003"]
    unregistered = stopped.unregistered(3003)
    assert briefly(unregistered.due()) == ["DeleteVolume 3003"]
    without = unregistered.down(3003, NodeState.ABSENT)
    assert briefly(without.due()) == ["ForgetNode 3003"]
    gone = {key: node for key, node in without.observed.nodes.items() if key != 3003}
    assert without.seeing(nodes=gone).plan().steps == ()


def test_a_retained_volume_outlives_its_node_and_its_registration_below_level_33() -> None:
    """Data stays by default, a ghost that does no harm is left alone."""
    stopped = healthy(4).asking_controllers(3000, 3001, 3002).no_voter(3003).down(3003)
    (forget,) = stopped.due()
    assert forget.reason == "it has left; its volume is kept"
    assert stopped.node(3003, is_forgotten=True).plan().steps == ()


def test_a_node_is_forgotten_after_its_addresses() -> None:
    stopped = healthy(4).asking_controllers(3000, 3001, 3002).no_voter(3003).down(3003).unregistered(3003)
    (address,) = controller(3003).advertised.values()
    held = stopped.seeing(
        publications=(
            Publication(
                address=address, node_id=3003, listener="CONTROLLER", since_ms=0, retired_at_ms=NOW_MS - 1
            ),
        )
    )
    assert "ForgetNode 3003" not in briefly(held.due())
    assert "the addresses that point at controller-3003 to be withdrawn" in held.waits()


def test_the_highest_id_leaves_first_and_the_leader_last() -> None:
    situation = healthy(5).quorum(leader_id=3003).asking_controllers(3000, 3001)
    order = []
    while removals := [step for step in situation.due() if isinstance(step, RemoveVoter)]:
        (removal,) = removals
        order.append(removal.node_id)
        situation = situation.no_voter(removal.node_id).down(removal.node_id, is_forgotten=True)
    assert order == [3004, 3002, 3003]


def test_a_leader_that_is_decommissioned_resigns() -> None:
    situation = healthy(4).asking_controllers(3001, 3002, 3003).asking(decommission=frozenset({3000}))
    (removal,) = situation.due()
    assert removal.reason == "it is decommissioned; it leads and resigns"


def test_who_comes_joins_before_a_living_voter_leaves() -> None:
    asked = healthy(3).asking_controllers(3000, 3001, 3003)
    assert briefly(asked.due()) == ["CreateNode 3003", "StartNode 3003"]
    assert briefly(asked.observer(3003).due()) == ["AddVoter 3003"]


def test_a_dead_voter_that_is_to_leave_goes_first() -> None:
    asked = healthy(3).down(3002, NodeState.CRASHED).asking_controllers(3000, 3001, 3003)
    assert "RemoveVoter 3002" in briefly(asked.due())


def test_a_living_voter_stays_while_the_rest_is_no_majority() -> None:
    situation = healthy(4).node(3001, state=NodeState.UNREADY).voter(3001, caught_up=False)
    assert briefly(situation.asking_controllers(3000, 3001, 3002).due()) == ["RemoveVoter 3003"]
    three = healthy(3).node(3001, state=NodeState.UNREADY).voter(3001, caught_up=False)
    asked = three.asking_controllers(3000, 3001)
    assert asked.due() == ()
    assert "only 3000 of 2 voters would be alive and caught up, and 2 are a majority" in asked.waits()


def lost_disk(situation: Situation) -> Situation:
    """3001's volume is gone."""
    return situation.down(3001, NodeState.ABSENT)


def test_a_lost_disk_is_replaced_by_a_new_voter() -> None:
    lost = lost_disk(healthy(3))
    (removal,) = lost.due()
    assert removal == RemoveVoter(
        node_id=3001,
        directory_id="disk-3001",
        reason="its disk is missing or was replaced: a quorum without it tolerates more failures",
    )
    removed = lost.no_voter(3001)
    assert briefly(removed.due()) == ["CreateNode 3001", "StartNode 3001"]
    fresh = ObservedVoter(
        node_id=3001,
        directory_id="disk-new",
        log_end_offset=100,
        last_fetch_ms=NOW_MS,
        last_caught_up_ms=NOW_MS,
        follows=True,
        caught_up=True,
    )
    back = removed.node(3001, state=NodeState.READY, directory_id="disk-new", has_volume=True)
    (add,) = back.quorum(observers=(fresh,)).due()
    assert isinstance(add, AddVoter)
    assert add.directory_id == "disk-new"


@pytest.mark.parametrize("state", [NodeState.STOPPED, NodeState.CRASHED, NodeState.STARTING])
def test_another_disk_is_never_started_into_the_old_identity(state: NodeState) -> None:
    other = healthy(3).down(3001, state).node(3001, directory_id="disk-new")
    assert briefly(other.due()) == ["RemoveVoter 3001"]


def test_a_disk_that_nobody_could_look_at_is_not_another_one() -> None:
    assert briefly(healthy(3).down(3001, directory_id=None).due()) == ["StartNode 3001"]


def test_a_voter_on_a_machine_that_does_not_answer_is_not_replaced() -> None:
    away = healthy(3).node(3001, state=NodeState.UNREADY, unreachable_host=True).voter(3001, caught_up=False)
    assert away.due() == ()
    assert (
        "3001 (its machine does not answer; decommission the node if the machine is gone for good)"
        in away.waits()
    )


def test_a_controller_that_left_on_a_silent_machine_keeps_registration_and_volume() -> None:
    away = healthy(4).asking_controllers(3000, 3001, 3002).finalized(metadata_version=33).no_voter(3003)
    away = away.node(3003, state=NodeState.UNREADY, unreachable_host=True)
    assert away.due() == ()
    assert "the machine of controller-3003 to answer or to be decommissioned" in away.waits()


def test_a_voter_that_nobody_runs_is_removed() -> None:
    situation = healthy(3).voter(3099, caught_up=False, directory_id=voter(3099).directory_id)
    assert briefly(situation.due()) == ["RemoveVoter 3099"]


def test_a_static_quorum_does_not_change() -> None:
    static = (
        healthy(3).quorum(kraft_version=0).asking(dynamic_quorum=False).asking_controllers(*range(3000, 3005))
    )
    assert static.due() == ()
    assert "Set spec.quorum: dynamic" in static.refusals()["StaticQuorum"]


def test_a_static_voter_starts_anew_when_the_others_have_everything() -> None:
    static = healthy(3).quorum(kraft_version=0).asking(dynamic_quorum=False)
    lost = lost_disk(static)
    assert briefly(lost.due()) == ["CreateNode 3001", "StartNode 3001"]
    hanging = lost.node(3002, state=NodeState.UNREADY).voter(3002, caught_up=False)
    assert hanging.due() == ()


def test_no_membership_without_a_leader() -> None:
    situation = healthy(3).leaderless().asking_controllers(*range(3000, 3004))
    assert situation.due() == ()
    assert Role.CONTROLLER in {node.role for node in situation.desired.nodes}
