"""The server's side of a connection: frames to requests, responses to frames. Sans-IO."""

from collections.abc import Mapping
from typing import Any

from quorate_protocol.errors import UnknownApi, UnsupportedVersion
from quorate_protocol.kafka.apis import CONTROLLER_APIS, Api, ApiKey
from quorate_protocol.plain_data import dataclass

from .codec import BoundedBytes, decode, encode
from .convert import convert
from .frames import encode_frame
from .headers import RequestHeader, encode_response_header, read_request_header, skip_tagged_fields
from .schema import zero_entity

__all__ = ("Request", "encode_response", "parse_head", "parse_request", "serialize_response")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A parsed request."""

    api: Api
    version: int
    """The version of the request, in which the peer expects the response."""
    correlation_id: int
    client_id: str | None
    body: Any
    """The canonical class of the API: see ``Api.canonical_request``."""
    raw: bytes
    """The received frame: header and body."""
    unsupported_version: int | None = None
    """The version of an ApiVersions request that is too new: the response is UNSUPPORTED_VERSION (KIP-511)."""


def parse_request(
    frame: bytes, apis: Mapping[int, Api] = CONTROLLER_APIS, elements_max: int | None = None
) -> Request:
    """Parse a frame's content, whose arrays may have ``elements_max`` elements in total.

    An ApiVersions request of an unknown version is returned as one of version 0, with ``unsupported_version``
    set.

    Raises:
        UnknownApi: the API is not among ``apis``. Kafka closes the connection, here and below.
        UnsupportedVersion: the API is not served in this version.
        TooManyElements: the arrays are too long.
        MalformedMessage: the bytes do not decode.
    """
    header, api, version, unsupported_version = _read_head(frame, apis)
    if unsupported_version is not None:
        body = api.canonical_request()
    else:
        offset = header.size_bytes
        if api.is_flexible(version):
            offset = skip_tagged_fields(frame, offset)
        data = frame
        if elements_max is not None and len(frame) > elements_max:  # an element has a byte at least
            data = BoundedBytes(frame, elements_max)
        body = convert(decode(api.request_class(version), data, offset), api.canonical_request)
    return Request(
        api=api,
        version=version,
        correlation_id=header.correlation_id,
        client_id=header.client_id,
        body=body,
        raw=frame,
        unsupported_version=unsupported_version,
    )


def parse_head(frame: bytes, apis: Mapping[int, Api] = CONTROLLER_APIS) -> Request:
    """Parse the header of a frame's content. All fields of the body have their defaults.

    Raises:
        UnknownApi, UnsupportedVersion, MalformedMessage: see :func:`parse_request`.
    """
    header, api, version, unsupported_version = _read_head(frame, apis)
    return Request(
        api=api,
        version=version,
        correlation_id=header.correlation_id,
        client_id=header.client_id,
        body=zero_entity(api.canonical_request),
        raw=frame,
        unsupported_version=unsupported_version,
    )


def _read_head(frame: bytes, apis: Mapping[int, Api]) -> tuple[RequestHeader, Api, int, int | None]:
    """Return header, API, version, and the version of an ApiVersions request that is too new."""
    header = read_request_header(frame)
    api = apis.get(header.api_key)
    if api is None:
        raise UnknownApi(f"API key {header.api_key} is not served here")
    if api.is_supported(header.version):
        return header, api, header.version, None
    if api.key is ApiKey.API_VERSIONS:
        return header, api, 0, header.version
    raise UnsupportedVersion(
        f"{api.name} version {header.version}: {api.version_min} to {api.version_max} are supported"
    )


def encode_response(api: Api, version: int, correlation_id: int, response: object) -> bytes:
    """Encode header and body of a response, without a frame; an envelope contains just these bytes.

    ``response`` is of the canonical class, or of the class of ``version``.

    Raises:
        UnsupportedVersion: the version lacks a field that is set.
    """
    header = encode_response_header(correlation_id, api.response_header_version(version))
    return header + encode(convert(response, api.response_class(version)))


def serialize_response(api: Api, version: int, correlation_id: int, response: object) -> bytes:
    """Encode a response with its frame; see :func:`encode_response`."""
    return encode_frame(encode_response(api, version, correlation_id, response))
