"""The files that local nodes are started with: properties, tools."""

import os
import subprocess
from pathlib import Path

import pytest
from quorate_operator.models.manifests import load_manifests
from quorate_operator.models.v1alpha1 import KAFKA_VERSION
from quorate_operator.planning.desired import desired_cluster
from quorate_operator.properties import render_properties
from quorate_operator.runtime.local.client_files import TOOLS, write_tools
from quorate_operator.runtime.local.directory import PlayDirectory
from quorate_operator.runtime.local.identity import settle_identity
from quorate_operator.runtime.local.layout import Layout
from quorate_operator.runtime.local.stock_kafka import Kafka
from quorate_protocol.properties import parse_properties

pytestmark = pytest.mark.usefixtures("own_ports")

MANIFESTS = """\
apiVersion: quorate.dev/v1alpha1
kind: KafkaController
metadata: {{name: quorum}}
spec:
  replicas: 2
  metadataVersion: "4.3"
  quorum: {quorum}
  nodes: [{{nodeId: 3001, implementation: java}}]
  config: {{metadata.max.idle.interval.ms: 0}}
---
apiVersion: quorate.dev/v1alpha1
kind: KafkaBroker
metadata: {{name: brokers}}
spec: {{controllers: quorum, replicas: {brokers}}}
"""


def layout_of(tmp_path: Path, brokers: int = 1, quorum: str = "dynamic") -> Layout:
    """A layout in an unused directory."""
    kafka = {KAFKA_VERSION: Kafka(version=KAFKA_VERSION, java="/opt/java", libs=Path("/opt/libs"))}
    manifests = load_manifests(MANIFESTS.format(brokers=brokers, quorum=quorum), "test")
    desired = desired_cluster(manifests)
    directory = PlayDirectory(tmp_path / "quorum")
    return Layout(directory, manifests, desired, settle_identity(directory, desired, kafka), kafka)


def properties_of(layout: Layout, node_id: int) -> dict[str, str]:
    """What is written for a node, read back."""
    node = layout.node(node_id)
    layout.write_config(node)
    return parse_properties(layout.config_file(node).read_text())


def test_a_controller_knows_its_quorum_and_its_listener(tmp_path: Path) -> None:
    layout = layout_of(tmp_path)
    found = properties_of(layout, 3000)
    port = layout.identity.nodes[3000].ports["CONTROLLER"]
    assert found["process.roles"] == "controller"
    assert found["listeners"] == found["advertised.listeners"] == f"CONTROLLER://127.0.0.1:{port}"
    assert found["controller.quorum.bootstrap.servers"].split(",")[0] == f"127.0.0.1:{port}"
    assert found["metadata.max.idle.interval.ms"] == "0"
    assert found["quorate.http.listener"].startswith("127.0.0.1:")


def test_a_java_controller_gets_no_property_of_ours(tmp_path: Path) -> None:
    found = properties_of(layout_of(tmp_path), 3001)
    assert [key for key in found if key.startswith("quorate")] == []


def test_a_static_quorum_names_its_voters(tmp_path: Path) -> None:
    layout = layout_of(tmp_path, quorum="static")
    found = properties_of(layout, 3000)
    assert found["controller.quorum.voters"].startswith("3000@127.0.0.1:")
    assert "controller.quorum.bootstrap.servers" not in found
    assert "--initial-controllers" not in layout.format_command(layout.node(3000))


@pytest.mark.parametrize(
    ("brokers", "copies", "in_sync"), [(1, "1", "1"), (2, "2", "1"), (3, "3", "2"), (5, "3", "2")]
)
def test_internal_topics_fit_the_number_of_brokers(
    tmp_path: Path, brokers: int, copies: str, in_sync: str
) -> None:
    """Groups and transactions work on one broker and are safe on three."""
    found = properties_of(layout_of(tmp_path, brokers=brokers), 0)
    assert found["offsets.topic.replication.factor"] == copies
    assert found["transaction.state.log.replication.factor"] == copies
    assert found["transaction.state.log.min.isr"] == in_sync


def test_all_controllers_are_formatted_with_the_same_voters(tmp_path: Path) -> None:
    layout = layout_of(tmp_path)
    ours = layout.format_command(layout.node(3000))
    stock = layout.format_command(layout.node(3001))
    voters = ours[ours.index("--initial-controllers") + 1]
    assert voters == stock[stock.index("--initial-controllers") + 1]
    assert [voter.split("@")[0] for voter in voters.split(",")] == ["3000", "3001"]
    assert ours[ours.index("--release-version") + 1] == "4.3"
    assert "kafka.tools.StorageTool" in stock
    assert ours[3:6] == ["quorate", "controller", "format"]


def test_heap_options_of_the_environment_are_heard(tmp_path: Path) -> None:
    """KAFKA_HEAP_OPTS means what it means to Kafka's scripts."""
    layout = layout_of(tmp_path)
    node = layout.node(0)
    layout.write_config(node)
    assert "-Xmx512m" in layout.run_command(node, {})
    command = layout.run_command(node, {"KAFKA_HEAP_OPTS": "-Xmx1g -Xms1g"})
    assert command[1:3] == ["-Xmx1g", "-Xms1g"]


@pytest.mark.parametrize(
    "value",
    ["", "plain", " leading", "a\\b", "a\nb", "tab\t", "ünïcödé", "\N{SNOWMAN}", "a=b:c#d!e", "trailing "],
)
def test_properties_come_back_as_they_were(value: str) -> None:
    properties = {"key": value, "k=e:y #!": "x"}
    assert parse_properties(render_properties(properties, "x")) == properties
    assert render_properties(properties, "x").isascii()


def test_tools_know_the_cluster_and_keep_what_they_are_told(tmp_path: Path) -> None:
    java = tmp_path / "java"
    java.write_text('#!/bin/sh\nwhile [ "$1" != -cp ]; do shift; done; shift 3; echo "$@"\n')
    java.chmod(0o755)
    layout = layout_of(tmp_path)
    write_tools(layout, Kafka(version="4.3.1", java=str(java), libs=tmp_path))
    bootstrap = layout.address(layout.node(0))

    def run(tool: str, *arguments: str) -> str:
        command = [str(layout.directory.tools / tool), *arguments]
        return subprocess.run(command, capture_output=True, check=True, text=True).stdout.strip()

    assert run("kafka-topics", "--list") == f"--bootstrap-server {bootstrap} --list"
    assert run("kafka-cluster", "cluster-id") == f"cluster-id --bootstrap-server {bootstrap}"
    assert (
        run("kafka-features", "--bootstrap-controller", "h:1", "describe")
        == "--bootstrap-controller h:1 describe"
    )
    assert run("kafka-topics", "--help") == "--help"
    assert run("kafka-dump-log", "--files", "a b") == "--files a b"
    assert all(os.access(layout.directory.tools / tool.name, os.X_OK) for tool in TOOLS)
