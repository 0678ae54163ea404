"""The whole of a controller's disk: opening, the state for raft, snapshots, crashes."""

import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from kit.storage_parts import DIRECTORY_ID, PARTITION, SMALL, add_snapshot, prepare, voters_checkpoint
from quorate_controller.raft.model import BOOTSTRAP_SNAPSHOT_ID, ReplicaKey, SnapshotId
from quorate_controller.raft.records import check_fetched
from quorate_controller.raft.startup import EpochStart, HardState, KRaftVersionAt
from quorate_controller.storage.checkpoint_files import RECOVERY_POINTS
from quorate_controller.storage.controller_storage import (
    RECOVERY_POINT_INTERVAL_MS,
    ControllerStorage,
    StorageConfig,
)
from quorate_controller.storage.errors import CorruptFileError, DirectoryInUseError, StorageError
from quorate_controller.storage.meta_properties import MetaProperties, write_meta_properties
from quorate_controller.storage.os_filesystem import OsFileSystem
from quorate_protocol.kafka.enums import ControlRecordType
from quorate_protocol.records.batch import Record, RecordBatch, encode_batch
from quorate_protocol.records.control import KRaftVersionRecord, encode_control_batch

Open = Callable[..., ControllerStorage]


def test_new_node_starts_empty(open_storage: Open):
    """A formatted directory without a log gives the state of a node that has seen nothing."""
    storage = open_storage()
    assert (storage.cluster_id, storage.directory_id, storage.hard_state) == ("c", DIRECTORY_ID, HardState())
    state = storage.log_state()
    assert (state.start_offset, state.end_offset, state.epochs, state.snapshot_id) == (0, 0, (), None)
    assert storage.bootstrap_records() == ()
    storage.close()


def test_state_survives_a_restart(open_storage: Open, make_batches):
    """Hard state, epochs and control records come back; control records before the snapshot are in it."""
    storage = open_storage()
    vote = HardState(leader_epoch=4, voted_key=ReplicaKey(node_id=2, directory_id=DIRECTORY_ID))
    storage.save_hard_state(vote, kraft_version=1)
    old = encode_control_batch([KRaftVersionRecord(version=0, k_raft_version=0)], 3, 1, 1)
    new = encode_control_batch([KRaftVersionRecord(version=0, k_raft_version=1)], 8, 2, 1)
    storage.append(make_batches(0, 3) + old + make_batches(4, 4) + new)
    storage.flush()
    snapshot_id = add_snapshot(storage, 6)
    storage.close()
    storage = open_storage()
    state = storage.log_state()
    assert storage.hard_state == vote
    assert state.epochs == (EpochStart(epoch=1, start_offset=0), EpochStart(epoch=2, start_offset=8))
    assert (state.snapshot_id, state.earliest_snapshot_id) == (snapshot_id, snapshot_id)
    assert state.kraft_versions == (
        KRaftVersionAt(offset=5, kraft_version=1),
        KRaftVersionAt(offset=8, kraft_version=1),
    )
    assert [entry.offset for entry in state.voters] == [5]
    storage.close()


def control_batch(control_type: int, value: bytes, offset: int) -> bytes:
    """A control batch whose record may be of any type."""
    record = Record(offset_delta=0, timestamp_ms=1, key=struct.pack(">hh", 0, control_type), value=value)
    return encode_batch(
        RecordBatch(
            base_offset=offset,
            partition_leader_epoch=1,
            is_control=True,
            base_timestamp_ms=1,
            max_timestamp_ms=1,
            records=(record,),
        )
    )


def test_start_skips_control_records_that_a_follower_skips(open_storage: Open, make_batches):
    """Control records of an unknown type or version: what a follower accepts must not prevent its next start."""
    unknown_type = control_batch(17, b"\x00\x00", 3)
    unknown_version = control_batch(ControlRecordType.KRAFT_VOTERS, b"\x00\x63", 4)
    batches = make_batches(0, 3) + unknown_type + unknown_version
    assert check_fetched(batches, end_offset=0, last_epoch=0, leader_epoch=1) == (batches, None)
    storage = open_storage()
    storage.append(batches)
    storage.close()
    storage = open_storage()
    assert (storage.log_state().end_offset, storage.log_state().voters) == (5, ())
    storage.close()


