"""A blocking client for measurements: one socket, no retries, nothing between the clock and the wire."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any, Final

from quorate_protocol.wire.client import ClientConnection

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kio.static.protocol import Payload

RECEIVE_BYTES: Final = 256 * 1024


class Connection:
    """A connection to one node. Raises OSError when it breaks or times out."""

    def __init__(self, address: tuple[str, int], *, timeout_seconds: float = 30.0) -> None:
        self._socket = socket.create_connection(address, timeout=timeout_seconds)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._protocol = ClientConnection("quorate-bench", in_flight_max=100_000)

    def ask(self, request: Payload) -> Any:
        """Sends one request and waits for its response."""
        return self.ask_all([request])[0]

    def ask_all(self, requests: Sequence[Payload]) -> list[Any]:
        """Sends all requests without waiting in between, then waits for all responses."""
        data = b"".join(self._protocol.send(request, request.__version__) for request in requests)
        self._socket.sendall(data)
        responses: list[Any] = []
        while len(responses) < len(requests):
            received = self._socket.recv(RECEIVE_BYTES)
            if not received:
                raise ConnectionError("closed by the peer")
            responses.extend(response for _, response in self._protocol.receive_data(received))
        return responses

    def close(self) -> None:
        """Closes the socket."""
        self._socket.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
