"""Errors of the protocol: a peer sent, or asked for, something that we can't accept.

Each carries the Kafka error code for the response. A mistake of our own is an ``assert`` instead.
"""

from typing import Final

from quorate_protocol.error_codes import ErrorCode

__all__ = (
    "ArrayTooLong",
    "CorruptBatch",
    "ErrorCode",
    "FrameTooLarge",
    "MalformedMessage",
    "ProtocolError",
    "RecordsTooLarge",
    "StringTooLong",
    "TooManyElements",
    "UnknownApi",
    "UnknownRecord",
    "UnsupportedCompression",
    "UnsupportedVersion",
    "ValueTooLong",
    "error_code_of",
)


_CODES_BY_NUMBER: Final[dict[int, ErrorCode]] = {int(code): code for code in ErrorCode}


def error_code_of(number: int) -> ErrorCode:
    """Return the error code with this number; ``unknown_server_error`` for a number that we do not know."""
    return _CODES_BY_NUMBER.get(number, ErrorCode.unknown_server_error)


class ProtocolError(Exception):
    """A peer's message, or a file's content, is not acceptable."""

    def __init__(self, error_code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error_code = error_code
        self.message = message


class FrameTooLarge(ProtocolError):  # noqa: N818
    """A frame announces more bytes than the limit, or a negative number: the connection can't be used any more."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.invalid_request, message)


class MalformedMessage(ProtocolError):  # noqa: N818
    """Bytes do not decode as the expected message: truncated, garbage, impossible lengths."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.invalid_request, message)


class TooManyElements(MalformedMessage):
    """The arrays of a message have more elements in total than its sender may send."""


class UnsupportedVersion(ProtocolError):  # noqa: N818
    """A known message in a version that is not supported, or that lacks a field which is set."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.unsupported_version, message)


class ValueTooLong(ProtocolError):  # noqa: N818
    """A value that is longer than Kafka's messages and records may have: readers refuse it."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.invalid_request, message)


class StringTooLong(ValueTooLong):
    """A string with more bytes than Kafka's messages and records may have."""


class ArrayTooLong(ValueTooLong):
    """An array with more elements than Kafka's messages and records may have."""


class RecordsTooLarge(ProtocolError):  # noqa: N818
    """A record, or records that have to share a batch, of more bytes than readers accept."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.record_list_too_large, message)


class UnknownApi(ProtocolError):  # noqa: N818
    """An API key that we do not serve. Kafka closes the connection."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.invalid_request, message)


class CorruptBatch(ProtocolError):  # noqa: N818
    """A record batch is truncated, has a wrong checksum or contradicts itself."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.corrupt_message, message)


class UnsupportedCompression(ProtocolError):  # noqa: N818
    """A compressed record batch: KRaft never writes one into the metadata log."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.unsupported_compression_type, message)


class UnknownRecord(ProtocolError):  # noqa: N818
    """A metadata or control record of a type or version that we do not know."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.unknown_server_error, message)