def test_control_record_that_cannot_be_read_is_named(open_storage: Open, make_batches):
    """A VotersRecord with a right checksum that ends in its middle: file, offset and the way out, no traceback."""
    storage = open_storage()
    storage.append(make_batches(0, 3) + control_batch(ControlRecordType.KRAFT_VOTERS, b"\x00\x00\x09", 3))
    with pytest.raises(
        CorruptFileError, match=r"000\.log: the batch at offset 3 cannot be read .*remove this node"
    ):
        storage.log_state()
    storage.close()


def test_bootstrap_voters_come_before_the_log(open_storage: Open, tmp_path: Path):
    """0-0.checkpoint counts as a snapshot whose voters stand at offset -1."""
    partition = tmp_path / "meta" / PARTITION
    partition.mkdir()
    (partition / "00000000000000000000-0000000000.checkpoint").write_bytes(voters_checkpoint())
    storage = open_storage()
    state = storage.log_state()
    assert state.snapshot_id == BOOTSTRAP_SNAPSHOT_ID
    assert [entry.offset for entry in state.voters] == [-1]
    storage.close()


def test_unformatted_directory_is_refused(os_files: OsFileSystem, tmp_path: Path):
    """The error says how to format it, and nothing is written."""
    config = StorageConfig(node_id=1, metadata_log_dir=tmp_path / "nothing")
    with pytest.raises(StorageError, match=r"nothing: is not formatted\. Run `quorate controller format"):
        ControllerStorage.open(os_files, config)
    assert list(tmp_path.iterdir()) == []


def test_directory_is_locked_while_open(open_storage: Open):
    """A second node on the same directory is refused; a failed start lets go of the lock."""
    storage = open_storage()
    with pytest.raises(DirectoryInUseError):
        open_storage()
    storage.close()
    with pytest.raises(StorageError, match="belongs to node 1"):
        open_storage(node_id=2)
    open_storage().close()


def test_directories_must_belong_together(open_storage: Open, os_files: OsFileSystem, tmp_path: Path):
    """A copied directory, another cluster's and a second metadata log are refused; a missing one is not."""
    other = tmp_path / "other"
    open_storage(log_dirs=(tmp_path / "missing",)).close()
    prepare(os_files, other)
    with pytest.raises(StorageError, match=r"has the directory\.id of"):
        open_storage(log_dirs=(other,))
    write_meta_properties(os_files, other, MetaProperties(cluster_id="d", node_id=1))
    with pytest.raises(StorageError, match="belongs to cluster d, not c"):
        open_storage(log_dirs=(other,))
    write_meta_properties(os_files, other, MetaProperties(cluster_id="c", node_id=1))
    open_storage(log_dirs=(other,)).close()
    (other / PARTITION).mkdir()
    with pytest.raises(StorageError, match="is a metadata log outside the metadata directory"):
        open_storage(log_dirs=(other,))


def test_missing_directory_id_is_assigned_once(os_files: OsFileSystem, tmp_path: Path):
    """Directories formatted before Kafka 3.7 have none; it is written down at the first start."""
    prepare(os_files, tmp_path, directory_id=None)
    config = StorageConfig(node_id=1, metadata_log_dir=tmp_path)
    first = ControllerStorage.open(os_files, config, lambda: DIRECTORY_ID)
    first.close()
    second = ControllerStorage.open(os_files, config)
    assert first.directory_id == second.directory_id == DIRECTORY_ID
    second.close()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("cluster.id=c\nnode.id=1\n", "has version 0"),
        ("version=1\nnode.id=1\n", "lacks cluster.id"),
        ("version=1\ncluster.id=c\nnode.id=x\n", "invalid literal"),
        ("version=1\ncluster.id=c\nnode.id=1\ndirectory.id=x\n", "'x' is not a uuid"),
        ("version=1\ncluster.id=c\nnode.id=1\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAQ\n", "is reserved"),
    ],
)
def test_damaged_meta_properties_are_refused(open_storage: Open, tmp_path: Path, content: str, message: str):
    """The error names the file and the reason."""
    (tmp_path / "meta" / "meta.properties").write_text(content)
    with pytest.raises(CorruptFileError, match=r"meta\.properties: ") as caught:
        open_storage()
    assert message in str(caught.value)


