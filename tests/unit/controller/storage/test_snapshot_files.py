"""Checkpoint files: names, life from .part to removal, chunks."""

from pathlib import Path

import pytest
from quorate_controller.raft.model import SnapshotId
from quorate_controller.storage.errors import FileMissingError
from quorate_controller.storage.os_filesystem import OsFileSystem
from quorate_controller.storage.snapshots import SnapshotStore

FIRST = SnapshotId(offset=100, epoch=2)
SECOND = SnapshotId(offset=70, epoch=3)


def test_checkpoint_appears_when_frozen(os_files: OsFileSystem, tmp_path: Path):
    """Until freeze there is a .part; then Kafka's name, read-only, listed and readable in chunks."""
    store = SnapshotStore.open(os_files, tmp_path)
    writer = store.create(FIRST)
    writer.append(b"0123")
    writer.append(b"456789")
    assert (writer.size_bytes, store.ids, store.latest) == (10, (), None)
    assert [path.name for path in tmp_path.iterdir()] == ["00000000000000000100-0000000002.checkpoint.part"]
    writer.freeze()
    path = tmp_path / "00000000000000000100-0000000002.checkpoint"
    assert list(tmp_path.iterdir()) == [path]
    assert path.stat().st_mode & 0o777 == 0o400
    assert (store.ids, store.size(FIRST), store.size_bytes) == ((FIRST,), 10, 10)
    assert [store.read(FIRST, position, 4) for position in (0, 4, 8, 12)] == [b"0123", b"4567", b"89", b""]
    assert store.read_all(FIRST) == b"0123456789"


def test_snapshots_rank_by_epoch_then_offset(os_files: OsFileSystem, tmp_path: Path):
    """The latest is the one that raft prefers, and those before it can be removed."""
    store = SnapshotStore.open(os_files, tmp_path)
    for snapshot_id in (SECOND, FIRST):
        writer = store.create(snapshot_id)
        writer.append(b"x")
        writer.freeze()
    assert SnapshotStore.open(os_files, tmp_path).ids == (FIRST, SECOND)
    assert store.latest == SECOND
    assert store.remove_before(SECOND) == (FIRST,)
    assert [path.name[:20] for path in tmp_path.iterdir()] == ["00000000000000000070"]
    with pytest.raises(FileMissingError, match="there is no such snapshot"):
        store.read(FIRST, 0, 10)


def test_left_overs_are_removed_at_start(os_files: OsFileSystem, tmp_path: Path):
    """Java's and our unfinished and deleted checkpoints go; other files stay."""
    stay = {"00000000000000000100-0000000002.checkpoint", "quorum-state", "00000000000000000100.log"}
    go = {
        "00000000000000000100-0000000003-8125366712.checkpoint.part",
        "00000000000000000100-0000000003.checkpoint.part",
        "00000000000000000050-0000000001.checkpoint.deleted",
    }
    for name in stay | go:
        (tmp_path / name).write_bytes(b"x")
    assert SnapshotStore.open(os_files, tmp_path).ids == (FIRST,)
    assert {path.name for path in tmp_path.iterdir()} == stay


def test_aborted_checkpoint_leaves_nothing(os_files: OsFileSystem, tmp_path: Path):
    """A download that is given up is removed at once."""
    store = SnapshotStore.open(os_files, tmp_path)
    writer = store.create(FIRST)
    writer.append(b"x")
    writer.abort()
    assert list(tmp_path.iterdir()) == []
    assert store.ids == ()
