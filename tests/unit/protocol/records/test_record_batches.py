"""Record batches: shape, checks, refusals."""

import struct
from collections.abc import Callable

import pytest
from crc32c import crc32c
from quorate_protocol.errors import CorruptBatch, ProtocolError, UnsupportedCompression
from quorate_protocol.records.batch import (
    HEADER_SIZE_BYTES,
    Record,
    RecordBatch,
    build_batch,
    decode_batches,
    encode_batch,
    scan_batches,
)

TIMESTAMP_MS = 1_700_000_000_123


def with_valid_crc(batch: bytes) -> bytes:
    """Put the right checksum into a batch that was tampered with."""
    return batch[:17] + struct.pack(">I", crc32c(batch[21:])) + batch[21:]


def replace(batch: bytes, offset: int, data: bytes) -> bytes:
    """A batch with other bytes at an offset, and the checksum to match."""
    return with_valid_crc(batch[:offset] + data + batch[offset + len(data) :])


def test_batch_of_values_has_kafkas_layout() -> None:
    batch = build_batch([b"ab"], base_offset=5, epoch=3, timestamp_ms=TIMESTAMP_MS)
    record = b"\x10\x00\x00\x00\x01\x04ab\x00"
    assert batch[HEADER_SIZE_BYTES:] == record
    assert batch[:17] == struct.pack(">qiib", 5, 49 + len(record), 3, 2)
    assert batch[21:HEADER_SIZE_BYTES] == struct.pack(
        ">hiqqqhii", 0, 0, TIMESTAMP_MS, TIMESTAMP_MS, -1, -1, -1, 1
    )
    assert batch == with_valid_crc(batch)


def test_building_from_values_equals_encoding_records() -> None:
    built = build_batch([b"", b"x" * 63, b"y" * 64, b"z" * 20_000], 100, 7, TIMESTAMP_MS)
    (decoded,) = decode_batches(built)
    assert encode_batch(decoded) == built
    assert [record.value for record in decoded.records] == [b"", b"x" * 63, b"y" * 64, b"z" * 20_000]
    assert decoded.last_offset == 103
    assert decoded.partition_leader_epoch == 7


def test_milliseconds_and_keys_survive() -> None:
    batch = RecordBatch(
        base_offset=0,
        partition_leader_epoch=0,
        is_control=True,
        base_timestamp_ms=TIMESTAMP_MS,
        max_timestamp_ms=TIMESTAMP_MS + 7,
        records=(
            Record(offset_delta=0, timestamp_ms=TIMESTAMP_MS - 1, key=b"k", value=None),
            Record(offset_delta=1, timestamp_ms=TIMESTAMP_MS + 7, key=b"", value=b"v"),
        ),
        producer_id=9,
        producer_epoch=2,
        base_sequence=4,
    )
    assert list(decode_batches(encode_batch(batch))) == [batch]


def test_scan_tells_where_batches_are() -> None:
    first = build_batch([b"a", b"b"], 0, 1, TIMESTAMP_MS)
    second = build_batch([b"c"], 2, 2, TIMESTAMP_MS + 1)
    headers = list(scan_batches(first + second, check_crc=True))
    assert [(h.base_offset, h.last_offset, h.partition_leader_epoch) for h in headers] == [
        (0, 1, 1),
        (2, 2, 2),
    ]
    assert [(h.position, h.size_bytes) for h in headers] == [(0, len(first)), (len(first), len(second))]
    assert headers[1].max_timestamp_ms == TIMESTAMP_MS + 1
    assert not headers[0].is_control


def test_every_cut_is_noticed_or_allowed() -> None:
    """A torn tail is distinguished from whole batches."""
    first = build_batch([b"a" * 10], 0, 1, TIMESTAMP_MS)
    both = first + build_batch([b"b" * 10], 1, 1, TIMESTAMP_MS)
    for size in range(1, len(both)):
        whole = [] if size < len(first) else [0]
        assert [b.base_offset for b in decode_batches(both[:size], allow_partial_tail=True)] == whole
        if size != len(first):
            with pytest.raises(CorruptBatch):
                list(decode_batches(both[:size]))


def test_every_flipped_bit_behind_the_checksum_is_noticed() -> None:
    batch = build_batch([b"abc", b"def"], 3, 1, TIMESTAMP_MS)
    for bit in range(17 * 8, len(batch) * 8):
        damaged = bytearray(batch)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptBatch):
            list(decode_batches(bytes(damaged)))


def test_flips_in_front_of_the_checksum_never_escape_the_error_family() -> None:
    batch = build_batch([b"abc"], 3, 1, TIMESTAMP_MS)
    for bit in range(17 * 8):
        damaged = bytearray(batch)
        damaged[bit // 8] ^= 1 << bit % 8
        try:
            decoded = list(decode_batches(bytes(damaged)))
        except ProtocolError:
            continue
        assert len(decoded) == 1


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_compressed_batch_is_refused(codec: int) -> None:
    batch = replace(build_batch([b"a"], 0, 1, TIMESTAMP_MS), 21, struct.pack(">h", codec))
    with pytest.raises(UnsupportedCompression):
        list(scan_batches(batch))


Tamper = Callable[[bytes], bytes]


@pytest.mark.parametrize(
    "tamper",
    [
        lambda batch: replace(batch, 16, b"\x01"),
        lambda batch: replace(batch, 8, struct.pack(">i", 48)),
        lambda batch: replace(batch, 8, struct.pack(">i", -1)),
        lambda batch: replace(batch, 8, struct.pack(">i", 2**31 - 1)),
        lambda batch: replace(batch, 0, struct.pack(">q", -1)),
        lambda batch: replace(batch, 21, struct.pack(">h", 0x10)),
        lambda batch: replace(batch, 57, struct.pack(">i", 0)),
        lambda batch: replace(batch, 57, struct.pack(">i", -1)),
        lambda batch: replace(batch, 57, struct.pack(">i", 2**31 - 1)),
        lambda batch: replace(batch, 23, struct.pack(">i", 5)),
        lambda batch: replace(replace(batch, 57, struct.pack(">i", 1)), 23, struct.pack(">i", 0)),
        lambda batch: replace(replace(batch, 57, struct.pack(">i", 3)), 23, struct.pack(">i", 2)),
        lambda batch: replace(batch, HEADER_SIZE_BYTES, b"\x7e"),
        lambda batch: replace(batch, HEADER_SIZE_BYTES, b"\x01"),
        lambda batch: replace(batch, HEADER_SIZE_BYTES + 3, b"\x02"),
        lambda batch: replace(batch, HEADER_SIZE_BYTES + 4, b"\x03"),
        lambda batch: replace(batch, HEADER_SIZE_BYTES + 5, b"\x7f"),
        lambda batch: replace(batch, HEADER_SIZE_BYTES + 2, b"\xff" * 11),
    ],
    ids=[
        "magic 1",
        "length below header",
        "negative length",
        "huge length",
        "negative offset",
        "transactional",
        "no records",
        "negative count",
        "huge count",
        "offset delta and count disagree",
        "more records than counted",
        "fewer records than counted",
        "record longer than batch",
        "negative record length",
        "offset delta out of order",
        "key size below null",
        "value beyond record",
        "varint without end",
    ],
)
def test_contradictions_are_refused(tamper: Tamper) -> None:
    batch = build_batch([b"abcdefgh", b"ijklmnop"], 3, 1, TIMESTAMP_MS)
    with pytest.raises(CorruptBatch):
        list(decode_batches(tamper(batch)))
