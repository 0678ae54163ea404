"""Metrics of stock Kafka: what the operator configures the JMX exporter with gives the names that are documented."""

import json
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from kit.cluster import Cluster, manifests
from kit.jmx_exporter import agent_jar, start_with_agent
from quorate_operator.models.pod_templates import Metrics
from quorate_operator.resources.jmx_metrics import agent_rules

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

ROOT = Path(__file__).parents[2]
METRICS = ROOT / "docs" / "metrics.md"
BROKER_METRICS = ROOT / "docs" / "broker-metrics.md"
BROKERS = ROOT / "charts" / "quorate" / "dashboards" / "brokers.json"
TIMEOUT_S = 30
OWN_RULES = Metrics.model_validate(
    {
        "enabled": True,
        "objectNames": ["kafka.server:type=DelayedOperationPurgatory,*"],
        "rules": [
            {
                "pattern": "kafka.server<type=DelayedOperationPurgatory, name=(.+), delayedOperation=(.+)><>Value: ",
                "name": "own_purgatory_$1",
                "labels": {"operation": "$2"},
                "type": "GAUGE",
            },
            {
                "pattern": "kafka.server<type=ReplicaManager, name=ProducerIdCount><>Value: ",
                "name": "own_producers",
            },
        ],
    }
)
SERIES_MAX = 1_000
"""Of a small broker: what is measured by partition or client does not belong here."""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory, kafka_jars: Path) -> Iterator[tuple[str, str]]:
    """The pages of a Java controller and of a broker with a topic."""
    agent = agent_jar()
    if agent is None:
        pytest.skip("Prometheus' JMX exporter is not there, and can't be fetched with Maven")
    directory = tmp_path_factory.mktemp("metrics")
    rules = directory / "rules.yaml"
    rules.write_text(agent_rules(OWN_RULES))
    cluster = Cluster.create(
        directory / "cluster", kafka_jars, manifests(controllers=1, java=(3000,), brokers=1)
    )
    try:
        nodes = (*cluster.controllers, *cluster.brokers)
        addresses = [start_with_agent(cluster, node_id, agent, rules) for node_id in nodes]
        cluster.await_quorum()
        cluster.await_unfenced(*cluster.brokers)
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(TIMEOUT_S)
        controller, broker = map(_page, addresses)
        yield controller, broker
    finally:
        cluster.close()


def _page(address: str) -> str:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=TIMEOUT_S) as response:
        text: str = response.read().decode()
        return text


def _names(page: str) -> set[str]:
    return set(re.findall(r"^(\w+)[ {]", page, re.MULTILINE))


def test_java_controllers_have_the_names_of_ours(pages: tuple[str, str]) -> None:
    rows = re.findall(r"^\| `(kafka_\w+)` \|[^|]*\|([^|]+)\|$", METRICS.read_text(), re.MULTILINE)
    beans = ("KafkaController,", "raft-metrics,")
    gauges = {
        name for name, kafka in rows if kafka.strip().startswith(beans) and "never shipped" not in kafka
    }
    assert len(gauges) > 15
    assert gauges - _names(pages[0]) == set()


def test_the_dashboard_of_brokers_has_its_metrics(pages: tuple[str, str]) -> None:
    panels = json.loads(BROKERS.read_text())["panels"]
    queries = [target["expr"] for panel in panels for target in panel.get("targets", ())]
    used = set().union(*(re.findall(r"\b(?:kafka|jvm|process)_\w+", query) for query in queries))
    assert len(used) > 15
    assert used - _names(pages[1]) == set()


def test_a_broker_has_the_documented_metrics(pages: tuple[str, str]) -> None:
    documented = set(re.findall(r"^\| `(kafka_\w+)` \|", BROKER_METRICS.read_text(), re.MULTILINE))
    assert len(documented) > 15
    assert documented - _names(pages[1]) == set()


def test_rules_of_a_manifest_apply_before_ours(pages: tuple[str, str]) -> None:
    names = _names(pages[1])
    assert {"own_purgatory_purgatorysize", "own_producers"} <= names
    assert "kafka_server_replicamanager_produceridcount" not in names


def test_a_page_is_small(pages: tuple[str, str]) -> None:
    """A scrape costs little, however many clients there are."""
    for page in pages:
        assert sum(not line.startswith("#") for line in page.splitlines()) < SERIES_MAX
