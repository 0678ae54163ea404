"""What can go wrong when a cluster is asked for something."""

from collections.abc import Mapping

from quorate_protocol.errors import ErrorCode


class AdminError(Exception):
    """Base of all errors of this package."""


class UnreachableError(AdminError):
    """None of the addresses gave an answer; `reasons` says why, by address."""

    def __init__(self, reasons: Mapping[str, str]) -> None:
        super().__init__("; ".join(f"{address}: {reason}" for address, reason in reasons.items()))
        self.reasons = reasons


class ConnectionFailedError(AdminError):
    """A connection could not be made, or ended before the answer came."""


class RequestTimeoutError(AdminError):
    """No answer came in time; the request may have been carried out all the same."""


class UnsupportedByServerError(AdminError):
    """The server has no version of a request that can carry what was asked."""


class ServerError(AdminError):
    """The server refused; `error_code` is Kafka's."""

    def __init__(self, error_code: ErrorCode, message: str | None = None) -> None:
        super().__init__(f"{error_code.name.upper()}{f': {message}' if message else ''}")
        self.error_code = error_code
