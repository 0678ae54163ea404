"""Whatever a topic is like and whatever is asked for: the planned changes lead there, and then nothing is due."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from kit.kafka_model import TopicModel, assigned, kafka_of
from quorate_operator.entities.topics import (
    ObservedTopic,
    StoredTopic,
    is_same_value,
    plan_topic,
    plan_topic_deletion,
)
from quorate_operator.models.manifests import load_entity
from quorate_operator.placement.cluster import IN_FLIGHT_MAX, ObservedPartition, PartitionId

LOOKS_MAX = 12
CONFIGS = st.dictionaries(
    st.sampled_from(["retention.ms", "cleanup.policy", "segment.ms", "preallocate"]),
    st.sampled_from(["1", "1.0", "compact", "true"]),
)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Any, TopicModel, Any]:
    """A resource, a cluster with or without the topic, and the cluster's brokers."""
    racks = draw(st.lists(st.sampled_from([None, "a", "b"]), min_size=1, max_size=6))
    kafka = kafka_of(racks)
    ids = [broker.broker_id for broker in kafka.brokers]
    spec: dict[str, Any] = {"cluster": "quorum", "config": draw(CONFIGS), "deletionPolicy": "Delete"}
    for name, values in (
        ("partitions", st.integers(1, 130)),
        ("replicationFactor", st.integers(1, len(ids))),
    ):
        if draw(st.booleans()):
            spec[name] = draw(values)
    topic = None
    if draw(st.booleans()):
        placements = st.lists(st.sampled_from(ids), min_size=1, unique=True).map(tuple)
        partitions = {}
        for number in range(draw(st.integers(1, spec.get("partitions", 130)))):
            replicas = draw(placements) if number < 3 else (ids[0],)
            isr = replicas[draw(st.integers(0, len(replicas) - 1)) :]
            partitions[number] = ObservedPartition(
                partition=PartitionId("orders", number), replicas=replicas, isr=isr
            )
        topic = ObservedTopic(topic_id=None, partitions=partitions, config=draw(CONFIGS))
    metadata = {"name": "orders", "namespace": "kafka"}
    manifest = {
        "apiVersion": "quorate.dev/v1alpha1",
        "kind": "KafkaTopic",
        "metadata": metadata,
        "spec": spec,
    }
    return load_entity(manifest, "test"), TopicModel(kafka, topic), kafka


@given(cases(), st.sets(st.sampled_from(["retention.ms", "cleanup.policy", "segment.ms"])))
def test_plans_lead_to_what_is_asked_for(case: tuple[Any, TopicModel, Any], managed: set[str]) -> None:
    resource, model, kafka = case
    before = model.topic
    stored = StoredTopic(is_managed=before is not None, config=frozenset(managed))
    for _ in range(LOOKS_MAX):
        observed = None if model.topic is None else assigned(model.topic, kafka.brokers)
        plan = plan_topic(resource, observed, stored=stored)
        assert not plan.refusals
        stored = StoredTopic.of_status(plan.status)
        if not plan.changes and not plan.waits:
            break
        for change in plan.changes:
            model.apply(change)
        model.complete()
    else:
        raise AssertionError(f"after {LOOKS_MAX} looks: {plan.changes}")
    topic = model.topic
    assert topic is not None
    assert model.max_moving <= IN_FLIGHT_MAX
    spec = resource.spec
    if spec.partitions is not None:
        assert len(topic.partitions) == spec.partitions
    if spec.replication_factor is not None:
        assert {len(partition.replicas) for partition in topic.partitions.values()} == {
            spec.replication_factor
        }
    assert all(is_same_value(topic.config[name], value) for name, value in spec.config.items())
    others = {} if before is None else before.config
    foreign = {name: value for name, value in others.items() if name not in managed | spec.config.keys()}
    assert {name: topic.config[name] for name in foreign} == foreign
    assert topic.config.keys() == foreign.keys() | spec.config.keys()
    if before is not None:
        for number, partition in before.partitions.items():
            assert {*topic.partitions[number].replicas} & {*partition.isr}, (
                "a partition lost all that was in sync"
            )
    for change in plan_topic_deletion(resource, topic, stored).changes:
        model.apply(change)
    assert model.topic is None
