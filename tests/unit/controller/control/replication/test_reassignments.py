"""AlterPartitionReassignments and ListPartitionReassignments (KIP-455, KIP-860)."""

from datetime import timedelta

import pytest
from kit.controller_parts import response_of
from kit.partition_requests import set_isr
from quorate_controller.control import reassignments
from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.generated import alter_partition_reassignments_request as alter_request
from quorate_protocol.kafka.generated import list_partition_reassignments_request as list_request
from quorate_protocol.records.generated import PartitionChangeRecord


@pytest.fixture
def five(make_cluster, make_partition):
    """Brokers 1 to 5, and topic `a` with a partition on 1, 2 and 3."""
    cluster = make_cluster()
    cluster.add_brokers(1, 2, 3, 4, 5)
    cluster.add_topic("a", make_partition(1, 2, 3))
    return cluster


def decide(cluster, *asked, allow: bool = True):
    """``asked``: topic, partition id and replicas, None to cancel."""
    return cluster.reassignments.alter(
        alter_request.AlterPartitionReassignmentsRequest(
            timeout=timedelta(seconds=30),
            allow_replication_factor_change=allow,
            topics=tuple(
                alter_request.ReassignableTopic(
                    name=topic,
                    partitions=(
                        alter_request.ReassignablePartition(partition_index=number, replicas=replicas),
                    ),
                )
                for topic, number, replicas in asked
            ),
        )
    )


def reassign(cluster, *asked, allow: bool = True) -> list[tuple[ErrorCode, str | None]]:
    """Decide and replay. Returns the result of each partition."""
    response = cluster.apply(decide(cluster, *asked, allow=allow))
    assert response.error_code is ErrorCode.none
    assert response.allow_replication_factor_change is allow
    return [
        (partition.error_code, partition.error_message)
        for topic in response.responses
        for partition in topic.partitions
    ]


FINE = [(ErrorCode.none, None)]
MANUAL = "The manual partition assignment"


def test_a_replica_moves_in_two_records(five) -> None:
    """The new replica is added, caught up, and the old one goes."""
    decision = decide(five, ("a", 0, (1, 2, 4)))
    assert decision.atomic
    five.apply(decision)
    begun = five.partition("a")
    assert (begun.replicas, begun.adding_replicas, begun.removing_replicas) == ((1, 2, 4, 3), (4,), (3,))
    assert begun.isr == (1, 2, 3)
    assert begun.leader_epoch == 5, "nobody has lost a replica yet"
    assert begun.directory(4) == five.directory(4)
    assert set_isr(five, "a", 1, 2, 3, 4) is ErrorCode.none
    done = five.partition("a")
    assert (done.replicas, done.isr, done.is_reassigning) == ((1, 2, 4), (1, 2, 4), False)
    assert done.leader_epoch == 6


def test_all_replicas_move_and_with_them_the_lead(five) -> None:
    assert reassign(five, ("a", 0, (4, 5))) == FINE
    assert set_isr(five, "a", 1, 2, 3, 4) is ErrorCode.none
    assert five.partition("a").is_reassigning, "5 is not in sync yet"
    assert set_isr(five, "a", 1, 2, 3, 4, 5) is ErrorCode.new_leader_elected
    done = five.partition("a")
    assert (done.replicas, done.isr, done.leader, done.is_reassigning) == ((4, 5), (4, 5), 4, False)


@pytest.mark.parametrize(
    ("replicas", "leader_epoch"), [((3, 2, 1), 5), ((1, 2), 6)], ids=["other order", "fewer"]
)
def test_what_needs_no_wait_is_done_at_once(five, replicas: tuple[int, ...], leader_epoch: int) -> None:
    assert reassign(five, ("a", 0, replicas)) == FINE
    done = five.partition("a")
    assert (done.replicas, done.is_reassigning, done.leader_epoch) == (replicas, False, leader_epoch)
    assert reassign(five, ("a", 0, replicas)) == FINE
    assert five.partition("a") is done, "the same again writes nothing"


def test_a_reassignment_is_replaced(five) -> None:
    assert reassign(five, ("a", 0, (1, 2, 4))) == FINE
    assert reassign(five, ("a", 0, (1, 2, 5))) == FINE
    begun = five.partition("a")
    assert (begun.replicas, begun.adding_replicas, begun.removing_replicas) == ((1, 2, 5, 3, 4), (5,), (3, 4))
    assert set_isr(five, "a", 1, 2, 3, 5) is ErrorCode.none
    assert five.partition("a").replicas == (1, 2, 5)


def test_a_reassignment_is_cancelled(five) -> None:
    assert reassign(five, ("a", 0, (1, 4))) == FINE
    assert reassign(five, ("a", 0, None)) == FINE
    back = five.partition("a")
    assert (back.replicas, back.isr, back.is_reassigning) == ((1, 2, 3), (1, 2, 3), False)
    assert reassign(five, ("a", 0, None)) == [(ErrorCode.no_reassignment_in_progress, None)]


