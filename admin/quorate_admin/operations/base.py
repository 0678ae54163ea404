"""What all operations share: the choice of nodes, and sending a request until it is answered."""

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

from quorate_protocol.errors import ErrorCode

from quorate_admin.config import AdminConfig
from quorate_admin.errors import ServerError, UnsupportedEndpointError
from quorate_admin.network.routing import To
from quorate_admin.network.transport import Transport


class Operations:
    """Base of the mixins that make up the AdminClient.

    A method builds a canonical request (the class of the highest version), sends it with `_ask`, and converts the
    canonical response to data of `quorate_admin.types`. It imports the request classes itself, because importing all
    of them would delay the start of each command by a tenth of a second.
    """

    _config: AdminConfig
    _transport: Transport

    async def _ask(
        self,
        request: Any,
        to: To = To.CONTROLLER,
        *,
        failures: Callable[[Any], Iterable[ErrorCode]] | None = None,
        timeout_ms: int | None = None,
    ) -> Any:
        """Send a canonical request and return its canonical response.

        The request is retried with backoff until `timeout_ms` (default: `default_api_timeout_ms`) or `retries` are
        exhausted: if a connection fails or a request times out; if the node is not the expected controller or leader;
        if the server requests a rebootstrap; if `failures(response)` yields a retriable code. Other codes in the
        response do not cause a retry, except a top-level `error_code` that means that another node is the controller
        or leader. So `failures` yields the codes after which the whole request may be repeated.

        The last response is returned even if codes inside it are errors: the caller reports those.

        Raises:
            ServerError: the response's own `error_code`, outside of any list, is an error.
            UnreachableError: no node answered in time; it has the reason for each address.
            RequestTimeoutError: the last request was sent, but not answered in time.
            UnsupportedByServerError: the node supports no version that can express the request.
            UnsupportedEndpointError: nodes of this kind do not support the request.
            AuthenticationError: TLS or SASL failed.
        """
        response = await self._transport.ask(request, to, failures=failures, timeout_ms=timeout_ms)
        error_code = getattr(response, "error_code", ErrorCode.none)
        if error_code is not ErrorCode.none:
            raise ServerError(error_code, getattr(response, "error_message", None))
        return response

    async def _api_versions(self, to: To = To.ANY, *, timeout_ms: int | None = None) -> Any:
        """A fresh ApiVersionsResponse of a node. Errors as in `_ask`."""
        return await self._transport.api_versions(to, timeout_ms=timeout_ms)

    def _brokers_only(self, operation: str) -> None:
        """Check that the client connects to brokers: controllers do not support the operation (KIP-919).

        Raises:
            UnsupportedEndpointError: the client connects to controllers.
        """
        if self._to_controllers:
            raise UnsupportedEndpointError(
                f"{operation} is not supported with bootstrap.controllers: give bootstrap.servers instead"
            )

    def _controllers_only(self, operation: str) -> None:
        """Check that the client connects to controllers: brokers do not support the operation.

        Raises:
            UnsupportedEndpointError: the client connects to brokers.
        """
        if not self._to_controllers:
            raise UnsupportedEndpointError(
                f"{operation} is not supported with bootstrap.servers: give bootstrap.controllers instead"
            )

    @property
    def _to_controllers(self) -> bool:
        """Whether the client connects to controllers, not brokers."""
        return self._config.is_to_controllers

    def _server_timeout(self, timeout_ms: int | None = None) -> timedelta:
        """The value of a request's `timeout` field: how long the server may work on it."""
        limit_ms = self._config.request_timeout_ms
        return timedelta(milliseconds=limit_ms if timeout_ms is None else min(limit_ms, timeout_ms))
