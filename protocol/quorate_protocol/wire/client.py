"""The client's side of a connection: requests to frames, frames to responses. Sans-IO."""

import struct
from collections import deque
from typing import Any, Final

from quorate_protocol.errors import ErrorCode, MalformedMessage
from quorate_protocol.kafka.apis import Api, ApiKey, api_of
from quorate_protocol.plain_data import dataclass

from .codec import decode, encode
from .convert import convert
from .frames import FRAME_SIZE_BYTES_MAX, FrameDecoder, encode_frame
from .headers import encode_request_header, read_response_header

__all__ = ("ClientConnection", "encode_request")

_CORRELATION_ID_MAX: Final = 2**31 - 1


def encode_request(
    api: Api, version: int, correlation_id: int, client_id: str | None, request: object
) -> bytes:
    """Encode header and body of a request, without a frame.

    ``request`` is of the canonical class, or of the class of ``version``.

    Raises:
        UnsupportedVersion: the version lacks a field that is set.
    """
    header = encode_request_header(
        api.key, version, correlation_id, client_id, api.request_header_version(version)
    )
    return header + encode(convert(request, api.request_class(version)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _InFlight:
    api: Api
    version: int
    correlation_id: int


class ClientConnection:
    """One connection to a Kafka node. Responses arrive in the order of the requests."""

    def __init__(
        self,
        client_id: str | None,
        *,
        frame_size_bytes_max: int = FRAME_SIZE_BYTES_MAX,
        in_flight_max: int = 5,
        correlation_id_first: int = 0,
    ) -> None:
        self._client_id = client_id
        self._frames = FrameDecoder(frame_size_bytes_max)
        self._in_flight_max = in_flight_max
        self._in_flight: deque[_InFlight] = deque()
        self._next_correlation_id = correlation_id_first

    @property
    def next_correlation_id(self) -> int:
        """The correlation id that the next request gets."""
        return self._next_correlation_id

    @property
    def in_flight(self) -> int:
        """Number of requests that wait for their response."""
        return len(self._in_flight)

    @property
    def can_send(self) -> bool:
        """Whether the bound of requests in flight allows another one."""
        return len(self._in_flight) < self._in_flight_max

    def send(self, request: object, version: int) -> bytes:
        """Take a canonical request and return the bytes to send. The caller checks ``can_send`` first.

        Raises:
            UnsupportedVersion: the version lacks a field that is set.
        """
        assert self.can_send, f"{self._in_flight_max} requests are in flight"
        api = api_of(request)
        correlation_id = self._next_correlation_id
        frame = encode_frame(encode_request(api, version, correlation_id, self._client_id, request))
        self._in_flight.append(_InFlight(api=api, version=version, correlation_id=correlation_id))
        self._next_correlation_id = 0 if correlation_id == _CORRELATION_ID_MAX else correlation_id + 1
        return frame

    def receive_data(self, data: bytes) -> list[tuple[int, Any]]:
        """Take received bytes; return the responses that they complete, as (correlation id, canonical response).

        Raises:
            FrameTooLarge: a frame is above the limit. The connection can't be used any more, here and below.
            MalformedMessage: a response does not decode, or answers no request.
        """
        return [self._receive_frame(frame) for frame in self._frames.feed(data)]

    def _receive_frame(self, frame: bytes) -> tuple[int, Any]:
        if not self._in_flight:
            raise MalformedMessage("a response came without a request")
        awaited = self._in_flight.popleft()
        api, version = awaited.api, awaited.version
        correlation_id, offset = read_response_header(frame, api.response_header_version(version))
        if correlation_id != awaited.correlation_id:
            raise MalformedMessage(f"response {correlation_id} came where {awaited.correlation_id} was due")
        if api.key is ApiKey.API_VERSIONS and _is_version_refused(frame, offset):
            # A peer that does not know the version answers in version 0, with the versions that it knows (KIP-511).
            version = 0
        return correlation_id, convert(
            decode(api.response_class(version), frame, offset), api.canonical_response
        )


def _is_version_refused(frame: bytes, offset: int) -> bool:
    if len(frame) < offset + 2:
        return False
    (error_code,) = struct.unpack_from(">h", frame, offset)
    return bool(error_code == ErrorCode.unsupported_version)
