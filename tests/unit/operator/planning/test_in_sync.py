"""When a broker counts as available, and when one that does not may be evicted."""

from dataclasses import replace
from typing import Any

import pytest
from kit.scenarios import Situation, healthy
from quorate_operator.planning.cluster import NodeState
from quorate_operator.planning.in_sync import brokers_in_sync, may_unready_go


def registration(situation: Situation, node_id: int, **changes: Any) -> Situation:
    """Other fields of a registration."""
    assert situation.observed.kafka is not None
    known = situation.observed.kafka.registrations
    return situation.kafka(registrations={**known, node_id: replace(known[node_id], **changes)})


@pytest.mark.parametrize(
    ("situation", "reason"),
    [
        (healthy(3, brokers=2), "InSync"),
        (healthy(3, brokers=2).unregistered(1), "NotRegistered"),
        (registration(healthy(3, brokers=2), 1, fenced=True), "Fenced"),
        (registration(healthy(3, brokers=2), 1, in_controlled_shutdown=True), "ShuttingDown"),
        (healthy(3, brokers=2).node(1, state=NodeState.STARTING), "NotAnswering"),
        (healthy(3, brokers=2).node(1, state=NodeState.UNREADY), "NotAnswering"),
        (healthy(3, brokers=2).load(1, lagging=1), "ReplicasNotInSync"),
        (healthy(3, brokers=2).kafka(loads={}), "InSync"),
    ],
)
def test_a_broker_is_in_sync_with_all_that_it_holds(situation: Situation, reason: str) -> None:
    judged = brokers_in_sync(situation.observed)
    assert sorted(judged) == [0, 1], "controllers have an endpoint of their own"
    assert (judged[1].reason, judged[1].holds) == (reason, reason == "InSync")
    assert judged[0].holds


def test_nothing_is_said_while_nobody_knows() -> None:
    assert brokers_in_sync(healthy(3, brokers=2).leaderless().observed) == {}
    assert sorted(brokers_in_sync(healthy(3, brokers=2).down(1).observed)) == [0]


@pytest.mark.parametrize(
    ("situation", "may_go"),
    [
        (healthy(3, brokers=3), True),
        (healthy(3, brokers=3).load(2, lagging=3), True),
        (healthy(3, brokers=3).load(2, lagging=3, fragile=1), False),
        (healthy(3, brokers=3).load(2, lagging=3).load(1, fragile=1), True),
        (healthy(3, brokers=3).load(2, fragile=1).node(2, state=NodeState.UNREADY), False),
        (healthy(3, brokers=3).load(2, awaited=1).node(2, state=NodeState.UNREADY), False),
        (healthy(3, brokers=3).leaderless(), False),
    ],
)
def test_a_broker_that_lags_may_go_unless_it_holds_what_can_not_be_spared(
    situation: Situation, may_go: bool
) -> None:
    assert may_unready_go(situation.observed) is may_go
