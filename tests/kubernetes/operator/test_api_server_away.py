"""An API server that is away while nodes are restarted, on a real one."""

import pytest
from kit.operators.dying_operators import pods_so_far, steps_of
from kit.operators.operated import CONTROLLERS_FIRST, Operated
from kit.waiting import eventually

NODES = range(CONTROLLERS_FIRST, CONTROLLERS_FIRST + 3)
AWAY_S = 120
UNREADY_S = 60
"""The time after which the operator is not ready; QuorateApiServerNotRead fires a minute later."""
TIMEOUT_S = 300


@pytest.mark.timeout(900)
def test_a_roll_ends_well_after_the_api_server_was_away(operated: Operated) -> None:
    """Each node restarts once, whenever the API server goes, and readiness and the metric of the alert report it."""
    operated.create()
    operator = operated.start_operator()
    operated.wait_settled(*NODES)
    assert operator.serves("/readyz") == (200, "ok\n")
    before, uids = pods_so_far(operated, NODES), operated.pod_uids()

    def is_half_done() -> bool:
        return any("done: StopNode" in event for event in operator.events())

    operated.annotate(restart="once")
    operated.wait(is_half_done, "the first node to be stopped")
    with operated.server.away():

        def unread_s() -> float:
            return operator.metric("quorate_api_server_unread_seconds")

        eventually(lambda: unread_s() > UNREADY_S, TIMEOUT_S, "the API server to be missed")
        status, text = operator.serves("/readyz")
        assert status == 503
        assert "the API server has answered no request for" in text
        eventually(lambda: unread_s() >= AWAY_S, TIMEOUT_S, "two minutes")
        assert operator.serves("/healthz")[0] == 200
        assert operator.process.poll() is None

    def is_done() -> bool:
        return operated.settled(*NODES) and not uids & operated.pod_uids()

    operated.wait(is_done, "every node to be restarted", TIMEOUT_S)
    assert pods_so_far(operated, NODES) == {node_id: pods + 1 for node_id, pods in before.items()}
    for node_id in NODES:
        done = [event for event in steps_of(operator, "StopNode", node_id) if "done: " in event]
        assert len(done) == 1
    assert operator.serves("/readyz") == (200, "ok\n")
    assert operator.metric("quorate_api_server_unread_seconds") == 0
