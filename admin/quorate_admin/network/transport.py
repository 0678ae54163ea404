"""Sends requests to nodes until one answers: the input and output around the pure routing.

It keeps one connection per address. For each attempt it asks the routing for the next step, does it, and reports the
result to the routing.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from random import Random
from typing import Any, Final, TypeVar

from quorate_protocol.errors import ErrorCode
from quorate_protocol.features import CONTROLLER_REGISTRATION_SINCE, METADATA_VERSION
from quorate_protocol.kafka.apis import CONTROLLER_READ_APIS, api_of
from quorate_protocol.kafka.enums import EndpointType

from quorate_admin.config import Address, AdminConfig
from quorate_admin.errors import (
    AdminError,
    ConnectionFailedError,
    ForeignProtocolError,
    MismatchedEndpointError,
    RebootstrapRequiredError,
    RequestTimeoutError,
    ServerError,
    UnreachableError,
    UnsupportedByServerError,
    UnsupportedEndpointError,
)
from quorate_admin.network.connection import Connection, Identity
from quorate_admin.network.routing import (
    DestinationRole,
    Discover,
    Misrouted,
    Refuse,
    Routing,
    Send,
    Target,
    To,
    Wait,
    backoff_ms,
)

logger = logging.getLogger(__name__)

Failures = Callable[[Any], Iterable[ErrorCode]]
_Response = TypeVar("_Response")

_NOT_IN_CHARGE: Final = frozenset({ErrorCode.not_controller, ErrorCode.not_leader_or_follower})
_SENDS_ON: Final = _NOT_IN_CHARGE | {ErrorCode.rebootstrap_required}

NO_LEVELS: Final = "it knows no metadata.version, because it has found no leader since its start"
AGAIN_AFTER_MS = 60_000
"""The same misrouted connection is logged as a warning once in this time; in between, on level DEBUG."""
REMEMBERED_MAX = 256


class Transport:
    """The connections of one client, and its routing."""

    def __init__(self, config: AdminConfig) -> None:
        self._config = config
        self._random = Random()
        self.routing = Routing(config, self._random)
        self._connections: dict[Address, Connection] = {}
        self._opening: dict[Address, asyncio.Lock] = {}
        self._discovering = asyncio.Lock()
        self._misrouted_log = MisroutedLog()

    async def ask(
        self, request: Any, to: To, *, failures: Failures | None = None, timeout_ms: int | None = None
    ) -> Any:
        """Send a request, with retries, and return the last response; see `Operations._ask`."""

        def code_to_retry(response: Any) -> ErrorCode | None:
            top = getattr(response, "error_code", ErrorCode.none)
            if top in _SENDS_ON:
                return top
            codes = failures(response) if failures else ()
            return next((code for code in codes if code in _SENDS_ON or code.retriable), None)

        api = api_of(request)
        needs_reads = self._config.is_to_controllers and api.key in CONTROLLER_READ_APIS

        async def send(connection: Connection, limit_ms: int) -> Any:
            if needs_reads:
                await connection.check_reads(limit_ms)
            return await connection.request(request, limit_ms)

        try:
            return await self._send_until_done(to, send, code_to_retry, timeout_ms)
        except NoNodeServesError as error:
            which = "of the cluster" if error.are_all_asked else "that answers"
            raise UnsupportedEndpointError(
                f"no controller {which} serves {api.name}, as those of Kafka do not; "
                "connect to brokers instead (--bootstrap-server)"
            ) from error

    async def api_versions(self, to: To, *, timeout_ms: int | None = None) -> Any:
        """A new ApiVersionsResponse; see `Operations._api_versions`."""
        return await self._send_until_done(
            to,
            lambda connection, limit_ms: connection.negotiate(limit_ms, connection.identity),
            lambda _: None,
            timeout_ms,
        )

    async def open_separate(
        self, address: Address, identity: Identity | None, *, timeout_ms: int
    ) -> Connection:
        """A separate connection, which the caller closes. Raises as `Connection.open` does."""
        return await Connection.open(
            address,
            client_id=self._config.client_id,
            timeout_ms=timeout_ms,
            security=self._config.security,
            identity=identity,
        )

    async def close(self) -> None:
        """Close all connections."""
        connections = list(self._connections.values())
        self._connections.clear()
        await asyncio.gather(*(connection.close() for connection in connections))

    # Requests with retries

    async def _send_until_done(
        self,
        to: To,
        ask: Callable[[Connection, int], Awaitable[_Response]],
        code_to_retry: Callable[[_Response], ErrorCode | None],
        timeout_ms: int | None,
    ) -> _Response:
        limit_ms = self._config.default_api_timeout_ms if timeout_ms is None else timeout_ms
        attempt = _Attempts(to, self._now_ms() + limit_ms)
        while True:
            target = await self._find(to, attempt)
            response = connection = None
            attempt.unanswered = None
            try:
                connection = await self._connection_to(target, attempt)
                response = await ask(connection, self._limit_ms(attempt))
            except UnsupportedByServerError as error:
                if to.role is not DestinationRole.READER or not self._config.is_to_controllers:
                    raise
                attempt.lacking.add(target.address)
                attempt.reasons[str(target.address)] = str(error)
                continue
            except (ConnectionFailedError, RequestTimeoutError) as error:
                if connection is not None and isinstance(error, RequestTimeoutError):
                    attempt.unanswered = error
                self._note_failure(target, error, attempt)
                if attempt.lacking and connection is None:
                    # The nodes that answer do not serve the request: do not wait for the others to start.
                    attempt.lacking.add(target.address)
                    attempt.has_unreached = True
                    continue
            else:
                self.routing.succeeded(target)
                code = code_to_retry(response)
                if self._is_of_another_cluster(target, response, attempt):
                    response = None
                elif code is None:
                    self.routing.confirmed()
                    return response
                else:
                    self._note_refusal(target, code, attempt)
            attempt.count += 1
            pause_ms = self._pause_ms(attempt)
            if attempt.count > self._config.retries or self._now_ms() + pause_ms >= attempt.deadline_ms:
                if response is not None:
                    return response
                raise attempt.failure()
            await asyncio.sleep(pause_ms / 1000)

    def _is_of_another_cluster(self, target: Target, response: Any, attempt: "_Attempts") -> bool:
        """Whether the response has the id of another cluster. Servers before KIP-1242 do not check that."""
        cluster_id = getattr(response, "cluster_id", None)
        misrouted = self.routing.identified(target, cluster_id, self._now_ms()) if cluster_id else None
        if misrouted is None:
            return False
        self._misrouted_log.log(misrouted, self._now_ms())
        attempt.reasons[str(target.address)] = f"it belongs to cluster {cluster_id}"
        return self.routing.is_recovering

    def _note_failure(self, target: Target, error: AdminError, attempt: "_Attempts") -> None:
        """Note a failed attempt. Raises UnreachableError once no known address speaks Kafka's protocol."""
        attempt.reasons[str(target.address)] = str(error)
        logger.debug("%s: %s", target, error)
        if isinstance(error, RebootstrapRequiredError):
            self._rebootstrap_required(target, is_misrouted=True)
        else:
            self.routing.failed(target, self._now_ms())
        if isinstance(error, ForeignProtocolError):
            attempt.foreign.add(target.address)
            if attempt.foreign.issuperset(self.routing.addresses):
                raise attempt.failure() from error

    def _note_refusal(self, target: Target, code: ErrorCode, attempt: "_Attempts") -> None:
        attempt.reasons[str(target.address)] = code.name.upper()
        logger.debug("%s: %s", target, code.name.upper())
        if code in _NOT_IN_CHARGE:
            self.routing.not_in_charge(target)
        elif code is ErrorCode.rebootstrap_required:
            self._rebootstrap_required(target, is_misrouted=False)

    def _rebootstrap_required(self, target: Target, *, is_misrouted: bool) -> None:
        misrouted = self.routing.rebootstrap_required(target, self._now_ms(), is_misrouted=is_misrouted)
        if misrouted is not None:
            self._misrouted_log.log(misrouted, self._now_ms())

    def _pause_ms(self, attempt: "_Attempts") -> int:
        config = self._config
        return backoff_ms(attempt.count, config.retry_backoff_ms, config.retry_backoff_max_ms, self._random)

    def _limit_ms(self, attempt: "_Attempts") -> int:
        """The timeout of the next request."""
        return max(1, min(self._config.request_timeout_ms, attempt.deadline_ms - self._now_ms()))

    def _now_ms(self) -> int:
        return int(asyncio.get_running_loop().time() * 1000)

    # Finding nodes

    async def _find(self, to: To, attempt: "_Attempts") -> Target:
        """The target of a request, after discovering the cluster if needed. Raises UnreachableError on timeout."""
        while True:
            step = self.routing.next_step(to, self._now_ms(), self._load, attempt.lacking)
            match step:
                case Send(target=target):
                    return target
                case Discover():
                    async with self._discovering:
                        await self._discover(to, attempt)
                case Wait(until_ms=until_ms, reason=reason):
                    if reason is not None:
                        attempt.reasons[str(to)] = reason
                    if until_ms >= attempt.deadline_ms:
                        raise attempt.failure()
                    await asyncio.sleep(max(1, until_ms - self._now_ms()) / 1000)
                case Refuse(reason=reason):
                    reasons = {**attempt.reasons, str(to): reason}
                    if attempt.lacking:
                        raise NoNodeServesError(reasons, are_all_asked=not attempt.has_unreached)
                    raise UnreachableError(reasons)

    async def _discover(self, to: To, attempt: "_Attempts") -> None:
        # Another task may have discovered the cluster while this one waited for the lock.
        step = self.routing.next_step(to, self._now_ms(), self._load)
        if not isinstance(step, Discover):
            return
        if self._now_ms() >= attempt.deadline_ms:
            raise attempt.failure()
        target = step.target
        try:
            connection = await self._connection_to(target, attempt)
            response = await self._describe_cluster(connection, self._limit_ms(attempt))
        except (ConnectionFailedError, RequestTimeoutError) as error:
            self._note_failure(target, error, attempt)
            return
        except ServerError as error:
            is_level = error.error_code is ErrorCode.unsupported_version
            if is_level and not await self._has_low_level(connection, self._limit_ms(attempt)):
                attempt.reasons[str(target.address)] = NO_LEVELS
            elif error.error_code.retriable or error.error_code is ErrorCode.rebootstrap_required:
                self._note_refusal(target, error.error_code, attempt)
            else:
                raise
            self.routing.failed(target, self._now_ms())
            return
        self.routing.succeeded(target)
        found = self.routing.discovered(
            target,
            cluster_id=response.cluster_id,
            nodes={node.broker_id: Address(node.host, node.port) for node in response.brokers},
            controller_id=response.controller_id,
            now_ms=self._now_ms(),
        )
        for misrouted in found:
            self._misrouted_log.log(misrouted, self._now_ms())
        await self._close_connections_to_unknown_nodes()

    async def _has_low_level(self, connection: Connection, limit_ms: int) -> bool:
        """Whether a controller's metadata.version is finalized, and below that of registrations (KIP-919).

        Those of stock Kafka know no level before they find a leader.
        """
        with suppress(ConnectionFailedError, RequestTimeoutError):
            response = await connection.negotiate(limit_ms, connection.identity)
            levels = {
                finalized_feature.name: finalized_feature.max_version_level
                for finalized_feature in response.finalized_features
            }
            is_known = response.finalized_features_epoch >= 0 and METADATA_VERSION in levels
            return is_known and levels[METADATA_VERSION] < CONTROLLER_REGISTRATION_SINCE
        return False

    async def _describe_cluster(self, connection: Connection, limit_ms: int) -> Any:
        """The response to DescribeCluster, which lists the nodes of either kind (KIP-700, KIP-919)."""
        is_to_controllers = self._config.is_to_controllers
        request = describe_cluster_request(is_to_controllers=is_to_controllers)
        try:
            response = await connection.request(request, limit_ms)
        except UnsupportedByServerError as error:
            kind = "controller" if is_to_controllers else "broker"
            raise UnsupportedEndpointError(
                f"{connection.address} is not a {kind} that supports DescribeCluster (since Kafka "
                f"{'3.7' if is_to_controllers else '2.8'})"
            ) from error
        raise_for_endpoint_type(connection.address, response.error_code, is_to_controllers=is_to_controllers)
        if response.error_code is not ErrorCode.none:
            raise ServerError(response.error_code, response.error_message)
        return response

    # Connections

    def _load(self, address: Address) -> int | None:
        connection = self._connections.get(address)
        return connection.in_flight if connection is not None and connection.is_open else None

    async def _connection_to(self, target: Target, attempt: "_Attempts") -> Connection:
        """An open connection whose server has checked its identity, if it supports that."""
        identity = _identity(target)
        address = target.address
        async with self._opening.setdefault(address, asyncio.Lock()):
            connection = self._connections.get(address)
            if connection is not None and not connection.is_open:
                del self._connections[address]
                await connection.close()
                connection = None
            limit_ms = self._limit_ms(attempt)
            if connection is None:
                connection = await Connection.open(
                    address,
                    client_id=self._config.client_id,
                    timeout_ms=limit_ms,
                    setup_timeout_ms=min(limit_ms, self._config.socket_connection_setup_timeout_ms),
                    security=self._config.security,
                    identity=identity,
                )
                self._connections[address] = connection
            elif identity is not None:
                try:
                    await connection.verify(identity, limit_ms)
                except RebootstrapRequiredError:
                    del self._connections[address]
                    await connection.close()
                    raise
            return connection

    async def _close_connections_to_unknown_nodes(self) -> None:
        """Close idle connections to nodes that no longer belong to the cluster."""
        known = self.routing.addresses
        strange = [
            address
            for address, connection in self._connections.items()
            if address not in known and not connection.in_flight
        ]
        gone = [self._connections.pop(address) for address in strange]
        for address in [
            opened for opened, lock in self._opening.items() if opened not in known and not lock.locked()
        ]:
            if address not in self._connections:
                del self._opening[address]
        await asyncio.gather(*(connection.close() for connection in gone))


