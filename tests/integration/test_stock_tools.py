"""Kafka's own command line tools do their work against Python controllers: through a broker and directly."""

import re
import subprocess
from collections.abc import Callable

import pytest
from kit.cluster import Cluster
from kit.names import unused
from kit.releases import NEWEST_LEVEL
from kit.waiting import eventually
from quorate_protocol.features import metadata_version_name

pytestmark = pytest.mark.integration

TIMEOUT_S = 60


def succeeds(cluster: Cluster, name: str, *arguments: str, text: str | None = None) -> str:
    """Run a tool that has to end with 0; what it printed."""
    done = cluster.tool(name, *arguments, text=text)
    assert done.returncode == 0, f"{name} {arguments}: {done.stdout}{done.stderr}"
    return done.stdout


def await_printed(cluster: Cluster, holds: Callable[[str], bool], name: str, *arguments: str) -> str:
    """What a tool prints once this holds for it: the broker may not know yet what the controller has done."""

    def observed() -> subprocess.CompletedProcess[str] | None:
        done = cluster.tool(name, *arguments)
        return done if done.returncode == 0 and holds(done.stdout) else None

    done = eventually(observed, TIMEOUT_S, f"{name} {arguments}", lambda: cluster.tool(name, *arguments))
    assert done is not None
    return done.stdout


def test_topics_are_created_described_grown_and_deleted(shared_cluster: Cluster) -> None:
    """Kafka-topics works for a topic's whole life."""
    topic = unused("life")
    create = ("--create", "--topic", topic, "--partitions", "3", "--replication-factor", "1")
    describe = ("kafka-topics", "--describe", "--topic", topic)
    assert f"Created topic {topic}." in succeeds(
        shared_cluster, "kafka-topics", *create, "--config", "retention.ms=3600000"
    )
    again = shared_cluster.tool("kafka-topics", *create)
    assert again.returncode == 1
    assert f"Topic '{topic}' already exists." in again.stdout + again.stderr
    described = await_printed(shared_cluster, lambda text: "PartitionCount: 3" in text, *describe)
    assert "retention.ms=3600000" in described
    assert re.findall(r"Partition: (\d)\s+Leader: 0\s+Replicas: 0\s+Isr: 0", described) == ["0", "1", "2"]
    succeeds(shared_cluster, "kafka-topics", "--alter", "--topic", topic, "--partitions", "5")
    await_printed(shared_cluster, lambda text: "PartitionCount: 5" in text, *describe)
    succeeds(shared_cluster, "kafka-topics", "--delete", "--topic", topic)
    await_printed(shared_cluster, lambda text: topic not in text.split(), "kafka-topics", "--list")


@pytest.mark.parametrize(
    "entity",
    [("--entity-type", "brokers", "--entity-name", "0"), ("--entity-type", "brokers", "--entity-default")],
    ids=["broker", "cluster default"],
)
def test_configs_of_brokers_are_set_and_deleted(shared_cluster: Cluster, entity: tuple[str, ...]) -> None:
    config = "log.cleaner.threads=2"
    succeeds(shared_cluster, "kafka-configs", "--alter", *entity, "--add-config", config)
    await_printed(shared_cluster, lambda text: config in text, "kafka-configs", "--describe", *entity)
    succeeds(shared_cluster, "kafka-configs", "--alter", *entity, "--delete-config", "log.cleaner.threads")
    await_printed(shared_cluster, lambda text: config not in text, "kafka-configs", "--describe", *entity)


def test_wrong_config_is_refused_with_its_reason(shared_cluster: Cluster) -> None:
    checked = unused("checked")
    succeeds(shared_cluster, "kafka-topics", "--create", "--topic", checked, "--partitions", "1")
    topic = ("--alter", "--entity-type", "topics", "--entity-name", checked, "--add-config")
    bad = shared_cluster.tool("kafka-configs", *topic, "retention.ms=soon")
    assert bad.returncode == 1
    assert "Invalid value soon for configuration retention.ms" in bad.stdout + bad.stderr
    unknown = shared_cluster.tool("kafka-configs", *topic, "retention.mss=1")
    assert unknown.returncode == 1
    assert "retention.mss" in unknown.stdout + unknown.stderr


