"""The fast reader of batch headers against the thorough one, and what index entries say."""

import struct
from itertools import pairwise
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from quorate_controller.storage import batch_spans
from quorate_controller.storage.log import LogConfig, MetadataLog
from quorate_controller.storage.os_filesystem import OsFileSystem
from quorate_protocol.errors import ProtocolError
from quorate_protocol.records.batch import scan_batches
from quorate_protocol.records.control import LeaderChangeMessage, encode_control_batch


class BytesFile:
    """A file for reading, in memory."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def read_at(self, position: int, size_bytes: int) -> bytes:
        return self.data[position : position + size_bytes]


def spans(data: bytes, chunk_bytes: int = 4096) -> list[tuple[object, ...]]:
    """What the fast reader finds."""
    found = batch_spans.read_spans(BytesFile(data), 0, len(data), check_crc=True, chunk_bytes=chunk_bytes)
    return [tuple(span) for span in found]


def headers(data: bytes) -> list[tuple[object, ...]]:
    """What the thorough reader finds before it complains."""
    found = []
    try:
        for header in scan_batches(data, check_crc=True):
            found.append(tuple(getattr(header, name) for name in batch_spans.BatchSpan._fields))  # noqa: PERF401
    except ProtocolError:
        pass
    return found


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_fast_reader_finds_what_the_thorough_one_does(make_batches, data: st.DataObject):
    """Good, cut, bit-flipped and extended bytes, in chunks smaller than a batch: both find the same."""
    sizes = data.draw(st.lists(st.integers(0, 400), min_size=1, max_size=8))
    content = bytearray()
    for index, size_bytes in enumerate(sizes):
        content += make_batches(index, 1, epoch=1 + index // 3, size_bytes=size_bytes)
    control = LeaderChangeMessage(version=0, leader_id=1, voters=(), granting_voters=())
    content += encode_control_batch([control], len(sizes), 9, 5000)
    if data.draw(st.booleans()):
        content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    content = content[: data.draw(st.integers(0, len(content)))] + data.draw(st.binary(max_size=80))
    chunk_bytes = data.draw(st.integers(64, 1000))
    assert spans(bytes(content), chunk_bytes) == headers(bytes(content))


def test_index_entries_mean_what_kafka_reads(os_files: OsFileSystem, tmp_path: Path, make_batches):
    """Each offset entry is the last offset of the batch at its position, at least an interval after the one
    before; each time entry is the highest timestamp so far and the last offset of the batch that has it.
    """
    log = MetadataLog.open(os_files, tmp_path, LogConfig(index_interval_bytes=300))
    timestamps_ms = [50, 10, 70, 60, 90, 20]
    for index in range(40):
        log.append(make_batches(index * 2, 1, records=2, timestamp_ms=timestamps_ms[index % 6] + index // 6))
    log.close()
    batches = list(scan_batches((tmp_path / "00000000000000000000.log").read_bytes()))
    by_position = {batch.position: batch for batch in batches}
    entries = list(struct.iter_unpack(">ii", (tmp_path / "00000000000000000000.index").read_bytes()))
    assert len(entries) > 5
    assert all(by_position[position].last_offset == offset for offset, position in entries)
    assert all(after[1] - before[1] > 300 for before, after in pairwise(entries))
    first_with: dict[int, int] = {}
    for batch in batches:
        first_with.setdefault(batch.max_timestamp_ms, batch.last_offset)
    time_entries = list(struct.iter_unpack(">qi", (tmp_path / "00000000000000000000.timeindex").read_bytes()))
    assert time_entries == sorted(time_entries)
    assert all(first_with[timestamp_ms] == offset for timestamp_ms, offset in time_entries)
    assert time_entries[-1][0] == max(first_with)
