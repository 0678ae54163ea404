"""Examinations while the leader may be too new: not every node has fetched from it."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from kit.replicas import NOW_MS, replica
from quorate_admin import examination
from quorate_admin.diagnosis import (
    Code,
    Examination,
    NodeKind,
    PartitionTally,
    Presence,
    RegisteredNode,
    diagnose,
    judge,
)
from quorate_admin.errors import RequestTimeoutError
from quorate_admin.types.cluster import QuorumDescription, ReplicaDescription

LATER_MS = NOW_MS + 5_001


def quorum(now_ms: int, *observers: ReplicaDescription, epoch: int = 3) -> QuorumDescription:
    """A quorum of one voter, whose clock is `now_ms`."""
    return QuorumDescription(
        leader_id=1,
        leader_epoch=epoch,
        high_watermark=1,
        voters=(replica(1, now_ms, now_ms),),
        observers=observers,
    )


class Leader:
    """Describes the quorum a second time."""

    def __init__(self, later: QuorumDescription | None) -> None:
        self.later = later
        self.asked = 0

    async def describe_metadata_quorum(self, **_: Any) -> QuorumDescription:
        """Return the later description. Raises without one."""
        self.asked += 1
        if self.later is None:
            raise RequestTimeoutError("no answer")
        return self.later


FACTS = Examination(
    quorum=quorum(NOW_MS),
    controllers={node_id: RegisteredNode(kind=NodeKind.CONTROLLER, node_id=node_id) for node_id in (1, 99)},
)


@pytest.mark.parametrize(
    ("later", "presence"),
    [
        (quorum(LATER_MS), Presence.GONE),
        (quorum(LATER_MS, replica(99, LATER_MS, LATER_MS)), Presence.ALIVE),
        (quorum(LATER_MS, epoch=4), Presence.UNKNOWN),
        (None, Presence.UNKNOWN),
    ],
)
async def test_a_leader_that_may_be_new_is_asked_again(
    later: QuorumDescription | None, presence: Presence, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A live controller is no ghost right after an election, and a ghost is found all the same."""
    monkeypatch.setattr(examination, "FETCH_SILENCE_MS_MAX", 1)
    assert judge(FACTS).presence_of(99) is Presence.UNKNOWN
    facts = await examination._with_settled_leader(Leader(later), FACTS, 0)  # type: ignore[arg-type]
    assert judge(facts).presence_of(99) is presence


async def test_the_wait_for_a_new_leader_begins_with_its_description(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    async def sleep(delay_s: float) -> None:
        slept.append(delay_s)

    monkeypatch.setattr(examination, "FETCH_SILENCE_MS_MAX", 60_000)
    monkeypatch.setattr(asyncio, "sleep", sleep)
    described_at_s = asyncio.get_running_loop().time() - 30
    await examination._with_settled_leader(Leader(None), FACTS, described_at_s)  # type: ignore[arg-type]
    assert slept == [pytest.approx(30, abs=5)]


async def test_a_new_leader_is_asked_again_about_a_broker_without_a_registration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(examination, "FETCH_SILENCE_MS_MAX", 1)
    tally = PartitionTally(registered=())
    tally.add("t", 0, replicas=(10,), isr=(), has_leader=False, min_isr=None)
    unheard = replace(FACTS, controllers={}, partitions=tally.facts())
    leader = Leader(quorum(LATER_MS, replica(10, LATER_MS, LATER_MS)))
    facts = await examination._with_settled_leader(leader, unheard, 0)  # type: ignore[arg-type]
    codes = [finding.code for finding in diagnose(facts).findings]
    assert Code.BROKER_NOT_REGISTERED in codes
    assert Code.REPLICAS_WITHOUT_BROKER not in codes


async def test_a_leader_that_has_led_long_enough_is_asked_once() -> None:
    heard = replace(FACTS, quorum=quorum(NOW_MS, replica(99, NOW_MS, NOW_MS)))
    for facts in (replace(FACTS, leader_since_ms=NOW_MS - 5_001), heard, Examination()):
        leader = Leader(None)
        assert await examination._with_settled_leader(leader, facts, 0) is facts  # type: ignore[arg-type]
        assert leader.asked == 0
