"""Pools that are deleted while their quorum stays: who stops when, and what has to go before the pool does."""

from dataclasses import replace

from kit.scenarios import NOW_MS, Situation, briefly, broker, healthy
from quorate_operator.planning.cluster import NodeState, Role
from quorate_operator.planning.decommission import remaining_pools, with_pool_removal
from quorate_operator.planning.steps import Plan, StopNode

POOL = "brokers"


def deleted(situation: Situation) -> Plan:
    """The plan when the pool of all brokers is deleted, and its volumes stay."""
    brokers = {node.node_id: node for node in situation.observed.nodes.values() if node.pool == POOL}
    staying = situation.asking(nodes=tuple(node for node in situation.desired.nodes if node.pool != POOL))
    nodes = {node_id: node for node_id, node in situation.observed.nodes.items() if node_id not in brokers}
    plan = staying.seeing(nodes=nodes).plan(NOW_MS)
    return with_pool_removal(plan, brokers)


def stopped(situation: Situation, *node_ids: int) -> Situation:
    """With brokers that have no pod any more."""
    for node_id in node_ids:
        situation = situation.down(node_id)
    return situation


def test_brokers_stop_one_by_one_and_keep_their_volumes() -> None:
    situation = healthy(brokers=2)
    assert briefly(deleted(situation).due) == ["StopNode 0"]
    assert briefly(deleted(stopped(situation, 0)).due) == ["StopNode 1"]
    assert briefly(deleted(situation.down(0, NodeState.CRASHED)).due) == ["StopNode 0"]
    assert deleted(stopped(situation, 0, 1)).steps == ()


def test_a_broker_that_nobody_can_stop_is_waited_for() -> None:
    plan = deleted(healthy(brokers=2).node(0, unreachable_host=True))
    assert briefly(plan.due) == ["StopNode 1"]
    assert "the machine of broker-0" in plan.waits[0].reason


def test_one_node_is_stopped_at_a_time() -> None:
    plan = deleted(healthy(brokers=1).asking_config(role=Role.CONTROLLER))
    assert len(plan.due) == 1
    assert isinstance(plan.due[0], StopNode)
    assert plan.due[0].node_id != 0
    assert any("the turn of broker-0" in wait.reason for wait in plan.waits)


def test_a_pool_goes_when_nothing_is_left_that_has_to_go_before() -> None:
    situation = healthy(brokers=1)
    running = situation.observed.nodes[0]
    evicted = replace(running, state=NodeState.CRASHED)
    stopped = replace(running, state=NodeState.STOPPED)
    drained = situation.asking(drained_pools=frozenset({POOL}), drained=(broker(0),)).desired
    kafka = situation.observed.kafka
    for present in (running, evicted):
        assert remaining_pools({0: present}, ()) == remaining_pools({0: present}, [POOL]) == {POOL}
    assert remaining_pools({0: stopped}, ()) == frozenset()
    assert remaining_pools({0: stopped}, [POOL]) == {POOL}
    assert remaining_pools({}, [POOL], drained, kafka) == {POOL}
    assert remaining_pools({}, [POOL], drained, situation.unregistered(0).observed.kafka) == frozenset()
