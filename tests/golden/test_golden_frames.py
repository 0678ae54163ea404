"""Requests and responses captured from stock Kafka (see data/README.md), both directions."""

import pytest
from kit.captured import Captured, captured_exchanges
from quorate_protocol.errors import ProtocolError
from quorate_protocol.records.batch import decode_batches, encode_batch
from quorate_protocol.wire.client import ClientConnection
from quorate_protocol.wire.codec import encode
from quorate_protocol.wire.frames import encode_frame
from quorate_protocol.wire.headers import (
    encode_request_header,
    encode_response_header,
    read_request_header,
)
from quorate_protocol.wire.server import parse_request, serialize_response

FETCH = 1


def identify(captured: object) -> str:
    """The name of a case."""
    assert isinstance(captured, Captured)
    return f"{captured.source} {captured.api.name} v{captured.version}"


CAPTURED = list(captured_exchanges())


def test_capture_covers_what_a_controller_serves() -> None:
    names = {captured.api.name for captured in CAPTURED}
    assert names >= {
        "AddRaftVoter",
        "AllocateProducerIds",
        "AlterClientQuotas",
        "AlterPartitionReassignments",
        "AlterUserScramCredentials",
        "ApiVersions",
        "AssignReplicasToDirs",
        "BeginQuorumEpoch",
        "BrokerHeartbeat",
        "BrokerRegistration",
        "ControllerRegistration",
        "CreateAcls",
        "CreatePartitions",
        "CreateTopics",
        "DeleteAcls",
        "DeleteTopics",
        "DescribeCluster",
        "DescribeConfigs",
        "DescribeQuorum",
        "ElectLeaders",
        "EndQuorumEpoch",
        "Envelope",
        "Fetch",
        "FetchSnapshot",
        "IncrementalAlterConfigs",
        "RemoveRaftVoter",
        "UnregisterBroker",
        "UpdateFeatures",
        "UpdateRaftVoter",
        "Vote",
    }


@pytest.mark.parametrize("captured", CAPTURED, ids=identify)
def test_decoding_and_encoding_gives_the_same_bytes(captured: Captured) -> None:
    api, version = captured.api, captured.version
    header = read_request_header(captured.request)
    request = encode_request_header(
        api.key, version, header.correlation_id, header.client_id, api.request_header_version(version)
    ) + encode(captured.request_body)
    assert request == captured.request
    response = encode_response_header(header.correlation_id, api.response_header_version(version)) + encode(
        captured.response_body
    )
    assert response == captured.response


@pytest.mark.parametrize("captured", CAPTURED, ids=identify)
def test_our_server_and_client_handle_it(captured: Captured) -> None:
    request = parse_request(captured.request)
    client = ClientConnection(request.client_id)
    sent = client.send(request.body, request.version)
    body_at = 4 + len(captured.request) - len(encode(captured.request_body))
    assert sent[body_at:] == captured.request[body_at - 4 :]
    in_order = encode_frame((0).to_bytes(4, "big") + captured.response[4:])
    ((_, response),) = client.receive_data(in_order)
    again = serialize_response(request.api, request.version, request.correlation_id, response)
    assert again == encode_frame(captured.response)


@pytest.mark.parametrize("captured", [c for c in CAPTURED if c.api.key == FETCH], ids=identify)
def test_fetched_records_are_whole_batches(captured: Captured) -> None:
    for topic in captured.response_body.responses:
        for partition in topic.partitions:
            records = partition.records or b""
            assert b"".join(encode_batch(batch) for batch in decode_batches(records)) == records


@pytest.mark.parametrize("captured", CAPTURED, ids=identify)
def test_damaged_frames_are_typed_errors(captured: Captured) -> None:
    for size in range(min(len(captured.request), 400)):
        with pytest.raises(ProtocolError):
            parse_request(captured.request[:size])
    for position in range(min(len(captured.request), 400)):
        for bit in (0, 7):
            damaged = bytearray(captured.request)
            damaged[position] ^= 1 << bit
            try:
                parse_request(bytes(damaged))
            except ProtocolError:
                continue
