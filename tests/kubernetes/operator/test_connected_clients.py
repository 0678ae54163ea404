"""Whether a change of hosts would lose clients: a condition of the pool, from the metrics of its brokers."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from kafka import KafkaProducer
from kafka import __version__ as kafka_python_version
from kafka.errors import KafkaError
from kit.jmx_exporter import agent_jar
from kit.ledger import Worker
from kit.operators.operated import BROKER_PORT, BROKERS, SMALL_FILES, Operated, condition_of

BROKERS_TIMEOUT_S = 240
READ_TIMEOUT_S = 300
"""Metrics that can't be read are read again after a minute."""
TOPIC = "orders"
NOWHERE = "kafka-{nodeId}.example.com"


class SteadyClient(Worker):
    """A client of kafka-python that stays connected, and reconnects."""

    def __init__(self, servers: str) -> None:
        super().__init__("client of kafka-python")
        self._producer = KafkaProducer(bootstrap_servers=servers)

    def _work(self) -> None:
        with suppress(KafkaError):  # while the broker restarts
            self._producer.send(TOPIC, b"1")
        self._ended.wait(1)

    def _close(self) -> None:
        self._producer.close(timeout=1)


@pytest.fixture
def operated_with_metrics(brokered: Operated) -> Iterator[Operated]:
    """A cluster whose broker is about to expose its metrics, while a client is connected."""
    operated = brokered
    if agent_jar() is None:
        pytest.skip("Prometheus' JMX exporter is not there, and can't be fetched with Maven")
    operated.create(replicas=1)
    operated.create_brokers(config={**SMALL_FILES, "auto.create.topics.enable": "true"})
    operated.start_operator("--no-leader-election")
    operated.wait(lambda: operated.brokers_settled(0), "the broker to be ready", BROKERS_TIMEOUT_S)
    with SteadyClient(f"{operated.agent.address_of(f'{BROKERS}-0')}:{BROKER_PORT}"):
        operated.patch_brokers(metrics={"enabled": True})
        yield operated


def of_clients(operated: Operated) -> dict[str, Any]:
    return condition_of(operated.brokers() or {}, "ClientsRebootstrap")


@pytest.mark.timeout(900)
def test_clients_that_a_change_of_hosts_would_lose_are_a_condition(operated_with_metrics: Operated) -> None:
    operated = operated_with_metrics
    assert of_clients(operated)["status"] == "Unknown"
    operated.wait(
        lambda: of_clients(operated).get("status") == "False",
        "the condition of the clients",
        READ_TIMEOUT_S,
    )
    condition = of_clients(operated)
    assert condition["reason"] == "ClientsWouldBeLost"
    assert f"kafka-python {kafka_python_version} on PLAINTEXT" in condition["message"]

    pods = operated.pod_uids()
    listener = {**operated.internal_listener(), "advertisedHost": NOWHERE}
    operated.patch_brokers(listeners=[listener])
    operated.wait(lambda: of_clients(operated).get("reason") == "HostsChange", "the warning before the roll")
    assert operated.pod_uids() == pods, "the names lead nowhere yet"
    assert "hosts change now" in of_clients(operated)["message"]
    assert not operated.operators[-1].errors()
