"""Properties of records, batches and messages: round trips, agreement with kio, behaviour on garbage."""

import io
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.serial import entity_reader, entity_writer
from kit.entities import INT64, PRIMITIVES, entities_of
from quorate_protocol.errors import ProtocolError, UnsupportedVersion
from quorate_protocol.kafka.apis import CONTROLLER_APIS
from quorate_protocol.records.batch import (
    Record,
    RecordBatch,
    build_batch,
    decode_batches,
    encode_batch,
    scan_batches,
)
from quorate_protocol.records.control import decode_control
from quorate_protocol.records.framing import decode_record, encode_record
from quorate_protocol.records.generated import RECORD_CLASSES
from quorate_protocol.wire.client import encode_request
from quorate_protocol.wire.codec import decode, encode
from quorate_protocol.wire.frames import FrameDecoder, encode_frame
from quorate_protocol.wire.server import parse_request

if TYPE_CHECKING:
    from collections.abc import Callable

EXAMPLES = settings(max_examples=25, deadline=None)
RECORD_VERSIONS = [
    (key, version) for key, classes in RECORD_CLASSES.items() for version in range(len(classes))
]


@pytest.mark.parametrize(("key", "version"), RECORD_VERSIONS)
@EXAMPLES
@given(data=st.data())
def test_records_round_trip_and_kio_agrees(key: int, version: int, data: st.DataObject) -> None:
    entity_type = RECORD_CLASSES[key][version]
    record = data.draw(entities_of(entity_type))
    encoded = encode(record)
    assert decode(entity_type, encoded) == record
    buffer = io.BytesIO()
    entity_writer(entity_type)(buffer, record)
    assert buffer.getvalue() == encoded
    assert entity_reader(entity_type)(encoded, 0) == (record, len(encoded))


@pytest.mark.parametrize("key", sorted(RECORD_CLASSES))
@EXAMPLES
@given(data=st.data())
def test_framed_records_round_trip_or_are_refused(key: int, data: st.DataObject) -> None:
    record = data.draw(entities_of(RECORD_CLASSES[key][-1]))
    for version in range(len(RECORD_CLASSES[key])):
        try:
            encoded = encode_record(record, version)
        except UnsupportedVersion:
            assert version < len(RECORD_CLASSES[key]) - 1
            continue
        assert decode_record(encoded) == record


@pytest.mark.parametrize("key", sorted(CONTROLLER_APIS))
@settings(max_examples=5, deadline=None)
@given(data=st.data())
def test_messages_round_trip(key: int, data: st.DataObject) -> None:
    """Each request and response of the controller listener in each version."""
    api = CONTROLLER_APIS[key]
    version = data.draw(st.integers(api.version_min, api.version_max))
    for entity_type in (api.request_class(version), api.response_class(version)):
        message = data.draw(entities_of(entity_type))
        assert decode(entity_type, encode(message)) == message


@pytest.mark.parametrize("key", sorted(CONTROLLER_APIS))
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_damaged_requests_are_requests_or_typed_errors(key: int, data: st.DataObject) -> None:
    api = CONTROLLER_APIS[key]
    version = data.draw(st.integers(api.version_min, api.version_max))
    message = data.draw(entities_of(api.request_class(version)))
    frame = encode_request(api, version, 1, "me", message)
    start = data.draw(st.integers(0, len(frame)))
    garbage = data.draw(st.binary(max_size=12))
    damaged = frame[:start] + garbage + frame[start + data.draw(st.integers(0, 12)) :]
    try:
        parse_request(damaged)
    except ProtocolError:
        return


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_typed_errors_or_values(data: bytes) -> None:
    decoders: tuple[Callable[[bytes], object], ...] = (
        parse_request,
        decode_record,
        lambda raw: list(decode_batches(raw)),
        lambda raw: list(scan_batches(raw)),
        lambda raw: FrameDecoder(1000).feed(raw),
        lambda raw: decode_control(Record(offset_delta=0, timestamp_ms=0, key=raw[:4], value=raw[4:])),
    )
    for decoder in decoders:
        try:
            decoder(data)
        except ProtocolError:
            continue


@st.composite
def record_batches(draw: st.DrawFn) -> RecordBatch:
    """Batches with any content."""
    base_timestamp_ms = draw(st.integers(0, 2**60))
    contents = draw(
        st.lists(
            st.tuples(
                st.integers(-(2**50), 2**50),
                st.none() | st.binary(max_size=80),
                st.none() | st.binary(max_size=200),
            ),
            min_size=1,
            max_size=70,
        )
    )
    return RecordBatch(
        base_offset=draw(st.integers(0, 2**62)),
        partition_leader_epoch=draw(st.integers(0, 2**31 - 1)),
        is_control=draw(st.booleans()),
        base_timestamp_ms=base_timestamp_ms,
        max_timestamp_ms=draw(INT64),
        producer_id=draw(INT64),
        producer_epoch=draw(PRIMITIVES["int16"]),
        base_sequence=draw(PRIMITIVES["int32"]),
        records=tuple(
            Record(offset_delta=index, timestamp_ms=base_timestamp_ms + delta_ms, key=key, value=value)
            for index, (delta_ms, key, value) in enumerate(contents)
        ),
    )


@settings(max_examples=60, deadline=None)
@given(st.lists(record_batches(), max_size=3))
def test_batches_round_trip(batches: list[RecordBatch]) -> None:
    data = b"".join(encode_batch(batch) for batch in batches)
    assert list(decode_batches(data)) == batches
    headers = list(scan_batches(data, check_crc=True))
    assert [(h.base_offset, h.last_offset, h.is_control) for h in headers] == [
        (b.base_offset, b.last_offset, b.is_control) for b in batches
    ]
    assert sum(header.size_bytes for header in headers) == len(data)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.binary(max_size=300), min_size=1, max_size=200),
    st.integers(0, 2**40),
    st.integers(0, 2**31 - 1),
)
def test_built_batches_equal_encoded_ones(values: list[bytes], base_offset: int, epoch: int) -> None:
    """The leader's fast path writes what the general one writes."""
    built = build_batch(values, base_offset, epoch, timestamp_ms=1)
    (batch,) = decode_batches(built)
    assert [record.value for record in batch.records] == values
    assert encode_batch(batch) == built


@settings(max_examples=60, deadline=None)
@given(st.lists(st.binary(max_size=30), max_size=8), st.data())
def test_frames_survive_any_split(payloads: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(encode_frame(payload) for payload in payloads)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    decoder = FrameDecoder()
    pieces = [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert [frame for piece in pieces for frame in decoder.feed(piece)] == payloads
