"""The operator's health: what is under way, and what is stuck."""

from contextlib import ExitStack

from quorate_operator.handlers.health import PASS_AGE_S_MAX, Liveness


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
