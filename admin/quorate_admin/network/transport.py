"""Asks nodes until one gives the answer: connections, and what the routing says."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from quorate_protocol.errors import ErrorCode

from quorate_admin.config import AdminConfig
from quorate_admin.errors import AdminError, ConnectionFailedError, UnreachableError
from quorate_admin.network.address import Address
from quorate_admin.network.connection import Connection
from quorate_admin.network.routing import Role, To

CONNECT_TIMEOUT_MS = 5_000
_NOT_HERE = (ErrorCode.not_controller, ErrorCode.not_leader_or_follower)

Failures = Callable[[Any], Iterable[ErrorCode]]


class Transport:
    """The connections of one client."""

    def __init__(self, config: AdminConfig) -> None:
        self._config = config
        self._addresses = list(config.bootstrap)
        self._connections: dict[Address, Connection] = {}
        self._opening: dict[Address, asyncio.Lock] = {}

    async def ask(
        self, request: Any, to: To, *, failures: Failures | None = None, timeout_ms: int | None = None
    ) -> Any:
        """See `Operations._ask`."""

        async def ask(connection: Connection) -> Any:
            response = await connection.request(request, timeout_ms or self._config.request_timeout_ms)
            codes = [
                getattr(response, "error_code", ErrorCode.none),
                *(failures(response) if failures else ()),
            ]
            for code in codes:
                if code in _NOT_HERE:
                    raise ConnectionFailedError(code.name.upper())
            return response

        return await self._first(to, ask)

    async def api_versions(self, to: To, *, timeout_ms: int | None = None) -> Any:
        """See `Operations._api_versions`."""
        return await self._first(
            to, lambda connection: connection.negotiate(timeout_ms or self._config.request_timeout_ms)
        )

    async def close(self) -> None:
        """Close every connection."""
        connections = list(self._connections.values())
        self._connections.clear()
        await asyncio.gather(*(connection.close() for connection in connections))

    async def _first(self, to: To, ask: Callable[[Connection], Any]) -> Any:
        reasons: dict[str, str] = {}
        asked = [to.address] if to.role is Role.ADDRESS and to.address else list(self._addresses)
        for address in asked:
            try:
                answer = await ask(await self._connection_to(address))
            except AdminError as error:
                reasons[str(address)] = str(error)
            else:
                if address in self._addresses:
                    self._addresses.remove(address)
                    self._addresses.insert(0, address)
                return answer
        raise UnreachableError(reasons)

    async def _connection_to(self, address: Address) -> Connection:
        async with self._opening.setdefault(address, asyncio.Lock()):
            connection = self._connections.get(address)
            if connection is None or not connection.is_open:
                if connection is not None:
                    await connection.close()
                connection = await Connection.open(
                    address, client_id=self._config.client_id, timeout_ms=CONNECT_TIMEOUT_MS
                )
                self._connections[address] = connection
            return connection
