"""What all operations share: whom to ask, and asking until there is an answer."""

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

from quorate_protocol.errors import ErrorCode

from quorate_admin.config import AdminConfig
from quorate_admin.errors import ServerError, UnsupportedEndpointError
from quorate_admin.network.routing import To
from quorate_admin.network.transport import Transport

__all__ = ("Operations", "To")


class Operations:
    """Base of the mixins that make up the AdminClient.

    A mixin's methods build a canonical request, the class of the highest version, `_ask` it, and turn the
    canonical response into data of `quorate_admin.types`. They import the request classes inside the
    method: all of them together would cost each command a tenth of a second.
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
        """One canonical request to its canonical response.

        It is sent again, with backoff, until `timeout_ms` (default: `default_api_timeout_ms`) is over or
        `retries` are used up: when a connection fails or a request times out; when the node is not the
        controller or leader that was meant, which is followed; when the server asks to rebootstrap; when
        a code that `failures(response)` yields is retriable. Codes that are not yielded do not make it be
        sent again, whatever they are, except for those that say that another node is in charge as the
        response's own `error_code`. So yield a code if the whole request may be repeated after it.

        Returns the last response, also if codes inside it are errors: they are the caller's to tell.

        :raises ServerError: the response's own `error_code`, outside of any list, is an error.
        :raises UnreachableError: no node gave an answer in time; it says why, by address.
        :raises RequestTimeoutError: the last that was asked did not answer in time.
        :raises UnsupportedByServerError: the node has no version of this request that says what is meant.
        :raises UnsupportedEndpointError: nodes of this kind do not answer this.
        :raises AuthenticationError: TLS or SASL failed.
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
        """Refuse an operation that controllers do not answer (the table of KIP-919).

        :raises UnsupportedEndpointError: this client asks controllers.
        """
        if self._to_controllers:
            raise UnsupportedEndpointError(
                f"{operation} is not supported with bootstrap.controllers: give bootstrap.servers instead"
            )

    def _controllers_only(self, operation: str) -> None:
        """Refuse an operation that brokers do not answer.

        :raises UnsupportedEndpointError: this client asks brokers.
        """
        if not self._to_controllers:
            raise UnsupportedEndpointError(
                f"{operation} is not supported with bootstrap.servers: give bootstrap.controllers instead"
            )

    @property
    def _to_controllers(self) -> bool:
        """Whether this client asks controllers, not brokers."""
        return self._config.is_to_controllers

    def _server_timeout(self, timeout_ms: int | None = None) -> timedelta:
        """For the `timeout` field of a request: how long the server may work on it."""
        limit_ms = self._config.request_timeout_ms
        return timedelta(milliseconds=limit_ms if timeout_ms is None else min(limit_ms, timeout_ms))
