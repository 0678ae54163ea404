"""Plans of topics: what a difference between the resource and the cluster leads to, and what is refused."""

import uuid
from dataclasses import replace
from typing import Any

import pytest
from kit.kafka_model import TopicModel, assigned, kafka_of, partitions_of
from quorate_operator.entities.topics import (
    CANT_SHRINK,
    NOTHING_STORED,
    TOO_FEW_BROKERS,
    AlterConfig,
    CreateTopic,
    DeleteTopic,
    FactorPlan,
    ObservedTopic,
    ReassignReplicas,
    StoredTopic,
    is_same_value,
    plan_factor,
    plan_topic,
    plan_topic_deletion,
)
from quorate_operator.models.manifests import ManifestError, load_entity
from quorate_operator.models.topics import KafkaTopic
from quorate_operator.placement.assignment import Assignment
from quorate_operator.placement.cluster import (
    IN_FLIGHT_BYTES_MAX,
    IN_FLIGHT_MAX,
    Broker,
    ObservedPartition,
    PartitionId,
)
from quorate_operator.planning.space import TOO_LITTLE_SPACE
from quorate_protocol.uuids import uuid_to_text

ID = uuid.UUID(int=7)
THREE = kafka_of(["a", "b", "c"])


def body(**spec: Any) -> dict[str, Any]:
    """A manifest."""
    return {
        "apiVersion": "quorate.dev/v1alpha1",
        "kind": "KafkaTopic",
        "metadata": {"name": "orders", "namespace": "kafka", "uid": "u", "resourceVersion": "1"},
        "spec": {"cluster": "quorum", **spec},
        "status": {"topicId": "x"},
    }


def topic(**spec: Any) -> KafkaTopic:
    """A resource as the API server has it."""
    return load_entity(body(**spec), "namespace kafka")


def there(*replicas: tuple[int, ...], **config: str) -> ObservedTopic:
    """A topic with a partition for each tuple, all in sync; `_` stands for `.`."""
    return ObservedTopic(
        topic_id=ID,
        partitions=partitions_of(dict(enumerate(replicas))),
        config={name.replace("_", "."): value for name, value in config.items()},
    )


def planned(factor: int, observed: ObservedTopic, **first: tuple[int, ...]) -> FactorPlan:
    """The plan for another factor; `first` are facts of the first partition."""
    partitions = {**observed.partitions, 0: replace(observed.partitions[0], **first)}
    return plan_factor(factor, assigned(replace(observed, partitions=partitions), THREE.brokers))


def together(brokers: tuple[Broker, ...], **topics: dict[int, ObservedPartition]) -> list[ObservedTopic]:
    """Topics with these partitions, observed together."""
    named = [
        {
            number: replace(partition, partition=PartitionId(name, number))
            for number, partition in partitions.items()
        }
        for name, partitions in topics.items()
    ]
    assignment = Assignment(brokers, [partition for partitions in named for partition in partitions.values()])
    return [
        ObservedTopic(topic_id=ID, partitions=partitions, config={}, assignment=assignment)
        for partitions in named
    ]


STORED = StoredTopic(is_managed=True, topic_id=uuid_to_text(ID))


def test_a_topic_that_is_missing_is_created() -> None:
    asked = topic(partitions=3, replicationFactor=2, config={"retention.ms": 1000})
    plan = plan_topic(asked, None)
    assert plan.changes == (
        CreateTopic(topic="orders", partitions=3, replication_factor=2, config={"retention.ms": "1000"}),
    )
    assert plan.changes[0].text == "create the topic orders with 3 partitions and 2 replicas"
    assert plan.status["managedConfig"] == ["retention.ms"]
    assert plan.note is None
    assert plan_topic(topic(), None).changes[0].text == "create the topic orders with default numbers"
    assert "was deleted outside the operator" in str(plan_topic(topic(), None, stored=STORED).note)


def test_what_exists_is_adopted_as_it_is() -> None:
    found = there((0,), (1,), retention_ms="5")
    plan = plan_topic(topic(), found)
    assert (plan.changes, plan.refusals, plan.waits) == ((), (), ())
    assert plan.note == "the topic orders exists, and is managed by this resource from now on"
    assert plan.status == {
        "topicName": "orders",
        "topicId": uuid_to_text(ID),
        "partitions": 2,
        "replicationFactor": 1,
        "reassigningPartitions": None,
        "managedConfig": [],
    }
    assert plan_topic(topic(), found, stored=STORED).note is None
    assert "was recreated outside the operator" in str(
        plan_topic(topic(), found, stored=StoredTopic(is_managed=True, topic_id="other")).note
    )


