"""Rules about sessions, ELR and reassignments at their very boundary."""

from typing import Any

import pytest
from kit.partition_requests import set_isr
from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.generated import alter_partition_reassignments_request as reassign_request

SESSION_MS = 9_000


@pytest.fixture
def four(make_cluster: Any) -> Any:
    """Brokers 1 to 4."""
    cluster = make_cluster()
    cluster.add_brokers(1, 2, 3, 4)
    return cluster


def test_a_session_lasts_to_its_last_millisecond(new_harness: Any) -> None:
    harness = new_harness(broker_session_timeout_ms=SESSION_MS)
    harness.start_broker(1)
    harness.now_ms += SESSION_MS
    restarted = harness.registration(1, incarnation=2)
    assert harness.refusal(restarted).error_code is ErrorCode.duplicate_broker_registration
    harness.now_ms += 1
    assert harness.decide(restarted).response.error_code is ErrorCode.none


def test_min_insync_replicas_are_at_most_the_replicas_of_the_first_partition(
    four: Any, make_partition: Any
) -> None:
    """Replicas beyond what a topic needs are not eligible (Kafka's getTopicEffectiveMinIsr)."""
    four.enable_elr()
    four.configure("a", "min.insync.replicas", "3")
    four.add_topic("a", make_partition(1, 2), make_partition(1, 2, 3))
    assert set_isr(four, "a", 1, 2, partition_id=1) is ErrorCode.none
    assert (four.partition("a", 1).isr, four.partition("a", 1).elr) == ((1, 2), ())
    assert set_isr(four, "a", 1, partition_id=1) is ErrorCode.none
    assert (four.partition("a", 1).isr, four.partition("a", 1).elr) == ((1,), (2,))


def test_a_reassignment_to_fewer_replicas_waits_for_all_of_them(four: Any, make_partition: Any) -> None:
    four.add_topic("a", make_partition(1, 2, 3, isr=(2, 3)))
    request = reassign_request.AlterPartitionReassignmentsRequest(
        topics=(
            reassign_request.ReassignableTopic(
                name="a",
                partitions=(reassign_request.ReassignablePartition(partition_index=0, replicas=(1, 4)),),
            ),
        )
    )
    four.apply(four.reassignments.alter(request))
    assert set_isr(four, "a", 2, 3, 4) is ErrorCode.none
    assert four.partition("a").is_reassigning
    assert four.partition("a").isr == (2, 3, 4)
