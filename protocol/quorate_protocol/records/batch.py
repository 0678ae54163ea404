"""Record batches of Kafka's log format, version 2, as KRaft writes them: uncompressed, not transactional.

Layout of a batch, big-endian:

    base offset i64, length i32 (of what follows), partition leader epoch i32, magic i8 (2),
    crc32c u32 (of what follows), attributes i16, last offset delta i32, base timestamp i64,
    max timestamp i64, producer id i64, producer epoch i16, base sequence i32, number of records i32, records

and of a record, whose numbers are zigzag varints:

    length, attributes i8, timestamp delta, offset delta, key length, key, value length, value, header count

Source: Kafka's DefaultRecordBatch and DefaultRecord.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Final

from quorate_protocol.errors import CorruptBatch, RecordsTooLarge, UnsupportedCompression
from quorate_protocol.plain_data import dataclass
from quorate_protocol.wire.codec.native import extension

from .checksum import crc32c

__all__ = (
    "BATCH_SIZE_BYTES_MAX",
    "COMPRESSION_MASK",
    "CONTROL",
    "CRC_COVERS_FROM",
    "HEADER",
    "HEADER_FIELDS",
    "HEADER_SIZE_BYTES",
    "LENGTH_COUNTS_FROM",
    "MAGIC",
    "MAGIC_POSITION",
    "PREFIX",
    "RECORD_SIZE_BYTES_MAX",
    "RECORD_SIZE_BYTES_MIN",
    "BatchHeader",
    "Record",
    "RecordBatch",
    "batches_of_values",
    "build_batch",
    "decode_batches",
    "encode_batch",
    "header_struct",
    "scan_batches",
    "size_in_batch_bytes",
)

HEADER_FIELDS: Final[tuple[tuple[str, str], ...]] = (
    ("base_offset", "q"),
    ("length", "i"),
    ("epoch", "i"),
    ("magic", "b"),
    ("crc", "I"),
    ("attributes", "h"),
    ("last_delta", "i"),
    ("base_timestamp_ms", "q"),
    ("max_timestamp_ms", "q"),
    ("producer_id", "q"),
    ("producer_epoch", "h"),
    ("base_sequence", "i"),
    ("count", "i"),
)
"""Name and type of each field of a batch's header, in order; big-endian. The type is a code of `struct` and numpy."""


def header_struct(fields: slice) -> struct.Struct:
    """Return the struct of consecutive fields of a header."""
    return struct.Struct(">" + "".join(code for _, code in HEADER_FIELDS[fields]))


HEADER: Final = header_struct(slice(None))
HEADER_SIZE_BYTES: Final = HEADER.size
PREFIX: Final = header_struct(slice(2))
"""Base offset, and the number of bytes that follow."""
LENGTH_COUNTS_FROM: Final = PREFIX.size
_BEFORE_CRC_END: Final = 5
_BEFORE_CRC: Final = header_struct(slice(_BEFORE_CRC_END))
_AFTER_CRC: Final = header_struct(slice(_BEFORE_CRC_END, None))
CRC_COVERS_FROM: Final = _BEFORE_CRC.size
MAGIC: Final = 2
MAGIC_POSITION: Final = header_struct(slice(3)).size
COMPRESSION_MASK: Final = 0x07
CONTROL: Final = 0x20
"""The attributes of a batch of control records; those of KRaft's other batches are 0."""
RECORD_SIZE_BYTES_MIN: Final = 7

BATCH_SIZE_BYTES_MAX: Final = 8 * 1024 * 1024
"""Kafka's KafkaRaftClient.MAX_BATCH_SIZE_BYTES: larger batches are neither written nor read."""

RECORD_SIZE_BYTES_MAX: Final = BATCH_SIZE_BYTES_MAX // 4
"""The largest value of a record of ours.

What several records have set may come back in one: a broker's record in a checkpoint has what its registration set,
its directories, and its cordoned directories. Three such values fit a batch.
"""

_RECORD_OVERHEAD_BYTES_MAX: Final = 20
"""What a record takes in a batch besides its value: five varints and two bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One record of a batch. KRaft's records have no headers; a batch with headers is refused."""

    offset_delta: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


