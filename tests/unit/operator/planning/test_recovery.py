"""A quorum that has lost its majority for ever, and the one way back."""

from dataclasses import replace

import pytest
from kit.scenarios import CLUSTER_ID, Situation, briefly, healthy
from quorate_operator.planning.cluster import Formation, NodeState
from quorate_operator.planning.losses import LostVolumes, RecoveryRequest
from quorate_operator.planning.steps import RebuildQuorum

EPOCH = 4


def request(survivor: int = 3000, leader_epoch: int = EPOCH, cluster_id: str = CLUSTER_ID) -> RecoveryRequest:
    """A request for the loss of the quorum as it was seen last."""
    return RecoveryRequest(survivor, cluster_id, leader_epoch)


def seen(situation: Situation) -> Situation:
    """A leader was seen in the epoch."""
    assert situation.observed.formation is not None
    return situation.seeing(formation=replace(situation.observed.formation, leader_epoch=EPOCH))


def lost(brokers: int = 0) -> Situation:
    """3000 has its disk and runs; 3001 and 3002 have none any more."""
    situation = seen(healthy(3, brokers)).leaderless()
    return situation.down(3001, NodeState.ABSENT).down(3002, NodeState.ABSENT)


def test_a_lost_quorum_is_told_with_the_way_out() -> None:
    assert lost().due() == ()
    assert lost().refusals()["QuorumLost"] == (
        "the quorum has lost a majority of its disks: controller-3000 has its disk and runs; controller-3001 has "
        "no disk; controller-3002 has no disk. Bring their volumes back. If they are gone for good, the quorum "
        "can be rebuilt from one controller's disk; what is not on that disk is lost. To do that, set in "
        "KafkaController quorum spec.recovery: "
        "{survivor: 3000, clusterId: mRn6LvYdTWmUOSNFgPmBhw, leaderEpoch: 4}"
    )


def test_a_survivor_without_disk_is_refused() -> None:
    asked = lost().asking(recovery=request(3001))
    assert asked.due() == ()
    assert "It is set to 3001, which is not a controller with a disk" in asked.refusals()["QuorumLost"]


@pytest.mark.parametrize(
    "stale",
    [
        request(leader_epoch=EPOCH - 1),
        request(leader_epoch=EPOCH + 1),
        request(cluster_id="AAAAAAAAAAAAAAAAAAAAAA"),
    ],
)
def test_a_request_for_another_loss_has_no_effect(stale: RecoveryRequest) -> None:
    """It may stay in a manifest: neither a later loss nor another cluster is rebuilt by it."""
    asked = lost().asking(recovery=stale)
    assert asked.due() == ()
    assert f"It is set to {stale}, which is another loss than this one" in asked.refusals()["QuorumLost"]
    assert seen(healthy(3)).asking(recovery=stale).refusals() == {}


def test_a_request_before_the_loss_is_reported() -> None:
    """It would be carried out at once."""
    asked = seen(healthy(3)).asking(recovery=request())
    assert asked.due() == ()
    assert "the quorum has a leader in epoch 4" in asked.refusals()["RecoveryNotNeeded"]


def test_several_disks_may_survive() -> None:
    five = seen(healthy(5)).leaderless()
    for node_id in (3002, 3003, 3004):
        five = five.down(node_id, NodeState.ABSENT)
    assert five.refusals()["QuorumLost"].endswith("leaderEpoch: 4}, or with the survivor 3001")


