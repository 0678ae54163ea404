"""What can go wrong when a cluster is asked for something."""

from collections.abc import Mapping

from quorate_protocol.errors import ErrorCode

__all__ = (
    "AdminError",
    "AuthenticationError",
    "ConfigError",
    "ConnectionFailedError",
    "ErrorCode",
    "MismatchedEndpointError",
    "RebootstrapRequiredError",
    "RefreshRefusedError",
    "RequestTimeoutError",
    "ServerError",
    "TlsExpectedError",
    "UnreachableError",
    "UnsupportedByServerError",
    "UnsupportedEndpointError",
)


class AdminError(Exception):
    """Base of all errors of this package."""


class ConfigError(AdminError, ValueError):
    """A configuration is wrong; the message names the key, the value and what is allowed."""


class UnreachableError(AdminError):
    """No node gave an answer before the time was up; `reasons` says why, by address."""

    def __init__(self, reasons: Mapping[str, str]) -> None:
        super().__init__(
            "; ".join(
                reason if address in reason else f"{address}: {reason}" for address, reason in reasons.items()
            )
        )
        self.reasons = reasons


class ConnectionFailedError(AdminError):
    """A connection could not be made, or ended before the answer came."""


class TlsExpectedError(ConnectionFailedError):
    """The server speaks TLS, and was spoken to without."""


class RequestTimeoutError(AdminError):
    """No answer came in time; the request may have been carried out all the same."""


class UnsupportedByServerError(AdminError):
    """The server has no version of a request that can carry what was asked."""


class UnsupportedEndpointError(AdminError):
    """This can't be asked of this kind of node: a matter for brokers at a controller, or the other way.

    Also a controller whose metadata.version is too old to know its peers (KIP-919).
    """


class MismatchedEndpointError(UnsupportedEndpointError):
    """A broker was named as a bootstrap controller, or a controller as a bootstrap server (KIP-919)."""


class AuthenticationError(AdminError):
    """TLS or SASL failed: asking again with the same configuration would fail again."""


class RebootstrapRequiredError(ConnectionFailedError):
    """The node at an address is not the one that was expected there (KIP-1242)."""


class RefreshRefusedError(AdminError):
    """A controller's registration is not refreshed, because the controller may be alive."""


class ServerError(AdminError):
    """The server refused; `error_code` is Kafka's, `message` the server's own words if it has any."""

    def __init__(self, error_code: ErrorCode, message: str | None = None) -> None:
        super().__init__(f"{error_code.name.upper()}{f': {message}' if message else ''}")
        self.error_code = error_code
        self.message = message
