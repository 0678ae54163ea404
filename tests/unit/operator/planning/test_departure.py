"""Pools that are deleted while their quorum stays: who stops when, and what goes before a volume does."""

from dataclasses import replace

from kit.scenarios import NOW_MS, Situation, briefly, healthy
from quorate_operator.planning.cluster import NodeState, Role
from quorate_operator.planning.departure import with_departure
from quorate_operator.planning.steps import Plan, StopNode

POOL = "brokers"


def deleted(situation: Situation, *, emptied: bool = False) -> Plan:
    """The plan when the pool of all brokers is deleted."""
    brokers = {node.node_id: node for node in situation.observed.nodes.values() if node.pool == POOL}
    staying = situation.asking(nodes=tuple(node for node in situation.desired.nodes if node.pool != POOL))
    nodes = {node_id: node for node_id, node in situation.observed.nodes.items() if node_id not in brokers}
    plan = staying.seeing(nodes=nodes).plan(NOW_MS)
    return with_departure(plan, brokers, [POOL] if emptied else [], situation.observed.kafka)


def stopped(situation: Situation, *node_ids: int) -> Situation:
    """With brokers that have no pod any more."""
    for node_id in node_ids:
        situation = situation.down(node_id)
    return situation


def test_brokers_stop_one_by_one_and_keep_their_volumes() -> None:
    """Goal: one at a time, then nothing. Method: two brokers, then one, then none; also one that was evicted."""
    situation = healthy(brokers=2)
    assert briefly(deleted(situation).due) == ["StopNode 0"]
    assert briefly(deleted(stopped(situation, 0)).due) == ["StopNode 1"]
    assert briefly(deleted(situation.down(0, NodeState.CRASHED)).due) == ["StopNode 0"]
    assert deleted(stopped(situation, 0, 1)).steps == ()


def test_a_volume_goes_after_the_registration() -> None:
    """Goal: rule 4. Method: stopped and unfenced, fenced, unregistered, and without a leader."""
    unfenced = stopped(healthy(brokers=1), 0)
    assert unfenced.observed.kafka is not None
    known = unfenced.observed.kafka.registrations
    fenced = unfenced.kafka(registrations={**known, 0: replace(known[0], fenced=True)})
    assert "to be fenced" in deleted(unfenced, emptied=True).waits[0].reason
    assert briefly(deleted(fenced, emptied=True).due) == ["UnregisterBroker 0"]
    assert briefly(deleted(fenced.unregistered(0), emptied=True).due) == ["DeleteVolume 0", "ForgetNode 0"]
    leaderless = deleted(fenced.leaderless(), emptied=True)
    assert any("to unregister broker-0" in wait.reason for wait in leaderless.waits)


def test_a_broker_that_nobody_can_stop_is_waited_for() -> None:
    """Goal: nothing hangs on a machine that is gone. Method: one broker there, one on the other machine."""
    plan = deleted(healthy(brokers=2).node(0, unreachable_host=True))
    assert briefly(plan.due) == ["StopNode 1"]
    assert "the machine of broker-0" in plan.waits[0].reason


def test_one_node_is_stopped_at_a_time() -> None:
    """Goal: a deletion is no second interruption. Method: controllers that are due for a restart, too."""
    plan = deleted(healthy(brokers=1).asking_config(role=Role.CONTROLLER))
    assert len(plan.due) == 1
    assert isinstance(plan.due[0], StopNode)
    assert plan.due[0].node_id != 0
    assert any("the turn of broker-0" in wait.reason for wait in plan.waits)
