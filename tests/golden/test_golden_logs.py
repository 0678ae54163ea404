"""Metadata logs and checkpoints written by stock Kafka (see data/README.md), both directions."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from quorate_protocol.records.batch import Record, RecordBatch, decode_batches, encode_batch, scan_batches
from quorate_protocol.records.control import ControlRecord, decode_control, encode_control_batch
from quorate_protocol.records.framing import decode_record, encode_record

DATA = Path(__file__).parent / "data"
FILES = sorted([*DATA.rglob("*.log"), *DATA.rglob("*.checkpoint")])


def identify(path: object) -> str:
    """The name of a case."""
    assert isinstance(path, Path)
    return str(path.relative_to(DATA))


def batches(path: Path) -> list[RecordBatch]:
    """The batches of a file."""
    return list(decode_batches(path.read_bytes()))


def data_records(paths: list[Path]) -> Iterator[Record]:
    """The metadata records of files."""
    for path in paths:
        for batch in batches(path):
            if not batch.is_control:
                yield from batch.records


@pytest.mark.parametrize("path", FILES, ids=identify)
def test_batches_are_the_same_bytes_again(path: Path) -> None:
    assert b"".join(encode_batch(batch) for batch in batches(path)) == path.read_bytes()


@pytest.mark.parametrize("path", FILES, ids=identify)
def test_offsets_follow_each_other(path: Path) -> None:
    headers = list(scan_batches(path.read_bytes(), check_crc=True))
    decoded = batches(path)
    assert [(h.base_offset, h.last_offset) for h in headers] == [
        (b.base_offset, b.last_offset) for b in decoded
    ]
    for before, after in itertools.pairwise(headers):
        assert after.base_offset == before.last_offset + 1


@pytest.mark.parametrize("path", FILES, ids=identify)
def test_records_are_the_same_bytes_again(path: Path) -> None:
    for record in data_records([path]):
        assert record.value is not None
        version = record.value[2]
        assert encode_record(decode_record(record.value), version) == record.value


@pytest.mark.parametrize("path", FILES, ids=identify)
def test_control_batches_are_the_same_bytes_again(path: Path) -> None:
    found = []
    for batch in batches(path):
        if not batch.is_control:
            continue
        records: list[ControlRecord] = [decode_control(record) for record in batch.records]
        found += records
        built = encode_control_batch(
            records, batch.base_offset, batch.partition_leader_epoch, batch.base_timestamp_ms
        )
        assert built == encode_batch(batch)
    assert found


def test_capture_covers_records_and_versions() -> None:
    logs = [path for path in FILES if path.suffix == ".log"]
    pairs = {(record.value[1], record.value[2]) for record in data_records(logs) if record.value is not None}
    registrations = {(0, 1), (0, 3), (0, 4), (17, 0), (17, 1), (17, 3), (27, 0), (1, 0)}
    topics = {(2, 0), (3, 0), (3, 1), (3, 2), (5, 1), (5, 2), (9, 0), (28, 0)}
    others = {
        (4, 0),
        (11, 0),
        (12, 0),
        (14, 0),
        (15, 0),
        (18, 0),
        (19, 0),
        (20, 0),
        (22, 0),
        (23, 0),
        (24, 0),
    }
    assert pairs >= registrations | topics | others