def test_fetched_snapshot_replaces_the_log(open_storage: Open, make_batches):
    """Chunks, restore, restart: the log is empty at the snapshot's end, older snapshots are gone."""
    storage = open_storage()
    storage.append(make_batches(0, 30))
    storage.flush()
    add_snapshot(storage, 20)
    snapshot_id = SnapshotId(offset=500, epoch=3)
    content = voters_checkpoint()
    storage.write_snapshot_chunk(snapshot_id, 0, b"given up")
    storage.write_snapshot_chunk(snapshot_id, 0, content[:50])
    storage.write_snapshot_chunk(snapshot_id, 50, content[50:])
    storage.restore(snapshot_id)
    for _ in range(2):
        state = storage.log_state()
        assert (state.start_offset, state.end_offset, state.epochs) == (500, 500, ())
        assert storage.snapshots.ids == (snapshot_id,)
        assert storage.snapshots.read_all(snapshot_id) == content
        assert storage.snapshot_quorum(snapshot_id).kraft_version == 1
        storage.close()
        storage = open_storage()
    storage.append(make_batches(500, 1, epoch=3))
    storage.close()


def test_recovery_point_follows_the_log(open_storage: Open, tmp_path: Path, make_batches):
    """The file has Kafka's format and is written at a stop, after a minute, at retention, and before a cut."""
    path = tmp_path / "meta" / RECOVERY_POINTS

    def recovery_point() -> int:
        version, count, line = path.read_text().splitlines()
        assert (version, count) == ("0", "1")
        topic, partition, offset = line.split()
        assert (topic, partition) == ("__cluster_metadata", "0")
        return int(offset)

    storage = open_storage()
    storage.append(make_batches(0, 30))
    storage.flush()
    storage.keep_recovery_point(1_000_000)
    assert recovery_point() == 30
    storage.append(make_batches(30, 5))
    storage.flush()
    storage.keep_recovery_point(1_000_000 + RECOVERY_POINT_INTERVAL_MS - 1)
    assert recovery_point() == 30
    storage.keep_recovery_point(1_000_000 + RECOVERY_POINT_INTERVAL_MS)
    assert recovery_point() == 35
    storage.truncate_to(20)
    assert recovery_point() == 20
    storage.append(make_batches(20, 4, epoch=2))
    storage.clean(0)
    assert recovery_point() == 24
    storage.append(make_batches(24, 4, epoch=2))
    storage.close()
    assert recovery_point() == 28
    open_storage().close()
    snapshot_id = SnapshotId(offset=10, epoch=3)
    storage = open_storage()
    storage.write_snapshot_chunk(snapshot_id, 0, voters_checkpoint())
    storage.restore(snapshot_id)
    assert recovery_point() == 10
    storage.close()
    open_storage().close()


def test_log_is_refused_below_its_recovery_point(open_storage: Open, tmp_path: Path, make_batches):
    """After a clean stop the last record is damaged: the start is refused; without the file it is a torn tail."""
    storage = open_storage()
    storage.append(make_batches(0, 5))
    storage.close()
    log = tmp_path / "meta" / PARTITION / "00000000000000000000.log"
    log.write_bytes(log.read_bytes()[:-1] + b"x")
    with pytest.raises(
        CorruptFileError, match=r"ends at offset 4, position \d+, .* up to offset 4 were made durable"
    ):
        open_storage()
    (tmp_path / "meta" / RECOVERY_POINTS).unlink()
    open_storage().close()


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"1\n0\n", b"0\n1\n__cluster_metadata 0 x\n", b"0\n2\n__cluster_metadata 0 5\n", b"\xff"),
        *(b"0\n1\n__cluster_metadata 0 -1\n", b"0\n1\n__cluster_metadata 0 9223372036854775808\n"),
    ],
)
def test_recovery_point_that_cannot_be_read_is_refused(open_storage: Open, tmp_path: Path, content: bytes):
    """The error names the file and says what removing it means."""
    (tmp_path / "meta" / RECOVERY_POINTS).write_bytes(content)
    with pytest.raises(
        CorruptFileError, match=r"recovery-point-offset-checkpoint: .* is not .*Remove the file"
    ):
        open_storage()


