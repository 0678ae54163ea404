"""A checkpoint that is complete is there after a loss of power: raft lets the log before it go at once."""

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from kit.simulator.disk import SimulatedDisk
from kit.storage_parts import add_snapshot, prepare, voters_checkpoint
from quorate_controller.raft.model import SnapshotId
from quorate_controller.storage.controller_storage import ControllerStorage, StorageConfig

DIRECTORY = Path("/data")
CRASHES = 20


@pytest.mark.parametrize("name", ["simulated", "crash"])
def test_a_frozen_checkpoint_survives_a_loss_of_power(
    new_crash_disk: Callable[[], Any], make_batches: Callable[..., bytes], name: str
) -> None:
    """Name and content are durable when `freeze` returns."""
    for seed in range(CRASHES):
        disk: Any = SimulatedDisk() if name == "simulated" else new_crash_disk()
        lose_power = disk.crash if name == "simulated" else disk.restart
        prepare(disk, DIRECTORY)
        config = StorageConfig(node_id=1, metadata_log_dir=DIRECTORY)
        storage = ControllerStorage.open(disk, config)
        storage.append(make_batches(0, 10))
        storage.flush()
        snapshot_id = add_snapshot(storage, 8)
        lose_power(Random(seed))
        storage = ControllerStorage.open(disk, config)
        assert storage.snapshots.ids == (snapshot_id,) == (SnapshotId(offset=8, epoch=1),)
        assert storage.snapshots.read_all(snapshot_id) == voters_checkpoint()
