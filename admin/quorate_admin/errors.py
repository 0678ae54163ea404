"""The errors of the admin client."""

from collections.abc import Mapping

from quorate_protocol.errors import ErrorCode as ErrorCode  # noqa: PLC0414 - exported, for ServerError


class AdminError(Exception):
    """Base of all errors of this package."""


class ConfigError(AdminError, ValueError):
    """A configuration is invalid; the message has the key, the value and what is allowed."""


class UnreachableError(AdminError):
    """No node answered before the timeout; `reasons` has the reason for each address."""

    def __init__(self, reasons: Mapping[str, str]) -> None:
        super().__init__(
            "; ".join(
                reason if address in reason else f"{address}: {reason}" for address, reason in reasons.items()
            )
        )
        self.reasons = reasons


class NoLeaderError(AdminError):
    """The quorum has no leader; the message has the voters that do not answer."""


class ConnectionFailedError(AdminError):
    """A connection could not be opened, or was closed before the response arrived."""


class ForeignProtocolError(ConnectionFailedError):
    """The port does not speak Kafka's protocol. A retry would find the same."""


class TlsExpectedError(ForeignProtocolError):
    """The listener uses TLS, but the client is configured without."""


class RequestTimeoutError(AdminError):
    """No response arrived before the timeout. The server may have carried the request out."""


class UnsupportedByServerError(AdminError):
    """The server supports no version of the request that can express the arguments."""


class UnsupportedEndpointError(AdminError):
    """Nodes of this kind do not support the operation: it needs brokers instead of controllers, or vice versa.

    Also raised for a controller whose metadata.version is too old for it to know its peers (KIP-919).
    """


class MismatchedEndpointError(UnsupportedEndpointError):
    """A broker was named as a bootstrap controller, or a controller as a bootstrap server (KIP-919)."""


class AuthenticationError(AdminError):
    """TLS or SASL failed. A retry with the same configuration would fail too."""


class RebootstrapRequiredError(ConnectionFailedError):
    """The node at an address is not the expected one (KIP-1242)."""


class RefreshRefusedError(AdminError):
    """A controller's registration was not refreshed, because the controller may be running."""


class ServerError(AdminError):
    """The server returned an error: `error_code` is Kafka's, `message` the server's message, if there is one.

    Without a message, the text is Kafka's own for the code.
    """

    def __init__(self, error_code: ErrorCode, message: str | None = None) -> None:
        text = message or error_code.text
        super().__init__(f"{error_code.name.upper()}{f': {text}' if text else ''}")
        self.error_code = error_code
        self.message = message
