"""Feature levels, ghosts, and the migration from static voters."""

import pytest
from kit.scenarios import REVISION, Situation, briefly, healthy, voter
from quorate_operator.planning.cluster import Address, NodeState, Role
from quorate_operator.planning.steps import FinalizeFeature, RefreshRegistration, UnregisterController

OLD = {"metadata.version": (7, 29)}
LEVELS_4_2 = {
    "metadata_version": 29,
    "transaction_version": 2,
    "group_version": 1,
    "eligible_leader_replicas_version": 1,
    "share_version": 1,
    "streams_version": 1,
}


def at_4_2(brokers: int = 1) -> Situation:
    """A cluster at 4.2 with all that comes with it, which is to be at 4.3."""
    situation = healthy(3, brokers).finalized(
        **{key: level for key, level in LEVELS_4_2.items() if key != "eligible_leader_replicas_version"}
    )
    situation = situation.kafka(
        features={**situation.observed.kafka.features, "eligible.leader.replicas.version": 1}  # type: ignore[union-attr]
    )
    return situation.asking(metadata_version="4.3")


def test_a_level_is_finalized_when_every_node_supports_it() -> None:
    (step,) = at_4_2().due()
    assert step == FinalizeFeature(
        feature="metadata.version",
        level=30,
        reason="metadata.version 4.2-IV1 -> 4.3-IV0: every registered node supports it",
    )


def test_nodes_that_are_due_for_a_restart_come_first() -> None:
    """A level can't be reverted, so all nodes run the release first."""
    rolling = at_4_2().node(0, revision={**REVISION, "version": "4.2.0"}).registered(0, Role.BROKER, OLD)
    assert briefly(rolling.due()) == ["StopNode 0"]
    assert (
        "metadata.version 4.2-IV1 -> 4.3-IV0: every registered node has to support it; waiting for broker-0"
        in rolling.waits()
    )


def test_who_blocks_an_upgrade_is_named() -> None:
    blocked = at_4_2().registered(77, Role.BROKER, OLD)
    assert blocked.due() == ()
    assert blocked.refusals()["UpgradeBlocked"] == (
        "metadata.version 4.3-IV0 (30) can't be finalized, it stays 29: broker-77 supports 7-29. "
        "Upgrade them (spec.version), or set a level that all of them support"
    )


def test_a_voter_that_is_not_registered_is_waited_for() -> None:
    silent = at_4_2().unregistered(3002)
    assert silent.due() == ()
    assert "waiting for controller-3002" in silent.waits()


def test_an_unsafe_downgrade_is_refused_and_a_safe_one_is_done() -> None:
    unsafe = healthy(3).asking(metadata_version="4.2")
    assert unsafe.due() == ()
    assert "records changed with 4.3-IV0" in unsafe.refusals()["UnsafeDowngrade"]
    (step,) = healthy(3).finalized(metadata_version=29).asking(metadata_version="4.1").due()
    assert isinstance(step, FinalizeFeature)
    assert (step.level, step.is_downgrade) == (27, True)


def test_an_unknown_version_is_told_with_those_that_exist() -> None:
    message = healthy(3).asking(metadata_version="9.9").refusals()["UnknownMetadataVersion"]
    assert "'9.9': there is no such version; there are 3.3-IV3" in message


def test_features_of_the_release_follow() -> None:
    situation = at_4_2().finalized(metadata_version=30, share_version=0)
    features = dict.fromkeys(("share.version",), (0, 9)) | {"metadata.version": (7, 30)}
    for node_id, registration in situation.observed.kafka.registrations.items():  # type: ignore[union-attr]
        situation = situation.registered(node_id, registration.role, features)
    (step,) = situation.due()
    assert isinstance(step, FinalizeFeature)
    assert (step.feature, step.level) == ("share.version", 1)
    assert situation.finalized(share_version=2).plan().steps == ()


def test_a_feature_without_what_it_needs_is_refused() -> None:
    asked = healthy(3).finalized(metadata_version=22).asking(features={"eligible.leader.replicas.version": 1})
    assert "depends on metadata.version level 23" in asked.refusals()["UpgradeBlocked"]


