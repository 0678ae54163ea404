"""Forwarding listeners: addresses that lead to a node's own one. What a Service is on Kubernetes.

A forwarder copies bytes both ways and knows nothing of Kafka. It is bounded: so many connections at a time, and
so many bytes in flight each way; whoever reads slowly slows down the other side.
"""

import asyncio
import logging
import socket
from contextlib import suppress

from quorate_operator.planning.cluster import Address
from quorate_operator.runtime.errors import PlayError
from quorate_operator.runtime.ports import owner_of

CONNECTIONS_MAX = 2_000
"""Of one address. More are closed as soon as they come."""
BUFFER_SIZE_BYTES = 256 * 1024
CONNECT_TIMEOUT_S = 5
CLOSE_TIMEOUT_S = 2
HALF_CLOSED_S_MAX = 60
"""How long one way may stay open after the other one's end."""

logger = logging.getLogger(__name__)


class Forwarder:
    """One address that leads to `target`. `connections` is how many clients use it now."""

    def __init__(self, address: Address, target: Address) -> None:
        self.address = address
        self.target = target
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    @property
    def connections(self) -> int:
        """How many clients are connected."""
        return len(self._connections)

    async def open(self) -> None:
        """Listen. Raises PlayError if the address is not to be had."""
        try:
            self._server = await asyncio.start_server(
                self._accept,
                self.address.host,
                self.address.port,
                limit=BUFFER_SIZE_BYTES,
                family=socket.AF_INET,
            )
        except OSError as error:
            owner = owner_of(self.address.port)
            raise PlayError(
                f"{self.address} can't be published ({error.strerror}): it may be in use by {owner}"
            ) from error

    async def close(self) -> None:
        """Listen no more, and end every connection."""
        if self._server is not None:
            self._server.close()
            self._server = None
        ending = list(self._connections)
        for connection in ending:
            connection.cancel()
        if ending:
            await asyncio.wait(ending, timeout=CLOSE_TIMEOUT_S)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._connections) >= CONNECTIONS_MAX:
            logger.warning("%s has %d connections; one more was refused", self.address, CONNECTIONS_MAX)
            writer.transport.abort()
            return
        self._connections.add(task)
        try:
            await self._forward(reader, writer)
            writer.close()
        except (OSError, TimeoutError):
            writer.transport.abort()  # an end that is gone: the other one is told
        except asyncio.CancelledError:
            writer.transport.abort()
        finally:
            self._connections.discard(task)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            node_reader, node_writer = await asyncio.open_connection(
                self.target.host, self.target.port, limit=BUFFER_SIZE_BYTES
            )
        ways = {
            asyncio.ensure_future(_copy(reader, node_writer)),
            asyncio.ensure_future(_copy(node_reader, writer)),
        }
        try:
            # An end that only stops sending may still want to hear; one that failed ends both ways.
            done, others = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            if others and all(way.exception() is None for way in done):
                done, _ = await asyncio.wait(others, timeout=HALF_CLOSED_S_MAX)
            for way in done:
                way.result()
            node_writer.close()
        finally:
            for way in ways:
                way.cancel()
            if not node_writer.is_closing():
                node_writer.transport.abort()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(BUFFER_SIZE_BYTES):
        writer.write(data)
        await writer.drain()
    with suppress(OSError):
        writer.write_eof()
