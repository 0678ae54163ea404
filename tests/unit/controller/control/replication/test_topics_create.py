"""CreateTopics: what is written, what is answered, and what is refused."""

from dataclasses import replace
from datetime import timedelta

import pytest
from kit.controller_parts import response_of
from quorate_controller.control.api import ControlError
from quorate_protocol.errors import ErrorCode
from quorate_protocol.image import UNASSIGNED_DIRECTORY
from quorate_protocol.kafka.generated import create_topics_request as kio_request
from quorate_protocol.records.generated import ConfigRecord, FenceBrokerRecord, PartitionRecord, TopicRecord


def topic(name: str, partitions: int = 1, replicas: int = 1, assignments=(), **configs: str | None):
    """What a client asks; dots in config names are written as two underscores."""
    return kio_request.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        assignments=tuple(
            kio_request.CreatableReplicaAssignment(partition_index=index, broker_ids=tuple(broker_ids))
            for index, broker_ids in assignments
        ),
        configs=tuple(
            kio_request.CreatableTopicConfig(name=key.replace("__", "."), value=value)
            for key, value in configs.items()
        ),
    )


def assigned(name: str, *assignments, partitions: int = -1, replicas: int = -1):
    return topic(name, partitions, replicas, assignments)


def request(*topics, validate_only: bool = False):
    return kio_request.CreateTopicsRequest(
        topics=topics, timeout=timedelta(seconds=1), validate_only=validate_only
    )


def create(cluster, *topics, api_version: int = 7, validate_only: bool = False):
    asked = request(*topics, validate_only=validate_only)
    return cluster.topics.create_topics(asked, cluster.context(api_version))


def error(cluster, asked) -> tuple[ErrorCode, str | None]:
    decision = create(cluster, asked)
    assert decision.records == ()
    (result,) = decision.response.topics
    assert result.topic_id is None
    assert (result.num_partitions, result.replication_factor, result.configs) == (-1, -1, ())
    return result.error_code, result.error_message


def test_records_come_in_kafkas_order(cluster) -> None:
    decision = create(cluster, topic("a", 2, 3, cleanup__policy="compact"), topic("b"))
    assert [type(record) for record in decision.records] == [
        TopicRecord,
        ConfigRecord,
        PartitionRecord,
        PartitionRecord,
        TopicRecord,
        PartitionRecord,
    ]
    assert decision.atomic
    cluster.apply(decision)
    assert sorted(cluster.partition("a", 1).replicas) == [1, 2, 3]


def test_a_new_partition_is_led_by_its_first_replica(cluster) -> None:
    cluster.apply(create(cluster, topic("a", 1, 3)))
    partition = cluster.partition("a")
    assert partition.isr == partition.replicas
    assert partition.leader == partition.replicas[0]
    assert (partition.leader_epoch, partition.partition_epoch) == (0, 0)
    assert partition.directories == tuple(cluster.directory(broker_id) for broker_id in partition.replicas)


def test_the_isr_begins_with_the_active_replicas(make_cluster) -> None:
    cluster = make_cluster()
    cluster.add_brokers(1, 2)
    cluster.add_broker(3, fenced=True)
    cluster.apply(create(cluster, topic("a", 4, 3)))
    for number in range(4):
        partition = cluster.partition("a", number)
        assert 3 in partition.replicas
        assert partition.isr == tuple(id_ for id_ in partition.replicas if id_ != 3)


def test_directories_are_known_only_for_brokers_with_one(make_cluster) -> None:
    """KIP-858's default directories."""
    cluster = make_cluster()
    cluster.add_broker(1)
    cluster.add_broker(2, directories=2)
    cluster.apply(create(cluster, assigned("a", (0, [1, 2]))))
    assert cluster.partition("a").directories == (cluster.directory(1), UNASSIGNED_DIRECTORY)


def test_no_directories_before_metadata_version_17(make_cluster) -> None:
    cluster = make_cluster(metadata_version=7)
    cluster.add_broker(1)
    decision = create(cluster, topic("a"))
    assert decision.records[1].directories == ()
    cluster.apply(decision)


