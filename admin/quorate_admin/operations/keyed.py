"""Operations on several keys: a result for each, and retries for those that may succeed later."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, Generic, TypeVar

from quorate_protocol.errors import ErrorCode
from quorate_protocol.plain_data import dataclass

from quorate_admin.errors import (
    AdminError,
    AuthenticationError,
    ServerError,
    UnsupportedByServerError,
    UnsupportedEndpointError,
)
from quorate_admin.network.routing import To
from quorate_admin.operations.base import Operations
from quorate_admin.results import Results

NODES_AT_ONCE_MAX: Final = 32
"""The maximum number of nodes that are queried at the same time."""

_MILLISECOND: Final = timedelta(milliseconds=1)

K = TypeVar("K")
V = TypeVar("V")


class ThrottlingQuotaExceededError(ServerError):
    """The client exceeded its quota; it may retry after `throttle_time_ms` (KIP-599)."""

    def __init__(self, message: str | None, throttle_time_ms: int) -> None:
        super().__init__(ErrorCode.throttling_quota_exceeded, message)
        self.throttle_time_ms = throttle_time_ms


@dataclass(frozen=True, slots=True)
class Outcome(Generic[K, V]):
    """The result for one key of a response. `value` is only valid without an error."""

    key: K
    value: V
    error_code: ErrorCode = ErrorCode.none
    message: str | None = None


def outcomes(
    results: Iterable[Any], key: Callable[[Any], K], value: Callable[[Any], Any] = lambda _: None
) -> Iterator[Outcome[K, Any]]:
    """The outcomes in a list of a response: `key` and `value` read an entry, which has its own error code."""
    for result in results:
        yield Outcome(key(result), value(result), result.error_code, getattr(result, "error_message", None))


def error_of(error_code: ErrorCode, message: str | None = None) -> ServerError | None:
    """The error for a code; None for code NONE."""
    return None if error_code is ErrorCode.none else ServerError(error_code, message)


class KeyedOperations(Operations):
    """Base of the operations that return a result for each key."""

    async def _ask_each(
        self,
        keys: Iterable[K],
        request_for: Callable[[Sequence[K], timedelta], Any],
        outcomes_of: Callable[[Any, Sequence[K]], Iterable[Outcome[K, V]]],
        *,
        to: To = To.CONTROLLER,
        retry_on_quota_violation: bool = False,
        timeout_ms: int | None = None,
    ) -> Results[K, V]:
        """Send a request for all keys. Keys that found no controller or were throttled are retried until the timeout.

        Args:
            request_for: makes the request for some keys, with the time that the server may work on it.
            outcomes_of: the outcomes of these keys in the response. Those of other keys are ignored.

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
                codes = {outcome.error_code for outcome in outcomes_of(response, asked)}
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
            throttle_time_ms = response.throttle_time // _MILLISECOND
            outcomes = {outcome.key: outcome for outcome in outcomes_of(response, asked)}
            left = []
            for key in asked:
                errors.pop(key, None)
                outcome = outcomes.get(key)
                if outcome is not None and outcome.error_code is ErrorCode.none:
                    values[key] = outcome.value
                    continue
                errors[key] = error = _error(key, outcome, throttle_time_ms)
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
        """Returns a function for the time left to a call that takes several requests: milliseconds, at least 1."""
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

        async def ask_one(to: To) -> Results[K, V] | AdminError:
            async with room:
                try:
                    return await ask(to, keys[to])
                except AdminError as error:
                    return error

        responses = dict(zip(keys, await asyncio.gather(*map(ask_one, keys)), strict=True))
        silent = [
            response
            for response in responses.values()
            if isinstance(response, AdminError) and not isinstance(response, ServerError)
        ]
        if silent and len(silent) == len(responses):
            raise silent[0]
        values: dict[K, V] = {}
        errors: dict[K, ServerError] = {}
        for to, answer in responses.items():
            if isinstance(answer, AdminError):
                errors.update(dict.fromkeys(keys[to], _of_a_node(answer)))
            else:
                values.update(answer.values)
                errors.update(answer.errors)
        return Results(values, errors)

    @property
    def _elsewhere(self) -> frozenset[ErrorCode]:
        """Codes that mean: nothing was done, ask the controller. Only controllers return the code of raft."""
        if self._to_controllers:
            return frozenset({ErrorCode.not_controller, ErrorCode.not_leader_or_follower})
        return frozenset({ErrorCode.not_controller})


def _error(key: object, outcome: Outcome[Any, Any] | None, throttle_time_ms: int) -> ServerError:
    if outcome is None:
        return ServerError(ErrorCode.unknown_server_error, f"the response has no result for {key}")
    if outcome.error_code is ErrorCode.throttling_quota_exceeded:
        return ThrottlingQuotaExceededError(outcome.message, throttle_time_ms)
    return ServerError(outcome.error_code, outcome.message)


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
