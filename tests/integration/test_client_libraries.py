"""The client libraries that people use, against brokers whose controllers are ours."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer, KafkaProducer
from kafka.admin import KafkaAdminClient
from kafka.admin import NewTopic as KafkaPythonTopic
from kafka.structs import TopicPartition as KafkaPythonPartition
from kit.cluster import Cluster
from kit.names import unused
from kit.waiting import eventually

pytestmark = pytest.mark.integration

TIMEOUT_S = 60
MESSAGES = 200


@pytest.fixture
def confluent_admin(shared_cluster: Cluster) -> AdminClient:
    """librdkafka's admin client."""
    return AdminClient({"bootstrap.servers": shared_cluster.bootstrap_servers})


@pytest.fixture
def kafka_python_admin(shared_cluster: Cluster) -> Iterator[KafkaAdminClient]:
    """kafka-python's admin client."""
    admin = KafkaAdminClient(bootstrap_servers=shared_cluster.bootstrap_servers)
    yield admin
    admin.close()


def read_all(cluster: Cluster, topic: str, isolation: str) -> list[str]:
    """All values of partition 0 that a consumer of that isolation level may see."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": f"{topic}-{isolation}",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[str] = []
    try:
        while True:
            message = consumer.poll(TIMEOUT_S)
            assert message is not None, f"nothing within {TIMEOUT_S} s after {len(values)} messages"
            if message.error() is not None:
                return values  # the end of the partition
            value = message.value()
            assert isinstance(value, bytes)
            values.append(value.decode())
    finally:
        consumer.close()


def test_librdkafka_produces_and_consumes(shared_cluster: Cluster, confluent_admin: AdminClient) -> None:
    topic = unused("confluent")
    confluent_admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(TIMEOUT_S)
    config = {
        "bootstrap.servers": shared_cluster.bootstrap_servers,
        "acks": "all",
        "enable.idempotence": True,
    }
    errors: list[object] = []
    with Producer(config) as producer:
        for number in range(MESSAGES):
            producer.produce(topic, str(number), on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(TIMEOUT_S) == 0
    assert errors == [None] * MESSAGES
    assert read_all(shared_cluster, topic, "read_uncommitted") == [str(n) for n in range(MESSAGES)]
    confluent_admin.delete_topics([topic])[topic].result(TIMEOUT_S)
    with pytest.raises(KafkaException, match=r"UNKNOWN_TOPIC_OR_PART"):
        confluent_admin.delete_topics([topic])[topic].result(TIMEOUT_S)


def test_transactions_commit_and_abort(shared_cluster: Cluster, confluent_admin: AdminClient) -> None:
    """A transactional producer works: producer ids come from our controllers."""
    topic = unused("transactions")
    confluent_admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(TIMEOUT_S)
    config = {
        "bootstrap.servers": shared_cluster.bootstrap_servers,
        "transactional.id": "writer",
        "acks": "all",
    }
    with Producer(config) as producer:
        producer.init_transactions(TIMEOUT_S)
        for value, is_kept in (("kept", True), ("dropped", False), ("kept, too", True)):
            producer.begin_transaction()
            producer.produce(topic, value)
            producer.flush(TIMEOUT_S)
            if is_kept:
                producer.commit_transaction(TIMEOUT_S)
            else:
                producer.abort_transaction(TIMEOUT_S)
    # A commit is acknowledged before its marker is in the log of the partition.
    eventually(
        lambda: read_all(shared_cluster, topic, "read_committed") == ["kept", "kept, too"],
        TIMEOUT_S,
        "what was committed",
        lambda: read_all(shared_cluster, topic, "read_committed"),
    )
    assert read_all(shared_cluster, topic, "read_uncommitted") == ["kept", "dropped", "kept, too"]


def test_kafka_python_produces_and_consumes(
    shared_cluster: Cluster, kafka_python_admin: KafkaAdminClient
) -> None:
    topic = unused("kafka-python")
    kafka_python_admin.create_topics([KafkaPythonTopic(topic, 1, 1)])
    producer = KafkaProducer(bootstrap_servers=shared_cluster.bootstrap_servers, acks="all")
    sent = [producer.send(topic, str(number).encode()) for number in range(MESSAGES)]
    assert [future.get(TIMEOUT_S).offset for future in sent] == list(range(MESSAGES))
    producer.close()
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=shared_cluster.bootstrap_servers,
        group_id=f"{topic}-readers",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    numbers: list[int] = []

    def consumed_all() -> bool:
        for messages in consumer.poll(timeout_ms=500).values():
            numbers.extend(int(message.value) for message in messages)
        return len(numbers) >= MESSAGES

    eventually(consumed_all, TIMEOUT_S, f"{MESSAGES} messages", lambda: len(numbers))
    consumer.commit()
    assert consumer.committed(KafkaPythonPartition(topic, 0)) == MESSAGES
    consumer.close()
    assert numbers == list(range(MESSAGES))
    kafka_python_admin.delete_topics([topic])
    eventually(lambda: topic not in kafka_python_admin.list_topics(), TIMEOUT_S, f"{topic} to be gone")
