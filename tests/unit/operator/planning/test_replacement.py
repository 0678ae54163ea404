"""Nodes that get new volumes, by annotation or after a time: when, and what is refused."""

from dataclasses import fields
from typing import Any

import pytest
from kit.scenarios import LONG_AGO_MS, REVISION, Situation, briefly, healthy
from quorate_operator.placement.cluster import PartitionId
from quorate_operator.planning.cluster import (
    FORCE,
    NodeState,
    ObservedNode,
    ObservedVolume,
    Role,
    RolloutPolicy,
)
from quorate_operator.planning.losses import LostVolumes
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


def test_a_node_does_not_start_with_claims_that_are_going() -> None:
    """Kubernetes schedules no pod with such a claim, and the pod would be in the way of the new one."""
    stopped = asked(healthy(3, brokers=3), 1).down(1, volumes={0: GOING})
    assert stopped.due() == ()
    assert "the old volumes of broker-1 to be deleted, before it starts with new ones" in stopped.waits()


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


LOST = LostVolumes(
    reason="the Kubernetes node worker-2, which has its volume, was removed", since_ms=LONG_AGO_MS
)
HALF_AN_HOUR = RolloutPolicy(unbind_after_ms=1_800_000)


def stranded(situation: Situation, *node_ids: int, lost: LostVolumes = LOST) -> Situation:
    """The pods of these nodes can't be scheduled, because their volumes are on a machine that is gone."""
    for node_id in node_ids:
        situation = situation.node(
            node_id,
            state=NodeState.STARTING,
            started_at_ms=None,
            waiting_since_ms=LONG_AGO_MS,
            problem="Unschedulable: 0/3 nodes are available",
            lost_volumes=lost,
        )
        if node_id >= 3000:
            situation = situation.voter(node_id, caught_up=False)
    return situation


def unbinding(controllers: int = 3, brokers: int = 3) -> Situation:
    """Both pools have `storage.unbindAfter: 30m`."""
    rollouts = {"quorum": HALF_AN_HOUR, "brokers": HALF_AN_HOUR}
    return healthy(controllers, brokers=brokers).asking(rollouts=rollouts)


@pytest.mark.parametrize("node_id", [1, 3001])
def test_lost_volumes_are_unbound_after_a_time(node_id: int) -> None:
    """Only where the pool asks for it: the machine may come back with all data."""
    assert stranded(healthy(3, brokers=3), node_id).due() == ()
    situation = stranded(unbinding(), node_id)
    (step,) = situation.due()
    assert briefly([step]) == [f"ReplaceVolumes {node_id}"]
    assert step.reason == f"storage.unbindAfter has passed: {LOST.reason}"
    due_ms = LONG_AGO_MS + 1_800_000
    early = situation.plan(due_ms - 1)
    assert early.due == ()
    (wait,) = (wait for wait in early.waits if wait.until_ms is not None)
    assert wait.until_ms == due_ms
    label = healthy(3, brokers=3).observed.nodes[node_id].label
    assert wait.reason == f"the volumes of {label} to be found again or unbound: {LOST.reason}"
    assert briefly(situation.due(due_ms)) == [f"ReplaceVolumes {node_id}"]


def test_nodes_of_one_lost_machine_do_not_wait_for_each_other() -> None:
    """The first one is back with new volumes before the next one loses its own."""
    both = stranded(unbinding(), 1, 3001)
    assert briefly(both.due()) == ["ReplaceVolumes 3001"]
    assert "the replacement of the volumes of broker-1: one node at a time" in both.waits()
    gone = both.down(3001, NodeState.ABSENT, volumes={}, lost_volumes=None)
    assert briefly(gone.due()) == ["RemoveVoter 3001"]
    joined = both.node(3001, **vars_of(healthy(3).observed.nodes[3001])).voter(3001, caught_up=True)
    assert briefly(joined.due()) == ["ReplaceVolumes 1"]


def test_the_roll_ends_a_pod_whose_claims_are_gone_already() -> None:
    """An operator that dies between the deletion of the claims and that of the pod leaves such a pod."""
    situation = stranded(unbinding(), 1).asking_node(1, revision={**REVISION, "volume": "kept"})
    left = situation.node(
        1, has_volume=False, volumes={}, lost_volumes=None, revision={**REVISION, "volume": "deleted"}
    )
    assert briefly(left.due()) == ["StopNode 1"]


def vars_of(node: ObservedNode) -> dict[str, Any]:
    """The fields of a node."""
    return {item.name: getattr(node, item.name) for item in fields(node) if item.name != "node_id"}


def test_lost_volumes_with_the_only_copy_stay_bound() -> None:
    situation = stranded(unbinding(), 1).load(1, sole=1, sole_first=(PartitionId("orders", 7),))
    assert situation.due() == ()
    assert situation.refusals()["ReplacementRefused"] == (
        f"broker-1: its volumes stay: {LOST.reason}, and no other broker has an in-sync replica of 1 partition "
        "(orders-7): bring that machine back. If it is gone for good, delete these topics, or delete the "
        "PersistentVolumeClaims of the broker by hand"
    )


def test_a_voter_is_not_unbound_without_a_majority_of_the_others() -> None:
    behind = stranded(unbinding(), 3001).voter(3002, caught_up=False)
    assert behind.due() == ()
    assert "only 3000 of 2 voters would be alive and caught up" in behind.waits()
    two = stranded(unbinding(2), 3001)
    assert two.due() == ()
    assert "the others of 2 voters are no majority" in two.refusals()["ReplacementRefused"]
    five = stranded(unbinding(5), 3001, 3002)
    assert briefly(five.due()) == ["ReplaceVolumes 3001"]


def test_volumes_stay_bound_while_it_is_unknown_where_they_are() -> None:
    reason = "the operator may not read Node objects and PersistentVolumes: see rbac.readNodes of the chart"
    unknown = stranded(unbinding(), 1, lost=LostVolumes(reason=reason, since_ms=LONG_AGO_MS, is_known=False))
    assert unknown.due() == ()
    assert unknown.refusals()["ReplacementRefused"] == (
        f"broker-1: its volumes stay: whether their machine is gone is not known: {reason}"
    )
    assert unknown.plan(LONG_AGO_MS + 1_000).refusals == (), "a pod is not scheduled at once"
    assert stranded(healthy(3, brokers=3), 1, lost=unknown.observed.nodes[1].lost_volumes).refusals() == {}


def test_volumes_stay_bound_while_the_pod_may_run() -> None:
    """A machine that does not answer may be cut off, and its process may run on."""
    lost = LostVolumes(
        reason="the Kubernetes node worker-2 does not answer", since_ms=LONG_AGO_MS, has_pod=True
    )
    away = unbinding().node(1, state=NodeState.UNREADY, unreachable_host=True, lost_volumes=lost)
    assert away.due() == ()
    assert away.refusals()["ReplacementRefused"] == (
        f"broker-1: its volumes stay: {lost.reason}, and its pod is still there and may run: if the machine is "
        "gone, delete its Node object or taint it with node.kubernetes.io/out-of-service, and Kubernetes "
        "removes the pod"
    )