_native: Final = extension and extension.Records(Record)
"""Splits and joins records where the extension is installed; it leaves what is unusual or damaged to Python."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordBatch:
    """One decoded batch; the offset of a record is ``base_offset + record.offset_delta``."""

    base_offset: int
    partition_leader_epoch: int
    is_control: bool
    base_timestamp_ms: int
    max_timestamp_ms: int
    records: tuple[Record, ...]
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1

    @property
    def last_offset(self) -> int:
        """The offset of the last record."""
        return self.base_offset + len(self.records) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchHeader:
    """The header of a batch, without its records."""

    base_offset: int
    last_offset: int
    partition_leader_epoch: int
    size_bytes: int
    """Size of the whole batch, header included."""
    is_control: bool
    max_timestamp_ms: int
    position: int
    """Where it starts in the scanned bytes."""


# Encoding


@lru_cache(maxsize=1 << 13)
def _varint(value: int) -> bytes:
    """Encode a zigzag varint. Cached, because lengths and deltas repeat."""
    zigzag = (value << 1) ^ (value >> 63)
    encoded = bytearray()
    while zigzag > 0x7F:
        encoded.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    encoded.append(zigzag)
    return bytes(encoded)


def encode_batch(batch: RecordBatch) -> bytes:
    """Encode a batch of at least one record; the offset deltas are 0, 1, 2 …

    Raises:
        RecordsTooLarge: it has more than BATCH_SIZE_BYTES_MAX. Here and below.
    """
    assert batch.records, "a batch has at least one record"
    records = bytearray()
    for index, record in enumerate(batch.records):
        assert record.offset_delta == index, "offsets in a batch have no gaps"
        body = bytearray(b"\x00")
        body += _varint(record.timestamp_ms - batch.base_timestamp_ms)
        body += _varint(index)
        for field in (record.key, record.value):
            body += _varint(-1 if field is None else len(field))
            body += field or b""
        body.append(0)
        records += _varint(len(body))
        records += body
    after_crc = _AFTER_CRC.pack(
        CONTROL if batch.is_control else 0,
        len(batch.records) - 1,
        batch.base_timestamp_ms,
        batch.max_timestamp_ms,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        len(batch.records),
    )
    return _join(batch.base_offset, batch.partition_leader_epoch, after_crc, records)


def build_batch(values: Sequence[bytes], base_offset: int, epoch: int, timestamp_ms: int) -> bytes:
    """Encode a batch of records that have a value, no key and one timestamp: how a leader appends records."""
    assert values, "a batch has at least one record"
    records = _native and _native.join(values)
    if records is None:
        records = _join_values(values)
    after_crc = _AFTER_CRC.pack(0, len(values) - 1, timestamp_ms, timestamp_ms, -1, -1, -1, len(values))
    return _join(base_offset, epoch, after_crc, records)


def _join_values(values: Sequence[bytes]) -> bytearray:
    """Encode records that have a value, no key and the batch's timestamp."""
    records = bytearray()
    for index, value in enumerate(values):
        offset_delta, size = _varint(index), _varint(len(value))
        records += _varint(4 + len(offset_delta) + len(size) + len(value))
        records += b"\x00\x00" + offset_delta + b"\x01" + size + value + b"\x00"
    return records


def size_in_batch_bytes(value: bytes) -> int:
    """Return the most bytes that a record with this value takes in a batch."""
    return len(value) + _RECORD_OVERHEAD_BYTES_MAX


def batches_of_values(values: Iterable[bytes], *, records_max: int) -> Iterator[list[bytes]]:
    """Split the values of records between batches of at most ``records_max`` records and BATCH_SIZE_BYTES_MAX."""
    batch: list[bytes] = []
    size_bytes = HEADER_SIZE_BYTES
    for value in values:
        value_size_bytes = size_in_batch_bytes(value)
        is_full = len(batch) == records_max or size_bytes + value_size_bytes > BATCH_SIZE_BYTES_MAX
        if batch and is_full:
            yield batch
            batch, size_bytes = [], HEADER_SIZE_BYTES
        batch.append(value)
        size_bytes += value_size_bytes
    if batch:
        yield batch


def _join(base_offset: int, epoch: int, after_crc: bytes, records: bytes | bytearray) -> bytes:
    size_bytes = HEADER_SIZE_BYTES + len(records)
    if size_bytes > BATCH_SIZE_BYTES_MAX:
        raise RecordsTooLarge(
            f"a batch at offset {base_offset} has {size_bytes} bytes, at most {BATCH_SIZE_BYTES_MAX} are allowed"
        )
    length = size_bytes - LENGTH_COUNTS_FROM
    crc = crc32c(records, crc32c(after_crc))
    return b"".join((_BEFORE_CRC.pack(base_offset, length, epoch, MAGIC, crc), after_crc, records))


# Decoding


def scan_batches(
    data: bytes, *, check_crc: bool = False, allow_partial_tail: bool = False
) -> Iterator[BatchHeader]:
    """Yield the header of each batch in ``data``, which starts with one.

    ``allow_partial_tail`` leaves out a last batch that is truncated, as that of a fetch response may be.

    Raises:
        CorruptBatch: a batch is damaged, or is not what KRaft writes.
        UnsupportedCompression: a batch is compressed.
    """
    for header, _ in _scan(data, check_crc=check_crc, allow_partial_tail=allow_partial_tail):
        yield header


