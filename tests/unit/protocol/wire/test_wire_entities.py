"""Reading and writing entities: agreement with kio, bounds, forward compatibility."""

import io
import struct
import traceback
import uuid
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

import pytest
from kio.serial import entity_reader, entity_writer
from quorate_protocol.errors import (
    ArrayTooLong,
    ErrorCode,
    MalformedMessage,
    StringTooLong,
    TooManyElements,
    error_code_of,
)
from quorate_protocol.kafka.generated.create_delegation_token_response import CreateDelegationTokenResponse
from quorate_protocol.kafka.generated.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from quorate_protocol.kafka.generated.fetch_request import FetchRequest
from quorate_protocol.kafka.generated.fetch_snapshot_response import PartitionSnapshot
from quorate_protocol.kafka.generated.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from quorate_protocol.kafka.generated.renew_delegation_token_request import RenewDelegationTokenRequest
from quorate_protocol.kafka.generated.request_header import RequestHeader
from quorate_protocol.kafka.generated.unregister_controller_response import UnregisterControllerResponse
from quorate_protocol.records.generated import (
    ClientQuotaRecord,
    EntityData,
    NoOpRecord,
    PartitionChangeRecord,
)
from quorate_protocol.wire.codec import (
    BoundedBytes,
    decode,
    encode,
    read_entity,
    read_unsigned_varint,
    write_unsigned_varint,
)
from quorate_protocol.wire.codec.functions import CodecFunctions
from quorate_protocol.wire.codec.generated_readers import generated_reader
from quorate_protocol.wire.headers import skip_tagged_fields
from quorate_protocol.wire.schema import ARRAY_ELEMENTS_MAX, TAGGED_FIELDS_MAX, zero_entity

