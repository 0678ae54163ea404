"""What all operations share: the choice of nodes, retries, and results by key."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, Generic, TypeVar

from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.field_types import MILLISECOND
from quorate_protocol.plain_data import dataclass

from quorate_admin.config import AdminConfig
from quorate_admin.errors import (
    AdminError,
    AuthenticationError,
    ServerError,
    UnsupportedByServerError,
    UnsupportedEndpointError,
)
from quorate_admin.network.routing import To
from quorate_admin.network.transport import Transport
from quorate_admin.results import Results

NODES_AT_ONCE_MAX: Final = 32
"""The maximum number of nodes that are queried at the same time."""

K = TypeVar("K")
V = TypeVar("V")


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


class ThrottlingQuotaExceededError(ServerError):
    """The client exceeded its quota; it may retry after `throttle_time_ms` (KIP-599)."""

    def __init__(self, message: str | None, throttle_time_ms: int) -> None:
        super().__init__(ErrorCode.throttling_quota_exceeded, message)
        self.throttle_time_ms = throttle_time_ms


@dataclass(frozen=True, slots=True)
class KeyResult(Generic[K, V]):
    """The result for one key of a response. `value` is only valid without an error."""

    key: K
    value: V
    error_code: ErrorCode = ErrorCode.none
    message: str | None = None


def key_results(
    results: Iterable[Any], key: Callable[[Any], K], value: Callable[[Any], Any] = lambda _: None
) -> Iterator[KeyResult[K, Any]]:
    """The results in a list of a response: `key` and `value` read an entry, which has its own error code."""
    for result in results:
        yield KeyResult(key(result), value(result), result.error_code, getattr(result, "error_message", None))


def error_of(error_code: ErrorCode, message: str | None = None) -> ServerError | None:
    """The error for a code; None for code NONE."""
    return None if error_code is ErrorCode.none else ServerError(error_code, message)


class KeyedOperations(Operations):
    """Base of the operations that return a result for each key."""

    async def _ask_each(
        self,
        keys: Iterable[K],
        request_for: Callable[[Sequence[K], timedelta], Any],
        results_of: Callable[[Any, Sequence[K]], Iterable[KeyResult[K, V]]],
        *,
        to: To = To.CONTROLLER,
        retry_on_quota_violation: bool = False,
        timeout_ms: int | None = None,
    ) -> Results[K, V]:
        """Send a request for all keys. Keys that found no controller or were throttled are retried until the timeout.

        Args:
            request_for: makes the request for some keys, with the time that the server may work on it.
            results_of: the results of these keys in the response. Those of other keys are ignored.

        Raises:
            AdminError: as `_ask`, if the first request is not answered. If a retry is not answered, its keys
                keep their earlier errors.
        """
        left_ms = self._countdown(timeout_ms)
        backoff_ms = self._config.retry_backoff_ms
        values: dict[K, V] = {}
        errors: dict[K, ServerError] = {}
        left = list(dict.fromkeys(keys))
        while left:
            asked = left

            def gone(response: Any, asked: Sequence[K] = asked) -> Iterable[ErrorCode]:
                # The whole request may be repeated only if no part of it was carried out.
                codes = {result.error_code for result in results_of(response, asked)}
                return codes if codes <= self._elsewhere else ()

            try:
                response = await self._ask(
                    request_for(asked, self._server_timeout(left_ms())),
                    to,
                    failures=gone,
                    timeout_ms=left_ms(),
                )
            except AdminError:
                if not values and not errors:
                    raise
                break
            throttle_time_ms = response.throttle_time // MILLISECOND
            results = {result.key: result for result in results_of(response, asked)}
            left = []
            for key in asked:
                errors.pop(key, None)
                result = results.get(key)
                if result is not None and result.error_code is ErrorCode.none:
                    values[key] = result.value
                    continue
                errors[key] = error = _error(key, result, throttle_time_ms)
                is_throttled = error.error_code is ErrorCode.throttling_quota_exceeded
                if error.error_code in self._elsewhere or (is_throttled and retry_on_quota_violation):
                    left.append(key)
            wait_ms = max(throttle_time_ms, backoff_ms)
            if not left or wait_ms >= left_ms():
                break
            await asyncio.sleep(wait_ms / 1000)
            backoff_ms = min(2 * backoff_ms, self._config.retry_backoff_max_ms)
        return Results(values, errors)

    def _countdown(self, timeout_ms: int | None) -> Callable[[], int]:
        """Return a function for the time left to a call that takes several requests: milliseconds, at least 1."""
        clock = asyncio.get_running_loop().time
        limit_ms = self._config.default_api_timeout_ms if timeout_ms is None else timeout_ms
        deadline = clock() + limit_ms / 1000
        return lambda: max(1, round((deadline - clock()) * 1000))

    async def _ask_nodes(
        self, keys: Mapping[To, Sequence[K]], ask: Callable[[To, Sequence[K]], Awaitable[Results[K, V]]]
    ) -> Results[K, V]:
        """Send requests to several nodes and merge the results; a node that fails is an error of its keys.

        Raises:
            AdminError: no node answered, not even with an error; it is the error of the first.
        """
        room = asyncio.Semaphore(NODES_AT_ONCE_MAX)

        async def ask_node(to: To) -> Results[K, V] | AdminError:
            async with room:
                try:
                    return await ask(to, keys[to])
                except AdminError as error:
                    return error

        responses = dict(zip(keys, await asyncio.gather(*map(ask_node, keys)), strict=True))
        silent = [
            response
            for response in responses.values()
            if isinstance(response, AdminError) and not isinstance(response, ServerError)
        ]
        if silent and len(silent) == len(responses):
            raise silent[0]
        values: dict[K, V] = {}
        errors: dict[K, ServerError] = {}
        for to, response in responses.items():
            if isinstance(response, AdminError):
                errors.update(dict.fromkeys(keys[to], _of_a_node(response)))
            else:
                values.update(response.values)
                errors.update(response.errors)
        return Results(values, errors)

    @property
    def _elsewhere(self) -> frozenset[ErrorCode]:
        """Codes that mean: nothing was done, ask the controller. Only controllers return the code of raft."""
        if self._to_controllers:
            return frozenset({ErrorCode.not_controller, ErrorCode.not_leader_or_follower})
        return frozenset({ErrorCode.not_controller})


def _error(key: object, result: KeyResult[Any, Any] | None, throttle_time_ms: int) -> ServerError:
    if result is None:
        return ServerError(ErrorCode.unknown_server_error, f"the response has no result for {key}")
    if result.error_code is ErrorCode.throttling_quota_exceeded:
        return ThrottlingQuotaExceededError(result.message, throttle_time_ms)
    return ServerError(result.error_code, result.message)


def _of_a_node(error: AdminError) -> ServerError:
    """The error of a node, as the error of one of its keys."""
    if isinstance(error, ServerError):
        return error
    code = ErrorCode.request_timed_out
    if isinstance(error, AuthenticationError):
        code = ErrorCode.sasl_authentication_failed
    elif isinstance(error, UnsupportedByServerError):
        code = ErrorCode.unsupported_version
    elif isinstance(error, UnsupportedEndpointError):
        code = ErrorCode.unsupported_endpoint_type
    return ServerError(code, str(error))
