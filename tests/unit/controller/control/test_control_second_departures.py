"""Brokers that leave their partitions for the second time: what the first departure left in memory must not matter.

Slices have three partitions here, and the broker seven.
"""

from typing import Any

import pytest
from quorate_controller.control import broker_transitions
from quorate_protocol.records.generated import BrokerRegistrationChangeRecord, PartitionChangeRecord

SESSION_MS = 9_000
SLICE = 3
TOPICS = 7
ISR = (1, 2)


@pytest.fixture
def large(new_harness: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Brokers 1 and 2 replicate seven topics, led by 1."""
    monkeypatch.setattr(broker_transitions, "CHANGES_PER_SLICE_MAX", SLICE)
    harness = new_harness(max_idle_interval_ms=0)
    for broker_id in ISR:
        harness.start_broker(broker_id)
    for number in range(TOPICS):
        harness.add_topic(f"t{number}", *ISR)
    return harness


def led_or_in_sync(harness: Any) -> tuple[int, int]:
    """The numbers of partitions that broker 1 leads, and in whose ISR it is."""
    found = [topic.partitions[0] for topic in harness.image.topics.by_id.values()]
    return sum(partition.leader == 1 for partition in found), sum(1 in partition.isr for partition in found)


def depart(harness: Any) -> None:
    """Let the session of broker 1 expire, and run all slices."""
    harness.now_ms += SESSION_MS
    harness.heartbeat(2)
    harness.run_until(harness.now_ms + 1_000)
    assert harness.broker(1).fenced


def rejoin(harness: Any) -> None:
    """Replay what AlterPartition and an election write once broker 1 is back: it is in sync, and leads."""
    harness.replay(
        *(
            PartitionChangeRecord(partition_id=0, topic_id=topic_id, isr=ISR, leader=1)
            for topic_id in list(harness.image.topics.by_id)
        )
    )
    assert led_or_in_sync(harness) == (TOPICS, TOPICS)


def test_a_broker_that_came_back_leaves_everything_again(large: Any) -> None:
    depart(large)
    assert led_or_in_sync(large) == (0, 0)
    assert not large.heartbeat(1).is_fenced
    rejoin(large)
    depart(large)
    assert led_or_in_sync(large) == (0, 0)


def test_a_broker_that_came_back_under_another_leader_leaves_everything_again(large: Any) -> None:
    """A controller that leads again trusts the log, not its memory of its former leadership."""
    depart(large)
    large.control.deactivate()
    epoch = large.broker(1).epoch
    large.replay(BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=epoch, fenced=-1))
    rejoin(large)
    large.replay_result(large.control.activate(large.now_ms))
    depart(large)
    assert led_or_in_sync(large) == (0, 0)
