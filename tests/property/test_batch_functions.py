"""Properties of batches: native functions split and join records as those in Python."""

from random import Random

import pytest
from kit.fuzz.mutations import mutated
from quorate_protocol.errors import CorruptBatch
from quorate_protocol.records import batch as batches
from quorate_protocol.records.batch import HEADER_SIZE_BYTES, Record, RecordBatch, encode_batch
from quorate_protocol.wire.codec.native import CODEC, CODEC_REASON, extension

pytestmark = pytest.mark.skipif(CODEC != "native", reason=f"{CODEC_REASON}; `make native` builds it")

LENGTHS = (0, 1, 57, 58, 63, 64, 127, 8191, 8192)
"""About where varints of lengths become longer."""


def content(rng: Random) -> bytes | None:
    """A key or a value."""
    return rng.choice((None, rng.randbytes(rng.choice(LENGTHS))))


def records_of(rng: Random, base_timestamp_ms: int) -> bytes:
    """The bytes of some records, without the header of a batch."""
    records = tuple(
        Record(
            offset_delta=index,
            timestamp_ms=base_timestamp_ms + rng.choice((0, 1, -1, 64, 2**40, -(2**40))),
            key=content(rng),
            value=content(rng),
        )
        for index in range(rng.choice((1, 2, 70)))
    )
    encoded = encode_batch(
        RecordBatch(
            base_offset=0,
            partition_leader_epoch=0,
            is_control=False,
            base_timestamp_ms=base_timestamp_ms,
            max_timestamp_ms=base_timestamp_ms,
            records=records,
        )
    )
    return encoded[HEADER_SIZE_BYTES:]


def test_records_are_split_alike() -> None:
    native, rng = extension.Records(Record), Random(7)
    accepted = refused = 0
    for base_timestamp_ms in (0, 1_700_000_000_123, 2**63 - 1, -(2**63)):
        corpus = [records_of(rng, base_timestamp_ms) for _ in range(8)]
        for data in (*corpus, *mutated(corpus, rng.getrandbits(32), 2_000)):
            for count in (1, 2, 70):
                arguments = data, 0, len(data), count, base_timestamp_ms
                try:
                    expected = batches._split_records(*arguments)
                except CorruptBatch:
                    assert native.split(*arguments) is None
                    refused += 1
                    continue
                found = native.split(*arguments)
                is_past_64_bits = any(not -(2**63) <= each.timestamp_ms < 2**63 for each in expected)
                assert found == (None if is_past_64_bits else expected)
                accepted += not is_past_64_bits
    assert min(accepted, refused) > 100  # or nothing was compared


def test_values_are_joined_alike() -> None:
    native, rng = extension.Records(Record), Random(7)
    values = [rng.randbytes(rng.choice(LENGTHS)) for _ in range(9_000)]
    for count in (1, 63, 64, 65, 9_000):
        assert native.join(values[:count]) == bytes(batches._join_values(values[:count]))
    assert native.join([b"", bytearray(b"no bytes")]) is None
    assert native.join((b"no list",)) is None
