"""Checkpoints name the voters and kraft.version, on a real disk with real raft: after retention nothing else does."""

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from kit.controller_parts import BOOTSTRAP_SERVERS, write_controller_properties
from quorate_controller import commands
from quorate_controller.config import load_config
from quorate_controller.node import ControllerNode
from quorate_controller.node.assembly import open_node
from quorate_controller.storage.os_filesystem import OsFileSystem
from typer.testing import CliRunner

BYTES_BETWEEN_CHECKPOINTS = 2_000
TURNS_MAX = 1_000
SMALL = {
    "metadata.log.max.record.bytes.between.snapshots": str(BYTES_BETWEEN_CHECKPOINTS),
    "metadata.max.retention.bytes": "1",
}


@pytest.fixture
def small_node(tmp_path: Path) -> Callable[[], ControllerNode]:
    """Open the only voter of a dynamic quorum, which writes checkpoints often and keeps only the latest."""
    path = write_controller_properties(tmp_path, BOOTSTRAP_SERVERS | SMALL)
    formatted = CliRunner().invoke(commands.app, ["format", "-c", str(path), "-t", "abc", "--standalone"])
    assert formatted.exit_code == 0, formatted.stderr
    return lambda: open_node(
        load_config(path), file_system=OsFileSystem(), rng=Random(1), clock=lambda: 1_000_000
    )


def test_a_checkpoint_names_the_voters_and_the_log_may_forget_them(
    small_node: Callable[[], ControllerNode], bench_of: Callable[[ControllerNode], Any]
) -> None:
    """A quorum survives a restart of all its voters after the VotersRecord has left the log."""
    node = small_node()
    bench = bench_of(node)
    voters, kraft_version = node.raft.voters, node.raft.kraft_version
    voters_offset = node.raft._replica.history.voters_offset
    assert (voters.ids, kraft_version) == ((3000,), 1)
    for _ in range(TURNS_MAX):
        bench.turn_when_due()
        if node.storage.log.start_offset > voters_offset:
            break
    assert node.storage.log.start_offset > voters_offset
    (checkpoint,) = node.storage.snapshots.ids
    quorum = node.storage.snapshot_quorum(checkpoint)
    assert (quorum.kraft_version, quorum.voters) == (kraft_version, voters)
    node.close()
    node = small_node()
    try:
        assert (node.raft.voters, node.raft.kraft_version) == (voters, kraft_version)
        bench_of(node)
    finally:
        node.close()