def test_partitions_grow_and_do_not_shrink() -> None:
    grown = plan_topic(topic(partitions=3), there((0,)))
    assert [change.text for change in grown.changes] == ["partitions: 3, not 1"]
    shrunk = plan_topic(topic(partitions=1, config={"retention.ms": 1}), there((0,), (1,)))
    assert [refusal.code for refusal in shrunk.refusals] == [CANT_SHRINK]
    assert shrunk.refusals[0].message == (
        "spec.partitions: 1: the topic orders has 2, and partitions can't be removed; set it to 2, or create "
        "another topic"
    )
    assert [type(change) for change in shrunk.changes] == [AlterConfig]


def test_configs_of_others_stay_and_those_that_it_had_are_reset() -> None:
    found = there((0,), retention_ms="5", cleanup_policy="compact", segment_ms="7")
    stored = StoredTopic(
        is_managed=True, topic_id=STORED.topic_id, config=frozenset({"cleanup.policy", "retention.ms"})
    )
    plan = plan_topic(topic(config={"retention.ms": 6, "max.message.bytes": 9}), found, stored=stored)
    (change,) = plan.changes
    assert isinstance(change, AlterConfig)
    assert change.values == {"max.message.bytes": "9", "retention.ms": "6"}
    assert change.resets == ("cleanup.policy",)
    assert change.text == (
        "max.message.bytes: 9, not the default; retention.ms: 6, not 5; cleanup.policy: reset, not compact"
    )
    # It stays known until it is seen to be reset.
    assert plan.status["managedConfig"] == ["cleanup.policy", "max.message.bytes", "retention.ms"]


@pytest.mark.parametrize(
    ("value", "other", "is_same"),
    [
        ("0.50", "0.5", True),
        ("true", "TRUE", True),
        ("true", "false", False),
        ("compact, delete", "compact,delete", True),
        ("delete,compact", "compact,delete", False),
        ("1000", "1000.0", True),
        ("a", "b", False),
        ("", "0", False),
    ],
)
def test_values_are_compared_as_kafka_reads_them(value: str, other: str, is_same: bool) -> None:
    assert is_same_value(value, other) is is_same


def test_a_larger_factor_takes_other_racks_and_the_least_loaded() -> None:
    kafka = kafka_of(["a", "a", "b", "b"])
    (change,) = plan_topic(
        topic(replicationFactor=2), assigned(there((0,), (0,), (0,)), kafka.brokers)
    ).changes
    assert isinstance(change, ReassignReplicas)
    assert change.replicas == {0: (0, 2), 1: (0, 3), 2: (0, 2)}


def test_a_smaller_factor_keeps_a_replica_in_sync() -> None:
    assert planned(1, there((0, 1, 2)), isr=(2,)).replicas == {0: (2,)}
    lost = planned(1, there((0, 1)), isr=())
    assert not lost.replicas
    assert lost.waits == ("a leader of 1 partition(s), to change the number of their replicas",)


def test_a_smaller_factor_keeps_the_preferred_leader() -> None:
    assert planned(1, there((2, 0, 1), (2,))).replicas == {0: (2,)}


def test_moves_under_way_are_left_alone() -> None:
    plan = planned(2, there((0, 1), (0,)), isr=(0,), adding=(1,), removing=(0,))
    assert plan.replicas.keys() == {1}
    assert plan.waits == ("the replicas of 1 of 2 partition(s) to be moved",)


def test_a_bounded_number_moves_at_a_time() -> None:
    many = there(*[(0,)] * (IN_FLIGHT_MAX + 10))
    assert len(planned(2, many).replicas) == IN_FLIGHT_MAX


def test_plans_of_one_look_leave_room_for_each_other() -> None:
    """Limit and room hold for the topics together."""
    brokers = (Broker(broker_id=0), Broker(broker_id=1, room_bytes=10))
    sized = {0: replace(partitions_of({0: (0,)})[0], size_bytes=6)}
    first, second = together(brokers, one=sized, two=sized)
    assert plan_factor(2, first).replicas == {0: (0, 1)}
    plan = plan_factor(2, second)
    assert not plan.replicas
    assert plan.refusal is not None
    assert plan.refusal.code == TOO_LITTLE_SPACE
    assert (
        "partition 0 (6 B) gets no other replica: broker(s) 1 would keep less than 10%"
        in plan.refusal.message
    )


