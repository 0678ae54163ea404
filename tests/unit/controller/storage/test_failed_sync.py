"""A sync that fails once, and what it should have written: the kernel holds it for written, and the disk lacks it."""

from pathlib import Path
from random import Random

import pytest
from kit.simulator.disk import DiskError, SimulatedDisk
from quorate_controller.storage.log import MetadataLog
from quorate_controller.storage.os_filesystem import OsFileSystem
from quorate_protocol.records.batch import build_batch

DIRECTORY = Path("/simulated/log")


def batch(offset: int) -> bytes:
    return build_batch([b"record"], offset, 1, 1)


@pytest.mark.parametrize("durable_end_offset", [0, 1])
def test_the_next_process_writes_again_what_a_failed_sync_left(durable_end_offset: int) -> None:
    """What a log confirms after a failed sync survives a power failure."""
    disk = SimulatedDisk()
    log = MetadataLog.open(disk, DIRECTORY)
    log.append(batch(0))
    log.flush()
    log.append(batch(1))
    disk.fails_to_sync = True
    with pytest.raises(DiskError):
        log.flush()
    disk.end_process()

    log = MetadataLog.open(disk, DIRECTORY, durable_end_offset=durable_end_offset)
    assert log.end_offset == 2
    log.append(batch(2))
    log.flush()
    disk.crash(Random(1))

    log = MetadataLog.open(disk, DIRECTORY, durable_end_offset=3)
    assert log.read(0, 1 << 20) == batch(0) + batch(1) + batch(2)


def test_a_file_is_rewritten_in_place(tmp_path: Path) -> None:
    file_system = OsFileSystem()
    file = file_system.create_file(tmp_path / "file")
    content = bytes(range(256)) * 10_000
    file.append(content)
    for position in (len(content), 1000, 0):
        file.rewrite_from(position)
    file.sync()
    assert file.read_at(0, len(content) + 1) == content
    file.close()
    assert (tmp_path / "file").read_bytes() == content
