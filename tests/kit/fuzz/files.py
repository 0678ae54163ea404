"""Files of a log directory, as a controller, a shipper and the lake read them."""

from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import cache
from random import Random
from typing import Final

from crc32c import crc32c
from kit.captured import DATA
from kit.fuzz.simulated_controller import DIRECTORY, PROPERTIES, format_disk
from kit.fuzz.target import Target
from kit.simulator.disk import SimulatedDisk
from pyspark_quorate.source.batch_scanner import BatchScanner
from pyspark_quorate.source.record_decoder import Origin, RowReader
from pyspark_quorate.source.selection import Selection
from quorate_controller.config import ControllerConfig, parse_config
from quorate_controller.node.assembly import open_node
from quorate_controller.storage.batch_spans import read_spans
from quorate_controller.storage.bootstrap import BOOTSTRAP_CHECKPOINT, read_bootstrap_records
from quorate_controller.storage.checkpoint_files import RECOVERY_POINTS, RecoveryPointFile
from quorate_controller.storage.errors import StorageError
from quorate_controller.storage.meta_properties import check_ensemble, read_meta_properties
from quorate_protocol.errors import ProtocolError
from quorate_protocol.kafka.metadata_log import META_PROPERTIES, METADATA_DIRECTORY
from quorate_protocol.records import batch

_NOW_MS: Final = 1_700_000_000_000
_SNAPSHOT: Final = "00000000000000000218-0000000001.checkpoint"
_SNAPSHOT_ID: Final = (218, 1)


def captured_files(pattern: str) -> Iterator[bytes]:
    """Files that stock Kafka wrote."""
    return (path.read_bytes() for path in sorted(DATA.glob(f"*/{pattern}")))


def with_right_sums(data: bytes) -> bytes:
    """The same batches, with the length, magic and checksum that readers expect: otherwise little of them is read."""
    repaired = bytearray(data)
    position = 0
    while len(repaired) - position >= batch.HEADER_SIZE_BYTES:
        (_, length) = batch.PREFIX.unpack_from(repaired, position)
        if not batch.HEADER_SIZE_BYTES <= batch.LENGTH_COUNTS_FROM + length <= len(repaired) - position:
            length = len(repaired) - position - batch.LENGTH_COUNTS_FROM
            repaired[position + 8 : position + 12] = length.to_bytes(4, "big")
        end = position + batch.LENGTH_COUNTS_FROM + length
        repaired[position + batch.MAGIC_POSITION] = batch.MAGIC
        covered = bytes(repaired[position + batch.CRC_COVERS_FROM : end])
        start = position + batch.CRC_COVERS_FROM
        repaired[start - 4 : start] = crc32c(covered).to_bytes(4, "big")
        position = end
    return bytes(repaired)


def _disk_with(name: str, content: bytes) -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directory(DIRECTORY)
    disk.create_file(DIRECTORY / name).append(content)
    return disk


def _read_recovery_point(data: bytes) -> None:
    found = RecoveryPointFile(_disk_with(RECOVERY_POINTS, data), DIRECTORY / RECOVERY_POINTS)
    assert 0 <= found.offset < 1 << 63
    found.write(found.offset // 2)


def _recovery_points() -> Iterator[bytes]:
    yield b"0\n1\n__cluster_metadata 0 218\n"
    yield b"0\n2\nsome-topic 3 0\n__cluster_metadata 0 9223372036854775807\n"
    yield b"0\n0\n"


def _read_meta_properties(data: bytes) -> None:
    found = read_meta_properties(_disk_with(META_PROPERTIES, data), DIRECTORY)
    assert found is not None
    check_ensemble({DIRECTORY: found}, node_id=3000, cluster_id="fuzzed")


def _meta_properties() -> Iterator[bytes]:
    yield b"#\n#Mon Jan 01 00:00:00 UTC 2026\nnode.id=3000\nversion=1\ncluster.id=fuzzed\n"
    yield b"version=1\ncluster.id=fuzzed\nnode.id=3000\ndirectory.id=6JZ0kVb1RZG9r5rR0mBv8A\n"


def _read_bootstrap(data: bytes) -> None:
    read_bootstrap_records(_disk_with(BOOTSTRAP_CHECKPOINT, data), DIRECTORY)


@cache
def _config() -> ControllerConfig:
    return parse_config(PROPERTIES)


@cache
def _formatted_disk() -> SimulatedDisk:
    return format_disk(_NOW_MS)


def _open_with_snapshot(data: bytes) -> None:
    """A controller starts on a checkpoint with right sums: voters from its head, the image from all of it."""
    disk = deepcopy(_formatted_disk())
    file = disk.create_file(DIRECTORY / METADATA_DIRECTORY / _SNAPSHOT)
    file.append(with_right_sums(data))
    open_node(_config(), file_system=disk, rng=Random(1), clock=lambda: _NOW_MS).close()


def _find_spans(data: bytes) -> None:
    """Check that a shipper takes exactly the batches of an active segment that the thorough reader finds complete."""
    file = _disk_with("segment", data).open_file(DIRECTORY / "segment")
    end = 0
    for span in read_spans(file, 0, file.size_bytes, check_crc=True):
        assert span.position == end
        end += span.size_bytes
    found = 0
    try:
        for scanned in batch.scan_batches(data, check_crc=True, allow_partial_tail=True):
            found = scanned.position + scanned.size_bytes
    except ProtocolError:
        pass  # what was found before the damage is compared
    assert found <= end <= len(data)


def _read_rows(data: bytes) -> None:
    """Damaged parts become rows."""
    for snapshot in (None, _SNAPSHOT_ID):
        scanner = BatchScanner(first_offset=0 if snapshot is None else None)
        reader = RowReader(Origin(cluster_id="c", source="s", snapshot=snapshot), Selection(), scanner)
        reader.read(data, is_end=True)


def _scan(data: bytes) -> None:
    """Check that scanning in pieces finds the same as scanning the whole."""
    whole = BatchScanner(first_offset=0).scan(data, is_end=True)
    scanner, rest = BatchScanner(first_offset=0), b""
    offsets: list[int] = []
    half = len(data) // 2
    for piece, is_end in ((data[:half], False), (data[half:], True)):
        scanned = scanner.scan(rest + piece, is_end=is_end)
        offsets += scanned.batches.base_offset.tolist()
        rest = (rest + piece)[scanned.consumed_bytes :]
    assert offsets == whole.batches.base_offset.tolist()


def file_targets(few_batches: Callable[[], Iterator[bytes]]) -> Iterator[Target]:
    """All files but those of `targets`."""
    refusals = (StorageError,)
    yield Target(name="recovery-points", read=_read_recovery_point, good=_recovery_points, refusals=refusals)
    yield Target(name="meta-properties", read=_read_meta_properties, good=_meta_properties, refusals=refusals)
    yield Target(
        name="bootstrap-checkpoints",
        read=_read_bootstrap,
        good=lambda: captured_files(BOOTSTRAP_CHECKPOINT),
        refusals=refusals,
    )
    yield Target(
        name="starts",
        read=_open_with_snapshot,
        good=lambda: captured_files("*218-*.checkpoint"),
        refusals=refusals,
    )
    yield Target(name="shipped-segments", read=_find_spans, good=few_batches)
    yield Target(name="lake-rows", read=_read_rows, good=few_batches, compares_arrays=True)
    yield Target(name="lake-scans", read=_scan, good=few_batches, compares_arrays=True)