SET = AlterableConfig(name="c", config_operation=0, value="1")
TOPIC_ID = uuid.UUID("b5a1c9b6-6f4e-4f0f-8f36-5d3c3f1a2b4c")


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner:
    """A struct inside a message."""

    __version__: ClassVar[int] = 0
    __flexible__: ClassVar[bool] = True
    name: str = field(metadata={"kafka_type": "string"})
    number: int = field(metadata={"kafka_type": "int8", "tag": 3}, default=-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flexible:
    """One field of each kind, in a flexible version."""

    __version__: ClassVar[int] = 0
    __flexible__: ClassVar[bool] = True
    flag: bool = field(metadata={"kafka_type": "bool"})
    id: uuid.UUID | None = field(metadata={"kafka_type": "uuid"})
    ratio: float = field(metadata={"kafka_type": "float64"})
    text: str | None = field(metadata={"kafka_type": "string"})
    raw: bytes = field(metadata={"kafka_type": "bytes"})
    numbers: tuple[int, ...] | None = field(metadata={"kafka_type": "int32"})
    ids: tuple[uuid.UUID | None, ...] = field(metadata={"kafka_type": "uuid"})
    names: tuple[str, ...] = field(metadata={"kafka_type": "string"})
    inner: Inner
    maybe: Inner | None
    inners: tuple[Inner, ...]
    code: ErrorCode = field(metadata={"kafka_type": "error_code"})
    wait: timedelta = field(metadata={"kafka_type": "timedelta_i32"})
    port: int = field(metadata={"kafka_type": "uint16"})
    tagged: tuple[int, ...] | None = field(metadata={"kafka_type": "int32", "tag": 0}, default=None)
    label: str = field(metadata={"kafka_type": "string", "tag": 7}, default="none")


@dataclass(frozen=True, slots=True, kw_only=True)
class Legacy:
    """The same in a version from before KIP-482."""

    __version__: ClassVar[int] = 0
    __flexible__: ClassVar[bool] = False
    text: str | None = field(metadata={"kafka_type": "string"})
    raw: bytes | None = field(metadata={"kafka_type": "bytes"})
    numbers: tuple[int, ...] | None = field(metadata={"kafka_type": "int64"})
    names: tuple[str, ...] = field(metadata={"kafka_type": "string"})


FLEXIBLE = Flexible(
    flag=True,
    id=TOPIC_ID,
    ratio=2.5,
    text="é" * 100,
    raw=b"\x00" * 200,
    numbers=(1, -2, 3),
    ids=(None, TOPIC_ID),
    names=("", "b"),
    inner=Inner(name="i", number=4),
    maybe=Inner(name="m"),
    inners=(Inner(name="x"), Inner(name="y", number=0)),
    code=ErrorCode.not_controller,
    wait=timedelta(milliseconds=-1),
    port=65535,
    tagged=(),
    label="",
)
LEGACY = Legacy(text="t", raw=b"r", numbers=(2**40,), names=("a", "b"))
NULLS = Legacy(text=None, raw=None, numbers=None, names=())


def kio_encode(entity: Any) -> bytes:
    """What kio makes of an entity."""
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


@pytest.mark.parametrize("entity", [FLEXIBLE, LEGACY, NULLS])
def test_we_agree_with_kio(entity: Any) -> None:
    encoded = encode(entity)
    assert encoded == kio_encode(entity)
    assert decode(type(entity), encoded) == entity
    assert entity_reader(type(entity))(encoded, 0) == (entity, len(encoded))


def test_records_without_a_value_are_empty() -> None:
    snapshot = zero_entity(PartitionSnapshot)
    assert snapshot.unaligned_records == b""
    assert decode(PartitionSnapshot, encode(snapshot)) == snapshot


def test_entity_in_the_middle_of_data() -> None:
    encoded = encode(LEGACY)
    assert read_entity(Legacy, b"??" + encoded + b"!", 2) == (LEGACY, 2 + len(encoded))
    with pytest.raises(MalformedMessage, match="1 bytes follow"):
        decode(Legacy, encoded + b"!")


@pytest.mark.parametrize("entity", [FLEXIBLE, LEGACY])
def test_every_cut_is_a_typed_error(entity: Any) -> None:
    encoded = encode(entity)
    for size in range(len(encoded)):
        with pytest.raises(MalformedMessage):
            decode(type(entity), encoded[:size])


@pytest.mark.parametrize("entity", [FLEXIBLE, LEGACY])
def test_flipped_bits_never_escape_the_error_family(entity: Any) -> None:
    encoded = encode(entity)
    for bit in range(len(encoded) * 8):
        damaged = bytearray(encoded)
        damaged[bit // 8] ^= 1 << bit % 8
        try:
            decode(type(entity), bytes(damaged))
        except MalformedMessage:
            continue


@pytest.mark.parametrize(
    "lie",
    [
        b"\xff\xff\xff\xff\x0f",
        b"\xff\xff\xff\xff\x07",
        b"\xff\xff\xff\x7f",
        b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    ],
)
def test_huge_compact_array_allocates_nothing(lie: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode(DeleteTopicsRequest, lie + bytes(20))
    with pytest.raises(MalformedMessage):
        decode(PartitionChangeRecord, bytes(20) + b"\x01\x00\x09" + lie + bytes(4))


def test_huge_legacy_array_and_string_allocate_nothing() -> None:
    for length in (2**31 - 1, -2, -(2**31)):
        for position in range(3):
            data = [b"\xff\xff", b"\xff\xff\xff\xff", b"\xff\xff\xff\xff", b"\x00\x00\x00\x00"]
            data[position + 1] = struct.pack(">i", length)
            with pytest.raises(MalformedMessage):
                decode(Legacy, b"".join(data) + bytes(20))


def test_array_has_a_bound_of_elements() -> None:
    data = bytearray()
    write_unsigned_varint(data, ARRAY_ELEMENTS_MAX + 2)
    with pytest.raises(MalformedMessage, match="entity has 1000001 elements, at most 1000000 are allowed"):
        decode(ClientQuotaRecord, bytes(data) + bytes(4 * ARRAY_ELEMENTS_MAX))


@pytest.mark.parametrize("count", [3, 126, 127, 50_000])
def test_a_message_has_a_bound_of_elements(count: int) -> None:
    """A message takes bounded memory however its arrays are nested."""
    resource = AlterConfigsResource(resource_type=2, resource_name="t", configs=(SET,) * count)
    request = IncrementalAlterConfigsRequest(resources=(resource,) * 3, validate_only=False)
    encoded, elements = encode(request), 3 + 3 * count
    assert decode(IncrementalAlterConfigsRequest, BoundedBytes(encoded, elements)) == request
    with pytest.raises(TooManyElements, match=f"^with configs there are {elements} elements"):
        decode(IncrementalAlterConfigsRequest, BoundedBytes(encoded, elements - 1))
    with pytest.raises(
        TooManyElements, match=r"^with resources there are 3 elements, at most 2 are allowed$"
    ):
        decode(IncrementalAlterConfigsRequest, BoundedBytes(encoded, 2))


def test_arrays_have_the_length_that_kafka_reads() -> None:
    longest = PartitionChangeRecord(partition_id=0, topic_id=uuid.UUID(int=1), isr=(1,) * ARRAY_ELEMENTS_MAX)
    assert decode(PartitionChangeRecord, encode(longest)) == longest
    with pytest.raises(ArrayTooLong, match=r"^isr has 1000001 elements, at most 1000000 are allowed$"):
        encode(replace(longest, isr=(1,) * (ARRAY_ELEMENTS_MAX + 1)))


def test_tagged_fields_have_a_bound() -> None:
    """As many as Kafka 4.4 reads, of a message and of its header."""
    for count in (TAGGED_FIELDS_MAX, TAGGED_FIELDS_MAX + 1):
        tags = bytearray()
        write_unsigned_varint(tags, count)
        for tag in range(100, 100 + count):
            write_unsigned_varint(tags, tag)
            tags.append(0)
        empty = encode(NoOpRecord())[:-1]
        if count == TAGGED_FIELDS_MAX:
            assert decode(NoOpRecord, empty + bytes(tags)) == NoOpRecord()
            assert skip_tagged_fields(bytes(tags), 0) == len(tags)
            continue
        with pytest.raises(MalformedMessage, match="10001 tagged fields, at most 10000 are allowed"):
            decode(NoOpRecord, empty + bytes(tags))
        with pytest.raises(MalformedMessage, match="10001 tagged fields, at most 10000 are allowed"):
            skip_tagged_fields(bytes(tags), 0)


def test_array_of_structs_is_measured_by_its_smallest_element() -> None:
    """Objects can't outgrow the bytes they came from by much."""
    two = b"\x03" + (b"\x00" + bytes(16) + b"\x00") * 2
    assert len(decode(DeleteTopicsRequest, two + bytes(5)).topics) == 2
    with pytest.raises(MalformedMessage, match="topics has 3 elements, but 41 bytes"):
        decode(DeleteTopicsRequest, b"\x04" + two[1:] + bytes(5))


def test_unknown_tagged_fields_are_skipped() -> None:
    """A newer peer's tagged fields don't disturb (KIP-482)."""
    quota = ClientQuotaRecord(
        entity=(EntityData(entity_type="user", entity_name=None),), key="k", value=1.0, remove=False
    )
    encoded = encode(quota)
    struct_end = encoded.index(b"\x05user\x00\x00") + 6
    changed = (
        encoded[:struct_end]
        + b"\x01\x05\x01\xff"
        + encoded[struct_end + 1 : -1]
        + b"\x02\x00\x00\x80\x01\x03abc"
    )
    assert decode(ClientQuotaRecord, changed) == quota


@pytest.mark.parametrize(
    "tags",
    [
        b"\x02\x00\x01\x01\x00\x01\x01",
        b"\x02\x09\x00\x08\x00",
        b"\x01\x00\x02\x01\x00",
        b"\x01\x00\x00",
        b"\x01\x09\x05abc",
        b"\xff\xff\xff\xff\x0f",
        b"\x01\x09\xff\xff\xff\xff\x0f",
    ],
    ids=[
        "twice",
        "descending",
        "size too large",
        "size too small",
        "beyond the end",
        "huge count",
        "huge size",
    ],
)
def test_impossible_tagged_fields_are_refused(tags: bytes) -> None:
    encoded = encode(PartitionChangeRecord(partition_id=1, topic_id=None))
    with pytest.raises(MalformedMessage):
        decode(PartitionChangeRecord, encoded[:-1] + tags)


def test_null_where_none_may_be_is_refused() -> None:
    with pytest.raises(MalformedMessage, match="length -1"):
        decode(Inner, b"\x00\x00")
    encoded = encode(FLEXIBLE)
    marker = encoded.index(b"\x01\x02m")
    with pytest.raises(MalformedMessage, match="presence"):
        decode(Flexible, encoded[:marker] + b"\x02" + encoded[marker + 1 :])


def test_generated_functions_are_seen_in_tracebacks() -> None:
    read = CodecFunctions(generated_reader)[Legacy]
    with pytest.raises(struct.error) as caught:
        read(b"\x00\x01t\xff\xff\xff\xff\x00\x00", 0)
    last = traceback.extract_tb(caught.value.__traceback__)[-2]
    assert last.name == "read_Legacy_v0"
    assert last.line is not None
    assert last.line.startswith("count, offset = read_count(")


def test_header_keeps_the_old_string_format() -> None:
    header = RequestHeader(request_api_key=18, request_api_version=4, correlation_id=1, client_id="me")
    assert encode(header) == b"\x00\x12\x00\x04\x00\x00\x00\x01\x00\x02me\x00" == kio_encode(header)
    assert decode(RequestHeader, encode(header)) == header


def test_absent_tagged_struct_is_its_default() -> None:
    request = FetchRequest(max_wait=timedelta(0), min_bytes=0, topics=(), forgotten_topics_data=())
    assert decode(FetchRequest, encode(request)) == request
    assert decode(FetchRequest, encode(request)).replica_state.replica_id == -1


def test_error_codes_of_newer_releases() -> None:
    response = UnregisterControllerResponse(
        throttle_time=timedelta(0), error_code=ErrorCode.controller_id_not_registered, error_message="no"
    )
    encoded = encode(response)
    assert encoded[4:6] == b"\x00\x88"
    assert decode(UnregisterControllerResponse, encoded) == response
    assert ErrorCode.controller_id_not_registered.name == "controller_id_not_registered"
    assert not ErrorCode.controller_id_not_registered.retriable
    assert error_code_of(9999) is ErrorCode.unknown_server_error


def test_timestamps_keep_milliseconds() -> None:
    stamp = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
    response = CreateDelegationTokenResponse(
        error_code=ErrorCode.none,
        principal_type="User",
        principal_name="u",
        token_requester_principal_type="User",
        token_requester_principal_name="u",
        issue_timestamp=stamp,
        expiry_timestamp=stamp,
        max_timestamp=stamp,
        token_id="t",
        hmac=b"h",
        throttle_time=timedelta(0),
    )
    assert decode(CreateDelegationTokenResponse, encode(response)) == response


@pytest.mark.parametrize("value", [0, 1, 127, 128, 16_383, 16_384, 2**31 - 1, 2**32 - 1])
def test_varints(value: int) -> None:
    """Seven bits per byte, low bits first."""
    buffer = bytearray()
    write_unsigned_varint(buffer, value)
    assert len(buffer) == max(1, -(-value.bit_length() // 7))
    assert read_unsigned_varint(bytes(buffer), 0) == (value, len(buffer))


def test_long_topic_names() -> None:
    state = DeleteTopicState(name="n" * 249, topic_id=None)
    assert decode(DeleteTopicState, encode(state)) == state


@pytest.mark.parametrize("entity", [FLEXIBLE, LEGACY])
def test_strings_have_javas_length(entity: Any) -> None:
    longest = replace(entity, text="é" * 16_383 + "a")
    assert decode(type(entity), encode(longest)) == longest
    with pytest.raises(StringTooLong, match=r"^text has 32768 bytes, at most 32767 are allowed$"):
        encode(replace(entity, text="é" * 16_384))
    if entity is FLEXIBLE:
        with pytest.raises(MalformedMessage, match="text has length 32768"):
            decode(Flexible, kio_encode(replace(entity, text="a" * 32_768)))


@pytest.mark.parametrize("period_ms", [2**63 - 1, -(2**63)])
def test_a_duration_that_python_has_no_room_for(period_ms: int) -> None:
    raw = b"\x02x" + struct.pack(">q", period_ms) + b"\x00"
    period = decode(RenewDelegationTokenRequest, raw).renew_period
    assert abs(period) > timedelta(days=365) * 2_000_000
    assert (period > timedelta(0)) == (period_ms > 0)
