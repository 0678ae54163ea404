"""Rolls that wait for a node that does not come back: what is reported, and which nodes are held up."""

import pytest
from kit.scenarios import NOW_MS, Situation, briefly, healthy
from quorate_operator.planning.cluster import FORCE, NodeState, Role
from quorate_operator.planning.steps import ROLLOUT_BLOCKED, StopNode, WaitFor

MINUTE_MS = 60_000
STARTING = {"state": NodeState.STARTING, "started_at_ms": NOW_MS - 1_000}
ATTEMPTS = [
    {"state": NodeState.STARTING, "started_at_ms": None, "waiting_since_ms": NOW_MS - 7 * MINUTE_MS},
    {**STARTING, "has_opened": False},
    {**STARTING, "has_opened": True},
    {"state": NodeState.CRASHED, "started_at_ms": None, "exited_at_ms": NOW_MS - 1_000},
]
"""A node in a crash loop as it is observed between two attempts, and in one."""
CRASHES = {"exits_in_a_row": 6, "problem": "the process ended with status 1, 6 times so far"}


def restarted(situation: Situation, *node_ids: int) -> Situation:
    """Nodes that run with what is asked for."""
    for node in situation.desired.nodes:
        if node.node_id in node_ids:
            situation = situation.node(node.node_id, revision=node.revision)
    return situation


def stops(situation: Situation) -> list[int]:
    """The nodes that are to stop now."""
    return [step.node_id for step in situation.due() if isinstance(step, StopNode)]


def blocked(situation: Situation) -> str:
    """Return why the roll is blocked."""
    (wait,) = [wait for wait in situation.plan().waits if wait.is_stalled]
    assert wait.code == ROLLOUT_BLOCKED
    return wait.reason


@pytest.mark.parametrize("attempt", ATTEMPTS)
@pytest.mark.parametrize("node_id", [0, 3001])
def test_a_crash_loop_blocks_the_roll_in_each_of_its_attempts(
    node_id: int, attempt: dict[str, object]
) -> None:
    due = restarted(healthy(3, brokers=3).asking_config(), 3000, 3001, 3002, 0)
    loop = due.node(node_id, **attempt, **CRASHES)
    if node_id == 3001:
        loop = loop.voter(node_id, caught_up=False)
    assert stops(loop) == []
    assert f'quorate.dev/skip-rollout-{node_id}: "true" has the others restarted' in blocked(loop)
    twice = loop.node(node_id, exits_in_a_row=2, waiting_since_ms=NOW_MS, exited_at_ms=NOW_MS)
    if attempt["state"] is NodeState.STARTING:
        assert [wait.code for wait in twice.plan().waits if wait.code] == []


@pytest.mark.parametrize("attempt", ATTEMPTS[:3])
def test_a_broker_in_a_crash_loop_is_no_help_for_partitions(attempt: dict[str, object]) -> None:
    due = healthy(3, brokers=3).asking_config(role=Role.BROKER)
    due = restarted(due, 0).asking_node(0, skips_rollout=True).load(1, fragile=1).load(2, fragile=1)
    loop = due.node(0, **attempt, **CRASHES)
    assert "1 partition would fall below min.insync.replicas without it; no node is starting" in blocked(loop)
    first = due.node(0, **STARTING, exits_in_a_row=1, problem="the process ended with status 1")
    assert [wait.code for wait in first.plan().waits if wait.code] == []


def test_controllers_wait_for_no_broker_in_a_crash_loop() -> None:
    """They may be what it crashes of."""
    due = healthy(3, brokers=2).asking_config(role=Role.CONTROLLER)
    assert stops(due.node(0, **STARTING, **CRASHES)) == [3001]
    assert stops(due.node(0, **STARTING, exits_in_a_row=1, problem="the process ended with status 1")) == []


AWAY = {"state": NodeState.UNREADY, "unreachable_host": True}


def test_a_roll_that_waits_for_a_machine_names_the_ways_out() -> None:
    lost = healthy(3, brokers=3).node(1, **AWAY)
    rolling = restarted(lost.asking_config(role=Role.BROKER), 1)
    for situation in (rolling, lost.asking_config(role=Role.BROKER)):
        assert stops(situation) == []
        reason = blocked(situation)
        assert "its machine does not answer" in reason
        assert "decommission broker-1 if its machine is gone for good" in reason
        assert 'quorate.dev/skip-rollout-1: "true" has the others restarted' in reason
        assert stops(situation.asking_node(1, skips_rollout=True)) == [0]
    assert "broker-1 is not ready (its machine does not answer), and the roll stops" in blocked(rolling)


def test_a_start_on_a_machine_that_is_gone_is_nothing_to_wait_for() -> None:
    """kubelet reports its containers no more, so that they stay as they were."""
    due = healthy(3, brokers=3).asking_config(role=Role.BROKER)
    frozen = due.node(1, **STARTING | {"started_at_ms": NOW_MS - 20 * MINUTE_MS}, unreachable_host=True)
    assert stops(frozen.node(0, state=NodeState.UNREADY)) == [0]
    fragile = frozen.asking_node(1, skips_rollout=True).load(0, fragile=1).load(2, fragile=1)
    assert "no node is starting that could help" in blocked(fragile)


def test_a_controller_on_a_machine_that_is_gone_holds_up_no_broker() -> None:
    lost = healthy(3, brokers=2).node(3001, **AWAY).voter(3001, caught_up=False)
    due = restarted(lost.asking_config(), 3000, 3002)
    assert stops(due) == [0]
    assert "the turn of controller-3001 to be restarted (config changed)" in due.waits()
    last = restarted(due, 0, 1)
    assert stops(last) == []
    assert "decommission controller-3001 if its machine is gone for good" in blocked(last)
    elected = last.load(1, unpreferred=4).node(1, started_at_ms=NOW_MS - 5_000)
    assert briefly(elected.due()) == ["ElectPreferredLeaders"]


def test_controllers_that_a_lost_machine_keeps_from_a_restart_name_it() -> None:
    lost = healthy(3, brokers=2).node(3001, **AWAY).voter(3001, caught_up=False).asking_config()
    assert stops(lost) == []
    reason = blocked(lost)
    assert "without it only 3000 of 3 voters would be alive and caught up" in reason
    assert reason.endswith("decommission controller-3001 if its machine is gone for good")
    behind = lost.node(3001, unreachable_host=False, started_at_ms=NOW_MS)
    assert [wait.code for wait in behind.plan().waits if wait.code] == []


def test_the_plan_lists_forced_restarts_while_a_controller_is_stopped() -> None:
    due = healthy(3, brokers=2).asking_config()
    (node,) = (node for node in due.desired.nodes if node.node_id == 1)
    steps = due.asking_node(1, revision={**node.revision, FORCE: "now"}).plan().steps
    stopped = [step.node_id for step in steps if isinstance(step, StopNode)]
    assert stopped == [3001, 3002, 3000, 0, 1]
    assert not isinstance(steps[0], WaitFor)