def decode_batches(data: bytes, *, allow_partial_tail: bool = False) -> Iterator[RecordBatch]:
    """Decode the batches in ``data``, which starts with one, and verify their checksums.

    ``allow_partial_tail`` leaves out a last batch that is truncated.

    Raises:
        CorruptBatch: a batch is damaged, or is not what KRaft writes.
        UnsupportedCompression: a batch is compressed.
    """
    for header, fields in _scan(data, check_crc=True, allow_partial_tail=allow_partial_tail):
        base_timestamp_ms, max_timestamp_ms, producer_id, producer_epoch, base_sequence, count = fields
        start, end = header.position + HEADER_SIZE_BYTES, header.position + header.size_bytes
        records = _native and _native.split(data, start, end, count, base_timestamp_ms)
        if records is None:
            records = _split_records(data, start, end, count, base_timestamp_ms)
        yield RecordBatch(
            base_offset=header.base_offset,
            partition_leader_epoch=header.partition_leader_epoch,
            is_control=header.is_control,
            base_timestamp_ms=base_timestamp_ms,
            max_timestamp_ms=max_timestamp_ms,
            records=records,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
        )


_Fields = tuple[int, int, int, int, int, int]
"""base timestamp, max timestamp, producer id, producer epoch, base sequence, number of records"""


def _scan(data: bytes, *, check_crc: bool, allow_partial_tail: bool) -> Iterator[tuple[BatchHeader, _Fields]]:
    position = 0
    while position < len(data):
        left = len(data) - position
        if left < HEADER_SIZE_BYTES:
            if allow_partial_tail:
                return
            raise CorruptBatch(f"a batch at byte {position} is truncated: {left} bytes")
        base_offset, length, epoch, magic, crc, attributes, last_delta, *rest = HEADER.unpack_from(
            data, position
        )
        size_bytes = length + LENGTH_COUNTS_FROM
        where = f"at byte {position}, offset {base_offset}, of {size_bytes} bytes"
        if magic != MAGIC or size_bytes < HEADER_SIZE_BYTES or base_offset < 0 or epoch < 0:
            raise CorruptBatch(f"no batch {where}: magic {magic}, epoch {epoch}")
        if size_bytes > left:
            if allow_partial_tail:
                return
            raise CorruptBatch(f"the batch {where} is truncated: {left} bytes")
        if check_crc and crc32c(memoryview(data)[position + CRC_COVERS_FROM : position + size_bytes]) != crc:
            raise CorruptBatch(f"the batch {where} has a wrong checksum")
        if attributes & COMPRESSION_MASK:
            raise UnsupportedCompression(f"the batch {where} is compressed; KRaft does not compress")
        count = rest[-1]
        is_plausible = 0 < count <= size_bytes // RECORD_SIZE_BYTES_MIN and last_delta == count - 1
        if attributes & ~CONTROL or not is_plausible:
            raise CorruptBatch(
                f"the batch {where} has attributes {attributes:#x}, {count} records and last offset delta "
                f"{last_delta}: not what KRaft writes"
            )
        header = BatchHeader(
            base_offset=base_offset,
            last_offset=base_offset + last_delta,
            partition_leader_epoch=epoch,
            size_bytes=size_bytes,
            is_control=bool(attributes & CONTROL),
            max_timestamp_ms=rest[1],
            position=position,
        )
        yield header, (rest[0], rest[1], rest[2], rest[3], rest[4], count)
        position += size_bytes


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    """Read a zigzag varint of at most 64 bits: (value, position after it)."""
    byte = data[position]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    zigzag, shift = byte & 0x7F, 7
    while shift < 70:
        position += 1
        byte = data[position]
        zigzag |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (zigzag >> 1) ^ -(zigzag & 1), position + 1
        shift += 7
    raise CorruptBatch("a varint in a record has more than 10 bytes")


def _split_records(
    data: bytes, position: int, end: int, count: int, base_timestamp_ms: int
) -> tuple[Record, ...]:
    """Split ``count`` records that fill the bytes from ``position`` to ``end``."""
    records = []
    for index in range(count):
        try:
            length, start = _read_varint(data, position)
            timestamp_delta_ms, at = _read_varint(data, start + 1)
            offset_delta, at = _read_varint(data, at)
            key_size, at = _read_varint(data, at)
            key = data[at : at + key_size] if key_size >= 0 else None
            value_size, at = _read_varint(data, at + key_size if key_size > 0 else at)
            value = data[at : at + value_size] if value_size >= 0 else None
            header_count, at = _read_varint(data, at + value_size if value_size > 0 else at)
        except IndexError as error:
            raise CorruptBatch(f"record {index} of {count} is truncated") from error
        position = start + length
        is_whole = at == position <= end and key_size >= -1 and value_size >= -1
        if not is_whole or offset_delta != index or header_count:
            raise CorruptBatch(f"record {index} of {count} has offset delta {offset_delta}, {length} bytes")
        records.append(
            Record(
                offset_delta=offset_delta,
                timestamp_ms=base_timestamp_ms + timestamp_delta_ms,
                key=key,
                value=value,
            )
        )
    if position != end:
        raise CorruptBatch(f"{end - position} bytes follow the last of {count} records")
    return tuple(records)
