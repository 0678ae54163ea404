"""Damaged and incomplete files: always rows, never an exception, never silence."""

import itertools
import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.lake.directories import read_rows, write_directory
from pyspark_quorate import rows
from pyspark_quorate.source.batch_scanner import BatchScanner, Gap
from pyspark_quorate.source.options import parse_options
from pyspark_quorate.source.reader import MetadataLogReader
from pyspark_quorate.source.record_decoder import Origin, RowReader
from pyspark_quorate.source.runs import Batch
from pyspark_quorate.source.selection import select
from quorate_protocol.records.batch import CRC_COVERS_FROM, HEADER_SIZE_BYTES, build_batch, scan_batches
from quorate_protocol.records.control import (
    KRaftVersionRecord,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    encode_control_batch,
)
from quorate_protocol.records.framing import encode_record
from quorate_protocol.records.generated import NoOpRecord, TopicRecord

NO_OP = encode_record(NoOpRecord())
FIRST_OFFSET = 100
BATCHES = 12


def topic(number: int) -> bytes:
    """A record whose name has its number."""
    return encode_record(TopicRecord(name=f"topic-{number}", topic_id=None))


def make_log(first_offset: int = FIRST_OFFSET, batches: int = BATCHES) -> bytes:
    """Batches of 1 to 5 records each, in two leader epochs."""
    chance = random.Random(first_offset)
    log, offset = b"", first_offset
    for number in range(batches):
        count = chance.randrange(1, 6)
        values = [topic(offset + place) for place in range(count)]
        log += build_batch(values, offset, 5 if number < batches // 2 else 6, 1_000 + number)
        offset += count
    return log


def read(path: Path, **options: str) -> list[dict[str, Any]]:
    """All rows."""
    return [row for batch in read_rows(path, **options) for row in batch.to_pylist()]


def gaps(found: list[dict[str, Any]]) -> list[tuple[str, int | None, int | None]]:
    """Reason, first and end offset of the gaps."""
    return [
        (row["type"], row["offset"], json.loads(row["payload"])["endOffset"])
        for row in found
        if row["kind"] == rows.GAP
    ]


def offsets(found: list[dict[str, Any]]) -> list[int]:
    """Of the log's records; each has to be the record that was written at its offset."""
    records = [row for row in found if row["kind"] == rows.LOG]
    for row in records:
        assert json.loads(row["payload"])["name"] == f"topic-{row['offset']}"
    return [row["offset"] for row in records]


def scan(data: bytes, first_offset: int, end_offset: int | None, block: int) -> list[Batch | Gap]:
    """What a scanner finds that gets the bytes in blocks; positions of batches are those in `data`."""
    scanner = BatchScanner(first_offset=first_offset, end_offset=end_offset)
    found: list[Batch | Gap] = []
    rest, base = b"", 0
    for at in itertools.chain(range(0, len(data), block), [len(data)]):
        window = rest + data[at : at + block]
        scanned = scanner.scan(window, is_end=at >= len(data))
        batches = [scanned.batches[number] for number in range(len(scanned.batches))]
        found += [each._replace(start=each.start + base, end=each.end + base) for each in batches]
        found += scanned.gaps
        consumed = scanned.consumed_bytes
        rest, base = window[consumed:], base + consumed
    return found


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_flipped_bits_never_raise_and_change_nothing_before(data: st.DataObject) -> None:
    """Rows before damage are the same, no row is wrong, and lost records are in a gap."""
    log = bytearray(make_log())
    headers = list(scan_batches(bytes(log)))
    places = data.draw(st.lists(st.integers(0, len(log) - 1), min_size=1, max_size=3))
    for place in places:
        log[place] ^= 1 << data.draw(st.integers(0, 7))
    end_offset = headers[-1].last_offset + 1
    block = data.draw(st.sampled_from((64, 200, 1 << 20)))
    found = scan(bytes(log), FIRST_OFFSET, end_offset, block)
    whole = {batch.base_offset: batch for batch in found if isinstance(batch, Batch)}
    for header in headers:
        is_before = header.position + header.size_bytes <= min(places)
        assert not is_before or header.base_offset in whole
    flipped_headers = [
        header
        for header in headers
        if any(
            0 <= place - header.position < 21 for place in places
        )  # offset, length, epoch, magic, checksum
    ]
    for batch in whole.values():
        original = next(header for header in headers if header.position + 61 == batch.start)
        if original not in flipped_headers:
            assert (batch.base_offset, batch.epoch) == (original.base_offset, original.partition_leader_epoch)
    lost = set(range(FIRST_OFFSET, end_offset))
    for batch in whole.values():
        lost -= set(range(batch.base_offset, batch.base_offset + batch.record_count))
    has_unplaced = False
    for gap in (each for each in found if isinstance(each, Gap)):
        has_unplaced |= gap.offset is None or gap.end_offset is None
        if gap.offset is not None and gap.end_offset is not None:
            lost = {offset for offset in lost if not gap.offset <= offset < gap.end_offset}
    assert not lost or has_unplaced
    in_epochs = {header.position + place for header in headers for place in range(12, 16)}
    is_harmless = bytes(log) == make_log() or in_epochs.issuperset(places)
    assert is_harmless or any(isinstance(each, Gap) for each in found)


def test_one_damaged_batch_costs_that_batch_alone() -> None:
    log = make_log()
    header = list(scan_batches(log))[5]
    everything = scan(log, FIRST_OFFSET, None, 1 << 20)
    others = [
        each for each in everything if isinstance(each, Batch) and each.base_offset != header.base_offset
    ]
    for place in range(header.position, header.position + header.size_bytes):
        damaged = bytearray(log)
        damaged[place] ^= 0x80
        found = scan(bytes(damaged), FIRST_OFFSET, None, 1 << 20)
        assert [each for each in found if isinstance(each, Batch)] == others, place
        assert [(each.reason, each.offset, each.end_offset) for each in found if isinstance(each, Gap)] == [
            (rows.CORRUPT_BATCH, header.base_offset, header.last_offset + 1)
        ], place


def test_damage_in_pieces_is_what_it_is_in_the_whole() -> None:
    first, last = FIRST_OFFSET, FIRST_OFFSET + 2
    inside = build_batch([topic(last)], last, 5, 1_000)
    outside = bytearray(build_batch([topic(first), inside], first, 5, 1_000))
    outside[CRC_COVERS_FROM - 1] ^= 1
    log = bytes(outside) + build_batch([topic(last)], last, 5, 1_000)
    whole = scan(log, first, None, len(log))
    batches = [each for each in whole if isinstance(each, Batch)]
    assert [(each.base_offset, each.end) for each in batches] == [(last, len(log))]
    for block in range(1, len(log)):
        assert scan(log, first, None, block) == whole, block


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_lengths_of_records_that_lie(data: st.DataObject) -> None:
    """A batch with a right checksum that its records do not fill costs itself alone, in a long run, too."""
    chance = data.draw(st.randoms(use_true_random=False))
    log, offset, expected, lost = b"", 0, list[int](), list[tuple[str, int, int]]()
    for _ in range(80):
        count = chance.choice((1, 1, 2, 3, 60))
        batch = bytearray(build_batch([topic(offset + place) for place in range(count)], offset, 5, 1_000))
        if chance.random() < 0.1:
            place = _record_position(batch, chance.randrange(count))
            batch[place] ^= data.draw(st.integers(1, 255))
            batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, "big")
            lost.append((rows.CORRUPT_BATCH, offset, offset + count))
        else:
            expected += range(offset, offset + count)
        log += batch
        offset += count
    reader = RowReader(
        Origin(cluster_id="c", source="f"), select(parse_options({"path": "f"})), BatchScanner(first_offset=0)
    )
    batches, consumed = reader.read(log, is_end=True)
    found = pa.Table.from_batches(batches).to_pylist()
    assert consumed == len(log)
    assert offsets(found) == expected
    assert sorted(gaps(found)) == sorted(lost)


