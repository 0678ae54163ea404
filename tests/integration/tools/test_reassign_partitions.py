"""`quorate reassign-partitions` beside kafka-reassign-partitions: moves that end, and one that does not."""

import json
from pathlib import Path

import pytest
from kit.java.cluster import JavaCluster
from kit.java.tools import JavaTools
from kit.membership import quorate, refused, succeeded
from kit.waiting import eventually

pytestmark = pytest.mark.integration

KAFKA_REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
TIMEOUT_S = 30


def create(cluster: JavaCluster, topic: str) -> None:
    """A topic with a partition on the broker 0."""
    at = ("--bootstrap-server", cluster.bootstrap_servers)
    succeeded(quorate("topics", *at, "--create", "--topic", topic, "--replica-assignment", "0"))
    eventually(
        lambda: "Leader: 0" in quorate("topics", *at, "--describe", "--topic", topic).stdout,
        TIMEOUT_S,
        "a leader",
    )


def test_a_proposal_is_carried_out(java_cluster: JavaCluster, java_tool: JavaTools, tmp_path: Path) -> None:
    topic = "tools-reassign"
    create(java_cluster, topic)
    at = ("reassign-partitions", "--bootstrap-server", java_cluster.bootstrap_servers)
    topics, moves = tmp_path / "topics.json", tmp_path / "moves.json"
    topics.write_text(json.dumps({"topics": [{"topic": topic}]}))
    generate = ("--generate", "--topics-to-move-json-file", str(topics), "--broker-list", "1", "-o", "json")
    proposal = json.loads(succeeded(quorate(*at, *generate)))
    assert [partition["replicas"] for partition in proposal["current"]["partitions"]] == [[0]]
    assert [partition["replicas"] for partition in proposal["proposed"]["partitions"]] == [[1]]
    moves.write_text(json.dumps(proposal["proposed"]))
    file = ("--reassignment-json-file", str(moves))
    started = succeeded(quorate(*at, "--execute", *file, "--throttle", "1000000"))
    assert f"Successfully started partition reassignment for {topic}-0\n" in started
    completed = f"Reassignment of partition {topic}-0 is completed."
    verified = eventually(
        lambda: completed in (text := quorate(*at, "--verify", *file).stdout) and text, TIMEOUT_S, completed
    )
    assert verified == java_tool(KAFKA_REASSIGN, *at[1:], "--verify", *file).stdout
    configs = ("--bootstrap-server", java_cluster.bootstrap_servers, "--describe", "--topic", topic)
    eventually(
        lambda: "throttled" not in quorate("configs", *configs).stdout, TIMEOUT_S, "the throttles to be gone"
    )


@pytest.mark.parametrize("side", ["server", "controller"])
def test_a_move_under_way_is_listed_and_cancelled(
    java_cluster: JavaCluster, java_tool: JavaTools, tmp_path: Path, side: str
) -> None:
    topic = f"tools-cancel-{side}"
    create(java_cluster, topic)
    server = ("--bootstrap-server", java_cluster.bootstrap_servers)
    text = "".join("x" * 100_000 + "\n" for _ in range(50))
    java_tool(PRODUCER, *server, "--topic", topic, text=text).succeeded()
    moves = tmp_path / "moves.json"
    moves.write_text(json.dumps({"partitions": [{"topic": topic, "partition": 0, "replicas": [0, 1]}]}))
    file = ("--reassignment-json-file", str(moves))
    at = ("reassign-partitions", *server)
    succeeded(quorate(*at, "--execute", *file, "--throttle", "1000"))
    address = java_cluster.bootstrap_servers if side == "server" else java_cluster.bootstrap_controllers
    there = (f"--bootstrap-{side}", address)
    listed = succeeded(quorate("reassign-partitions", *there, "--list"))
    assert listed == f"Current partition reassignments:\n{topic}-0: replicas: 0,1. adding: 1.\n"
    assert listed == java_tool(KAFKA_REASSIGN, *there, "--list").stdout
    verified = succeeded(quorate(*at, "--verify", *file))
    assert verified == java_tool(KAFKA_REASSIGN, *at[1:], "--verify", *file).stdout
    assert f"Reassignment of partition {topic}-0 is still in progress.\n" in verified
    assert "Use --additional to override" in refused(quorate(*at, "--execute", *file))
    succeeded(quorate(*at, "--execute", *file, "--additional", "--throttle", "2000"))
    cancelled = succeeded(quorate("reassign-partitions", *there, "--cancel", *file, "--preserve-throttles"))
    assert cancelled.startswith(f"Successfully cancelled partition reassignment for: {topic}-0\n")
    assert (
        succeeded(quorate("reassign-partitions", *there, "--list")) == "No partition reassignments found.\n"
    )
    eventually(
        lambda: "Replicas: 0\tIsr: 0\t" in quorate("topics", *server, "--describe", "--topic", topic).stdout,
        TIMEOUT_S,
        "the partition where it was",
    )
    assert "Clearing topic-level throttles" in succeeded(quorate(*at, "--verify", *file))
