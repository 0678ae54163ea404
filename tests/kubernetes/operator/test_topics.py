"""A KafkaTopic under a real operator, on our controllers and stock brokers: from apply to use and back."""

from collections.abc import Mapping
from typing import Any

import pytest
from confluent_kafka import Producer
from kit.asking import Asking
from kit.ledger import consume_numbers
from kit.operators.operated import BROKER_PORT, BROKERS, SMALL_FILES, Operated
from kit.operators.resources import InClusters
from quorate_admin.types.configs import AlterConfigOp, ConfigResource
from quorate_admin.types.topics import NewTopic, TopicDescription
from quorate_protocol.kafka.enums import ConfigResourceType, ConfigSource
from quorate_protocol.uuids import uuid_to_text

RECORDS = 50
BROKERS_TIMEOUT_S = 240
FLUSH_TIMEOUT_S = 60
RETENTION, SEGMENT = "retention.ms", "segment.ms"


class Topics(InClusters):
    """KafkaTopics of a namespace, and the topics."""

    def __init__(self, operated: Operated) -> None:
        super().__init__(operated, "KafkaTopic")
        self.servers = f"{operated.agent.address_of(f'{BROKERS}-0')}:{BROKER_PORT}"
        self.ask = Asking(servers=self.servers)

    def described(self, topic: str) -> TopicDescription:
        """The topic."""
        return self.ask(lambda client: client.describe_topics([topic]))[topic]

    def config(self, topic: str) -> dict[str, str | None]:
        """What is set for this topic alone."""
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        entries = self.ask(lambda client: client.describe_configs([resource]))[resource]
        return {
            entry.name: entry.value for entry in entries if entry.source is ConfigSource.DYNAMIC_TOPIC_CONFIG
        }

    def configure(self, topic: str, values: Mapping[str, str]) -> None:
        """Change configs behind the operator's back."""
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        changes = [AlterConfigOp(name=name, value=value) for name, value in values.items()]
        self.ask(lambda client: client.incremental_alter_configs({resource: changes})).raise_any()


@pytest.mark.timeout(600)
def test_topics_from_apply_to_use_and_back(brokered: Operated) -> None:
    """A topic follows its resource, also after changes in Kafka, and is deleted or retained as the resource says."""
    operated = brokered
    operated.create(replicas=1)
    config = {**SMALL_FILES, "offsets.topic.replication.factor": "1", "offsets.topic.num.partitions": "2"}
    operated.create_brokers(replicas=2, config=config)
    topics = Topics(operated)
    topics.create("orders", partitions=2, replicationFactor=1, config={RETENTION: 600_000, SEGMENT: 60_000})
    other = f"{operated.namespace}-tenant"
    operated.core.create_namespace({"metadata": {"name": other}})
    operated.start_operator("--no-leader-election", "--drift-interval=2", f"--namespace={other}")
    operated.wait(lambda: operated.brokers_settled(0, 1), "two brokers to be ready", BROKERS_TIMEOUT_S)
    create_and_use(topics)
    grow(topics)
    revert_drift(operated, topics)
    refuse_impossible_changes(operated, topics)
    adopt(operated, topics)
    admit_another_namespace(operated, topics, other)
    delete_and_retain(operated, topics)
    assert not operated.operators[-1].errors()


def create_and_use(topics: Topics) -> None:
    """Check that a topic is created as its resource says, and use it."""
    topics.wait_ready("orders")
    made = topics.described("orders")
    assert [len(partition.replicas) for partition in made.partitions] == [1, 1]
    assert topics.config("orders") == {RETENTION: "600000", SEGMENT: "60000"}
    status = topics.status("orders")
    assert status["topicId"] == uuid_to_text(made.topic_id)
    assert (status["partitions"], status["replicationFactor"]) == (2, 1)
    produce(topics.servers, "orders")


def grow(topics: Topics) -> None:
    """Ask for more partitions, another factor and other configs."""
    topics.patch("orders", partitions=4, replicationFactor=2, config={RETENTION: 700_000, SEGMENT: None})
    topics.wait_ready("orders")
    grown = topics.described("orders")
    assert [sorted(partition.replicas) for partition in grown.partitions] == [[0, 1]] * 4
    assert topics.config("orders") == {RETENTION: "700000"}
    assert sorted(consume_numbers(topics.servers, "orders", range(4))) == list(range(RECORDS))
    assert topics.status("orders")["replicationFactor"] == 2