def test_a_group_consumes_what_was_produced(shared_cluster: Cluster) -> None:
    lines = [f"line {number}" for number in range(10)]
    topic, group = unused("lines"), unused("readers")
    succeeds(shared_cluster, "kafka-topics", "--create", "--topic", topic, "--partitions", "2")
    succeeds(
        shared_cluster,
        "kafka-console-producer",
        "--topic",
        topic,
        text="".join(f"{line}\n" for line in lines),
    )
    consumed = succeeds(
        shared_cluster,
        "kafka-console-consumer",
        "--topic",
        topic,
        "--group",
        group,
        "--from-beginning",
        "--max-messages",
        "10",
        "--timeout-ms",
        "30000",
    )
    assert sorted(consumed.split("\n")[:-1]) == sorted(lines)
    groups = succeeds(shared_cluster, "kafka-consumer-groups", "--describe", "--group", group)
    lags = re.findall(rf"{group}\s+{topic}\s+\d\s+(\d+)\s+(\d+)\s+(\d+)", groups)
    assert len(lags) == 2
    assert sum(int(committed) for committed, _, _ in lags) == 10
    assert all(lag == "0" for _, _, lag in lags)


@pytest.mark.parametrize("way", ["broker", "controllers"])
def test_the_quorum_is_described(shared_cluster: Cluster, way: str) -> None:
    """Kafka-metadata-quorum knows voters and observers."""
    address = () if way == "broker" else ("--bootstrap-controller", shared_cluster.bootstrap_controllers)
    status = succeeds(shared_cluster, "kafka-metadata-quorum", *address, "describe", "--status")
    leader_id = shared_cluster.await_leader()
    assert re.search(rf"LeaderId:\s+{leader_id}\n", status)
    voters = re.search(r"CurrentVoters:\s+(.*)", status)
    assert voters is not None
    assert [int(found) for found in re.findall(r'"id": (\d+)', voters[1])] == list(shared_cluster.controllers)
    replication = succeeds(shared_cluster, "kafka-metadata-quorum", *address, "describe", "--replication")
    roles = re.findall(r"^(\d+)\s+\S+\s+\d+\s+.*?(Leader|Follower|Observer)\s*$", replication, re.MULTILINE)
    assert sorted(role for _, role in roles) == ["Follower", "Follower", "Leader", "Observer"]


@pytest.mark.parametrize("way", ["broker", "controllers"])
def test_features_go_up_and_down(shared_cluster: Cluster, way: str) -> None:
    address = () if way == "broker" else ("--bootstrap-controller", shared_cluster.bootstrap_controllers)
    feature = ("--feature", "group.version=0")
    down = succeeds(shared_cluster, "kafka-features", *address, "downgrade", *feature)
    assert "group.version was downgraded to 0." in down
    up = succeeds(shared_cluster, "kafka-features", *address, "upgrade", "--feature", "group.version=1")
    assert "group.version was upgraded to 1." in up
    refused = shared_cluster.tool(
        "kafka-features", *address, "upgrade", "--feature", f"metadata.version={NEWEST_LEVEL + 1}"
    )
    assert refused.returncode == 1
    assert "metadata.version" in refused.stdout + refused.stderr
    described = succeeds(shared_cluster, "kafka-features", *address, "describe")
    # Tools of an older release have no name for the level.
    level = rf"({metadata_version_name(NEWEST_LEVEL)}|UNKNOWN \[?{NEWEST_LEVEL})"
    assert re.search(rf"Feature: metadata.version\s.*FinalizedVersionLevel: {level}", described)
    assert re.search(r"Feature: kraft.version\s.*FinalizedVersionLevel: 1", described)


def test_the_cluster_names_itself_and_its_endpoints(shared_cluster: Cluster) -> None:
    address = ("--bootstrap-controller", shared_cluster.bootstrap_controllers)
    cluster_id = succeeds(shared_cluster, "kafka-cluster", "cluster-id").rpartition(" ")[2]
    assert succeeds(shared_cluster, "kafka-cluster", "cluster-id", *address).rpartition(" ")[2] == cluster_id
    brokers = succeeds(shared_cluster, "kafka-cluster", "list-endpoints")
    assert re.search(r"^0\s+127\.0\.0\.1\s", brokers, re.MULTILINE)
    controllers = succeeds(shared_cluster, "kafka-cluster", "list-endpoints", *address)
    listed = re.findall(r"^(\d+)\s+127\.0\.0\.1\s.*controller", controllers, re.MULTILINE)
    assert [int(found) for found in listed] == list(shared_cluster.controllers)


def test_versions_and_elections(shared_cluster: Cluster) -> None:
    """Kafka-broker-api-versions and kafka-leader-election work."""
    assert re.search(r"CreateTopics\(19\): 2 to 7", succeeds(shared_cluster, "kafka-broker-api-versions"))
    election = ("--election-type", "preferred", "--all-topic-partitions")
    assert "Error" not in succeeds(shared_cluster, "kafka-leader-election", *election)
