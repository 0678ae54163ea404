"""Requests and responses captured from stock Kafka 4.3.1 (see data/README.md), both directions."""

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from quorate_protocol.errors import ErrorCode, ProtocolError
from quorate_protocol.kafka.apis import APIS, Api
from quorate_protocol.records.batch import decode_batches, encode_batch
from quorate_protocol.wire.client import ClientConnection
from quorate_protocol.wire.frames import encode_frame
from quorate_protocol.wire.headers import (
    encode_request_header,
    encode_response_header,
    read_request_header,
    read_response_header,
    skip_tagged_fields,
)
from quorate_protocol.wire.reading import decode
from quorate_protocol.wire.server import parse_request, serialize_response
from quorate_protocol.wire.writing import encode

DATA = Path(__file__).parent / "data"
ENVELOPE = 58
FETCH = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Captured:
    """One request and its response, without frame lengths."""

    source: str
    request: bytes
    response: bytes

    @property
    def api(self) -> Api:
        """The API that the request names."""
        return APIS[int.from_bytes(self.request[:2], "big")]

    @property
    def version(self) -> int:
        """The version that the request names."""
        return int.from_bytes(self.request[2:4], "big")

    @property
    def request_body(self) -> Any:
        """The request in the class of its version."""
        offset = read_request_header(self.request).size_bytes
        if self.api.request_header_version(self.version) == 2:
            offset = skip_tagged_fields(self.request, offset)
        return decode(self.api.request_class(self.version), self.request, offset)

    @property
    def response_body(self) -> Any:
        """The response in the class of its version."""
        _, offset = read_response_header(self.response, self.api.response_header_version(self.version))
        return decode(self.api.response_class(self.version), self.response, offset)


def load() -> Iterator[Captured]:
    """All captured exchanges, and those that Envelopes carry."""
    for name in ("current", "oldest"):
        for number, line in enumerate((DATA / f"{name}.jsonl").read_text().splitlines()):
            exchange = json.loads(line)
            request, response = (base64.b64decode(exchange[key]) for key in ("request", "response"))
            outer = Captured(source=f"{name}:{number}", request=request, response=response)
            yield outer
            if outer.api.key == ENVELOPE and outer.response_body.error_code is ErrorCode.none:
                yield Captured(
                    source=f"{name}:{number} inside",
                    request=outer.request_body.request_data,
                    response=outer.response_body.response_data,
                )


def identify(captured: object) -> str:
    """The name of a case."""
    assert isinstance(captured, Captured)
    return f"{captured.source} {captured.api.name} v{captured.version}"


CAPTURED = list(load())


def test_capture_covers_what_a_controller_serves() -> None:
    """Goal: a new capture that misses an API is noticed. Method: the APIs that must occur."""
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
    """Goal: we speak what Kafka speaks, byte for byte.

    Method: header and body of both sides, there and back.
    """
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
    """Goal: the canonical classes hold all that Kafka said.

    Method: parse the request as a server and answer with the captured response; receive it as a client.
    """
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
    """Goal: what the leader sends is what our replay reads.

    Method: batches of the response, there and back.
    """
    for topic in captured.response_body.responses:
        for partition in topic.partitions:
            records = partition.records or b""
            assert b"".join(encode_batch(batch) for batch in decode_batches(records)) == records


@pytest.mark.parametrize("captured", CAPTURED, ids=identify)
def test_damaged_frames_are_typed_errors(captured: Captured) -> None:
    """Goal: no input crashes a server. Method: cut a real request at each byte; flip a bit of every byte."""
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
