"""Both sides of a connection: requests parsed, responses serialized, matched, refused."""

import struct
from datetime import timedelta
from typing import Any

import pytest
from quorate_protocol.errors import (
    ErrorCode,
    FrameTooLarge,
    MalformedMessage,
    UnknownApi,
    UnsupportedVersion,
)
from quorate_protocol.kafka.apis import APIS, CONTROLLER_APIS
from quorate_protocol.kafka.generated.api_versions_request import ApiVersionsRequest
from quorate_protocol.kafka.generated.api_versions_response import ApiVersion, ApiVersionsResponse
from quorate_protocol.kafka.generated.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from quorate_protocol.kafka.generated.delete_topics_response import DeleteTopicsResponse
from quorate_protocol.kafka.generated.metadata_request import MetadataRequest
from quorate_protocol.wire.client import ClientConnection, encode_request
from quorate_protocol.wire.frames import encode_frame
from quorate_protocol.wire.headers import read_request_header
from quorate_protocol.wire.schema import zero_entity
from quorate_protocol.wire.server import parse_request, serialize_response

SECOND = timedelta(seconds=1)
DELETE = DeleteTopicsRequest(topics=(DeleteTopicState(name="doomed", topic_id=None),), timeout=SECOND)
VERSIONS = ApiVersionsRequest(client_software_name="quorate", client_software_version="1")


def header(key: int, version: int, client_id: bytes = b"\x00\x02me") -> bytes:
    """A request header's fixed part."""
    return struct.pack(">hhi", key, version, 7) + client_id


@pytest.mark.parametrize("version", range(1, 7))
def test_request_of_any_version_is_parsed_into_the_canonical_class(version: int) -> None:
    frame = encode_request(APIS[20], version, 42, "me", DELETE)
    request = parse_request(frame)
    assert (request.api, request.version, request.correlation_id) == (APIS[20], version, 42)
    assert (request.client_id, request.body, request.raw) == ("me", DELETE, frame)
    assert request.unsupported_version is None


def test_client_without_an_id() -> None:
    for client_id in (None, ""):
        frame = encode_request(APIS[18], 4, 1, client_id, VERSIONS)
        assert parse_request(frame).client_id == client_id


def test_tagged_fields_in_a_header_are_skipped() -> None:
    frame = encode_request(APIS[18], 4, 1, "me", VERSIONS)
    size = read_request_header(frame).size_bytes
    changed = frame[:size] + b"\x01\x0a\x03abc" + frame[size + 1 :]
    assert parse_request(changed).body == VERSIONS


def test_newer_api_versions_request_is_answerable() -> None:
    """KIP-511, a client newer than we are learns what we speak."""
    request = parse_request(header(18, 99) + b"\x00whatever")
    assert (request.version, request.unsupported_version) == (0, 99)
    response = ApiVersionsResponse(
        error_code=ErrorCode.unsupported_version,
        api_keys=(ApiVersion(api_key=18, min_version=0, max_version=5),),
    )
    data = serialize_response(request.api, request.version, request.correlation_id, response)
    assert data == b"\x00\x00\x00\x10\x00\x00\x00\x07\x00\x23\x00\x00\x00\x01\x00\x12\x00\x00\x00\x05"


@pytest.mark.parametrize(
    ("frame", "error"),
    [
        (b"", MalformedMessage),
        (header(18, 4)[:9], MalformedMessage),
        (header(18, 4, b"\x00\x09me"), MalformedMessage),
        (header(18, 4, b"\xff\xfe"), MalformedMessage),
        (header(18, 4, b"\x00\x02\xff\xff"), MalformedMessage),
        (header(18, 4), MalformedMessage),
        (header(18, 4) + b"\x01\x00", MalformedMessage),
        (header(18, 4) + b"\x01\x00\xff\xff\xff\xff\x0f", MalformedMessage),
        (header(18, 4) + b"\x00\x01\x01\x00\x00", MalformedMessage),
        (header(93, 0), UnknownApi),
        (header(3, 12), UnknownApi),
        (header(-1, 0), UnknownApi),
        (header(1, 3), UnsupportedVersion),
        (header(1, 19), UnsupportedVersion),
        (header(62, -1), UnsupportedVersion),
    ],
)
def test_bad_requests_are_typed_errors(frame: bytes, error: type[Exception]) -> None:
    with pytest.raises(error):
        parse_request(frame)


