"""Whatever a cluster has: its manifests, applied to it, change nothing."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from kit.kafka_model import kafka_of, partitions_of
from quorate_admin.types.acls import AccessControlEntry, AclBinding, ResourcePattern
from quorate_operator.entities.export import resource_name_of, topic_manifest, user_manifest
from quorate_operator.entities.topics import ObservedTopic, plan_topic
from quorate_operator.entities.users import ObservedUser, plan_user
from quorate_operator.models.entities import EntityMetadata
from quorate_operator.models.manifests import load_entity
from quorate_operator.models.topics import KafkaTopic
from quorate_operator.models.users import KafkaUser
from quorate_protocol.kafka.enums import (
    SUPPORTED_OPERATIONS,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourceType,
)

KAFKA = kafka_of(["a", "b", None])
TARGET = {"bootstrapServers": ["kafka.example.com:9092"]}
TOPICS = st.from_regex(r"[A-Za-z0-9._-]{1,249}", fullmatch=True).filter(lambda name: name not in {".", ".."})
PARTITIONS = st.lists(
    st.permutations([0, 1, 2]).flatmap(lambda ids: st.integers(1, 3).map(lambda n: ids[:n]))
)
NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._@+=, -]{0,20}", fullmatch=True)


@st.composite
def bindings(draw: st.DrawFn, principal: str) -> AclBinding:
    """An ACL that Kafka's tools would create."""
    kind = draw(st.sampled_from(sorted(SUPPORTED_OPERATIONS)))
    is_cluster = kind is ResourceType.CLUSTER
    return AclBinding(
        pattern=ResourcePattern(
            resource_type=kind,
            name="kafka-cluster" if is_cluster else draw(st.sampled_from(["*", "a", "b."])),
            pattern_type=PatternType.LITERAL
            if is_cluster
            else draw(st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED])),
        ),
        entry=AccessControlEntry(
            principal=principal,
            host=draw(st.sampled_from(["*", "10.0.0.1"])),
            operation=draw(st.sampled_from([AclOperation.ALL, *SUPPORTED_OPERATIONS[kind]])),
            permission_type=draw(st.sampled_from([AclPermissionType.ALLOW, AclPermissionType.DENY])),
        ),
    )


@given(
    TOPICS, PARTITIONS.filter(bool), st.dictionaries(st.sampled_from(["retention.ms", "a.b"]), st.text("01"))
)
def test_exported_topics_change_nothing(name: str, partitions: Any, config: dict[str, str]) -> None:
    """GitOps can begin on a living cluster."""
    replicas = {number: tuple(brokers) for number, brokers in enumerate(partitions)}
    topic = ObservedTopic(
        topic_id=None,
        partitions=partitions_of(replicas),
        config=config,
    )
    resource = load_entity(topic_manifest(name, topic, TARGET), "exported")
    assert isinstance(resource, KafkaTopic)
    assert resource.topic_name == name
    plan = plan_topic(resource, topic)
    assert (tuple(plan.changes), tuple(plan.refusals)) == ((), ())


@given(
    st.data(),
    NAMES,
    st.dictionaries(st.sampled_from(["producer_byte_rate", "request_percentage"]), st.just(2.5)),
)
def test_exported_users_change_nothing(data: st.DataObject, name: str, quotas: dict[str, float]) -> None:
    principal = f"User:{name}"
    acls = data.draw(st.none() | st.frozensets(bindings(principal), max_size=6))
    quotas = {
        quota: float(int(limit)) if quota.endswith("byte_rate") else limit for quota, limit in quotas.items()
    }
    user = ObservedUser(mechanisms=frozenset({"SCRAM-SHA-256"}), acls=acls, quotas=quotas)
    resource = load_entity(user_manifest(principal, user, TARGET), "exported")
    assert isinstance(resource, KafkaUser)
    assert resource.principal == principal
    plan = plan_user(resource, user, KAFKA)
    assert (tuple(plan.changes), tuple(plan.refusals)) == ((), ())


@given(st.text(min_size=1, max_size=300), st.text(min_size=1, max_size=300))
def test_names_are_different_and_fit(first: str, other: str) -> None:
    names = [resource_name_of(name) for name in (first, other)]
    assert (names[0] == names[1]) == (first == other)
    for name in names:
        EntityMetadata(name=name)
        assert all(label and label.strip("-") == label for label in name.split("."))
