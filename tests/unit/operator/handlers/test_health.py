"""The operator's health: what is under way, and what is stuck."""

from contextlib import ExitStack

from quorate_operator.handlers.health import LOOK_AGE_S_MAX, Pulse


def test_two_looks_at_one_cluster_are_two() -> None:
    now = 0.0
    pulse = Pulse(lambda: now)
    with ExitStack() as first, pulse.look("kafka/quorum"):
        first.enter_context(pulse.look("kafka/quorum"))
        first.close()
        assert pulse.fault() is None
        now = LOOK_AGE_S_MAX + 1
        pulse._beat = now
        assert pulse.fault() == f"looks do not end: kafka/quorum: {now:.0f} s"
    assert pulse.fault() is None
