"""The view of a cluster, from which every surface is rendered."""

from dataclasses import replace

import pytest
from kit.snapshots import BROKERS, CLUSTER_ID, CONTROLLERS, busy, well
from quorate_operator.planning.cluster import NodeState, ObservedCluster
from quorate_operator.planning.steps import Plan, StartNode, WaitFor
from quorate_operator.runtime.local.status import plan_as_json
from quorate_operator.view.cluster import ClusterView, is_serving, view_of
from quorate_operator.web.snapshots import ClusterSnapshot


def seen(snapshot: ClusterSnapshot) -> ObservedCluster:
    """What was observed."""
    assert snapshot.observed is not None
    return snapshot.observed


def with_observed(snapshot: ClusterSnapshot, observed: ObservedCluster) -> ClusterView:
    """The view with another observation."""
    return replace(snapshot, observed=observed).view()


def test_nodes_are_in_the_order_of_the_manifests_and_then_those_that_leave() -> None:
    view = busy().view()
    assert [node.seen.node_id for node in view.nodes] == [*CONTROLLERS, *BROKERS, 3003]
    assert [node.seen.node_id for node in view.nodes if not node.is_desired] == [3003]


@pytest.mark.parametrize("part", ["leader", "node", "nothing"])
def test_a_cluster_serves_with_a_leader_and_every_desired_node(part: str) -> None:
    observed = seen(well())
    if part == "leader":
        observed = replace(observed, quorum=None, kafka=None)
    if part == "node":
        unready = replace(observed.nodes[1], state=NodeState.UNREADY)
        observed = replace(observed, nodes={**observed.nodes, 1: unready})
    view = with_observed(well(), observed)
    assert view.is_ready == (part == "nothing")
    desired = well().desired
    assert desired is not None
    assert is_serving(desired, observed) == view.is_ready


def test_a_formed_cluster_has_its_id_also_without_a_leader() -> None:
    snapshot = well()
    assert snapshot.desired is not None
    anonymous = replace(snapshot, desired=replace(snapshot.desired, cluster_id=None))
    view = with_observed(anonymous, replace(seen(snapshot), quorum=None, kafka=None))
    assert view.cluster_id == CLUSTER_ID
    unknown = view_of("new", None, None, None, problem="spec.replicas: 0: too few")
    assert (unknown.cluster_id, unknown.is_observed, unknown.registrations) == (None, False, None)


def test_a_pool_has_its_own_steps_and_the_waits_among_them() -> None:
    plan = Plan(
        steps=(
            WaitFor(reason="controllers to catch up: 3000", node_ids=(3000,)),
            WaitFor(reason="broker-0 to stop", node_ids=(0,)),
            StartNode(node_id=0, reason="it does not run"),
        )
    )
    view = replace(well(), plan=plan).view()
    controllers, brokers = view.pool("quorum", is_controllers=True), view.pool("brokers")
    assert [step.waits_for for step in controllers.steps] == [
        None,
        "controllers to catch up: 3000",
        "broker-0 to stop",
    ]
    assert [step.waits_for for step in brokers.steps] == [None, "broker-0 to stop"]
    assert (controllers.version, brokers.ready) == ("4.3.1", 3)


def test_programs_read_the_same_plan_as_people() -> None:
    view = busy().view()
    shown = plan_as_json(view)
    assert [step["text"] for step in shown["steps"]] == [step.text for step in view.steps]
    assert [step["due"] for step in shown["steps"]] == [True, True, False, False, False]
    assert view.next.startswith("Publish broker-2.old.example.com:9094 of broker-2, and 1 more: ")
    assert [refusal["code"] for refusal in shown["refusals"]] == ["UpgradeBlocked"]
