"""Nodes that get new volumes by annotation: when, and what is refused."""

import pytest
from kit.scenarios import REVISION, Situation, briefly, healthy
from quorate_operator.placement.cluster import PartitionId
from quorate_operator.planning.cluster import FORCE, NodeState, ObservedVolume, Role
from quorate_operator.planning.steps import ROLLOUT_BLOCKED

GOING = ObservedVolume(is_in_use=False)


def asked(situation: Situation, *node_ids: int) -> Situation:
    """New volumes are requested for these nodes."""
    for node_id in node_ids:
        situation = situation.asking_node(node_id, replacement="disk fails")
    return situation


@pytest.mark.parametrize("node_id", [1, 3001])
def test_volumes_are_replaced_once_for_each_request(node_id: int) -> None:
    situation = asked(healthy(3, brokers=3), node_id)
    (step,) = situation.due()
    assert (briefly([step]), step.reason) == ([f"ReplaceVolumes {node_id}"], "requested by annotation")
    going = situation.node(node_id, volumes={0: GOING})
    assert going.due() == (), "the claims are deleted, and go when the roll has stopped the node"
    done = situation.node(node_id, replacement="disk fails")
    assert done.plan().steps == ()
    assert briefly(done.asking_node(node_id, replacement="again").due()) == [f"ReplaceVolumes {node_id}"]


def test_no_node_is_stopped_before_its_claims_are_deleted() -> None:
    assert briefly(asked(healthy(3, brokers=3), 1).asking_config().due()) == ["ReplaceVolumes 1"]


def test_one_node_at_a_time_gets_new_volumes() -> None:
    both = asked(healthy(3, brokers=3), 1, 2)
    assert briefly(both.due()) == ["ReplaceVolumes 1"]
    assert "the replacement of the volumes of broker-2: one node at a time" in both.waits()
    starting = both.node(0, state=NodeState.STARTING)
    assert starting.due() == ()
    assert "the replacement of the volumes of broker-1: broker-0 is not ready (starting)" in starting.waits()
    assert briefly(starting.asking_node(0, skips_rollout=True).due()) == ["ReplaceVolumes 1"]


def test_no_other_claims_are_deleted_before_a_node_has_its_new_volumes() -> None:
    """Each claim that is going is a disk that is lost with the next stop, whatever causes that."""
    three = asked(healthy(3, brokers=3), 0, 1, 2)
    assert briefly(three.due()) == ["ReplaceVolumes 0"]
    revision = {**REVISION, "volume": "kept"}
    for broker_id in range(3):
        three = three.asking_node(broker_id, revision=revision).node(broker_id, revision=revision)
    going = three.node(0, volumes={0: GOING}, revision={**revision, "volume": "deleted"})
    assert briefly(going.due()) == ["StopNode 0"]
    assert "the replacement of the volumes of broker-1: broker-0 gets new volumes" in going.waits()
    stopped = going.down(0, NodeState.ABSENT, volumes={})
    assert briefly(stopped.due()) == ["CreateNode 0", "StartNode 0"]
    starting = stopped.node(
        0, state=NodeState.STARTING, has_volume=True, replacement="disk fails", revision=revision
    )
    assert starting.due() == ()
    back = starting.node(0, state=NodeState.READY, configured=three.observed.nodes[0].configured)
    assert briefly(back.due()) == ["ReplaceVolumes 1"]


def test_the_only_copy_stays() -> None:
    situation = asked(healthy(3, brokers=3), 1).load(1, sole=2, sole_first=(PartitionId("orders", 7),))
    assert situation.due() == ()
    assert situation.refusals() == {
        "ReplacementRefused": "broker-1: its volumes stay: no other broker has an in-sync replica of 2 partitions "
        "(orders-7 and 1 more): reassign these, or wait for other replicas"
    }


def test_a_broker_whose_claims_are_going_is_not_stopped_with_the_only_copy() -> None:
    """Other replicas may have fallen behind since the claims were deleted. Not even a user who insists loses data."""
    due = asked(healthy(3, brokers=3), 1).asking_node(1, revision={**REVISION, "volume": "kept"})
    going = due.node(1, volumes={0: GOING}, revision={**REVISION, "volume": "deleted"})
    assert briefly(going.due()) == ["StopNode 1"]
    sole = going.load(1, sole=2, sole_first=(PartitionId("orders", 7),))
    forced = {**REVISION, "volume": "kept", FORCE: "now"}
    without_process = {"state": NodeState.STARTING, "started_at_ms": None, "problem": "ImagePullBackOff: no"}
    for situation in (sole, sole.asking_node(1, revision=forced), sole.node(1, **without_process)):
        assert situation.due() == ()
        wait = situation.plan().waits[0]
        assert wait.code == ROLLOUT_BLOCKED
        assert (
            "its volumes are being replaced and have the only copy of 2 partitions (orders-7 and 1 more); "
            "reassign these"
        ) in wait.reason
    unknown = going.kafka(loads={})
    assert unknown.due() == ()
    assert unknown.asking_node(1, revision=forced).due() == (), "its replicas are not known yet"


def test_a_released_volume_has_no_copy() -> None:
    """It is empty. The broker keeps its first volume with all that is there."""
    due = healthy(3, brokers=3).asking_config(role=Role.BROKER).load(0, sole=1)
    released = due.node(0, volumes={0: ObservedVolume(), 1: GOING})
    assert briefly(released.due()) == ["StopNode 0"]


def test_the_quorum_keeps_its_majority() -> None:
    two = asked(healthy(2), 3001)
    assert two.due() == ()
    assert "the others of 2 voters are no majority" in two.refusals()["ReplacementRefused"]
    behind = asked(healthy(3), 3001).voter(3002, caught_up=False)
    assert behind.due() == ()
    assert "only 3000 of 3 voters would be alive and caught up" in behind.waits()
    static = asked(healthy(3), 3001).quorum(kraft_version=0).asking(dynamic_quorum=False)
    assert static.due() == ()
    assert "the quorum is static" in static.refusals()["ReplacementRefused"]


def test_a_pending_node_gets_new_volumes_and_one_on_a_silent_machine_waits() -> None:
    """A local volume of a machine that is gone keeps its pod from being scheduled."""
    situation = asked(healthy(3, brokers=3), 1)
    pending = situation.node(1, state=NodeState.STARTING, started_at_ms=None, problem="Unschedulable")
    assert briefly(pending.due()) == ["ReplaceVolumes 1"]
    away = situation.node(1, state=NodeState.UNREADY, unreachable_host=True)
    assert away.due() == ()
    assert "its machine does not answer" in away.waits()
    assert situation.leaderless().due() == ()
    unknown = situation.kafka(loads={})
    assert "its replicas are not known yet" in unknown.waits()
