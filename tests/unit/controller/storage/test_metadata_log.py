"""The metadata log: appends, reads, segments, truncation, recovery."""

import struct
from pathlib import Path

import pytest
from quorate_controller.raft.startup import EpochStart
from quorate_controller.storage.errors import CorruptFileError, StorageError
from quorate_controller.storage.log import LogConfig, MetadataLog
from quorate_controller.storage.os_filesystem import OsFileSystem
from quorate_controller.storage.segment import Segment
from quorate_protocol.records.batch import scan_batches
from quorate_protocol.records.control import LeaderChangeMessage, encode_control_batch

SMALL = LogConfig(segment_bytes=2000, index_interval_bytes=200)


def offsets(data: bytes) -> list[int]:
    """First offset of each batch."""
    return [header.base_offset for header in scan_batches(data, check_crc=True)]


def names(directory: Path, suffix: str) -> list[str]:
    """Sorted names of the files with that suffix."""
    return sorted(path.name for path in directory.iterdir() if path.name.endswith(suffix))


def test_log_is_created_with_kafkas_files(os_files: OsFileSystem, tmp_path: Path):
    """A new log has the files that Java creates, and their contents: compare with what a Java node left."""
    MetadataLog.open(os_files, tmp_path / "log").close()
    assert sorted(path.name for path in (tmp_path / "log").iterdir()) == [
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000000.timeindex",
        "leader-epoch-checkpoint",
        "partition.metadata",
    ]
    assert (tmp_path / "log/leader-epoch-checkpoint").read_text() == "0\n0\n"
    assert (tmp_path / "log/partition.metadata").read_text() == "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ"


def test_reads_are_whole_batches_within_bounds(os_files: OsFileSystem, tmp_path: Path, make_batches):
    """Read from within a batch, with size and end bounds that cut through batches, and at the log's end."""
    log = MetadataLog.open(os_files, tmp_path, SMALL)
    assert log.append(make_batches(0, 10, records=3)) == 30
    batch_bytes = len(make_batches(0, 1, records=3))
    assert offsets(log.read(0, 10 * batch_bytes)) == list(range(0, 30, 3))
    assert offsets(log.read(4, 10 * batch_bytes)) == list(range(3, 30, 3))
    assert offsets(log.read(3, 2 * batch_bytes + 5)) == [3, 6]
    assert offsets(log.read(3, 1)) == [3], "a first batch that is too large is given whole"
    assert offsets(log.read(0, 10 * batch_bytes, 9)) == [0, 3, 6]
    assert offsets(log.read(0, 10 * batch_bytes, 10)) == [0, 3, 6], (
        "no batch that reaches past the end offset"
    )
    assert log.read(6, 10 * batch_bytes, 6) == b""
    assert log.read(30, 1000) == b""
    log.close()


def test_old_batches_are_found_through_the_sparse_index(os_files: OsFileSystem, tmp_path: Path, make_batches):
    """Write more batches than the exact tail remembers; every offset is still found, also when reopened."""
    log = MetadataLog.open(os_files, tmp_path, LogConfig(index_interval_bytes=300))
    log.append(make_batches(0, 6000))
    for reopened in (False, True):
        if reopened:
            log.close()
            log = MetadataLog.open(os_files, tmp_path, LogConfig(index_interval_bytes=300))
        for offset in (0, 1, 7, 999, 1500, 4000, 5999):
            assert offsets(log.read(offset, 250))[0] == offset
            assert offsets(log.read(offset, 100_000, offset + 3)) == list(
                range(offset, min(offset + 3, 6000))
            )
    log.close()


def test_segments_roll_by_size_and_age(os_files: OsFileSystem, tmp_path: Path, make_batches):
    """A segment ends before it exceeds its size, and when its first batch is older than segment_ms."""
    config = LogConfig(segment_bytes=1000, segment_ms=5000)
    log = MetadataLog.open(os_files, tmp_path, config)
    for start in range(20):
        log.append(make_batches(start, 1))
    sizes = [(tmp_path / name).stat().st_size for name in names(tmp_path, ".log")]
    assert len(sizes) > 1
    assert max(sizes) <= 1000
    before = len(sizes)
    log.append(make_batches(20, 1, timestamp_ms=6100))
    assert len(names(tmp_path, ".log")) == before + 1
    assert b"".join(log.read(start, 1) for start in range(21)) == b"".join(
        (tmp_path / name).read_bytes() for name in names(tmp_path, ".log")
    )
    log.close()


