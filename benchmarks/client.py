"""A blocking client for measurements: one socket, no retries, nothing between the clock and the wire."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any, Final

from kio.schema.describe_cluster.v2.request import DescribeClusterRequest
from quorate_protocol.wire.client import ClientConnection

if TYPE_CHECKING:
    from kio.static.protocol import Payload

RECEIVE_BYTES: Final = 256 * 1024


class Connection:
    """A connection to one node. Raises OSError when it breaks or times out."""

    def __init__(self, address: tuple[str, int], *, timeout_seconds: float = 30.0) -> None:
        self._socket = socket.create_connection(address, timeout=timeout_seconds)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._protocol = ClientConnection("quorate-bench")

    def ask(self, request: Payload) -> Any:
        """Sends one request and waits for its response."""
        self._socket.sendall(self._protocol.send(request, request.__version__))
        while True:
            received = self._socket.recv(RECEIVE_BYTES)
            if not received:
                raise ConnectionError("closed by the peer")
            for _, response in self._protocol.receive_data(received):
                return response

    def close(self) -> None:
        """Closes the socket."""
        self._socket.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def describe_cluster(address: tuple[str, int], endpoint_type: int) -> Any:
    """The response of a node about brokers (type 1) or controllers (type 2, KIP-919). Raises OSError."""
    request = DescribeClusterRequest(
        include_cluster_authorized_operations=False,
        endpoint_type=endpoint_type,
        include_fenced_brokers=False,
    )
    with Connection(address, timeout_seconds=1.0) as connection:
        return connection.ask(request)
