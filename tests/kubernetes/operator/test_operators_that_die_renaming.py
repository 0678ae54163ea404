"""Operators come and go while nodes get other names: each node restarts once, and the end is the same."""

import pytest
from kit.operators.dying_operators import DONE, final_state, kill_after_each_step, pods_so_far, steps_of
from kit.operators.operated import CONTROLLERS_FIRST, Operated, forwarded
from kit.operators.service_names import names_of_services

NODES = range(CONTROLLERS_FIRST, CONTROLLERS_FIRST + 3)
# The names, three stops and starts, what is retired and withdrawn; some of these are due together.
PUBLISHING_KILLS_MIN = 8
# Each operator takes seconds to start where others use the processors.
TIMEOUT_S = 900


@pytest.mark.timeout(TIMEOUT_S)
def test_killed_while_names_of_others_are_taken(operated: Operated) -> None:
    """A verified external name outlives the operator: each node restarts once."""
    operated.create()
    operated.start_operator()
    operated.wait_settled(*NODES)
    prefix = operated.network.rsplit(".", 1)[0]
    undisturbed, disturbed = f"{prefix}.251", f"{prefix}.252"
    pairs = [pair for network in (undisturbed, disturbed) for pair in operated.led_to(network, NODES)]
    with forwarded(pairs):

        def is_called(network: str) -> bool:
            endpoints = {voter.get("endpoint", "") for voter in operated.status().get("voters", ())}
            return operated.settled(*NODES) and endpoints == {
                str(new) for new, _ in operated.led_to(network, NODES)
            }

        operated.patch(advertisedHost=f"{undisturbed}.1{{offset}}")
        operated.wait(lambda: is_called(undisturbed), "every voter to have its new endpoint")
        expected = final_state(operated, undisturbed)
        operated.operators[-1].kill()
        before = pods_so_far(operated, NODES)
        operated.patch(advertisedHost=f"{disturbed}.1{{offset}}")
        begun = len(operated.operators)
        kills = kill_after_each_step(operated, lambda: is_called(disturbed), (DONE,))
        assert final_state(operated, disturbed) == expected
    assert kills >= 2 * len(NODES)
    assert pods_so_far(operated, NODES) == {node_id: pods + 1 for node_id, pods in before.items()}
    between = [
        node_id
        for node_id in NODES
        for operator in operated.operators[begun:]
        if steps_of(operator, "StopNode", node_id) and not steps_of(operator, "StartNode", node_id)
    ]
    assert sorted(between) == list(NODES), "each was started by another operator than the one that stopped it"


@pytest.mark.timeout(TIMEOUT_S)
def test_killed_while_names_are_published(operated: Operated, monkeypatch: pytest.MonkeyPatch) -> None:
    """As above, for names that the operator points at nodes itself; old ones are withdrawn in the end."""
    with names_of_services(operated, monkeypatch):
        operated.create()
        operated.start_operator()
        operated.wait_settled(*NODES)
        operated.patch(advertisedHost=f"old{{nodeId}}.{operated.namespace}.svc")
        operated.wait(lambda: _is_published(operated, "old"), "every voter to have its new endpoint")
        expected = final_state(operated, "old")
        operated.operators[-1].kill()
        before = pods_so_far(operated, NODES)
        operated.patch(advertisedHost=f"new{{nodeId}}.{operated.namespace}.svc")
        kills = kill_after_each_step(operated, lambda: _is_published(operated, "new"))
        assert final_state(operated, "new") == expected
    assert kills >= PUBLISHING_KILLS_MIN
    assert pods_so_far(operated, NODES) == {node_id: pods + 1 for node_id, pods in before.items()}


def _is_published(operated: Operated, name: str) -> bool:
    endpoints = {voter.get("endpoint", "").partition(".")[0] for voter in operated.status().get("voters", ())}
    return operated.settled(*NODES) and endpoints == {f"{name}{node_id}" for node_id in NODES}
