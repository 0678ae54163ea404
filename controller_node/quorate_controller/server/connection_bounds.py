"""The limits of connections as they apply to this process: addresses of hosts, and what the system allows."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import resource
import socket
from typing import TYPE_CHECKING, Final

from quorate_protocol.bounded_http.places import DEFAULT_BOUNDS
from quorate_protocol.file_limit import raise_file_limit

from quorate_controller.config.connection_limits import MAX_CONNECTIONS, OVERRIDES
from quorate_controller.server.connection_quotas import UNBOUNDED, ConnectionLimits

if TYPE_CHECKING:
    from collections.abc import Mapping

    from quorate_controller.config import ControllerConfig

log = logging.getLogger(__name__)

FILES_KEPT: Final = 200
"""File descriptors that no connection of a client can use: for the log, snapshots, peers, and their replacements."""


class UnknownHostError(Exception):
    """A host of max.connections.per.ip.overrides has no address."""


async def bounds_of(config: ControllerConfig) -> ConnectionLimits:
    """Look up the hosts and raise the limit of open files; return what applies. Raises UnknownHostError."""
    connections = config.connections
    windows, window_s = config.values["quota.window.num"], config.values["quota.window.size.seconds"]
    assert isinstance(windows, int)
    assert isinstance(window_s, int)
    possible = _possible_connections(raise_file_limit(), has_pages=config.http_listener is not None)
    return ConnectionLimits(
        total_max=_within_files(connections.total_max, possible),
        files_max=possible,
        of_listener=connections.of_listener,
        per_host_max=connections.per_host_max,
        of_host=await _addresses(connections.of_host),
        rate_max=connections.rate_max,
        rate_of_listener=connections.rate_of_listener,
        windows=windows,
        window_s=window_s,
        # Controllers and brokers connect to this listener, which corresponds to Kafka's inter-broker listener.
        protected_listener=config.controller_listener_names[0],
    )


def _possible_connections(files_max: int, *, has_pages: bool) -> int:
    """Return how many connections the Kafka listeners may have, beside the files and the HTTP pages.

    A controller that can't open a file of its log ends, so connections must not take the last file descriptors.
    """
    if files_max == resource.RLIM_INFINITY:
        return UNBOUNDED
    return max(files_max - FILES_KEPT - (DEFAULT_BOUNDS.files_max if has_pages else 0), 1)


def _within_files(connections_max: int, possible: int) -> int:
    if connections_max <= possible:
        return connections_max
    facts = {"limit": MAX_CONNECTIONS, "configured": connections_max, "applied": possible}
    log.warning("connections_bounded_by_open_files", extra={"facts": facts})
    return possible


async def _addresses(of_host: Mapping[str, int]) -> Mapping[str, int]:
    loop = asyncio.get_running_loop()
    found: dict[str, int] = {}
    for host, connections_max in of_host.items():
        try:
            addresses = {str(ipaddress.ip_address(host))}
        except ValueError:
            try:
                infos = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
            except OSError as error:
                raise UnknownHostError(f"{OVERRIDES}: {host} has no address: {error}") from None
            addresses = {str(address[0]) for *_, address in infos}
        found |= dict.fromkeys(addresses, connections_max)
    return found