def test_a_replica_that_was_reassigned_away_is_not_eligible(five, make_partition) -> None:
    five.enable_elr()
    five.configure("b", "min.insync.replicas", "2")
    five.add_topic("b", make_partition(1, 2))
    assert reassign(five, ("b", 0, (1,))) == FINE
    assert (five.partition("b").replicas, five.partition("b").elr) == ((1,), ())
    assert reassign(five, ("b", 0, (1, 2))) == FINE
    five.apply(five.transitions.on_broker_fenced(1))
    partition = five.partition("b")
    assert (partition.leader, partition.isr, partition.elr) == (-1, (), (1,))


def test_a_cancellation_that_could_lose_data_needs_permission(five, make_partition) -> None:
    given = make_partition(1, 2, 4, isr=(4,), adding_replicas=(4,), removing_replicas=(2,))
    five.add_topic("b", given)
    message = (
        "Unable to revert partition assignment for b:0 because it would require an unclean leader election."
    )
    assert reassign(five, ("b", 0, None)) == [(ErrorCode.invalid_replica_assignment, message)]
    assert five.partition("b").leader == 4
    five.configure("b", "unclean.leader.election.enable", "true")
    assert reassign(five, ("b", 0, None)) == FINE
    back = five.partition("b")
    assert (back.replicas, back.isr, back.leader, back.is_reassigning) == ((1, 2), (1,), 1, False)


@pytest.mark.parametrize(
    ("asked", "code", "message"),
    [
        (("c", 0, (1,)), ErrorCode.unknown_topic_or_partition, "Unable to find a topic named c."),
        (("a", 7, ()), ErrorCode.unknown_topic_or_partition, "Unable to find partition a:7."),
        (("a", 0, ()), ErrorCode.invalid_replica_assignment, f"{MANUAL} includes an empty replica list."),
        (
            ("a", 0, (1, 9)),
            ErrorCode.invalid_replica_assignment,
            f"{MANUAL} includes broker 9, but no such broker is registered.",
        ),
        (
            ("a", 0, (4, 4)),
            ErrorCode.invalid_replica_assignment,
            f"{MANUAL} includes the broker 4 more than once.",
        ),
        (
            ("a", 0, (4, 5)),
            ErrorCode.invalid_replication_factor,
            "The replication factor is changed from 3 to 2",
        ),
    ],
)
def test_refused(five, asked: tuple[object, ...], code: ErrorCode, message: str) -> None:
    """Kafka's codes and words, for one partition alone."""
    responses = reassign(five, ("a", 0, (3, 2, 1)), asked, allow=False)
    assert responses == [*FINE, (code, message)]
    assert five.partition("a").replicas == (3, 2, 1)


def test_the_replication_factor_is_that_of_the_running_reassignment(five) -> None:
    """KIP-860 compares with where the partition is going."""
    assert reassign(five, ("a", 0, (4, 5))) == FINE
    refused = (ErrorCode.invalid_replication_factor, "The replication factor is changed from 2 to 3")
    assert reassign(five, ("a", 0, (1, 4, 5)), allow=False) == [refused]
    assert reassign(five, ("a", 0, (1, 4)), allow=False) == FINE


def test_too_many_at_once(five, make_partition, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reassignments, "RECORDS_PER_BATCH_MAX", 1)
    five.add_topic("b", make_partition(1))
    decision = decide(five, ("a", 0, (4,)), ("b", 0, (4,)), ("b", 0, (1,)))
    assert [type(record) for record in decision.records] == [PartitionChangeRecord]
    responses = [
        (partition.error_code, partition.error_message)
        for topic in decision.response.responses
        for partition in topic.partitions
    ]
    assert responses == [*FINE, (ErrorCode.unknown_server_error, None), *FINE]


def test_a_new_replica_on_an_older_cluster_has_no_directory(make_cluster, make_partition) -> None:
    """Below metadata.version 17 records say nothing of directories."""
    cluster = make_cluster(metadata_version=16)
    cluster.add_brokers(1, 2)
    cluster.add_topic("a", make_partition(1))
    assert reassign(cluster, ("a", 0, (2,))) == FINE
    assert cluster.partition("a").replicas == (2, 1)
    assert set_isr(cluster, "a", 1, 2) is ErrorCode.new_leader_elected
    assert cluster.partition("a").replicas == (2,)


def list_reassignments(cluster, *topics):
    asked = list_request.ListPartitionReassignmentsRequest(
        topics=tuple(
            list_request.ListPartitionReassignmentsTopics(name=name, partition_indexes=numbers)
            for name, numbers in topics
        )
        if topics
        else None,
    )
    decision = cluster.reassignments.list(asked)
    assert decision.records == ()
    return {
        (topic.name, it.partition_index): (it.replicas, it.adding_replicas, it.removing_replicas)
        for topic in response_of(decision).topics
        for it in topic.partitions
    }


def test_running_reassignments_are_listed(cluster, make_partition) -> None:
    running = make_partition(1, 2, 3, adding_replicas=(2,), removing_replicas=(3,))
    cluster.add_topic("a", make_partition(1), running)
    cluster.add_topic("b", make_partition(1))
    expected = {("a", 1): ((1, 2, 3), (2,), (3,))}
    assert list_reassignments(cluster) == expected
    assert list_reassignments(cluster, ("a", (0, 1, 9)), ("b", (0,)), ("c", (0,))) == expected
    assert list_reassignments(cluster, ("a", (0,))) == {}