def test_a_quorum_is_rebuilt_from_its_survivor() -> None:
    asked = lost(brokers=1).asking(recovery=request())
    assert briefly(asked.due()) == ["StopNode 3000", "StopNode 0"]
    assert asked.refusals() == {}
    stopped = asked.down(3000).down(0)
    (rebuild,) = stopped.due()
    assert isinstance(rebuild, RebuildQuorum)
    assert rebuild.above_epoch == EPOCH
    assert rebuild.reason == (
        "requested by spec.recovery: only what is on the disk of controller-3000 is kept"
    )
    written = Formation(
        cluster_id=CLUSTER_ID, initial_voters={3000: "disk-3000"}, is_formed=False, is_rebuilt=True
    )
    rebuilt = stopped.seeing(formation=written)
    assert briefly(rebuilt.due()) == ["StartNode 3000"]
    starting = rebuilt.node(3000, state=NodeState.STARTING)
    assert starting.due() == ()
    before = healthy(3, brokers=1).asking(recovery=request()).no_voter(3001).no_voter(3002)
    leads = before.down(3001, NodeState.ABSENT).no_voter(3001).down(3002, NodeState.ABSENT).no_voter(3002)
    leads = leads.down(0).seeing(formation=replace(written, is_formed=True, leader_epoch=EPOCH + 1))
    assert briefly(leads.due()) == [
        "CreateNode 3001",
        "CreateNode 3002",
        "StartNode 3001",
        "StartNode 3002",
        "StartNode 0",
    ]
    assert leads.refusals() == {}, "the request may stay: it is for an epoch that is over"


def test_other_disks_of_the_old_quorum_go_before_the_survivor_starts() -> None:
    situation = seen(healthy(5)).leaderless().asking(recovery=request())
    for node_id in (3002, 3003, 3004):
        situation = situation.down(node_id, NodeState.ABSENT)
    situation = situation.down(3000).down(3001)
    assert briefly(situation.due()) == ["RebuildQuorum 3000"]
    written = Formation(
        cluster_id=CLUSTER_ID, initial_voters={3000: "disk-3000"}, is_formed=False, is_rebuilt=True
    )
    rebuilt = situation.seeing(formation=written)
    assert briefly(rebuilt.due()) == ["DeleteVolume 3001"]
    assert briefly(rebuilt.down(3001, NodeState.ABSENT).due()) == ["StartNode 3000"]


def test_a_machine_that_does_not_answer_may_have_a_quorum() -> None:
    silent = seen(healthy(3)).leaderless().node(3001, state=NodeState.UNREADY, unreachable_host=True)
    asked = silent.down(3002, NodeState.ABSENT).asking(recovery=request())
    assert asked.refusals().get("QuorumLost") is None
    assert not any(isinstance(step, RebuildQuorum) for step in asked.plan().steps)
    five = seen(healthy(5)).leaderless().node(3001, state=NodeState.UNREADY, unreachable_host=True)
    for node_id in (3002, 3003, 3004):
        five = five.down(node_id, NodeState.ABSENT)
    waiting = five.asking(recovery=request())
    assert waiting.due() == ()
    assert "the machine of controller-3001 to answer or to be decommissioned" in waiting.waits()


def test_disks_on_machines_that_are_gone_are_lost() -> None:
    """Kubernetes has removed their pods, and new ones can't be scheduled elsewhere."""
    volumes = LostVolumes(reason="the Kubernetes node worker-2 was removed", since_ms=0)
    situation = seen(healthy(3)).leaderless()
    for node_id in (3001, 3002):
        situation = situation.node(node_id, state=NodeState.STARTING, lost_volumes=volumes)
    assert "controller-3001 has its disk on a machine that is gone" in situation.refusals()["QuorumLost"]
    asked = situation.asking(recovery=request())
    assert briefly(asked.due()) == ["StopNode 3000"]
    stopped = asked.down(3000)
    assert briefly(stopped.due()) == ["RebuildQuorum 3000"]
    rebuilt = stopped.seeing(
        formation=Formation(
            cluster_id=CLUSTER_ID, initial_voters={3000: "disk-3000"}, is_formed=False, is_rebuilt=True
        )
    )
    assert briefly(rebuilt.due()) == ["StopNode 3001", "StopNode 3002"]
    assert briefly(rebuilt.down(3001).down(3002).due()) == ["DeleteVolume 3001", "DeleteVolume 3002"]
    unknown = situation.node(3001, state=NodeState.STARTING, lost_volumes=volumes._replace(is_known=False))
    assert "QuorumLost" not in unknown.refusals()


@pytest.mark.parametrize("gone", [(), (3001,)])
def test_a_minority_of_disks_is_not_a_lost_quorum(gone: tuple[int, ...]) -> None:
    situation = seen(healthy(3)).leaderless().asking(recovery=request())
    for node_id in gone:
        situation = situation.down(node_id, NodeState.ABSENT)
    assert situation.due() == ()
    assert situation.refusals() == {}