def _record_position(batch: bytearray, number: int) -> int:
    """Where a record of a batch begins whose records all have a length of one byte."""
    at = HEADER_SIZE_BYTES
    for _ in range(number):
        at += batch[at] // 2 + 1
    return at


def test_truncated_tails(tmp_path: Path) -> None:
    log = make_log()
    headers = list(scan_batches(log))
    ends = [header.position + header.size_bytes for header in headers]
    for size in range(len(log)):
        found = scan(log[:size], FIRST_OFFSET, None, 97)
        whole = [header for header, end in zip(headers, ends, strict=True) if end <= size]
        assert [each.base_offset for each in found if isinstance(each, Batch)] == [
            header.base_offset for header in whole
        ]
        following = whole[-1].last_offset + 1 if whole else FIRST_OFFSET
        is_clean = size == 0 or size in ends
        torn = [(rows.TORN_TAIL, following, None)] if not is_clean else []
        assert [
            (each.reason, each.offset, each.end_offset) for each in found if isinstance(each, Gap)
        ] == torn
    found = read(write_directory(tmp_path, {FIRST_OFFSET: log + bytes(5000)}))
    assert gaps(found) == [
        (rows.MISSING_OFFSETS, 0, FIRST_OFFSET),
        (rows.TORN_TAIL, headers[-1].last_offset + 1, None),
    ]


