"""Request and response headers, which precede each message inside a frame."""

import struct
from typing import Final

from quorate_protocol.errors import MalformedMessage
from quorate_protocol.plain_data import dataclass

from .codec import read_unsigned_varint
from .schema import TAGGED_FIELDS_MAX

__all__ = (
    "RequestHeader",
    "encode_request_header",
    "encode_response_header",
    "read_request_header",
    "read_response_header",
    "skip_tagged_fields",
)

_REQUEST: Final = struct.Struct(">hhih")
_CORRELATION: Final = struct.Struct(">i")
_NO_TAGS: Final = b"\x00"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestHeader:
    """The part of a request header before its tagged fields, the same in all versions."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    size_bytes: int


def read_request_header(frame: bytes) -> RequestHeader:
    """Read the part of a request header that all versions share.

    Raises:
        MalformedMessage: the bytes are too few, or the client id is not UTF-8.
    """
    if len(frame) < _REQUEST.size:
        raise MalformedMessage(f"a request of {len(frame)} bytes has no header")
    api_key, version, correlation_id, length = _REQUEST.unpack_from(frame)
    end = _REQUEST.size + max(length, 0)
    if length < -1 or end > len(frame):
        raise MalformedMessage(
            f"client id has length {length}, but {len(frame) - _REQUEST.size} bytes are left"
        )
    try:
        client_id = frame[_REQUEST.size : end].decode() if length >= 0 else None
    except UnicodeDecodeError as error:
        raise MalformedMessage("client id is not UTF-8") from error
    return RequestHeader(
        api_key=api_key, version=version, correlation_id=correlation_id, client_id=client_id, size_bytes=end
    )


def skip_tagged_fields(data: bytes, offset: int) -> int:
    """Return the offset after a header's tagged fields, of which Kafka defines none yet.

    Raises:
        MalformedMessage: they are truncated, or too many.
    """
    try:
        count, offset = read_unsigned_varint(data, offset)
        if count > TAGGED_FIELDS_MAX:
            raise MalformedMessage(
                f"a header has {count} tagged fields, at most {TAGGED_FIELDS_MAX} are allowed"
            )
        for _ in range(count):
            _, offset = read_unsigned_varint(data, offset)
            size_bytes, offset = read_unsigned_varint(data, offset)
            offset += size_bytes
    except IndexError as error:
        raise MalformedMessage("a header's tagged fields are truncated") from error
    if offset > len(data):
        raise MalformedMessage("a header's tagged fields are truncated")
    return offset


def encode_request_header(
    api_key: int, version: int, correlation_id: int, client_id: str | None, header_version: int
) -> bytes:
    """Encode a request header of version 1 or 2."""
    encoded = (client_id or "").encode()
    header = (
        _REQUEST.pack(api_key, version, correlation_id, -1 if client_id is None else len(encoded)) + encoded
    )
    return header + _NO_TAGS if header_version == 2 else header


def encode_response_header(correlation_id: int, header_version: int) -> bytes:
    """Encode a response header of version 0 or 1."""
    header = _CORRELATION.pack(correlation_id)
    return header + _NO_TAGS if header_version == 1 else header


def read_response_header(frame: bytes, header_version: int) -> tuple[int, int]:
    """Read a response header: (correlation id, offset of the body).

    Raises:
        MalformedMessage: the bytes are too few.
    """
    if len(frame) < _CORRELATION.size:
        raise MalformedMessage(f"a response of {len(frame)} bytes has no header")
    (correlation_id,) = _CORRELATION.unpack_from(frame)
    offset = skip_tagged_fields(frame, _CORRELATION.size) if header_version == 1 else _CORRELATION.size
    return correlation_id, offset
