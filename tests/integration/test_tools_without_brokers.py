"""The tools at controllers of ours while no broker runs: the transcript in docs/tools.md is what they print."""

from pathlib import Path

import pytest
from kit.releases import RELEASE
from kit.without_brokers import COMMANDS, PAGE, TOOLS, transcript, without_brokers, written
from quorate_protocol.kafka.releases import NEWEST_RELEASE

pytestmark = pytest.mark.integration


def test_each_tool_of_the_proposal_is_run() -> None:
    """Goal: all eight tools of KIP-919. Method: compare with the commands."""
    assert set(TOOLS) <= {command.partition(" ")[0] for command in COMMANDS}


def test_the_tools_work_while_no_broker_runs(tmp_path: Path, kafka_jars: Path) -> None:
    """Goal: administrators need no broker to read and to change. Method: stop the only broker, run each tool, and
    compare with the page; `make transcript` writes it. A cluster of an older release has other levels.
    """
    with without_brokers(tmp_path / "cluster", kafka_jars) as cluster:
        text = transcript(cluster)
    if RELEASE == NEWEST_RELEASE:
        page = PAGE.read_text()
        assert page == written(page, text)