def test_missing_offsets_between_batches_and_segments(tmp_path: Path) -> None:
    log = make_log(0)
    headers = list(scan_batches(log))
    hole = headers[3]
    end = headers[-1].last_offset + 1
    damaged = log[: hole.position] + log[hole.position + hole.size_bytes :]
    found = read(write_directory(tmp_path, {0: damaged, end + 10: make_log(end + 10)}))
    assert gaps(found) == [
        (rows.MISSING_OFFSETS, hole.base_offset, hole.last_offset + 1),
        (rows.MISSING_OFFSETS, end, end + 10),
    ]
    lost = {*range(hole.base_offset, hole.last_offset + 1), *range(end, end + 10)}
    read_offsets = offsets(found)
    assert set(range(read_offsets[-1] + 1)) - set(read_offsets) == lost


def test_no_ops_are_not_missing(tmp_path: Path) -> None:
    """NoOpRecords are left out, and their offsets do not look lost."""
    log = build_batch([NO_OP, topic(1), NO_OP], 0, 1, 5) + build_batch([NO_OP], 3, 1, 6)
    found = read(write_directory(tmp_path, {0: log}))
    assert (offsets(found), gaps(found)) == ([1], [])
    assert [row["type"] for row in read(tmp_path, noOps="true")].count("NoOpRecord") == 3
    assert [row["type"] for row in read(tmp_path, recordTypes="NoOpRecord")] == ["NoOpRecord"] * 3


def test_unknown_and_malformed_records_are_gaps(tmp_path: Path) -> None:
    """A newer Kafka's record, or garbage, costs no other."""
    values = [
        topic(0),
        bytes((1, 99, 0)),
        bytes((1, 2, 9, 0)),
        topic(3),
        b"\x01\x02\x00garbage",
        b"",
        topic(6),
    ]
    found = read(write_directory(tmp_path, {0: build_batch(values, 0, 4, 1)}))
    assert offsets(found) == [0, 3, 6]
    assert gaps(found) == [(rows.UNKNOWN_RECORD, offset, offset + 1) for offset in (1, 2, 4, 5)]
    assert {row["epoch"] for row in found} == {4}


def test_unreadable_places(tmp_path: Path) -> None:
    write_directory(tmp_path / "good", {0: make_log(0)}, "good")
    bad = write_directory(tmp_path / "bad", {0: make_log(0), 500: b"x"}, "bad")
    stray = write_directory(tmp_path / "stray", {0: make_log(0)}).parent
    (stray / "meta.properties").unlink()
    reader = MetadataLogReader(parse_options({"path": str(tmp_path)}))
    partitions = reader.partitions()
    (bad / f"{0:020d}.log").unlink()
    found = pa.Table.from_batches([each for part in partitions for each in reader.read(part)]).to_pylist()
    assert {row["cluster_id"] for row in found if row["kind"] == rows.LOG} == {"good"}
    assert [(row["cluster_id"], row["type"], row["offset"]) for row in found if row["kind"] == rows.GAP] == [
        ("bad", rows.UNREADABLE_FILE, 0),
        ("bad", rows.TORN_TAIL, 500),
        ("", rows.UNREADABLE_FILE, None),
    ]
    assert "clusterId" in found[-1]["payload"]
    named = read(stray, clusterId="named")
    assert {row["cluster_id"] for row in named} == {"named"}


def test_checkpoints(tmp_path: Path) -> None:
    """A checkpoint's rows have its id and time; an incomplete one is reported."""
    header = SnapshotHeaderRecord(version=0, last_contained_log_timestamp=1_234_567)
    checkpoint = encode_control_batch([header, KRaftVersionRecord(version=0, k_raft_version=1)], 0, 7, 99)
    checkpoint += build_batch([topic(0), topic(1)], 2, 7, 99)
    whole = checkpoint + encode_control_batch([SnapshotFooterRecord(version=0)], 4, 7, 99)
    files = {f"{40:020d}-{7:010d}.checkpoint": whole, f"{30:020d}-{7:010d}.checkpoint": checkpoint}
    files[f"{20:020d}-{7:010d}.checkpoint"] = whole[:-5]
    found = read(write_directory(tmp_path, {40: b"", **files}))
    newest = [row for row in found if row["kind"] == rows.SNAPSHOT and row["offset"] == 40]
    assert [row["ordinal"] for row in newest] == [0, 1, 2, 3, 4]
    assert {(row["epoch"], row["time"].timestamp()) for row in newest} == {(7, 1234.567)}
    torn = [Path(row["source"]).name[:20] for row in found if row["type"] == rows.TORN_TAIL]
    assert torn == [f"{20:020d}", f"{30:020d}"]
    assert (rows.MISSING_OFFSETS, 0, 40) in gaps(found)
    assert {row["offset"] for row in read(tmp_path, snapshots="newest") if row["kind"] == rows.SNAPSHOT} == {
        40
    }
    assert not [row for row in read(tmp_path, snapshots="none") if row["kind"] == rows.SNAPSHOT]
