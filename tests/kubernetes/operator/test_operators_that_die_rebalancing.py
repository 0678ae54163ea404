"""Operators come and go while replicas move to a new broker."""

import pytest
from kit.ledger import consume_numbers
from kit.operators.dying_operators import kill_after_each_step
from kit.operators.operated import Operated
from kit.operators.rebalances import (
    BROKERS_TIMEOUT_S,
    CONFIG,
    FAST,
    PARTITIONS,
    RECORDS,
    SLOW,
    TOPIC,
    Rebalances,
    producing,
)

NAME = "even"
AT_A_TIME = 2
# The slices of five moves: throttled, moved, and throttled no more; the rates before and after them.
KILLS_MIN = 2 * (3 * 3 + 2)
STOP_KILLS_MIN = 2


@pytest.mark.timeout(900)
def test_killed_while_replicas_move(brokered: Operated) -> None:
    """It ends even, or stopped, and leaves no throttle or move behind; no acknowledged record is lost."""
    operated = brokered
    operated.create(replicas=1)
    operated.create_brokers(replicas=2, config=CONFIG)
    operator = operated.start_operator("--no-leader-election", "--drift-interval=2")
    operated.wait(lambda: operated.brokers_settled(0, 1), "two brokers to be ready", BROKERS_TIMEOUT_S)
    rebalances = Rebalances(operated)
    rebalances.make_topic()
    operated.patch_brokers(replicas=3)
    operated.wait(lambda: operated.brokers_settled(0, 1, 2), "a third broker", BROKERS_TIMEOUT_S)
    spec = {"partitionsAtATime": AT_A_TIME, "topics": {"include": [TOPIC]}, "approval": "Auto"}
    rebalances.create(NAME, throttleBytesPerSecond=SLOW, **spec)
    operated.wait(lambda: rebalances.moving() == AT_A_TIME, "partitions on the move")
    operator.kill()

    rebalances.patch(NAME, stopped=True)
    kills = kill_after_each_step(operated, lambda: rebalances.is_in(NAME, "Stopped"), name=f"/{NAME}")
    assert kills >= STOP_KILLS_MIN
    assert (rebalances.moving(), rebalances.throttles()) == (0, {})
    assert rebalances.replicas_on() == {0: 8, 1: 8}

    rebalances.patch(NAME, stopped=False, throttleBytesPerSecond=FAST)
    with producing(rebalances.servers) as acknowledged:
        kills = kill_after_each_step(operated, lambda: rebalances.is_in(NAME, "Balanced"), name=f"/{NAME}")
    assert kills >= KILLS_MIN
    assert rebalances.is_even()
    assert rebalances.status(NAME)["progress"]["partitions"] >= 5
    numbers = set(consume_numbers(rebalances.servers, TOPIC, PARTITIONS))
    assert numbers >= {*range(RECORDS), *acknowledged}
