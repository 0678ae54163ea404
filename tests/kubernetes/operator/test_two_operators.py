"""Two operators that were installed for the same clusters by mistake, on a real API server."""

import pytest
from kit.operators.dying_operators import pods_so_far, steps_of
from kit.operators.operated import CONTROLLERS_FIRST, Operated, forwarded

NODES = range(CONTROLLERS_FIRST, CONTROLLERS_FIRST + 3)
TIMEOUT_S = 300


@pytest.mark.timeout(900)
def test_two_operators_stop_one_controller_at_a_time_and_each_once(operated: Operated) -> None:
    """Without selectors and without an election, both have the whole plan of a rename."""
    operated.create()
    operators = [
        operated.start_operator("--no-leader-election", f"--identity={name}") for name in ("one", "two")
    ]
    operated.wait_settled(*NODES)
    for operator in operators:
        operated.wait(
            lambda process=operator: process.serves("/readyz")[0] == 200, "both operators to be ready"
        )
    for round_ in range(2):
        pods = operated.core.list_namespaced_pod(operated.namespace)
        before, uids = pods_so_far(operated, NODES), operated.pod_uids()
        network = f"{operated.network.rsplit('.', 1)[0]}.{251 + round_}"
        pairs = operated.led_to(network, NODES)
        with forwarded(pairs):
            operated.patch(advertisedHost=f"{network}.1{{offset}}")

            def is_renamed(expected: frozenset[str]) -> bool:
                voters = operated.status().get("voters", ())
                return (
                    operated.settled(*NODES) and {voter.get("endpoint", "") for voter in voters} == expected
                )

            expected = frozenset(str(new) for new, _ in pairs)
            operated.wait(lambda known=expected: is_renamed(known), "every voter's new endpoint", TIMEOUT_S)
        assert not uids & operated.pod_uids()
        assert operated.fewest_since(pods) == len(NODES) - 1
        assert pods_so_far(operated, NODES) == {node_id: number + 1 for node_id, number in before.items()}
        done = {
            node_id: sum(
                "done: " in event
                for operator in operators
                for event in steps_of(operator, "StopNode", node_id)
            )
            for node_id in NODES
        }
        assert done == dict.fromkeys(NODES, round_ + 1)
