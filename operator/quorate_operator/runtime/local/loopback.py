"""Ports on the loopback interface: free ones, and owners of used ones."""

import socket
from collections.abc import Collection
from ipaddress import IPv4Address, IPv4Network

import psutil

from quorate_operator.planning.cluster import Address

LOOPBACK = "127.0.0.1"
PORT_MAX = 65535

_OURS = IPv4Network("127.0.0.0/8")


def is_loopback(address: Address) -> bool:
    """Whether an address is in 127.0.0.0/8, which no other machine reaches."""
    try:
        return IPv4Address(address.host) in _OURS
    except ValueError:
        return False


def is_free(port: int) -> bool:
    """Whether a server could listen on the port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As servers do: connections of an earlier run that linger in TIME_WAIT are no hindrance.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
            probe.listen(1)
        except OSError:
            return False
        return True


def first_free(start: int, taken: Collection[int]) -> int | None:
    """Return the first port from `start` on that is free and not in `taken`, or None."""
    return next((port for port in range(start, PORT_MAX + 1) if port not in taken and is_free(port)), None)


def owner_of(port: int) -> str:
    """Return the process that listens on the port, if this user may see it: `pid 123 (java)`."""
    try:
        for connection in psutil.net_connections(kind="tcp"):
            if connection.status != psutil.CONN_LISTEN or not connection.pid:
                continue
            if connection.laddr and connection.laddr.port == port:
                return f"pid {connection.pid} ({psutil.Process(connection.pid).name()})"
    except psutil.Error:
        pass  # it ended meanwhile, or may not be read: the port is used either way
    return "another program"
