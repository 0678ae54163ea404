"""CreatePartitions and DeleteTopics."""

from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest
from quorate_controller.control.api import ControlError
from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.generated import create_partitions_request as grow_request
from quorate_protocol.kafka.generated import delete_topics_request as delete_request
from quorate_protocol.records.generated import PartitionRecord, RemoveTopicRecord


def grow(cluster, *topics, validate_only: bool = False):
    """``topics``: name, count, and the brokers of each new partition or None."""
    asked = grow_request.CreatePartitionsRequest(
        topics=tuple(
            grow_request.CreatePartitionsTopic(
                name=name,
                count=count,
                assignments=assignments
                and tuple(grow_request.CreatePartitionsAssignment(broker_ids=ids) for ids in assignments),
            )
            for name, count, assignments in topics
        ),
        timeout=timedelta(seconds=1),
        validate_only=validate_only,
    )
    return cluster.topics.create_partitions(asked, cluster.context(3))


def delete(cluster, *topics, api_version: int = 6):
    """``topics``: names or ids, or pairs of both."""
    states = []
    for topic in topics:
        name, topic_id = topic if isinstance(topic, tuple) else (topic, topic)
        states.append(
            delete_request.DeleteTopicState(
                name=name if isinstance(name, str) else None,
                topic_id=topic_id if isinstance(topic_id, UUID) else None,
            )
        )
    asked = delete_request.DeleteTopicsRequest(topics=tuple(states), timeout=timedelta(seconds=1))
    return cluster.topics.delete_topics(asked, cluster.context(api_version))


def results(decision):
    return [(it.name, it.error_code, it.error_message) for it in decision.response.results]


def responses(decision):
    return [(it.name, it.topic_id, it.error_code) for it in decision.response.responses]


def test_new_partitions_follow_the_old_ones(cluster, make_partition) -> None:
    """Ids continue, and the replication factor stays."""
    cluster.add_topic("a", make_partition(1, 2), make_partition(2, 3))
    decision = grow(cluster, ("a", 5, None))
    assert results(decision) == [("a", ErrorCode.none, None)]
    assert all(isinstance(record, PartitionRecord) for record in decision.records)
    cluster.apply(decision)
    assert sorted(cluster.image.topics.by_name["a"].partitions) == [0, 1, 2, 3, 4]
    assert all(len(cluster.partition("a", number).replicas) == 2 for number in range(5))


def test_new_partitions_where_the_client_wants_them(cluster, make_partition) -> None:
    """Assignments are kept, with the active brokers in the ISR."""
    cluster.add_topic("a", make_partition(1, 2))
    cluster.mark(3, fenced=True)
    cluster.apply(grow(cluster, ("a", 3, [(3, 1), (2, 1)])))
    assert (cluster.partition("a", 1).replicas, cluster.partition("a", 1).isr) == ((3, 1), (1,))
    assert cluster.partition("a", 2).replicas == (2, 1)


def test_growing_in_validate_only_writes_nothing(cluster, make_partition) -> None:
    cluster.add_topic("a", make_partition(1))
    decision = grow(cluster, ("a", 2, None), validate_only=True)
    assert (decision.records, results(decision)) == ((), [("a", ErrorCode.none, None)])


@pytest.mark.parametrize(
    ("asked", "code", "message"),
    [
        (("b", 2, None), ErrorCode.unknown_topic_or_partition, None),
        (("a", 2, None), ErrorCode.invalid_partitions, "Topic already has 2 partition(s)."),
        (
            ("a", 1, None),
            ErrorCode.invalid_partitions,
            "The topic a currently has 2 partition(s); 1 would not be an increase.",
        ),
        (
            ("a", 4, [(1, 2)]),
            ErrorCode.invalid_replica_assignment,
            ("Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified."),
        ),
        (
            ("a", 3, [(1,)]),
            ErrorCode.invalid_replica_assignment,
            (
                "The manual partition assignment includes a partition with 1 replica(s), but this is not "
                "consistent with previous partitions, which have 2 replica(s)."
            ),
        ),
        (
            ("wide", 2, None),
            ErrorCode.invalid_replication_factor,
            (
                "The target replication factor of 4 cannot be reached because only 3 broker(s) are "
                "registered "
                "or some brokers have all their log directories cordoned."
            ),
        ),
    ],
)
def test_growth_refused(cluster, make_partition, asked, code: ErrorCode, message: str | None) -> None:
    """Kafka's code and text for each reason."""
    cluster.add_topic("a", make_partition(1, 2), make_partition(2, 3))
    cluster.add_topic("wide", make_partition(1, 2, 3, 4, directories=(UUID(int=500),) * 4))
    decision = grow(cluster, asked)
    assert decision.records == ()
    assert results(decision) == [(asked[0], code, message)]


def test_topics_grow_alone_and_duplicates_not_at_all(cluster, make_partition) -> None:
    for name in ("good", "twice", "bad"):
        cluster.add_topic(name, make_partition(1))
    decision = grow(cluster, ("twice", 2, None), ("bad", 1, None), ("good", 2, None), ("twice", 3, None))
    assert results(decision) == [
        ("twice", ErrorCode.invalid_request, "Duplicate topic name."),
        ("bad", ErrorCode.invalid_partitions, "Topic already has 1 partition(s)."),
        ("good", ErrorCode.none, None),
    ]
    assert len(decision.records) == 1