def test_the_answer_describes_the_topic(cluster) -> None:
    decision = create(cluster, topic("a", 2, 3, retention__ms="5"), api_version=5)
    (result,) = decision.response.topics
    assert (result.name, result.error_code, result.error_message) == ("a", ErrorCode.none, None)
    assert result.topic_id == decision.records[0].topic_id
    assert (result.num_partitions, result.replication_factor) == (2, 3)
    values = {config.name: config.value for config in result.configs}
    assert (values["retention.ms"], values["cleanup.policy"]) == ("5", "delete")
    assert list(values) == sorted(values)
    (result,) = create(cluster, topic("b", retention__ms="5"), api_version=4).response.topics
    assert result.configs == ()


def test_topic_ids_are_random_and_new(cluster) -> None:
    decision = create(cluster, *(topic(f"t{number}") for number in range(100)))
    assert len({result.topic_id for result in decision.response.topics}) == 100


def test_minus_one_means_the_default(make_cluster) -> None:
    """KIP-464."""
    cluster = make_cluster(num_partitions=3, default_replication_factor=2)
    cluster.add_brokers(1, 2)
    (result,) = cluster.apply(create(cluster, topic("a", -1, -1))).topics
    assert (result.num_partitions, result.replication_factor) == (3, 2)


def test_validate_only_writes_nothing_and_answers_the_same(cluster) -> None:
    decision = create(cluster, topic("a", 2, 3), topic("b", 1, 9), validate_only=True)
    assert decision.records == ()
    assert [result.error_code for result in decision.response.topics] == [
        ErrorCode.none,
        ErrorCode.invalid_replication_factor,
    ]


def test_topics_succeed_and_fail_alone(cluster) -> None:
    decision = create(cluster, topic("a b"), topic("good"), topic("c", 0))
    assert [result.error_code for result in decision.response.topics] == [
        ErrorCode.invalid_topic_exception,
        ErrorCode.none,
        ErrorCode.invalid_partitions,
    ]
    assert [type(record) for record in decision.records] == [TopicRecord, PartitionRecord]


def test_manual_assignment(cluster) -> None:
    (result,) = cluster.apply(create(cluster, assigned("a", (1, [3, 1]), (0, [2, 3])))).topics
    assert (result.num_partitions, result.replication_factor) == (2, 2)
    assert cluster.partition("a", 0).replicas == (2, 3)
    assert cluster.partition("a", 1).replicas == (3, 1)


def test_a_manual_assignment_may_name_fenced_brokers(cluster) -> None:
    cluster.mark(1, fenced=True)
    cluster.apply(create(cluster, assigned("a", (0, [1, 2, 3]))))
    partition = cluster.partition("a")
    assert (partition.replicas, partition.isr, partition.leader) == ((1, 2, 3), (2, 3), 2)


