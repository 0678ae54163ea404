"""Retention: which checkpoints are deleted, and what of the log with them (KIP-630)."""

from collections.abc import Callable
from pathlib import Path

import pytest
from kit.storage_parts import PARTITION, add_snapshot
from quorate_controller.raft.model import SnapshotId
from quorate_controller.storage.controller_storage import ControllerStorage
from quorate_controller.storage.errors import CorruptFileError

Open = Callable[..., ControllerStorage]


def test_size_retention_keeps_the_latest_snapshot(open_storage: Open, tmp_path: Path, make_batches):
    """Over the bound, the oldest snapshots go, and the segments that a newer one covers; one always stays."""
    storage = open_storage(retention_bytes=10_000, retention_ms=-1)
    for start in range(100):
        storage.append(make_batches(start, 1))
    storage.flush()
    for offset in (20, 50, 80):
        add_snapshot(storage, offset)
    assert storage.clean(0) is None
    storage.close()
    storage = open_storage(retention_bytes=1, retention_ms=-1)
    assert storage.clean(0) == 80
    assert [snapshot_id.offset for snapshot_id in storage.snapshots.ids] == [80]
    assert storage.log.start_offset == 80
    first = min(int(path.name[:20]) for path in (tmp_path / "meta" / PARTITION).glob("*.log"))
    assert 60 < first <= 80, "whole segments before the start are deleted, the others stay"
    assert storage.clean(0) is None
    assert storage.log_state().earliest_snapshot_id == SnapshotId(offset=80, epoch=1)
    storage.close()
    storage = open_storage()
    assert storage.log.start_offset == 80, "the log starts at a snapshot again after a restart"
    storage.close()


def test_age_retention_looks_at_the_snapshots_records(open_storage: Open, make_batches):
    """What counts is the newest record in a snapshot, not when it was written."""
    storage = open_storage(retention_bytes=-1, retention_ms=1000)
    for start in range(100):
        storage.append(make_batches(start, 1))
    for offset, timestamp_ms in ((20, 1000), (50, 2000), (80, 3000)):
        add_snapshot(storage, offset, timestamp_ms=timestamp_ms)
    assert storage.clean(2000) is None
    assert storage.clean(2001) == 50
    assert storage.clean(1_000_000) == 80
    assert [snapshot_id.offset for snapshot_id in storage.snapshots.ids] == [80]
    storage.close()


def test_age_retention_goes_on_with_damaged_checkpoints(
    open_storage: Open, tmp_path: Path, make_batches, caplog: pytest.LogCaptureFixture
):
    """An older checkpoint that a later one replaces does not end a healthy controller, is not served,
    and is deleted.
    """
    storage = open_storage(retention_bytes=-1, retention_ms=1000)
    for start in range(100):
        storage.append(make_batches(start, 1))
    first, second, third, latest = (
        add_snapshot(storage, offset, timestamp_ms=timestamp_ms)
        for offset, timestamp_ms in ((20, 1000), (40, 2000), (60, 3000), (80, 4000))
    )
    for name in ("00000000000000000020-0000000001", "00000000000000000040-0000000001"):
        file = tmp_path / "meta" / PARTITION / f"{name}.checkpoint"
        content = file.read_bytes()
        file.chmod(0o600)
        file.write_bytes(content[:40] + bytes([content[40] ^ 1]) + content[41:])
    assert storage.clean(4000) is None
    assert storage.snapshots.unreadable_ids == (first, second)
    assert [storage.snapshots.serves(each) for each in (first, second, third, latest)] == [
        False,
        False,
        True,
        True,
    ]
    assert [record.msg for record in caplog.records].count("checkpoint_unreadable") == 2
    assert storage.clean(4000) is None
    assert [record.msg for record in caplog.records].count("checkpoint_unreadable") == 2
    assert storage.clean(4001) == 80
    assert (storage.snapshots.ids, storage.snapshots.unreadable_ids) == ((latest,), ())
    storage.close()


def test_a_checkpoint_is_not_too_old_if_none_behind_it_can_be_read(
    open_storage: Open, tmp_path: Path, make_batches
):
    storage = open_storage(retention_bytes=-1, retention_ms=1000)
    for start in range(100):
        storage.append(make_batches(start, 1))
    ids = tuple(add_snapshot(storage, offset) for offset in (20, 80))
    for file in (tmp_path / "meta" / PARTITION).glob("*.checkpoint"):
        file.chmod(0o600)
        file.write_bytes(b"x" * 100)
    assert storage.clean(1_000_000) is None
    assert storage.snapshots.ids == ids
    storage.close()


def test_log_without_its_snapshot_is_refused(open_storage: Open, tmp_path: Path, make_batches):
    """A log that starts behind 0 is worth nothing without a snapshot of what was before."""
    storage = open_storage(retention_bytes=1)
    for start in range(100):
        storage.append(make_batches(start, 1))
    storage.flush()
    for offset in (20, 80):
        add_snapshot(storage, offset)
    storage.clean(0)
    storage.close()
    (tmp_path / "meta" / PARTITION / "00000000000000000080-0000000001.checkpoint").unlink()
    with pytest.raises(CorruptFileError, match="no snapshot covers the records before it"):
        open_storage()