def test_a_topic_that_waits_for_the_moves_of_another_says_so() -> None:
    """The limit in flight is for the topics together."""
    full = partitions_of(dict.fromkeys(range(IN_FLIGHT_MAX), (0,)))
    first, second = together(THREE.brokers, one=full, two=partitions_of({0: (0,), 1: (0,), 2: (0, 1)}))
    assert len(plan_factor(2, first).replicas) == IN_FLIGHT_MAX
    plan = plan_topic(topic(replicationFactor=2), second)
    assert (plan.changes, plan.refusals) == ((), ())
    assert plan.waits == ("other reassignments to end, before 2 partition(s) get 2 replicas",)


def test_a_topic_that_is_larger_than_the_limit_says_how_many_of_its_partitions_wait() -> None:
    plan = planned(2, there(*[(0,)] * (IN_FLIGHT_MAX + 10)))
    assert plan.waits == ("other reassignments to end, before 10 partition(s) get 2 replicas",)


def test_a_smaller_factor_copies_nothing_and_waits_for_no_copies() -> None:
    sizes = {
        number: replace(partition, size_bytes=IN_FLIGHT_BYTES_MAX)
        for number, partition in partitions_of(dict.fromkeys(range(3), (0, 1))).items()
    }
    grown = {0: replace(partitions_of({0: (0,)})[0], size_bytes=2 * IN_FLIGHT_BYTES_MAX)}
    growing, shrinking = together(THREE.brokers, one=grown, two=sizes)
    assert plan_factor(2, growing).replicas.keys() == {0}
    plan = plan_factor(1, shrinking)
    assert (plan.replicas.keys(), plan.waits) == ({0, 1, 2}, ())


def test_too_few_brokers_are_told() -> None:
    kafka = kafka_of([None, None, None], unusable=frozenset({1}))
    plan = plan_topic(topic(replicationFactor=3), assigned(there((0,)), kafka.brokers))
    assert not plan.changes
    (refusal,) = plan.refusals
    assert refusal.code == TOO_FEW_BROKERS
    assert (
        "partition 0 could have 2 replicas, on brokers 0, 2; no other broker is in service" in refusal.message
    )


def test_only_a_topic_that_the_resource_had_is_deleted() -> None:
    (change,) = plan_topic_deletion(topic(deletionPolicy="Delete"), there((0,)), STORED).changes
    assert change == DeleteTopic(topic="orders", topic_id=ID)
    assert not plan_topic_deletion(topic(deletionPolicy="Delete"), there((0,)), NOTHING_STORED).changes
    assert not plan_topic_deletion(topic(deletionPolicy="Delete"), None, STORED).changes
    assert not plan_topic_deletion(topic(), there((0,)), STORED).changes


def test_the_status_keeps_what_the_next_look_needs() -> None:
    plan = plan_topic(topic(config={"retention.ms": 1}), there((0,), retention_ms="1"))
    stored = StoredTopic.of_status(plan.status)
    assert stored == StoredTopic(
        is_managed=True, topic_id=uuid_to_text(ID), config=frozenset({"retention.ms"})
    )
    assert StoredTopic.of_status({}) == NOTHING_STORED


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"cluster": None}, "spec.cluster: nothing"),
        ({"bootstrapServers": ["a:1"]}, "spec.either cluster or bootstrapServers must be given"),
        ({"partitions": 0}, "spec.partitions: 0: must be greater than or equal to 1"),
        ({"topicName": "__consumer_offsets"}, "topicName: '__consumer_offsets': must be neither"),
        ({"config": {"Retention": "1"}}, "must be the name of a topic's config"),
    ],
)
def test_what_the_models_refuse(spec: dict[str, Any], message: str) -> None:
    """Errors name field, value and what is allowed."""
    if spec == {"cluster": None}:
        asked = body()
        del asked["spec"]["cluster"]
        message = "spec.either cluster or bootstrapServers must be given"
    else:
        asked = body(**spec)
    with pytest.raises(ManifestError) as error:
        load_entity(asked, "namespace kafka")
    assert message in str(error.value)


def test_the_model_of_the_tests_refuses_what_a_cluster_refuses() -> None:
    kafka = kafka_of(["a"])
    with pytest.raises(AssertionError, match="INVALID_REPLICATION_FACTOR"):
        TopicModel(kafka).apply(CreateTopic(topic="t", partitions=1, replication_factor=2))