@pytest.mark.parametrize("key", sorted(CONTROLLER_APIS))
def test_client_and_server_understand_each_other(key: int) -> None:
    api = CONTROLLER_APIS[key]
    client = ClientConnection("me")
    for version in range(api.version_min, api.version_max + 1):
        frame = client.send(zero_entity(api.request_class(version)), version)
        request = parse_request(frame[4:])
        response: Any = zero_entity(api.canonical_response)
        data = serialize_response(api, version, request.correlation_id, response)
        assert client.receive_data(data) == [(request.correlation_id, response)]
    assert client.in_flight == 0


def test_responses_arrive_in_pieces_and_together() -> None:
    client = ClientConnection("me")
    response = DeleteTopicsResponse(throttle_time=SECOND, responses=())
    for _ in range(2):
        client.send(DELETE, 6)
        client.send(DELETE, 1)
    data = [serialize_response(APIS[20], version, 0, response)[8:] for version in (6, 1)]
    stream = b"".join(encode_frame(struct.pack(">i", index) + data[index % 2]) for index in range(4))
    half = len(stream) // 2
    received = [pair for byte in stream[:half] for pair in client.receive_data(bytes([byte]))]
    received += client.receive_data(stream[half:])
    assert [correlation_id for correlation_id, _ in received] == [0, 1, 2, 3]
    assert received[0][1] == response
    assert received[1][1].throttle_time == SECOND


def test_in_flight_requests_are_bounded() -> None:
    client = ClientConnection("me", in_flight_max=2)
    client.send(VERSIONS, 4)
    assert client.can_send
    client.send(VERSIONS, 4)
    assert not client.can_send
    with pytest.raises(AssertionError):
        client.send(VERSIONS, 4)


def test_older_server_answers_api_versions_in_version_0() -> None:
    client = ClientConnection("me")
    client.send(VERSIONS, 5)
    ((_, response),) = client.receive_data(
        b"\x00\x00\x00\x10\x00\x00\x00\x00\x00\x23\x00\x00\x00\x01\x00\x12\x00\x00\x00\x04"
    )
    assert response.error_code is ErrorCode.unsupported_version
    assert response.api_keys == (ApiVersion(api_key=18, min_version=0, max_version=4),)


def test_what_a_version_cannot_say_is_not_sent() -> None:
    """A failed send leaves the connection usable."""
    client = ClientConnection("me")
    by_id = DeleteTopicsRequest(topics=(DeleteTopicState(name=None, topic_id=None),), timeout=SECOND)
    with pytest.raises(UnsupportedVersion):
        client.send(by_id, 1)
    assert (client.in_flight, client.next_correlation_id) == (0, 0)
    assert client.send(MetadataRequest(topics=None, include_topic_authorized_operations=False), 13)


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (encode_frame(b""), MalformedMessage),
        (encode_frame(b"\x00\x00\x00\x01\x00\x00"), MalformedMessage),
        (encode_frame(b"\x00\x00\x00\x00"), MalformedMessage),
        (encode_frame(b"\x00\x00\x00\x00\x00"), MalformedMessage),
        (b"\x7f\xff\xff\xff", FrameTooLarge),
    ],
)
def test_bad_responses_are_typed_errors(data: bytes, error: type[Exception]) -> None:
    client = ClientConnection("me")
    client.send(VERSIONS, 4)
    with pytest.raises(error):
        client.receive_data(data)


def test_response_without_a_request_is_an_error() -> None:
    with pytest.raises(MalformedMessage, match="without a request"):
        ClientConnection(None).receive_data(encode_frame(b"\x00\x00\x00\x00"))
