"""A cluster is formed once: the identity first, all disks before the first start, and never a second time."""

from dataclasses import replace

import pytest
from kit.scenarios import CLUSTER_ID, LONG_AGO_MS, Situation, briefly, broker, controller, healthy, untouched
from quorate_operator.planning.cluster import Formation, Implementation, NodeState
from quorate_operator.planning.steps import FormCluster

FORMING = Formation(
    cluster_id=CLUSTER_ID,
    initial_voters={node_id: f"disk-{node_id}" for node_id in (3000, 3001, 3002)},
    is_formed=False,
)


def formed() -> Situation:
    """A cluster that was formed, and of which no leader answers."""
    return healthy(3).leaderless()


def test_from_nothing_to_running_nodes() -> None:
    nothing = untouched(3, brokers=1)
    (form,) = nothing.due()
    assert form == FormCluster(
        node_ids=(3000, 3001, 3002),
        cluster_id=None,
        reason="the cluster is new: 3000, 3001 and 3002 become its first voters",
    )
    settled = nothing.seeing(formation=FORMING)
    assert sorted(briefly(settled.due())) == [
        "CreateNode 0",
        "CreateNode 3000",
        "CreateNode 3001",
        "CreateNode 3002",
        "StartNode 0",
    ]
    assert {step.node_id: getattr(step, "is_initial", None) for step in settled.due()[:4]} == {
        3000: True,
        3001: True,
        3002: True,
        0: False,
    }
    formatted = settled
    for node_id in (3000, 3001, 3002):
        formatted = formatted.down(node_id, directory_id=f"disk-{node_id}", has_volume=True)
    formatted = formatted.node(0, state=NodeState.STARTING)
    assert briefly(formatted.due()) == ["StartNode 3000", "StartNode 3001", "StartNode 3002"]
    assert "a leader of the controller quorum" in formatted.waits()


def test_brokers_beside_stock_controllers_wait_for_the_first_leader() -> None:
    situation = healthy(3, 1).asking(
        nodes=(
            controller(3000),
            controller(3001),
            controller(3002, implementation=Implementation.JAVA),
            broker(0),
        )
    )
    led = situation.down(0, directory_id="disk-0", has_volume=True)
    assert "StartNode 0" in briefly(led.due())
    forming = led.seeing(kafka=None, quorum=None, formation=FORMING)
    assert "StartNode 0" not in briefly(forming.due())
    assert "a leader of the controller quorum" in forming.waits()
    assert "StartNode 0" in briefly(forming.asking(dynamic_quorum=False).due())


def test_no_first_voter_starts_before_all_have_disks() -> None:
    half = untouched(3).seeing(formation=FORMING)
    for node_id in (3000, 3001):
        half = half.down(node_id, directory_id=f"disk-{node_id}", has_volume=True)
    assert briefly(half.due()) == ["CreateNode 3002"]


@pytest.mark.parametrize(
    "evidence",
    [{"state": NodeState.STARTING}, {"state": NodeState.STOPPED, "started_at_ms": LONG_AGO_MS}],
    ids=["runs", "ran"],
)
def test_a_disk_that_is_lost_before_the_first_leader_is_not_formatted_again(
    evidence: dict[str, object],
) -> None:
    situation = untouched(3).seeing(formation=FORMING)
    for node_id in (3000, 3001):
        situation = situation.down(node_id, directory_id=f"disk-{node_id}", has_volume=True)
    situation = situation.node(3000, **evidence)
    assert "CreateNode 3002" not in briefly(situation.due())
    assert "a leader of the controller quorum" in situation.waits()
    assert situation.refusals() == {}
    worse = situation.down(3001, NodeState.ABSENT)
    assert "it can't be formed a second time" in worse.refusals()["QuorumLost"]


def test_an_edit_before_anything_was_created_settles_again() -> None:
    edited = untouched(5).seeing(formation=FORMING)
    (form,) = edited.due()
    assert isinstance(form, FormCluster)
    assert form.node_ids == (3000, 3001, 3002, 3003, 3004)


def test_a_founder_that_is_not_asked_for_any_more_is_told() -> None:
    situation = untouched(3).seeing(formation=FORMING)
    situation = situation.down(3000, directory_id="disk-3000", has_volume=True)
    edited = situation.asking(nodes=(controller(3000), controller(3001)))
    assert "keep 3002 until it has a leader" in edited.refusals()["FormationUnderWay"]


def test_controllers_that_come_later_wait_for_the_first_leader() -> None:
    situation = untouched(4).seeing(formation=FORMING)
    for node_id in (3000, 3001, 3002):
        situation = situation.down(node_id, directory_id=f"disk-{node_id}", has_volume=True)
    assert briefly(situation.due()) == ["StartNode 3000", "StartNode 3001", "StartNode 3002"]


def test_all_disks_gone_is_no_new_cluster() -> None:
    gone = formed()
    for node_id in (3000, 3001, 3002):
        gone = gone.down(node_id, NodeState.ABSENT)
    assert gone.due() == ()
    assert "No disk is left to rebuild it from" in gone.refusals()["QuorumLost"]


def test_a_cluster_whose_identity_was_lost_is_not_formed_again() -> None:
    stopped = formed().seeing(formation=None)
    for node_id in (3000, 3001, 3002):
        stopped = stopped.down(node_id)
    assert briefly(stopped.due()) == ["StartNode 3000", "StartNode 3001", "StartNode 3002"]


def test_a_lost_broker_disk_is_created_anew() -> None:
    lost = healthy(1, brokers=2).down(1, NodeState.ABSENT)
    assert briefly(lost.due()) == ["CreateNode 1", "StartNode 1"]


@pytest.mark.parametrize("who", ["asked", "answers"])
def test_another_cluster_id_stops_everything(who: str) -> None:
    other = "AAAAAAAAAAAAAAAAAAAAAA"
    situation = healthy(3).down(3001)
    situation = situation.asking(cluster_id=other) if who == "asked" else situation.kafka(cluster_id=other)
    assert situation.plan().steps == ()
    assert other in situation.refusals()["ClusterIdMismatch"]
    assert CLUSTER_ID in situation.refusals()["ClusterIdMismatch"]


def test_the_cluster_id_that_is_asked_for_is_settled() -> None:
    (form,) = untouched(1).asking(cluster_id=CLUSTER_ID).due()
    assert isinstance(form, FormCluster)
    assert form.cluster_id == CLUSTER_ID


def test_a_rebuilt_survivor_is_never_formatted() -> None:
    """The rebuilt quorum's only disk is not replaced by an empty one."""
    rebuilt = replace(FORMING, initial_voters={3000: "disk-3000"}, is_rebuilt=True)
    situation = untouched(3).seeing(formation=rebuilt)
    assert situation.due() == ()
    assert "since the quorum was rebuilt" in situation.refusals()["QuorumLost"]