@pytest.mark.parametrize(
    ("asked", "code", "message"),
    [
        (
            topic("a b"),
            ErrorCode.invalid_topic_exception,
            (
                "Topic name is invalid: 'a b' contains one or more characters other than ASCII "
                "alphanumerics, "
                "'.', "
                "'_' and '-'"
            ),
        ),
        (topic("old"), ErrorCode.topic_already_exists, "Topic 'old' already exists."),
        (topic("old.one"), ErrorCode.topic_already_exists, "Topic 'old.one' already exists."),
        (
            topic("old_one"),
            ErrorCode.invalid_topic_exception,
            "Topic 'old_one' collides with existing topic: old.one",
        ),
        (
            topic("__cluster_metadata"),
            ErrorCode.invalid_request,
            "Creation of internal topic __cluster_metadata is prohibited.",
        ),
        (topic("a", bad="1"), ErrorCode.invalid_config, "Unknown topic config name: bad"),
        (
            topic("a", replicas=0),
            ErrorCode.invalid_replication_factor,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        ),
        (
            topic("a", replicas=-2),
            ErrorCode.invalid_replication_factor,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        ),
        (
            topic("a", partitions=0),
            ErrorCode.invalid_partitions,
            "Number of partitions was set to an invalid non-positive value.",
        ),
        (
            topic("a", replicas=4),
            ErrorCode.invalid_replication_factor,
            (
                "Unable to replicate the partition 4 time(s): The target replication factor of 4 cannot be "
                "reached "
                "because only 3 broker(s) are registered or some brokers have all their log directories "
                "cordoned."
            ),
        ),
        (
            assigned("a", (0, [1]), replicas=1),
            ErrorCode.invalid_request,
            "A manual partition assignment was specified, but replication factor was not set to -1.",
        ),
        (
            assigned("a", (0, [1]), partitions=1),
            ErrorCode.invalid_request,
            "A manual partition assignment was specified, but numPartitions was not set to -1.",
        ),
        (
            assigned("a", (0, [1]), (0, [2])),
            ErrorCode.invalid_replica_assignment,
            "Found multiple manual partition assignments for partition 0",
        ),
        (
            assigned("a", (0, [1]), (2, [2])),
            ErrorCode.invalid_replica_assignment,
            "partitions should be a consecutive 0-based integer sequence",
        ),
        (
            assigned("a", (0, [])),
            ErrorCode.invalid_replica_assignment,
            "The manual partition assignment includes an empty replica list.",
        ),
        (
            assigned("a", (0, [1, 9])),
            ErrorCode.invalid_replica_assignment,
            "The manual partition assignment includes broker 9, but no such broker is registered.",
        ),
        (
            assigned("a", (0, [1, 2, 1])),
            ErrorCode.invalid_replica_assignment,
            "The manual partition assignment includes the broker 1 more than once.",
        ),
        (
            assigned("a", (0, [1, 2]), (1, [1])),
            ErrorCode.invalid_replica_assignment,
            (
                "The manual partition assignment includes a partition with 1 replica(s), but this is not "
                "consistent "
                "with previous partitions, which have 2 replica(s)."
            ),
        ),
    ],
)
def test_refusals(cluster, make_partition, asked, code: ErrorCode, message: str) -> None:
    """Kafka's code and text for each reason."""
    cluster.add_topic("old", make_partition(1))
    cluster.add_topic("old.one", make_partition(1))
    assert error(cluster, asked) == (code, message)


def test_no_active_broker_in_a_manual_assignment(cluster) -> None:
    cluster.mark(1, fenced=True)
    cluster.mark(2, shutting_down=True)
    assert error(cluster, assigned("a", (0, [1, 2]))) == (
        ErrorCode.invalid_replica_assignment,
        (
            "All brokers specified in the manual partition assignment for partition 0 are fenced or in "
            "controlled "
            "shutdown."
        ),
    )


def test_no_active_broker_at_all(cluster) -> None:
    """Kafka's text when everything is fenced."""
    for broker_id in (1, 2, 3):
        cluster.mark(broker_id, fenced=True)
    assert error(cluster, topic("a")) == (
        ErrorCode.invalid_replication_factor,
        (
            "Unable to replicate the partition 1 time(s): All brokers are currently fenced, or have "
            "all their "
            "log "
            "directories cordoned."
        ),
    )


def test_a_name_that_is_asked_twice_is_refused_once(cluster) -> None:
    decision = create(cluster, topic("twice"), topic("good"), topic("twice", 2))
    results = [(result.name, result.error_code, result.error_message) for result in decision.response.topics]
    assert results == [
        ("good", ErrorCode.none, None),
        ("twice", ErrorCode.invalid_request, "Duplicate topic name."),
    ]
    assert len(decision.records) == 2


@pytest.mark.parametrize(
    "topics",
    [
        [topic("a", 10_001)],
        [topic("a", 5_000), topic("b", 5_001)],
        [topic("a", 2**31 - 1)],
    ],
)
def test_too_many_partitions_are_refused_as_a_whole(cluster, topics) -> None:
    with pytest.raises(ControlError) as refused:
        create(cluster, *topics)
    assert refused.value.error_code is ErrorCode.policy_violation
    assert refused.value.message == "Excessively large number of partitions per request."


