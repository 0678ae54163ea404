"""The error shapes, compared with what Kafka 4.3.1 itself answers."""

from datetime import timedelta
from pathlib import Path

import pytest
from quorate_controller.server.error_responses import error_response
from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.apis import CONTROLLER_APIS
from quorate_protocol.kafka.generated.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
)
from quorate_protocol.kafka.generated.alter_partition_reassignments_response import (
    AlterPartitionReassignmentsResponse,
)
from quorate_protocol.wire.codec import decode, encode
from quorate_protocol.wire.convert import convert

KAFKA_TEXT = "This is not the correct controller for this cluster."

WITH_TEXT = {32, 49, 55, 64, 70, 80, 81}
"""APIs in whose responses Kafka repeats the code's own text; elsewhere it leaves that to the client."""

FETCH, FIRST_FETCH_WITH_IDS = 1, 13
"""Before, Kafka's generic error repeats the topics; a raft listener never sends that one."""


def captured() -> list[tuple[int, int, bytes, bytes]]:
    """(API key, version, request, Kafka's NOT_CONTROLLER response) of every API a controller listens to."""
    lines = (Path(__file__).parent / "golden" / "error_responses.txt").read_text().splitlines()
    rows = []
    for line in lines:
        key, version, request, response = line.split()
        body = b"" if request == "-" else bytes.fromhex(request)
        rows.append((int(key), int(version), body, bytes.fromhex(response)))
    return rows


@pytest.mark.parametrize(
    ("key", "version", "request_body", "kafka_response"),
    [
        pytest.param(*row, id=f"{CONTROLLER_APIS[row[0]].name}-{row[1]}")
        for row in captured()
        if not (row[0] == FETCH and row[1] < FIRST_FETCH_WITH_IDS)
    ],
)
def test_error_response_equals_kafkas(
    key: int, version: int, request_body: bytes, kafka_response: bytes
) -> None:
    """Brokers and clients find our errors where they look."""
    api = CONTROLLER_APIS[key]
    request = convert(decode(api.request_class(version), request_body), api.canonical_request)
    message = KAFKA_TEXT if key in WITH_TEXT else None
    response = error_response(request, ErrorCode.not_controller, message, version=version)
    assert encode(convert(response, api.response_class(version))) == kafka_response


def test_a_refused_reassignment_says_nothing_of_replication_factors() -> None:
    """Kafka's default, whatever was asked."""
    request = AlterPartitionReassignmentsRequest(
        timeout=timedelta(seconds=1), allow_replication_factor_change=False, topics=()
    )
    response = error_response(request, ErrorCode.cluster_authorization_failed)
    assert isinstance(response, AlterPartitionReassignmentsResponse)
    assert response.allow_replication_factor_change


def test_every_api_of_the_listener_has_an_error_response() -> None:
    newest = {key: (version, body) for key, version, body, _ in captured()}
    assert set(newest) == set(CONTROLLER_APIS) - {94}
    for key, (version, body) in newest.items():
        api = CONTROLLER_APIS[key]
        request = convert(decode(api.request_class(version), body), api.canonical_request)
        assert isinstance(error_response(request, ErrorCode.unknown_server_error), api.canonical_response)
