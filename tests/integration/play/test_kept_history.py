"""A played cluster whose manifest keeps a history: what is shipped, by which nodes, and until when."""

import os
import re
import signal
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from kit.cluster import free_ports
from kit.player import CONTROLLERS_ALONE, Player
from kit.waiting import eventually
from quorate_protocol.records.batch import scan_batches

pytestmark = pytest.mark.integration

WAIT_S = 60
CONTROLLERS = (3000, 3001, 3002)
KEPT = CONTROLLERS_ALONE.rstrip().removesuffix("}") + ", history: {storage: {size: 1Gi}}}\n"


def shippers(player: Player) -> dict[int, int]:
    """The ids of the processes that ship, by the controller whose log it is."""
    found = {}
    for process in player.processes():
        with suppress(psutil.Error):  # it ended meanwhile
            line = " ".join(process.cmdline())
            if named := re.search(r"controller ship .*--log-dir \S*controller-(\d+)/data", line):
                found[int(named[1])] = process.pid
    return found


def shipped_to(player: Player, node_id: int) -> int:
    """The offset up to which a controller's log was shipped; 0 for none."""
    segments = sorted(Path(player.directory / "history").glob(f"*/{node_id}/__cluster_metadata-0/*.log"))
    ends = [header.last_offset + 1 for header in scan_batches(segments[-1].read_bytes())] if segments else []
    return ends[-1] if ends else 0


def test_a_played_history_is_up_to_date_while_it_is_wanted(player: Player) -> None:
    """`quorate lake ingest DIR/history` sees what happened a moment ago."""
    ports = free_ports(3)
    player.write(KEPT % ports)
    status = player.play() and player.status()
    watermark = int(status["quorum"]["highWatermark"])
    for node_id in CONTROLLERS:
        eventually(
            lambda node_id=node_id: shipped_to(player, node_id) >= watermark, WAIT_S, f"the log of {node_id}"
        )
    before = shippers(player)
    assert sorted(before) == list(CONTROLLERS)
    os.kill(before[3000], signal.SIGKILL)
    eventually(
        lambda: shippers(player).get(3000) not in (None, before[3000]), WAIT_S, "another process that ships"
    )
    player.write(CONTROLLERS_ALONE % ports)
    player.play()
    eventually(lambda: not shippers(player), WAIT_S, "nobody to ship any more")
    assert all(shipped_to(player, node_id) >= watermark for node_id in CONTROLLERS)
    assert player.run("stop").returncode == 0
    assert player.processes() == []
