"""The tools at controllers of ours while no broker runs: the transcript in docs/tools.md is what they print."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.cluster import Cluster, manifests
from kit.membership import quorate, succeeded
from kit.releases import RELEASE
from kit.waiting import eventually
from kit.without_brokers import (
    COMMANDS,
    PAGE,
    TIMEOUT_S,
    TOOLS,
    SecuredCluster,
    connection_options,
    transcript,
    without_brokers,
    written,
)
from quorate_protocol.kafka.releases import NEWEST_RELEASE

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, kafka_jars: Path) -> Iterator[SecuredCluster]:
    """Three controllers, whose only broker is stopped. The last test kills two of them."""
    with without_brokers(tmp_path_factory.mktemp("without-brokers") / "cluster", kafka_jars) as started:
        yield started


def test_each_tool_of_the_proposal_is_run() -> None:
    """All eight tools of KIP-919."""
    assert set(TOOLS) <= {command.partition(" ")[0] for command in COMMANDS}


def test_the_tools_work_while_no_broker_runs(cluster: SecuredCluster) -> None:
    text = transcript(cluster)
    if RELEASE == NEWEST_RELEASE:
        page = PAGE.read_text()
        assert page == written(page, text)


def test_the_last_controller_answers_reads_without_a_leader(cluster: SecuredCluster) -> None:
    survivor, *others = cluster.controllers
    cluster.kill(*others)
    at = connection_options(cluster)
    assert succeeded(quorate("topics", *at, "--list")) == "orders\n"
    described = quorate("topics", *at, "--describe", "--topic", "orders")
    assert "Topic: orders\tPartition: 1\tLeader: none\tReplicas: 0" in succeeded(described)
    assert "reassignments are not shown, because no active controller answers" in described.stderr
    alice = succeeded(quorate("configs", *at, "--describe", "--user", "alice"))
    assert "producer_byte_rate=1024.0" in alice
    assert "SCRAM-SHA-256=iterations=8192" in alice
    assert "Total number of tokens" in succeeded(quorate("delegation-tokens", *at, "--describe"))
    assert "retention.ms=3600000" in succeeded(quorate("configs", *at, "--describe", "--topic", "orders"))
    assert cluster.runs(survivor)


def test_a_mixed_quorum_answers(tmp_path: Path, kafka_jars: Path) -> None:
    manifest = manifests(controllers=3, java=(3000, 3001), brokers=0)
    mixed = Cluster.create(tmp_path / "cluster", kafka_jars, manifest)
    try:
        mixed.start_all()
        at = ("--bootstrap-controller", mixed.bootstrap_controllers)
        succeeded(
            quorate("configs", *at, "--alter", "--user", "alice", "--add-config", "producer_byte_rate=7")
        )
        line = "Quota configs for user-principal 'alice' are producer_byte_rate=7.0\n"
        eventually(
            lambda: quorate("configs", *at, "--describe", "--user", "alice").stdout == line,
            TIMEOUT_S,
            "the quota",
            lambda: quorate("configs", *at, "--describe", "--user", "alice"),
        )
        assert succeeded(quorate("topics", *at, "--list")) == "\n"
    finally:
        mixed.close()
