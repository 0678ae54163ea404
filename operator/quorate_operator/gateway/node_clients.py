"""Connections to single nodes, at the addresses where the operator reaches them."""

import asyncio
from collections.abc import Callable, Iterable, Mapping

from quorate_admin.client import AdminClient
from quorate_admin.config import Address as AdminAddress
from quorate_admin.config import AdminConfig
from quorate_admin.security.config import SecurityConfig

from quorate_operator.planning.cluster import Address, Role

CLIENT_ID = "quorate-operator"
REQUEST_TIMEOUT_MS = 5_000

SecurityOf = Callable[[Address], SecurityConfig | None]
"""Returns how the listener at an address is secured, and how the operator logs in; None for an unknown address."""


def admin_address(address: Address) -> AdminAddress:
    return AdminAddress(address.host, address.port)


class NodeClients:
    """A client for each node, kept between requests. Close it."""

    def __init__(self, security_of: SecurityOf) -> None:
        self._security_of = security_of
        self._clients: dict[tuple[Role, Address], tuple[SecurityConfig, AdminClient]] = {}

    def config(self, role: Role, address: Address) -> AdminConfig:
        """Return a configuration that leads to this node alone, without retries."""
        at = (admin_address(address),)
        return AdminConfig(
            bootstrap_controllers=at if role is Role.CONTROLLER else (),
            bootstrap_servers=at if role is Role.BROKER else (),
            client_id=CLIENT_ID,
            security=self._security_of(address) or SecurityConfig(),
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            follow_advertised=False,
            retries=0,
            reconnect_backoff_ms=0,
        )

    def client(self, role: Role, address: Address) -> AdminClient:
        key = (role, address)
        if key not in self._clients:
            config = self.config(role, address)
            self._clients[key] = config.security, AdminClient(config)
        return self._clients[key][1]

    async def retain(self, contacts: Mapping[Role, Iterable[Address]]) -> None:
        """Close the connections to all other nodes, and those whose certificates or passwords have changed."""
        kept = {(role, address) for role, addresses in contacts.items() for address in addresses}
        gone = [
            self._clients.pop(key)
            for key, (security, _) in list(self._clients.items())
            if key not in kept or security != (self._security_of(key[1]) or SecurityConfig())
        ]
        await asyncio.gather(*(client.close() for _, client in gone))

    async def close(self) -> None:
        await self.retain({})
