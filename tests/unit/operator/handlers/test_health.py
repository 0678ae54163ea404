"""The operator's health: what is under way, and what is stuck."""

from contextlib import ExitStack

from quorate_operator.handlers.health import PASS_AGE_S_MAX, UNREAD_S_MAX, Liveness


def test_two_passes_over_one_cluster_are_two() -> None:
    now = 0.0
    liveness = Liveness(lambda: now)
    with ExitStack() as first, liveness.pass_of("kafka/quorum"):
        first.enter_context(liveness.pass_of("kafka/quorum"))
        first.close()
        assert liveness.fault() is None
        now = PASS_AGE_S_MAX + 1
        liveness._beat = now
        assert liveness.fault() == f"passes do not end: kafka/quorum: {now:.0f} s"
    assert liveness.fault() is None


def test_readiness_is_lost_while_the_api_server_answers_nothing() -> None:
    now = 100.0
    liveness = Liveness(lambda: now)
    assert liveness.unreadiness() == "starting"
    liveness.is_ready = True
    reachability = liveness.reachability
    reachability.succeeded()
    now += 1_000
    assert liveness.unreadiness() is None, "nothing was requested"
    reachability.failed(now, "no route to host")
    assert liveness.unreadiness() is None
    now += UNREAD_S_MAX + 1
    assert liveness.unreadiness() == "the API server has answered no request for 61 s: no route to host"
    reachability.failed(now, "still no route")
    assert reachability.unread_s == UNREAD_S_MAX + 1
    reachability.succeeded()
    assert (liveness.unreadiness(), reachability.unread_s) == (None, 0)


def test_a_request_that_waits_for_its_time_limit_counts_from_its_beginning() -> None:
    now = 0.0
    liveness = Liveness(lambda: now)
    liveness.is_ready = True
    now = UNREAD_S_MAX + 1
    liveness.reachability.failed(0, "TimeoutError()")
    assert liveness.unreadiness() is not None
    liveness.reachability.succeeded()
    liveness.reachability.failed(now - 1, "began before others were answered")
    assert liveness.unreadiness() is None
