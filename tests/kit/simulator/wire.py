"""Messages between controllers as bytes, in the highest version that both ends speak."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final

from quorate_controller.server.raft_wire import (
    request_from_wire,
    request_to_wire,
    response_from_wire,
    response_to_wire,
)
from quorate_protocol.kafka.apis import api_of
from quorate_protocol.wire.client import ClientConnection
from quorate_protocol.wire.frames import FrameDecoder
from quorate_protocol.wire.server import parse_request, serialize_response

if TYPE_CHECKING:
    from quorate_controller.node.events import ResponseWithData
    from quorate_controller.raft.messages import RaftRequest, RaftResponse

FETCH: Final = 1
VOTE: Final = 52
BEGIN_QUORUM_EPOCH: Final = 53
END_QUORUM_EPOCH: Final = 54
FETCH_SNAPSHOT: Final = 59
ADD_RAFT_VOTER: Final = 80
REMOVE_RAFT_VOTER: Final = 81
UPDATE_RAFT_VOTER: Final = 82


class Release(IntEnum):
    """Kafka releases whose controllers speak different versions of raft's messages."""

    KAFKA_3_8 = 0
    """Before KIP-853: no directory ids, no changes of voters."""
    KAFKA_3_9 = 1
    """Before KIP-996: no pre-vote."""
    KAFKA_4_0 = 2
    KAFKA_4_3 = 3


_BEFORE_KIP_853: Final = {
    FETCH: 16,
    VOTE: 0,
    BEGIN_QUORUM_EPOCH: 0,
    END_QUORUM_EPOCH: 0,
    FETCH_SNAPSHOT: 0,
}
_SINCE_KIP_853: Final = {
    FETCH: 17,
    VOTE: 1,
    BEGIN_QUORUM_EPOCH: 1,
    END_QUORUM_EPOCH: 1,
    FETCH_SNAPSHOT: 1,
    ADD_RAFT_VOTER: 0,
    REMOVE_RAFT_VOTER: 0,
    UPDATE_RAFT_VOTER: 0,
}
RELEASES: Final[dict[Release, dict[int, int]]] = {
    Release.KAFKA_3_8: _BEFORE_KIP_853,
    Release.KAFKA_3_9: _SINCE_KIP_853,
    Release.KAFKA_4_0: _SINCE_KIP_853 | {VOTE: 2},
    Release.KAFKA_4_3: _SINCE_KIP_853 | {VOTE: 2, FETCH: 18, ADD_RAFT_VOTER: 1},
}
"""The highest version of each message."""

DYNAMIC_RELEASES: Final = frozenset(RELEASES) - {Release.KAFKA_3_8}
"""The releases that support kraft.version 1."""


class Exchange:
    """One request and its response, each encoded by its sender and decoded by its receiver.

    Raises UnsupportedVersion when no version that both ends speak can carry the request.
    """

    def __init__(self, request: RaftRequest, *, source: Release, target: Release) -> None:
        payload = request_to_wire(request)
        self._api = api_of(payload)
        versions = (RELEASES[release].get(self._api.key, -1) for release in (source, target))
        self._version = min(versions)
        self._connection = ClientConnection("simulated")
        sent = self._connection.send(payload, self._version)
        (frame,) = FrameDecoder().feed(sent)
        received = parse_request(frame)
        self._correlation_id = received.correlation_id
        self.request = request_from_wire(received.body)

    def response(self, response: ResponseWithData) -> RaftResponse:
        """The response as the sender of the request reads it. Call it once."""
        payload = response_to_wire(response.response, response.data, version=self._version)
        sent = serialize_response(self._api, self._version, self._correlation_id, payload)
        ((_, received),) = self._connection.receive_data(sent)
        return response_from_wire(received)