def test_too_many_records_are_refused_as_a_whole(cluster) -> None:
    with pytest.raises(ControlError) as refused:
        response_of(create(cluster, topic("a", 10_000)))
    assert refused.value.error_code is ErrorCode.policy_violation
    assert refused.value.message == "Unable to perform excessively large batch operation."


def test_an_empty_request_is_answered(cluster) -> None:
    decision = create(cluster)
    assert (decision.records, decision.response.topics) == ((), ())


def test_each_step_of_a_large_request_decides_on_what_there_is(cluster) -> None:
    """Others decide between the steps of CreateTopics, and each topic is written as a whole."""
    names = [f"t{number}" for number in range(400)]
    decision = create(cluster, *(topic(name, 2, 1) for name in names))
    assert decision.steps is not None
    created = sum(isinstance(record, TopicRecord) for record in decision.records)
    assert 0 < created < len(names)
    assert len(decision.records) == 3 * created
    cluster.replay(*decision.records)
    cluster.apply(create(cluster, topic(names[-1], 1, 1)))
    cluster.replay(FenceBrokerRecord(id=2, epoch=1002))
    results = cluster.apply(replace(decision, records=())).topics
    codes = {result.name: result.error_code for result in results}
    assert codes.pop(names[-1]) is ErrorCode.topic_already_exists
    assert set(codes.values()) == {ErrorCode.none}
    assert len(cluster.image.topics.by_name[names[-1]].partitions) == 1
    later = [cluster.partition(name, number) for name in names[created:-1] for number in range(2)]
    assert {partition.leader for partition in later} == {1, 3}


def test_replicas_that_fit_no_batch_are_refused_before_they_are_placed(cluster) -> None:
    for broker_id in range(10, 60):
        cluster.add_broker(broker_id)
    with pytest.raises(ControlError) as refused:
        create(cluster, topic("a", 9_000, 50))
    assert refused.value.error_code is ErrorCode.record_list_too_large
    assert "450000 replicas" in refused.value.message
    assert error(cluster, topic("a", 9_000, 54))[0] is ErrorCode.invalid_replication_factor


def test_a_large_request_that_is_only_validated_writes_nothing(cluster) -> None:
    many = [topic(f"t{number}", 2, 1) for number in range(400)]
    decision = create(cluster, *many, validate_only=True)
    assert decision.steps is not None
    results = cluster.apply(decision).topics
    assert {result.error_code for result in results} == {ErrorCode.none}
    assert not cluster.image.topics.by_name


@pytest.mark.parametrize("is_fenced", [False, True])
def test_a_large_topic_is_placed_in_steps_and_written_as_a_whole(cluster, is_fenced: bool) -> None:
    """Others come in between the steps of placing, and brokers that leave meanwhile do not lead."""
    decision = create(cluster, topic("small"), topic("large", 2_000, 2))
    assert [type(record) for record in decision.records] == [TopicRecord, PartitionRecord]
    cluster.replay(*decision.records)
    if is_fenced:
        cluster.replay(FenceBrokerRecord(id=2, epoch=1002))
    results = cluster.apply(replace(decision, records=())).topics
    assert {result.error_code for result in results} == {ErrorCode.none}
    partitions = cluster.image.topics.by_name["large"].partitions.values()
    assert len(partitions) == 2_000
    assert {partition.leader for partition in partitions} == ({1, 3} if is_fenced else {1, 2, 3})


def test_a_large_topic_that_others_create_meanwhile_exists(cluster) -> None:
    decision = create(cluster, topic("large", 2_000, 2))
    assert decision.records == ()
    cluster.apply(create(cluster, topic("large", 1, 1)))
    (result,) = cluster.apply(decision).topics
    assert result.error_code is ErrorCode.topic_already_exists
    assert len(cluster.image.topics.by_name["large"].partitions) == 1