def test_growing_too_much_is_refused_as_a_whole(cluster, make_partition) -> None:
    """The bound of an atomic batch holds before anything is placed."""
    cluster.add_topic("a", make_partition(1))
    with pytest.raises(ControlError) as refused:
        grow(cluster, ("a", 2**31 - 1, None))
    assert refused.value.error_code is ErrorCode.policy_violation


def test_topics_are_deleted_by_name_and_by_id(cluster, make_partition) -> None:
    first = cluster.add_topic("a", make_partition(1))
    second = cluster.add_topic("b", make_partition(1))
    decision = delete(cluster, "a", second)
    assert set(decision.records) == {RemoveTopicRecord(topic_id=first), RemoveTopicRecord(topic_id=second)}
    assert sorted(responses(decision)) == [("a", first, ErrorCode.none), ("b", second, ErrorCode.none)]
    cluster.apply(decision)
    assert not cluster.image.topics.by_id


def test_unknown_topics_are_not_deleted(cluster) -> None:
    unknown = UUID(int=77)
    decision = delete(cluster, "a", unknown)
    assert decision.records == ()
    assert responses(decision) == [
        (None, unknown, ErrorCode.unknown_topic_id),
        ("a", None, ErrorCode.unknown_topic_or_partition),
    ]


def test_unclear_deletions_are_refused(cluster, make_partition) -> None:
    """What is asked twice or ambiguously is left alone."""
    ids = {name: cluster.add_topic(name, make_partition(1)) for name in ("both", "name", "id", "mixed")}
    decision = delete(
        cluster,
        ("both", ids["both"]),
        (None, None),
        "name",
        "name",
        ids["id"],
        ids["id"],
        "mixed",
        ids["mixed"],
    )
    assert decision.records == ()
    assert [(it.name, it.topic_id, it.error_message) for it in decision.response.responses] == [
        ("both", ids["both"], "You may not specify both topic name and topic id."),
        (None, None, "Neither topic name nor id were specified."),
        (None, ids["id"], "Duplicate topic id."),
        ("name", None, "Duplicate topic name."),
        ("mixed", ids["mixed"], "The provided topic name maps to an ID that was already supplied."),
    ]
    assert {it.error_code for it in decision.response.responses} == {ErrorCode.invalid_request}


@pytest.mark.parametrize(
    ("api_version", "code"), [(2, ErrorCode.invalid_request), (3, ErrorCode.topic_deletion_disabled)]
)
def test_deletion_can_be_disabled(make_cluster, api_version: int, code: ErrorCode) -> None:
    """``delete.topic.enable=false`` is obeyed."""
    cluster = make_cluster(static_configs={"delete.topic.enable": "false"})
    with pytest.raises(ControlError) as refused:
        delete(cluster, "a", api_version=api_version)
    assert (refused.value.error_code, refused.value.message) == (code, "Topic deletion is disabled.")


def test_a_deleted_name_may_be_used_again(cluster, make_partition) -> None:
    """No trace is left that a new topic could stumble over."""
    cluster.add_topic("a.b", make_partition(1))
    cluster.apply(delete(cluster, "a.b"))
    cluster.add_topic("a_b", make_partition(2))
    assert cluster.partition("a_b").leader == 2


@pytest.mark.parametrize("others", ["grow it", "make it anew", "nothing"])
def test_a_large_growth_is_placed_in_steps_and_decided_by_the_last(
    cluster, make_partition, others: str
) -> None:
    cluster.add_topic("a", make_partition(1, 2))
    decision = grow(cluster, ("a", 2_001, None))
    assert (decision.records, decision.response) == ((), None)
    if others == "grow it":
        cluster.apply(grow(cluster, ("a", 2, None)))
    elif others == "make it anew":
        cluster.apply(delete(cluster, "a"))
        cluster.add_topic("a", make_partition(3))
    (result,) = cluster.apply(decision).results
    assert result.error_code is ErrorCode.none
    partitions = cluster.image.topics.by_name["a"].partitions
    assert len(partitions) == 2_001
    assert {len(partition.replicas) for partition in partitions.values()} == {
        1 if others == "make it anew" else 2
    }


def test_a_long_deletion_deletes_what_is_still_there(cluster, make_partition) -> None:
    names = [f"t{number}" for number in range(500)]
    for name in names:
        cluster.add_topic(name, make_partition(1))
    decision = delete(cluster, *names)
    assert 0 < len(decision.records) < len(names)
    cluster.replay(*decision.records)
    cluster.apply(delete(cluster, names[-1]))
    cluster.add_topic(names[-1], make_partition(1))
    results = {
        result.name: result.error_code for result in cluster.apply(replace(decision, records=())).responses
    }
    assert results.pop(names[-1]) is ErrorCode.unknown_topic_or_partition
    assert set(results) == set(names[:-1])
    assert set(results.values()) == {ErrorCode.none}
    assert set(cluster.image.topics.by_name) == {names[-1]}
