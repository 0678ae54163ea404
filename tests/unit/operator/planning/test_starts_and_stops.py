"""The planner: from nothing to a cluster that serves, through crashes, and down again."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quorate_operator.models.manifests import load_manifests
from quorate_operator.planning.cluster import (
    NodeState,
    ObservedCluster,
    ObservedNode,
    ObservedQuorum,
)
from quorate_operator.planning.desired import desired_cluster
from quorate_operator.planning.lifecycle import BROKER_GRACE_MS, GRACE_WITHOUT_QUORUM_MS
from quorate_operator.planning.liveness import RESTART_BACKOFF_MS_MAX, restart_backoff_ms
from quorate_operator.planning.planner import plan
from quorate_operator.planning.steps import StartNode, StopNode

MANIFESTS = """\
apiVersion: quorate.dev/v1alpha1
kind: KafkaController
metadata: {name: quorum}
---
apiVersion: quorate.dev/v1alpha1
kind: KafkaBroker
metadata: {name: brokers}
spec: {controllers: quorum, replicas: 2}
"""
NOW_MS = 1_000_000
QUORUM = ObservedQuorum(leader_id=3001, leader_epoch=4, high_watermark=10, kraft_version=1)
DESIRED = desired_cluster(load_manifests(MANIFESTS, "test"))
STOPPING = replace(DESIRED, running=False)


def observed(
    states: NodeState | dict[int, NodeState], quorum: ObservedQuorum | None = QUORUM, **crash: object
) -> ObservedCluster:
    """The cluster with every node in one state, or in the states given by id and READY else."""
    given_states = states if isinstance(states, dict) else {}
    default = NodeState.READY if isinstance(states, dict) else states
    nodes = {}
    for node in DESIRED.nodes:
        state = given_states.get(node.node_id, default)
        crashed = crash if state is NodeState.CRASHED else {}
        nodes[node.node_id] = ObservedNode(node_id=node.node_id, role=node.role, state=state, **crashed)  # type: ignore[arg-type]
    return ObservedCluster(nodes=nodes, quorum=quorum)


def test_nodes_are_labelled_and_placed_in_their_pools() -> None:
    assert [(node.label, node.pool, node.place) for node in DESIRED.nodes] == [
        ("controller-3000", "quorum", 0),
        ("controller-3001", "quorum", 1),
        ("controller-3002", "quorum", 2),
        ("broker-0", "brokers", 0),
        ("broker-1", "brokers", 1),
    ]


def test_a_cluster_in_service_needs_nothing() -> None:
    assert plan(DESIRED, observed(NodeState.READY), NOW_MS).steps == ()


def test_what_starts_is_only_awaited() -> None:
    found = plan(DESIRED, observed(NodeState.STARTING, quorum=None), NOW_MS)
    assert found.due == ()
    assert len(found.waits) == 3


def test_a_crashed_node_is_started_after_its_pause() -> None:
    crash = {"exited_at_ms": NOW_MS, "exit_reason": "killed by SIGKILL", "exits_in_a_row": 2}
    cluster = observed({3002: NodeState.CRASHED}, **crash)
    early = plan(DESIRED, cluster, NOW_MS + 999)
    assert early.due == ()
    assert early.look_again_at_ms == NOW_MS + 1000
    assert early.waits[0].reason == (
        "controller-3002 died (killed by SIGKILL, 2 times in a row) and is started again after a pause"
    )
    (start,) = plan(DESIRED, cluster, NOW_MS + 1000).due
    assert start == StartNode(node_id=3002, reason="it died (killed by SIGKILL, 2 times in a row)")


@pytest.mark.parametrize(
    ("exits", "pause_ms"), [(0, 500), (1, 500), (2, 1000), (4, 4000), (7, 30_000), (10_000, 30_000)]
)
def test_pauses_double_up_to_a_bound(exits: int, pause_ms: int) -> None:
    assert restart_backoff_ms(exits) == pause_ms
    assert pause_ms <= RESTART_BACKOFF_MS_MAX


def test_one_pause_does_not_delay_the_start_of_others() -> None:
    """A crash loop holds no other node up."""
    states = {3000: NodeState.CRASHED, 0: NodeState.STOPPED}
    found = plan(DESIRED, observed(states, exited_at_ms=NOW_MS, exits_in_a_row=5), NOW_MS)
    assert [step.node_id for step in found.due] == [0]


def test_stopping_goes_brokers_standbys_active() -> None:
    stopped: list[set[int]] = []
    states = dict.fromkeys((node.node_id for node in DESIRED.nodes), NodeState.READY)
    while steps := plan(STOPPING, observed(states), NOW_MS).due:
        assert all(isinstance(step, StopNode) for step in steps)
        stopped.append({step.node_id for step in steps})
        states |= dict.fromkeys(stopped[-1], NodeState.STOPPED)
    assert stopped == [{0, 1}, {3000, 3002}, {3001}]


@pytest.mark.parametrize(("quorum", "grace_ms"), [(QUORUM, BROKER_GRACE_MS), (None, GRACE_WITHOUT_QUORUM_MS)])
def test_brokers_get_time_for_a_leave_only_while_someone_grants_it(
    quorum: ObservedQuorum | None, grace_ms: int
) -> None:
    steps = plan(STOPPING, observed(NodeState.READY, quorum), NOW_MS).due
    assert {step.grace_ms for step in steps if isinstance(step, StopNode) and step.node_id < 3000} == {
        grace_ms
    }


def test_a_stopped_cluster_stays_stopped() -> None:
    for state in (NodeState.ABSENT, NodeState.STOPPED, NodeState.CRASHED):
        assert plan(STOPPING, observed(state, quorum=None), NOW_MS).steps == ()


@given(
    start=st.lists(st.sampled_from(list(NodeState)), min_size=5, max_size=5),
    deaths=st.lists(st.sampled_from([node.node_id for node in DESIRED.nodes]), max_size=5),
)
def test_whatever_runs_is_stopped_in_order(start: list[NodeState], deaths: list[int]) -> None:
    states = {node.node_id: state for node, state in zip(DESIRED.nodes, start, strict=True)}
    for death in [*deaths, *[None] * 4]:
        leads = states[QUORUM.leader_id] is NodeState.READY
        cluster = observed(states, QUORUM if leads else None, exited_at_ms=NOW_MS, exits_in_a_row=1)
        running = {node_id for node_id, state in states.items() if state.runs}
        leaving = {step.node_id for step in plan(STOPPING, cluster, NOW_MS).due}
        assert leaving <= running
        assert bool(leaving) == bool(running)
        if any(node_id < 3000 for node_id in running):
            assert all(node_id < 3000 for node_id in leaving)
        if leads and QUORUM.leader_id in leaving:
            assert running == {QUORUM.leader_id}
        states |= dict.fromkeys(leaving, NodeState.STOPPED)
        if death is not None and states[death].runs:
            states[death] = NodeState.CRASHED
    assert not any(state.runs for state in states.values())