def revert_drift(operated: Operated, topics: Topics) -> None:
    """Change the topic in Kafka: that is reverted, but for configs that the resource never set."""
    topics.configure("orders", {RETENTION: "1000", "max.message.bytes": "2000"})
    wanted = {RETENTION: "700000", "max.message.bytes": "2000"}
    operated.wait(lambda: topics.config("orders") == wanted, "the drift to be mended")
    operated.wait(lambda: operated.events("Drifted"), "the drift to be reported")
    assert operated.events("Drifted")[-1] == "changed outside the operator: retention.ms: 700000, not 1000"


def refuse_impossible_changes(operated: Operated, topics: Topics) -> None:
    """Ask for what can't be done: it is refused, and the rest is done."""
    topics.patch("orders", partitions=1, config={RETENTION: 800_000})
    operated.wait(lambda: topics.condition("orders", "Stalled").get("status") == "True", "the refusal")
    assert topics.condition("orders", "Stalled")["reason"] == "PartitionsCantShrink"
    operated.wait(lambda: topics.config("orders")[RETENTION] == "800000", "the config")
    topics.patch("orders", partitions=4, config={"no.such.config": "1"})
    operated.wait(
        lambda: topics.condition("orders", "Stalled").get("reason") == "InvalidConfig", "the refusal"
    )
    assert "no.such.config" in topics.condition("orders", "Stalled")["message"]
    topics.patch("orders", config={"no.such.config": None})
    topics.wait_ready("orders")


def adopt(operated: Operated, topics: Topics) -> None:
    """Adopt a topic by bootstrap servers; another resource for the same topic is refused."""
    kept = NewTopic(name="Kept.One", partitions=1, replication_factor=1, configs={SEGMENT: "70000"})
    topics.ask(lambda client: client.create_topics([kept])).raise_any()
    servers = {"cluster": None, "bootstrapServers": [topics.servers]}
    topics.create("kept", **servers, topicName="Kept.One")
    topics.create("orders-too", **servers, topicName="orders", partitions=9, deletionPolicy="Delete")
    topics.wait_ready("kept")
    assert topics.config("Kept.One") == {SEGMENT: "70000"}
    operated.wait(lambda: topics.condition("orders-too", "Ready").get("reason") == "NameTaken", "the refusal")
    assert f"{operated.namespace}/orders" in topics.condition("orders-too", "Stalled")["message"]
    topics.delete("orders-too")
    operated.wait(lambda: topics.read("orders-too") is None, "the second resource to go")


def admit_another_namespace(operated: Operated, topics: Topics, other: str) -> None:
    """Manage a topic from another namespace, with the consent of the cluster."""
    tenants = InClusters(operated, "KafkaTopic", other)
    tenants.create("theirs", clusterNamespace=operated.namespace, partitions=1, deletionPolicy="Delete")
    operated.wait(
        lambda: tenants.condition("theirs", "Stalled").get("reason") == "NamespaceNotAllowed", "the refusal"
    )
    operated.patch(entityNamespaces=[other])
    tenants.wait_ready("theirs")
    assert len(topics.described("theirs").partitions) == 1
    operated.wait(lambda: finalizers(tenants.read("theirs")), "the finalizer")
    tenants.delete("theirs")
    operated.wait(lambda: tenants.read("theirs") is None, "the resource to go")


def delete_and_retain(operated: Operated, topics: Topics) -> None:
    """Delete all: what is retained stays, and nothing hangs when the cluster is gone."""
    topics.delete("kept")
    assert topics.read("kept") is None
    topics.patch("orders", deletionPolicy="Delete")
    topics.create("later", partitions=1, deletionPolicy="Delete")
    topics.wait_ready("later")
    operated.wait(lambda: finalizers(topics.read("orders")), "the finalizer")
    topics.delete("orders")
    operated.wait(lambda: topics.read("orders") is None, "the resource to go")
    assert set(topics.ask(lambda client: client.list_topics())) == {"Kept.One", "later"}
    operated.delete()
    topics.delete("later")
    operated.wait(lambda: topics.read("later") is None, "the resource to go with its cluster")


def finalizers(resource: Mapping[str, Any] | None) -> list[str]:
    return list((resource or {"metadata": {}})["metadata"].get("finalizers") or [])


def produce(servers: str, topic: str) -> None:
    """Produce records with numbers."""
    producer = Producer({"bootstrap.servers": servers, "acks": "all"})
    for number in range(RECORDS):
        producer.produce(topic, f"{number}".encode())
    assert producer.flush(FLUSH_TIMEOUT_S) == 0
