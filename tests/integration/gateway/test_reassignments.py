"""Partitions move between stock brokers under Python controllers, by the tool of stock Kafka."""

import json
import re
from pathlib import Path

import pytest
from kit.gatekeeper import Gatekeeper
from kit.java.tools import JavaTools, Ran
from kit.names import unused
from kit.waiting import eventually

pytestmark = pytest.mark.integration

REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
TOPICS = "org.apache.kafka.tools.TopicCommand"
CONFIGS = "kafka.admin.ConfigCommand"
PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
TIMEOUT_S = 60
RECORDS = 50
RECORD_SIZE_BYTES = 100_000
SLOW_BYTES_PER_S = 1_000


def test_stock_tool_moves_and_cancels(
    gatekeeper: Gatekeeper, java_tool: JavaTools, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Throttled, listed, cancelled, and carried out without losing a record."""
    topic, moves = unused("stock-moves"), tmp_path / "moves.json"
    brokers = ("--bootstrap-server", gatekeeper.cluster.bootstrap_servers)
    controllers = ("--bootstrap-controller", gatekeeper.cluster.bootstrap_controllers)
    described = ("--describe", "--topic", topic)

    def await_printed(pattern: str, tool: str, *arguments: str) -> None:
        """Wait until a tool prints this: the broker that it asks may not know yet what the controller has done."""

        def listed() -> Ran | None:
            ran = java_tool(tool, *brokers, *arguments)
            return ran if re.search(pattern, ran.stdout) else None

        found = eventually(listed, TIMEOUT_S, pattern, lambda: java_tool(tool, *brokers, *arguments))
        assert found is not None
        found.succeeded()

    java_tool(TOPICS, *brokers, "--create", "--topic", topic, "--replica-assignment", "0").succeeded()
    text = "".join(f"{number:0{RECORD_SIZE_BYTES}}\n" for number in range(RECORDS))
    java_tool(PRODUCER, *brokers, "--topic", topic, text=text).succeeded()
    moves.write_text(json.dumps({"partitions": [{"topic": topic, "partition": 0, "replicas": [1, 2]}]}))
    file = ("--reassignment-json-file", str(moves))
    # Other tests share the brokers: nothing may be on the move or throttled after a failure.
    request.addfinalizer(lambda: java_tool(REASSIGN, *brokers, "--cancel", *file))

    started = java_tool(REASSIGN, *brokers, "--execute", *file, "--throttle", SLOW_BYTES_PER_S).succeeded()
    assert f"The inter-broker throttle limit was set to {SLOW_BYTES_PER_S} B/s\n" in started.stdout
    assert f"Successfully started partition reassignment for {topic}-0\n" in started.stdout
    await_printed("leader.replication.throttled.replicas=0:0", CONFIGS, *described)
    expected = f"Current partition reassignments:\n{topic}-0: replicas: 1,2,0. adding: 1,2. removing: 0.\n"
    for side in (brokers, controllers):
        assert java_tool(REASSIGN, *side, "--list").succeeded().stdout == expected
    under_way = f"Reassignment of partition {topic}-0 is still in progress.\n"
    assert under_way in java_tool(REASSIGN, *brokers, "--verify", *file).succeeded().stdout

    cancelled = java_tool(REASSIGN, *brokers, "--cancel", *file).succeeded().stdout
    assert f"Successfully cancelled partition reassignment for: {topic}-0\n" in cancelled
    await_printed("Replicas: 0\tIsr: 0\t", TOPICS, *described)
    assert java_tool(REASSIGN, *controllers, "--list").stdout == "No partition reassignments found.\n"

    java_tool(REASSIGN, *brokers, "--execute", *file).succeeded()
    completed = f"Reassignment of partition {topic}-0 is completed.\n"
    await_printed(re.escape(completed), REASSIGN, "--verify", *file)
    await_printed("(Leader: 1\tReplicas: 1,2\tIsr: 1,2|Replicas: 1,2\tIsr: 2,1)\t", TOPICS, *described)
    consume = ("--topic", topic, "--from-beginning", "--max-messages", str(RECORDS), "--timeout-ms", "30000")
    assert java_tool(CONSUMER, *brokers, *consume).succeeded().stdout == text
