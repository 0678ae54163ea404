"""`quorate topics` beside kafka-topics: what either does, the other sees."""

import pytest
from kit.java.cluster import JavaCluster
from kit.java.tools import JavaTools
from kit.membership import quorate, refused, succeeded
from kit.waiting import eventually

pytestmark = pytest.mark.integration

KAFKA_TOPICS = "org.apache.kafka.tools.TopicCommand"
TIMEOUT_S = 15


def test_a_topic_lives(java_cluster: JavaCluster, java_tool: JavaTools) -> None:
    """A topic's whole life with our tool."""
    at = ("--bootstrap-server", java_cluster.bootstrap_servers)
    create = ("--create", "--topic", "tools-life", "--replica-assignment", "0:1,1:0")
    configs = ("--config", "retention.ms=3600000", "--config", "cleanup.policy=compact,delete")
    assert succeeded(quorate("topics", *at, *create, *configs)) == "Created topic tools-life.\n"
    assert "already exists" in refused(quorate("topics", *at, *create))

    def same() -> str:
        describe = (*at, "--describe", "--topic", "tools-life")
        theirs, ours = java_tool(KAFKA_TOPICS, *describe).stdout, quorate("topics", *describe).stdout
        return ours if ours == theirs else ""

    described = eventually(same, TIMEOUT_S, "the same description from both tools")
    assert "PartitionCount: 2\tReplicationFactor: 2\tConfigs: " in described
    assert "cleanup.policy=compact,delete,retention.ms=3600000" in described
    succeeded(quorate("topics", *at, "--alter", "--topic", "tools-life", "--partitions", "4"))
    eventually(lambda: "PartitionCount: 4" in same(), TIMEOUT_S, "four partitions")
    succeeded(quorate("topics", *at, "--delete", "--topic", "tools-life"))
    eventually(
        lambda: "tools-life" not in java_tool(KAFKA_TOPICS, *at, "--list").stdout,
        TIMEOUT_S,
        "the topic to go",
    )
    assert "Topic 'tools-life' does not exist" in refused(
        quorate("topics", *at, "--describe", "--topic", "tools-life")
    )


def test_many_partitions_come_in_pages(java_cluster: JavaCluster) -> None:
    at = ("--bootstrap-server", java_cluster.bootstrap_servers)
    succeeded(quorate("topics", *at, "--create", "--topic", "tools-pages", "--partitions", "40"))
    describe = ("--describe", "--topic", "tools-pages", "--partition-size-limit-per-response", "7")

    def described() -> list[str]:
        lines = quorate("topics", *at, *describe).stdout.splitlines()
        return lines if len(lines) == 41 else []

    lines = eventually(described, TIMEOUT_S, "the topic with all its partitions")
    assert [int(line.split("\t")[2].removeprefix("Partition: ")) for line in lines[1:]] == list(range(40))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--topic", "tools wrong"), "INVALID_TOPIC_EXCEPTION"),
        (("--topic", "tools-wrong", "--replication-factor", "9"), "INVALID_REPLICATION_FACTOR"),
        (
            ("--topic", "tools-wrong", "--config", "retention.mss=1"),
            "Unknown topic config name: retention.mss",
        ),
        (("--topic", "tools-wrong", "--config", "retention.ms=soon"), "Invalid value soon"),
        (("--topic", "tools-wrong", "--replica-assignment", "77"), "INVALID_REPLICA_ASSIGNMENT"),
    ],
)
def test_what_a_cluster_refuses(java_cluster: JavaCluster, arguments: tuple[str, ...], expected: str) -> None:
    ran = quorate("topics", "--bootstrap-server", java_cluster.bootstrap_servers, "--create", *arguments)
    assert expected in refused(ran)
    assert ran.stdout == ""


@pytest.mark.parametrize(
    ("words", "api"),
    [
        (("topics", "--list"), "DescribeTopicPartitions"),
        (("topics", "--describe"), "DescribeTopicPartitions"),
        (("configs", "--describe", "--entity-type", "topics"), "DescribeTopicPartitions"),
        (("configs", "--describe", "--entity-type", "clients"), "DescribeClientQuotas"),
        (("configs", "--describe", "--user", "admin"), "DescribeClientQuotas"),
    ],
    ids=lambda given: given if isinstance(given, str) else "-".join(given),
)
def test_stock_controllers_are_said_not_to_describe_it(
    java_cluster: JavaCluster, words: tuple[str, ...], api: str
) -> None:
    tool, *rest = words
    at = ("--bootstrap-controller", java_cluster.bootstrap_controllers)
    assert refused(quorate(tool, *at, *rest)) == (
        f"error: no controller of the cluster serves {api}, as those of Kafka do not; connect to brokers instead "
        "(--bootstrap-server)\n"
    )