def test_a_ghost_is_unregistered_where_that_is_possible() -> None:
    (step,) = healthy(3).finalized(metadata_version=33).registered(3099, Role.CONTROLLER).due()
    assert step == UnregisterController(
        node_id=3099, reason="it is gone: it is no voter and does not follow the metadata log"
    )


def test_a_ghost_that_blocks_an_upgrade_is_refreshed_then_the_level_is_finalized() -> None:
    blocked = at_4_2().registered(3099, Role.CONTROLLER, OLD)
    (step,) = blocked.due()
    assert step == RefreshRegistration(
        node_id=3099, reason="it is gone, and its registration (metadata.version 7 to 29) blocks 4.3-IV0"
    )
    assert blocked.refusals() == {}
    assert briefly(blocked.registered(3099, Role.CONTROLLER).due()) == ["FinalizeFeature"]


def test_a_ghost_that_harms_nobody_is_let_be() -> None:
    assert healthy(3).registered(3099, Role.CONTROLLER, OLD).plan().steps == ()


def test_a_ghost_gives_up_an_address_that_another_node_wants() -> None:
    """A rename ends although the former node of the name is gone."""
    name = Address(host="inherited", port=9092)
    situation = healthy(3).asking_node(3001, advertised={"CONTROLLER": name})
    (step,) = situation.registered(3099, Role.CONTROLLER, endpoints={"CONTROLLER": name}).due()
    assert step == RefreshRegistration(
        node_id=3099,
        reason="it is gone, and its registration has addresses that no other node can get meanwhile",
    )


@pytest.mark.parametrize("life", ["desired", "voter", "runs", "unknown", "follows"])
def test_what_may_live_is_not_unregistered(life: str) -> None:
    """The guard: a node that may come back keeps its registration."""
    situation = healthy(4).finalized(metadata_version=33)
    if life == "desired":
        situation = situation.down(3003)
    elif life == "voter":
        situation = situation.asking_controllers(3000, 3001, 3002)
    else:
        situation = situation.asking_controllers(3000, 3001, 3002).no_voter(3003)
    if life == "unknown":
        situation = situation.node(3003, state=NodeState.STOPPED, unreachable_host=True)
    if life == "follows":
        situation = situation.seeing(
            nodes={key: node for key, node in situation.observed.nodes.items() if key != 3003}
        ).quorum(observers=(voter(3003),))
    assert not [step for step in situation.due() if isinstance(step, UnregisterController)]


def test_an_upgrade_waits_for_a_controller_that_left_a_moment_ago() -> None:
    leaving = at_4_2().registered(3099, Role.CONTROLLER, OLD).quorum(observers=(voter(3099),))
    assert leaving.refusals() == {}
    assert leaving.due() == ()
    assert "waiting for controller-3099" in leaving.waits()


def static() -> Situation:
    """A static quorum that is to be dynamic."""
    return healthy(3).quorum(kraft_version=0).finalized(kraft_version=0)


def test_a_static_quorum_becomes_dynamic_when_every_voter_is_there() -> None:
    (start,) = static().down(3001).due()
    assert type(start).__name__ == "StartNode"
    assert "controller-3001 to catch up: each voter registers its directory id" in static().down(3001).waits()
    (step,) = static().due()
    assert isinstance(step, FinalizeFeature)
    assert (step.feature, step.level) == ("kraft.version", 1)


def test_membership_and_restarts_wait_for_the_migration() -> None:
    asked = static().asking_controllers(*range(3000, 3005)).asking_config()
    assert briefly(asked.due()) == ["FinalizeFeature"]


def test_configurations_without_voters_roll_afterwards() -> None:
    assert briefly(healthy(3).asking_config().due()) == ["StopNode 3001"]


def test_there_is_no_way_back_to_static() -> None:
    asked = healthy(3).asking(dynamic_quorum=False).down(3001)
    assert briefly(asked.due()) == ["StartNode 3001"]
    assert "Kafka cannot make it static again" in asked.refusals()["NoWayBack"]