class NoNodeServesError(UnreachableError):
    """Each node that answers does not serve the request."""

    def __init__(self, reasons: Mapping[str, str], *, are_all_asked: bool) -> None:
        super().__init__(reasons)
        self.are_all_asked = are_all_asked


class _Attempts:
    """The attempts of one request: deadline, count, and the last failure of each address."""

    def __init__(self, to: To, deadline_ms: int) -> None:
        self.to = to
        self.deadline_ms = deadline_ms
        self.count = 0
        self.reasons: dict[str, str] = {}
        self.lacking: set[Address] = set()
        """The nodes that do not serve the request, and that are not asked again."""
        self.foreign: set[Address] = set()
        """The addresses that do not speak Kafka's protocol."""
        self.has_unreached = False
        """Whether one of them could not be asked."""
        self.unanswered: RequestTimeoutError | None = None
        """Set if the last attempt sent the request and got no response: it may have been carried out."""

    def failure(self) -> AdminError:
        """The error to raise after the last attempt."""
        if self.unanswered is not None:
            return self.unanswered
        return UnreachableError(
            self.reasons or {str(self.to): "the timeout expired before a node could be asked"}
        )


class MisroutedLog:
    """Logs the misrouted connections of one client, each once in a while. The routing counts them."""

    def __init__(self) -> None:
        self._warned_at_ms: dict[Misrouted, int] = {}

    def log(self, misrouted: Misrouted, now_ms: int) -> None:
        """Log one with the identity that was expected and the one that was found, as far as they are known."""
        warned_at_ms = self._warned_at_ms.get(misrouted)
        is_due = warned_at_ms is None or now_ms - warned_at_ms >= AGAIN_AFTER_MS
        if is_due:
            if len(self._warned_at_ms) >= REMEMBERED_MAX:
                self._warned_at_ms.clear()
            self._warned_at_ms[misrouted] = now_ms
        logger.log(
            logging.WARNING if is_due else logging.DEBUG,
            "misrouted connection to %s: expected %s, found %s",
            misrouted.address,
            _expected(misrouted),
            _found(misrouted),
        )


