"""The observer of quorate_protocol with connections: a feed of what is committed."""

import asyncio
from typing import TYPE_CHECKING, Any, Self

from quorate_protocol.errors import ErrorCode, ProtocolError
from quorate_protocol.kafka.apis import ApiKey
from quorate_protocol.observer import (
    BEGINNING,
    Ask,
    Endpoint,
    Event,
    Observer,
    ObserverConfig,
    Position,
    RefusedError,
)

from quorate_admin.config import Address, AdminConfig
from quorate_admin.errors import (
    AdminError,
    AuthenticationError,
    ConfigError,
    MismatchedEndpointError,
    ServerError,
    UnsupportedByServerError,
    UnsupportedEndpointError,
)
from quorate_admin.network.connection import Connection

if TYPE_CHECKING:
    from collections.abc import Mapping


class ObservingError(AdminError):
    """The leader sent data that can't be read, or that contradicts earlier data; the message says which."""


class MetadataFeed:
    """The events of a cluster's metadata log from a position on. Close it.

    Another feed can continue from `observer.position`.
    """

    def __init__(
        self,
        config: AdminConfig,
        *,
        position: Position = BEGINNING,
        observer_config: ObserverConfig | None = None,
    ) -> None:
        if not config.is_to_controllers:
            raise UnsupportedEndpointError(
                "only controllers serve the metadata log: give bootstrap.controllers instead of bootstrap.servers"
            )
        self._config = config
        endpoints = tuple(Endpoint(address.host, address.port) for address in config.bootstrap_controllers)
        self.observer = Observer(endpoints, observer_config or ObserverConfig(), position)
        self.contacts: Mapping[int, Address] = {}
        """The addresses of leaders by node id, where they differ from the advertised ones."""
        self.failures: dict[str, str] = {}
        """The reason for each address whose last request failed; empty after a successful request."""
        self._connection: Connection | None = None
        self._has_answer = False
        """Whether a controller has answered."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def exchange(self, max_wait_ms: int) -> tuple[Event, ...]:
        """Send one request, and return the events of its response in order; no events if it failed.

        `max_wait_ms` is how long the leader may wait for new records. Call this repeatedly; it waits between attempts
        as needed.

        Raises:
            ServerError, AuthenticationError, ConfigError, UnsupportedByServerError, ObservingError: a retry would
                fail too.
            MismatchedEndpointError: a broker is at the address, and no controller has answered so far.
        """
        ask = self.observer.next_ask(max_wait_ms)
        if ask.delay_ms:
            await asyncio.sleep(ask.delay_ms / 1000)
        address = self._address_of(ask.endpoint)
        try:
            response = await self._request(address, ask, max_wait_ms)
        except (AuthenticationError, ConfigError, UnsupportedByServerError):
            raise
        except AdminError as error:
            # Later a broker may get an address that was a controller's: then other controllers are asked.
            if isinstance(error, MismatchedEndpointError) and not self._has_answer:
                raise
            events = self.observer.failed(str(error))
        else:
            events = self._received(response)
            self._has_answer = True
        failure = self.observer.last_failure
        if failure is None:
            self.failures.clear()
        else:
            self.failures[str(address)] = failure.partition(": ")[2]
        return events

    def _received(self, response: Any) -> tuple[Event, ...]:
        try:
            return self.observer.receive(response)
        except RefusedError as error:
            needs = error.error_code is ErrorCode.cluster_authorization_failed
            hint = ": observing requires CLUSTER_ACTION on the cluster" if needs else ""
            raise ServerError(error.error_code, f"{error.message}{hint}") from error
        except ProtocolError as error:
            raise ObservingError(error.message) from error

    def _address_of(self, endpoint: Endpoint) -> Address:
        address = Address(endpoint.host, endpoint.port)
        if address in self._config.bootstrap_controllers:
            return address
        return self.contacts.get(self.observer.leader_id, address)

    async def _request(self, address: Address, ask: Ask, max_wait_ms: int) -> Any:
        connection = self._connection
        if connection is None or not connection.is_open or connection.address != address:
            await self.close()
            connection = self._connection = await Connection.open(
                address,
                client_id=self._config.client_id,
                timeout_ms=self._config.request_timeout_ms,
                setup_timeout_ms=self._config.socket_connection_setup_timeout_ms,
                security=self._config.security,
            )
            if not connection.supports(ApiKey.FETCH_SNAPSHOT):
                raise MismatchedEndpointError(
                    f"{address} is a broker, and only controllers serve the metadata log: "
                    "use controllers as bootstrap controllers (--bootstrap-controller)"
                )
        return await connection.request(ask.request, self._config.request_timeout_ms + max_wait_ms)