def test_truncation_drops_segments_epochs_and_index_entries(
    os_files: OsFileSystem, tmp_path: Path, make_batches
):
    """Truncate into an earlier segment and epoch, append something else, reopen: the new history is there."""
    log = MetadataLog.open(os_files, tmp_path, SMALL)
    for start in range(0, 100, 5):
        log.append(make_batches(start, 5, epoch=1 + start // 40))
    log.truncate_to(33)
    assert log.end_offset == 33
    assert log.epochs == (EpochStart(epoch=1, start_offset=0),)
    log.append(make_batches(33, 3, epoch=9, size_bytes=40))
    log.flush()
    expected = [log.read(start, 1) for start in range(36)]
    log.close()
    log = MetadataLog.open(os_files, tmp_path, SMALL)
    assert log.epochs == (EpochStart(epoch=1, start_offset=0), EpochStart(epoch=9, start_offset=33))
    assert [log.read(start, 1) for start in range(36)] == expected
    assert (tmp_path / "leader-epoch-checkpoint").read_text() == "0\n2\n1 0\n9 33\n"
    log.close()


EPOCH_POSITION = 12
"""Where a batch has the epoch of the leader that wrote it, which its checksum does not cover."""


def test_an_epoch_that_changed_on_disk_is_refused(os_files: OsFileSystem, tmp_path: Path, make_batches):
    """A bit that turned in an epoch does not let a log win an election that ends too early."""
    log = MetadataLog.open(os_files, tmp_path)
    log.append(make_batches(0, 3, epoch=1))
    log.append(make_batches(3, 2, epoch=6))
    log.close()
    path = tmp_path / "00000000000000000000.log"
    written = path.read_bytes()
    position = list(scan_batches(written))[-1].position
    for bit in (0, 3, 13, 30):
        damaged = bytearray(written)
        damaged[position + EPOCH_POSITION + 3 - bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        with pytest.raises(
            CorruptFileError, match="leader-epoch-checkpoint has epoch 6 at offset 4"
        ) as refused:
            MetadataLog.open(os_files, tmp_path)
        assert "remove this node from the voter set" in str(refused.value)
        assert path.read_bytes() == damaged
    path.write_bytes(written)
    MetadataLog.open(os_files, tmp_path).close()


def test_epochs_are_written_before_their_first_batch(os_files: OsFileSystem, tmp_path: Path, make_batches):
    """No crash makes a healthy log look damaged."""
    log = MetadataLog.open(os_files, tmp_path)
    log.append(make_batches(0, 5, epoch=1))
    log.append(make_batches(5, 5, epoch=2))
    log.close()
    epochs = tmp_path / "leader-epoch-checkpoint"
    for text in (
        "0\n3\n1 0\n2 5\n7 10\n",  # a batch of epoch 7 was about to be appended
        "0\n4\n1 0\n2 5\n3 12\n4 20\n",  # the log was cut at 10
        "0\n1\n2 7\n",  # the start was advanced to 7; the segment is still there
        "0\n0\n",  # it was advanced to the end
    ):
        epochs.write_text(text)
        log = MetadataLog.open(os_files, tmp_path)
        assert log.epochs == (EpochStart(epoch=1, start_offset=0), EpochStart(epoch=2, start_offset=5))
        log.close()
        assert epochs.read_text() == "0\n2\n1 0\n2 5\n"


def test_an_append_that_fails_leaves_its_epoch_known(
    os_files: OsFileSystem, tmp_path: Path, make_batches, monkeypatch: pytest.MonkeyPatch
):
    log = MetadataLog.open(os_files, tmp_path)
    log.append(make_batches(0, 5, epoch=1))

    def full(*_: object) -> None:
        raise StorageError(tmp_path, "no space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(Segment, "append", full)
        with pytest.raises(StorageError):
            log.append(make_batches(5, 1, epoch=2))
    assert (tmp_path / "leader-epoch-checkpoint").read_text() == "0\n2\n1 0\n2 5\n"
    log.close()
    log = MetadataLog.open(os_files, tmp_path)
    assert log.epochs == (EpochStart(epoch=1, start_offset=0),)
    log.close()


@pytest.mark.parametrize(
    "text", [None, "", "0\n", "1\n0\n", "0\n2\n1 0\n", "0\nx\n", "0\n1\n1\n", "0\n1\n\xff 0\n"]
)
def test_a_file_of_epochs_that_says_nothing_is_written_again(
    os_files: OsFileSystem, tmp_path: Path, make_batches, text: str | None
):
    """A file that is lost or unreadable keeps no node down: the log has the epochs."""
    log = MetadataLog.open(os_files, tmp_path)
    log.append(make_batches(0, 5, epoch=1))
    log.close()
    epochs = tmp_path / "leader-epoch-checkpoint"
    if text is None:
        epochs.unlink()
    else:
        epochs.write_text(text)
    MetadataLog.open(os_files, tmp_path).close()
    assert epochs.read_text() == "0\n1\n1 0\n"


def test_truncating_inside_a_batch_drops_the_batch(os_files: OsFileSystem, tmp_path: Path, make_batches):
    """Logs diverge at batch boundaries, so that a cut inside of one belongs before it."""
    log = MetadataLog.open(os_files, tmp_path)
    log.append(make_batches(0, 4, records=5))
    log.truncate_to(12)
    assert log.end_offset == 10
    log.truncate_to(10)
    assert log.end_offset == 10
    log.truncate_to(0)
    assert (log.start_offset, log.end_offset, log.size_bytes) == (0, 0, 0)
    log.close()


def test_reset_starts_an_empty_log_at_an_offset(os_files: OsFileSystem, tmp_path: Path, make_batches):
    """After a snapshot was fetched the log continues at its end, with none of the old files."""
    log = MetadataLog.open(os_files, tmp_path, SMALL)
    for start in range(50):
        log.append(make_batches(start, 1))
    log.reset_to(1000)
    assert (log.start_offset, log.end_offset, log.epochs) == (1000, 1000, ())
    log.append(make_batches(1000, 2, epoch=4))
    log.close()
    assert names(tmp_path, ".log") == ["00000000000000001000.log"]
    log = MetadataLog.open(os_files, tmp_path, SMALL)
    assert (log.start_offset, log.end_offset) == (1000, 1002)
    assert log.epochs == (EpochStart(epoch=4, start_offset=1000),)
    log.close()


def test_advancing_the_start_deletes_whole_segments(os_files: OsFileSystem, tmp_path: Path, make_batches):
    """Segments before the new start go; the epoch that it lies in begins there now."""
    log = MetadataLog.open(os_files, tmp_path, SMALL)
    for start in range(100):
        log.append(make_batches(start, 1, epoch=1 + start // 30))
    bases = [int(name[:20]) for name in names(tmp_path, ".log")]
    start = bases[2] + 1
    assert log.advance_start(start) == 2
    assert [int(name[:20]) for name in names(tmp_path, ".log")] == bases[2:]
    assert log.start_offset == start
    assert log.epochs[0] == EpochStart(epoch=1 + start // 30, start_offset=start)
    assert log.advance_start(start) == 0
    with pytest.raises(AssertionError):
        log.read(start - 1, 100)
    log.close()


def test_control_batches_are_remembered(os_files: OsFileSystem, tmp_path: Path, make_batches):
    """Their offsets are known after appends, reopening and truncation."""
    change = encode_control_batch(
        [LeaderChangeMessage(version=0, leader_id=1, voters=(), granting_voters=())], 3, 2, 1000
    )
    log = MetadataLog.open(os_files, tmp_path)
    log.append(make_batches(0, 3))
    log.append(change + make_batches(4, 2, epoch=2))
    assert log.control_batch_offsets == (3,)
    log.close()
    log = MetadataLog.open(os_files, tmp_path)
    assert log.control_batch_offsets == (3,)
    log.truncate_to(3)
    assert log.control_batch_offsets == ()
    log.close()


@pytest.mark.parametrize(
    "tail",
    [
        pytest.param(b"\x00" * 7, id="zeros"),
        pytest.param(b"\x00" * 5000, id="many zeros"),
        pytest.param(b"\xff" * 300, id="ones"),
        pytest.param(struct.pack(">qi", 5, 2**31 - 1) + b"x" * 100, id="a giant length"),
        pytest.param(struct.pack(">qi", 5, -1) + b"x" * 100, id="a negative length"),
    ],
)
def test_garbage_behind_the_last_batch_is_cut_off(
    os_files: OsFileSystem, tmp_path: Path, make_batches, tail: bytes
):
    """A torn write leaves anything behind the last good batch; the log opens without it and continues."""
    log = MetadataLog.open(os_files, tmp_path)
    log.append(make_batches(0, 5))
    log.close()
    with (tmp_path / "00000000000000000000.log").open("ab") as file:
        file.write(tail)
    log = MetadataLog.open(os_files, tmp_path)
    assert log.end_offset == 5
    log.append(make_batches(5, 1))
    assert offsets(log.read(0, 10_000)) == [0, 1, 2, 3, 4, 5]
    log.close()


def test_every_cut_through_the_last_batches_recovers(os_files: OsFileSystem, tmp_path: Path, make_batches):
    """Cut the file at each byte: exactly the whole batches before the cut remain."""
    whole = make_batches(0, 3)
    batch_bytes = len(whole) // 3
    MetadataLog.open(os_files, tmp_path).close()
    path = tmp_path / "00000000000000000000.log"
    for cut in range(len(whole) + 1):
        path.write_bytes(whole[:cut])
        log = MetadataLog.open(os_files, tmp_path)
        assert log.end_offset == cut // batch_bytes
        log.close()
        assert path.stat().st_size == cut // batch_bytes * batch_bytes


def test_flipped_bit_before_good_batches_is_refused(os_files: OsFileSystem, tmp_path: Path, make_batches):
    """Flip a bit in each byte of a batch in the middle: a torn write leaves no good batches behind it."""
    log = MetadataLog.open(os_files, tmp_path)
    log.append(make_batches(0, 5))
    log.close()
    path = tmp_path / "00000000000000000000.log"
    good = path.read_bytes()
    batch_bytes = len(good) // 5
    for byte in range(2 * batch_bytes, 3 * batch_bytes):
        data = bytearray(good)
        data[byte] ^= 4
        path.write_bytes(data)
        if byte in range(2 * batch_bytes + 12, 2 * batch_bytes + 16):
            continue  # the checksum does not cover the epoch
        with pytest.raises(CorruptFileError) as caught:
            MetadataLog.open(os_files, tmp_path)
        assert str(caught.value).startswith(
            f"{path}: expected a batch at offset 2, position {2 * batch_bytes}, but it is damaged, "
            f"and a good batch of offset 3 follows at position {3 * batch_bytes}. "
        )
        assert "remove this node from the voter set" in str(caught.value)
        assert path.read_bytes() == bytes(data), "what is left stays as it is"


def test_sectors_that_were_never_written_are_cut_off(os_files: OsFileSystem, tmp_path: Path, make_batches):
    """A power loss may keep a later page of one flush and lose an earlier one, which then reads as zeros."""
    log = MetadataLog.open(os_files, tmp_path)
    log.append(make_batches(0, 400))
    log.close()
    path = tmp_path / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    data[4096:8192] = bytes(4096)
    path.write_bytes(data)
    with pytest.raises(CorruptFileError, match="records up to offset 399 were made durable"):
        MetadataLog.open(os_files, tmp_path, durable_end_offset=400)
    log = MetadataLog.open(os_files, tmp_path, durable_end_offset=20)
    assert 20 < log.end_offset < 60
    log.close()


def test_log_that_ends_below_what_was_durable_is_refused(
    os_files: OsFileSystem, tmp_path: Path, make_batches
):
    """A torn tail, a missing tail and a missing file: each names what was expected, and nothing is changed."""
    log = MetadataLog.open(os_files, tmp_path)
    log.append(make_batches(0, 5))
    log.close()
    path = tmp_path / "00000000000000000000.log"
    good = path.read_bytes()
    batch_bytes = len(good) // 5
    for cut, end_offset in ((5 * batch_bytes - 1, 4), (3 * batch_bytes, 3), (0, 0)):
        path.write_bytes(good[:cut])
        expected = (
            rf"000\.log: ends at offset {end_offset}, position {end_offset * batch_bytes}, "
            "but records up to offset 4 were made durable"
        )
        with pytest.raises(CorruptFileError, match=expected):
            MetadataLog.open(os_files, tmp_path, durable_end_offset=5)
        assert path.read_bytes() == good[:cut]
        if cut:
            MetadataLog.open(os_files, tmp_path, durable_end_offset=end_offset).close()
            assert path.stat().st_size == end_offset * batch_bytes
    path.unlink()
    with pytest.raises(CorruptFileError, match="up to offset 4 were made durable"):
        MetadataLog.open(os_files, tmp_path, durable_end_offset=5)


def test_damage_in_an_earlier_segment_is_refused(os_files: OsFileSystem, tmp_path: Path, make_batches):
    """What was durable must not be forgotten silently: the error names the file, and nothing is changed."""
    log = MetadataLog.open(os_files, tmp_path, SMALL)
    for start in range(60):
        log.append(make_batches(start, 1))
    log.close()
    path = tmp_path / names(tmp_path, ".log")[0]
    good = path.read_bytes()
    data = bytearray(good)
    data[-3] ^= 4
    path.write_bytes(data)
    with pytest.raises(
        CorruptFileError,
        match=r"000\.log: expected a batch at offset \d+, position \d+, but it is damaged, and later files",
    ):
        MetadataLog.open(os_files, tmp_path, SMALL)
    assert path.read_bytes() == bytes(data)
    path.write_bytes(good)
    (tmp_path / names(tmp_path, ".log")[1]).unlink()
    with pytest.raises(CorruptFileError, match="starts at offset"):
        MetadataLog.open(os_files, tmp_path, SMALL)


def test_indexes_are_rebuilt(os_files: OsFileSystem, tmp_path: Path, make_batches):
    """Missing, garbled and preallocated index files (Java's, while it runs) become what the log says."""
    log = MetadataLog.open(os_files, tmp_path, SMALL)
    for start in range(8):
        log.append(make_batches(start, 1, size_bytes=100))
    log.close()
    index, time_index = tmp_path / "00000000000000000000.index", tmp_path / "00000000000000000000.timeindex"
    good = index.read_bytes(), time_index.read_bytes()
    assert good[0]
    assert good[1]
    for damage in (b"", b"\x01" * 11, good[0] + bytes(10_000), None):
        for path in (index, time_index):
            if damage is None:
                path.unlink()
            else:
                path.write_bytes(damage)
        MetadataLog.open(os_files, tmp_path, SMALL).close()
        assert (index.read_bytes(), time_index.read_bytes()) == good


def test_left_over_files_are_removed(os_files: OsFileSystem, tmp_path: Path, make_batches):
    """What Java renames before it deletes, and indexes without a log, go; snapshots are not the log's."""
    log = MetadataLog.open(os_files, tmp_path)
    log.append(make_batches(0, 1))
    log.close()
    for name in (
        "00000000000000000077.log.deleted",
        "00000000000000000077.index.deleted",
        "00000000000000000099.index",
        "00000000000000000099.timeindex",
    ):
        (tmp_path / name).write_bytes(b"x")
    kept = tmp_path / "00000000000000000005-0000000001.checkpoint.deleted"
    kept.write_bytes(b"x")
    MetadataLog.open(os_files, tmp_path).close()
    assert not [path.name for path in tmp_path.iterdir() if "77" in path.name or "99" in path.name]
    assert kept.exists()


def test_falling_epoch_on_disk_is_refused(os_files: OsFileSystem, tmp_path: Path, make_batches):
    """A good checksum on an impossible history is damage, not a torn write."""
    MetadataLog.open(os_files, tmp_path).close()
    (tmp_path / "00000000000000000000.log").write_bytes(
        make_batches(0, 1, epoch=5) + make_batches(1, 1, epoch=4)
    )
    with pytest.raises(CorruptFileError, match="the epoch falls at offset 1"):
        MetadataLog.open(os_files, tmp_path)


def test_other_topic_is_refused(os_files: OsFileSystem, tmp_path: Path):
    """A partition.metadata with another topic's id means that this is not the metadata log."""
    (tmp_path / "partition.metadata").write_text("version: 0\ntopic_id: MkU3OEVBNTcwNTJENDM2Qg")
    with pytest.raises(CorruptFileError, match="instead of the metadata topic's id"):
        MetadataLog.open(os_files, tmp_path)