def describe_cluster_request(
    *,
    is_to_controllers: bool,
    include_authorized_operations: bool = False,
    include_fenced_brokers: bool = False,
) -> Any:
    """The canonical request for brokers or, if `is_to_controllers`, for controllers (KIP-700, KIP-919).

    `include_fenced_brokers` (KIP-1073) has no effect for controllers.
    """
    from quorate_protocol.kafka.generated.describe_cluster_request import (  # noqa: PLC0415 - tools that fail early do not need it
        DescribeClusterRequest,
    )

    return DescribeClusterRequest(
        include_cluster_authorized_operations=include_authorized_operations,
        endpoint_type=EndpointType.CONTROLLER if is_to_controllers else EndpointType.BROKER,
        include_fenced_brokers=include_fenced_brokers and not is_to_controllers,
    )


def raise_for_endpoint_type(address: Address, error_code: ErrorCode, *, is_to_controllers: bool) -> None:
    """Check that the node is of the expected kind, a broker or a controller (KIP-919).

    Raises:
        MismatchedEndpointError: the node is of the other kind.
        UnsupportedEndpointError: the controller does not know its peers yet.
    """
    if error_code is ErrorCode.mismatched_endpoint_type:
        raise MismatchedEndpointError(
            f"{address} is a broker, not a controller: use it as a bootstrap server (--bootstrap-server)"
            if is_to_controllers
            else f"{address} is a controller, not a broker: use it as a bootstrap controller "
            "(--bootstrap-controller)"
        )
    if error_code is ErrorCode.unsupported_endpoint_type:
        raise UnsupportedEndpointError(
            f"{address} does not know the other controllers, which requires metadata.version 3.7-IV0 or later; "
            "connect to brokers instead (--bootstrap-server)"
        )


def _identity(target: Target) -> Identity | None:
    if not target.is_checked or target.cluster_id is None or target.node_id is None:
        return None
    return Identity(target.cluster_id, target.node_id)


def _expected(misrouted: Misrouted) -> str:
    if misrouted.expected_node_id is None:
        return f"cluster {misrouted.expected_cluster_id}"
    return f"node {misrouted.expected_node_id} of cluster {misrouted.expected_cluster_id}"


def _found(misrouted: Misrouted) -> str:
    if misrouted.found_cluster_id is None:
        return "another node"
    if misrouted.found_node_id is None:
        return f"a node of cluster {misrouted.found_cluster_id}"
    return f"node {misrouted.found_node_id} of cluster {misrouted.found_cluster_id}"