def test_recovery_points_of_other_partitions_are_ignored(open_storage: Open, tmp_path: Path):
    """A Java node that was broker and controller leaves those of its topics."""
    (tmp_path / "meta" / RECOVERY_POINTS).write_bytes(b"0\n2\ngreetings 0 17\ngreetings 1 4\n")
    open_storage().close()


def test_snapshot_that_is_none_is_refused(open_storage: Open, make_batches):
    """A checkpoint that does not begin like one is named."""
    storage = open_storage()
    storage.append(make_batches(0, 5))
    snapshot_id = SnapshotId(offset=5, epoch=1)
    for content in (b"", b"nonsense" * 20):
        writer = storage.create_snapshot(snapshot_id)
        writer.append(content)
        writer.freeze()
        with pytest.raises(
            CorruptFileError, match=r"1\.checkpoint: the checkpoint cannot be read .*remove this"
        ):
            storage.log_state()
        storage.snapshots.remove(snapshot_id)
    storage.close()


@pytest.mark.parametrize("is_clean", [False, True])
def test_power_loss_in_restore_or_retention_is_mended(
    new_crash_disk, power_loss, make_batches, is_clean: bool
):
    """Lose power at every operation in turn: the node opens before or after the change, never between."""
    directory = Path("/disk/meta")
    fetched = SnapshotId(offset=500, epoch=3)
    results = set()
    for operations in range(120):
        disk = new_crash_disk()
        prepare(disk, directory)
        config = StorageConfig(node_id=1, metadata_log_dir=directory, log=SMALL, retention_bytes=1)
        storage = ControllerStorage.open(disk, config)
        for start in range(60):
            storage.append(make_batches(start, 1))
        storage.flush()
        for offset in (20, 40):
            add_snapshot(storage, offset)
        disk.power_loss_in = operations
        try:
            if is_clean:
                storage.clean(0)
            else:
                storage.write_snapshot_chunk(fetched, 0, voters_checkpoint())
                storage.restore(fetched)
        except power_loss:
            pass
        disk.restart(Random(operations))
        storage = ControllerStorage.open(disk, config)
        state = storage.log_state()
        results.add((state.start_offset, state.end_offset))
        if state.start_offset:
            assert state.earliest_snapshot_id is not None
            assert state.earliest_snapshot_id.offset == state.start_offset
        storage.append(make_batches(state.end_offset, 1, epoch=9))
        storage.close()
    assert results <= ({(0, 60), (20, 60), (40, 60)} if is_clean else {(0, 60), (500, 500)})
    assert len(results) > 1


def test_power_loss_while_the_log_is_cut_is_no_damage(new_crash_disk, power_loss, make_batches):
    """What raft takes back is not missed at the next start."""
    directory = Path("/disk/meta")
    config = StorageConfig(node_id=1, metadata_log_dir=directory, log=SMALL)
    ends = set()
    for operations in range(60):
        disk = new_crash_disk()
        prepare(disk, directory)
        storage = ControllerStorage.open(disk, config)
        for start in range(30):
            storage.append(make_batches(start, 1))
        storage.flush()
        storage.keep_recovery_point(1_000_000)
        disk.power_loss_in = operations
        with suppress(power_loss):
            storage.truncate_to(20)
        disk.restart(Random(operations))
        storage = ControllerStorage.open(disk, config)
        ends.add(storage.log.end_offset)
        storage.close()
    assert {20, 30} <= ends <= set(range(20, 31))
