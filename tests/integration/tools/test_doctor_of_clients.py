"""`quorate doctor --clients` on stock brokers with the metrics agent, while clients of three kinds are connected."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import libversion
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaProducer
from kafka import __version__ as kafka_python_version
from kit.cluster import Cluster, manifests
from kit.doctor import diagnosed, finding
from kit.java.routed_client import RoutedClient
from kit.jmx_exporter import agent_jar, start_with_agent
from kit.kafka import jars_of
from kit.membership import quorate
from kit.waiting import eventually
from quorate_admin.config import Address
from quorate_admin.errors import RebootstrapRequiredError
from quorate_admin.network.connection import Connection, Identity
from quorate_operator.models.pod_templates import Metrics
from quorate_operator.resources.jmx_metrics import agent_rules

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

RELEASE = "4.4.0"
"""Brokers check the identity that a client expects (KIP-1242)."""
TIMEOUT_S = 60
TOPIC, OTHER_TOPIC = "orders", "payments"
OFFSETS = {"offsets.topic.num.partitions": 1, "offsets.topic.replication.factor": 1}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, list[str]]]:
    """Two brokers with the agent, one topic, and the URLs of their metrics."""
    agent = agent_jar()
    if agent is None:
        pytest.skip("Prometheus' JMX exporter is not there, and can't be fetched with Maven")
    directory = tmp_path_factory.mktemp("clients")
    rules = directory / "rules.yaml"
    rules.write_text(agent_rules(Metrics()))
    manifest = manifests(controllers=1, brokers=2, broker_config=OFFSETS)
    made = Cluster.create(directory / "cluster", jars_of(RELEASE), manifest)
    try:
        made.start(*made.controllers)
        addresses = [start_with_agent(made, node_id, agent, rules) for node_id in made.brokers]
        made.await_quorum()
        made.await_unfenced(*made.brokers)
        admin = AdminClient({"bootstrap.servers": made.bootstrap_servers})
        for created in admin.create_topics([NewTopic(name, 2, 2) for name in (TOPIC, OTHER_TOPIC)]).values():
            created.result(TIMEOUT_S)
        yield made, [f"http://{address}/metrics" for address in addresses]
    finally:
        made.close()


def connections(diagnosis: dict[str, Any]) -> dict[tuple[str, str], str]:
    """The judgement by name and version of the clients."""
    return {
        (client["name"], client["version"]): client["rebootstraps"]
        for client in diagnosis["clients"]["connections"]
    }


def test_clients_are_named_and_judged_while_they_are_connected(cluster: tuple[Cluster, list[str]]) -> None:
    brokers, urls = cluster
    at = ("--bootstrap-server", brokers.bootstrap_servers, "--clients", ",".join(urls))
    librdkafka = AdminClient({"bootstrap.servers": brokers.bootstrap_servers})
    producer = KafkaProducer(bootstrap_servers=brokers.bootstrap_servers)
    with RoutedClient(jars_of(RELEASE), brokers.bootstrap_servers, TOPIC) as java:
        eventually(lambda: java.read, TIMEOUT_S, "the Java consumer to read", java.describe)
        producer.send(OTHER_TOPIC, b"7").get(TIMEOUT_S)
        librdkafka.list_topics(timeout=TIMEOUT_S)
        diagnosis = diagnosed(*at)
        printed = quorate("doctor", *at).stdout
    producer.close()
    known = connections(diagnosis)
    assert known["apache-kafka-java", RELEASE] == "yes"
    assert known["kafka-python", kafka_python_version] == "no"
    (confluent,) = (
        (version, does) for (name, version), does in known.items() if name == "confluent-kafka-python"
    )
    assert confluent[0].endswith(f"-rdkafka-{libversion()[0]}")
    assert confluent[1] == "yes"
    clients = diagnosis["clients"]
    assert all(client["listener"] == "PLAINTEXT" for client in clients["connections"])
    assert clients["brokersExamined"] == 2
    assert clients["apiVersionsRequests"]["3"] > 0  # librdkafka
    assert clients["apiVersionsRequests"]["5"] > 0  # Kafka's client
    lost = finding(diagnosis, "clients-do-not-rebootstrap")
    assert lost["examples"] == [f"kafka-python {kafka_python_version} on PLAINTEXT"]
    assert lost["count"] >= 1
    # Brokers fetch from each other, and send no name.
    assert "unnamed on PLAINTEXT" in finding(diagnosis, "clients-unknown")["examples"]
    assert any(line.split()[:2] == ["apache-kafka-java", RELEASE] for line in printed.splitlines())


def test_misrouted_connections_are_counted_by_the_broker_that_they_reached(
    cluster: tuple[Cluster, list[str]],
) -> None:
    brokers, urls = cluster
    at = ("--bootstrap-server", brokers.bootstrap_servers, "--clients", ",".join(urls))
    before = diagnosed(*at)
    assert before["clients"]["misrouted"] == 0
    first, second = brokers.brokers
    host, _, port = brokers.address(first).rpartition(":")

    async def reach(node_id: int) -> None:
        identity = Identity(before["clusterId"], node_id)
        connection = await Connection.open(
            Address(host, int(port)), client_id="t", timeout_ms=TIMEOUT_S * 1000, identity=identity
        )
        await connection.close()

    asyncio.run(reach(first))
    with pytest.raises(RebootstrapRequiredError):
        asyncio.run(reach(second))
    after = diagnosed(*at)
    assert after["clients"]["misrouted"] == 1
    assert f"{urls[0]}: 1." in finding(after, "clients-misrouted")["evidence"]


def test_a_broker_without_a_url_is_reported(cluster: tuple[Cluster, list[str]]) -> None:
    brokers, urls = cluster
    diagnosis = diagnosed("--bootstrap-server", brokers.bootstrap_servers, "--clients", urls[0])
    assert (
        finding(diagnosis, "clients-not-examined")["message"] == "Clients of 1 of 2 brokers were not examined"
    )
