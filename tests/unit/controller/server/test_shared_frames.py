"""Answers of raft that many replicas get: encoded once, with the bytes that each would get alone."""

from __future__ import annotations

import pytest
from quorate_controller.node.events import ResponseWithData
from quorate_controller.raft.messages import FetchResponse, LeaderEndpoint, RaftResponse, VoteResponse
from quorate_controller.raft.model import OffsetAndEpoch
from quorate_controller.server import response_frames
from quorate_controller.server.raft_wire import response_to_wire
from quorate_controller.server.response_frames import SHARED_BYTES_MAX, SharedFrames, encode_response_frame
from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.apis import ApiKey, find_api
from quorate_protocol.wire.server import Request

FETCH, VOTE = find_api(ApiKey.FETCH), find_api(ApiKey.VOTE)
LEADER_SINCE = 12
"""The first version of Fetch with a place for the leader: older ones get no response of raft."""
LEADER = LeaderEndpoint(node_id=1, host="controller-1", port=9093)
RECORDS = FetchResponse(
    leader_id=1, leader_epoch=7, leader_endpoint=LEADER, high_watermark=40, log_start_offset=3
)
WATERMARK = FetchResponse(leader_id=1, leader_epoch=7, leader_endpoint=LEADER, high_watermark=41)
DIVERGING = FetchResponse(leader_id=1, leader_epoch=7, diverging_epoch=OffsetAndEpoch(epoch=6, offset=30))
REFUSED = FetchResponse(error_code=ErrorCode.fenced_leader_epoch, leader_id=1, leader_epoch=8)


def asked(version: int, correlation_id: int, api: object = FETCH) -> Request:
    return Request(
        api=api, version=version, correlation_id=correlation_id, client_id=None, body=None, raw=b""
    )  # type: ignore[arg-type]


def alone(response: ResponseWithData, request: Request) -> bytes:
    """The frame of a response to a single client."""
    message = response_to_wire(response.response, response.data, version=request.version)
    return bytes(encode_response_frame(request.api, request.version, request.correlation_id, message))


@pytest.mark.parametrize("version", range(LEADER_SINCE, FETCH.version_max + 1))
def test_shared_frames_have_the_bytes_of_separate_ones(version: int) -> None:
    frames = SharedFrames()
    responses = [
        ResponseWithData(response=RECORDS, data=b"records" * 9),
        ResponseWithData(response=RECORDS, data=b""),
    ]
    responses += [ResponseWithData(response=response) for response in (WATERMARK, DIVERGING, REFUSED)]
    correlation_ids = (0, 1, 0x7FFF_FFFF, -1)
    for response in [*responses, *responses]:
        for correlation_id in correlation_ids:
            request = asked(version, correlation_id)
            assert bytes(frames.frame(response, request)) == alone(response, request)


def test_versions_and_apis_do_not_share() -> None:
    frames = SharedFrames()
    response, vote = (
        ResponseWithData(response=WATERMARK),
        ResponseWithData(response=VoteResponse(vote_granted=True)),
    )
    for request, filled in (
        (asked(18, 1), response),
        (asked(17, 2), response),
        (asked(18, 3), response),
        (asked(2, 4, VOTE), vote),
        (asked(1, 5, VOTE), vote),
    ):
        assert bytes(frames.frame(filled, request)) == alone(filled, request)


def test_an_answer_is_encoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[RaftResponse] = []
    monkeypatch.setattr(
        response_frames,
        "response_to_wire",
        lambda response, data, version: (
            encoded.append(response) or response_to_wire(response, data, version=version)
        ),
    )
    frames, response = SharedFrames(), ResponseWithData(response=RECORDS, data=b"r" * 1000)
    first = frames.frame(response, asked(18, 1))
    shared = [frames.frame(response, asked(18, number)) for number in range(2, 500)]
    assert len(encoded) == 1
    assert all(frame is not first and frame[8:] == first[8:] for frame in shared)
    large = ResponseWithData(response=RECORDS, data=b"r" * SHARED_BYTES_MAX)
    for number in range(2):
        frames.frame(large, asked(18, number))
    assert len(encoded) == 3
