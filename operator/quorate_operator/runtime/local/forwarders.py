"""Forwarding listeners: addresses that lead to a node's own one, as Services do on Kubernetes.

A forwarder copies bytes both ways and knows nothing of Kafka. Connections and buffers are bounded; a slow reader
slows down the other side.
"""

import asyncio
import logging
import resource
import socket
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace

from quorate_protocol.file_limit import raise_file_limit

from quorate_operator import clock
from quorate_operator.planning.cluster import Address, DesiredCluster, Publication
from quorate_operator.planning.steps import PublishAddress, RetireAddress, StepError, WithdrawAddress
from quorate_operator.runtime.local.errors import PlayError
from quorate_operator.runtime.local.loopback import owner_of

CONNECTIONS_MAX = 2_000
"""The maximum for one address. Further connections are closed at once."""
FILES_KEPT = 400
"""File descriptors of the supervisor that forwarded connections can't use: for nodes, their logs, and accepts."""
FILES_OF_CONNECTION = 2
BUFFER_SIZE_BYTES = 256 * 1024
CONNECT_TIMEOUT_S = 5
CLOSE_TIMEOUT_S = 2
HALF_CLOSED_S_MAX = 60
"""How long one direction may stay open after the other has ended."""

Keep = Callable[[tuple[Publication, ...]], None]
OwnAddress = Callable[[int, str], Address]
"""Returns where a node itself listens, from node id and listener name. Raises KeyError."""

logger = logging.getLogger(__name__)


class ForwardedTotal:
    """The connections of all addresses of a process, which share its file descriptors."""

    def __init__(self, files_max: int) -> None:
        possible = (files_max - FILES_KEPT) // FILES_OF_CONNECTION
        self.connections_max = None if files_max == resource.RLIM_INFINITY else max(possible, 1)
        self.count = 0

    @property
    def is_full(self) -> bool:
        return self.connections_max is not None and self.count >= self.connections_max


class Forwarder:
    """One address that leads to `target`. `connections` is how many clients use it now."""

    def __init__(self, address: Address, target: Address, total: ForwardedTotal | None = None) -> None:
        self.address = address
        self.target = target
        self._total = total or ForwardedTotal(raise_file_limit())
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    @property
    def connections(self) -> int:
        return len(self._connections)

    async def open(self) -> None:
        """Listen. Raises PlayError if the address is not available."""
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
        """Stop listening, and close every connection."""
        server, self._server = self._server, None
        if server is not None:
            await stop_accepting(server)
            server.close()
        ending = list(self._connections)
        for connection in ending:
            connection.cancel()
        if ending:
            await asyncio.wait(ending, timeout=CLOSE_TIMEOUT_S)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if self._server is None:  # closed while this connection was being accepted
            writer.transport.abort()
            return
        if len(self._connections) >= CONNECTIONS_MAX:
            logger.warning("%s has %d connections; one more was refused", self.address, CONNECTIONS_MAX)
            writer.transport.abort()
            return
        if self._total.is_full:
            logger.warning(
                "%s: all addresses have %d connections, and no file descriptors for more; one more was refused",
                self.address,
                self._total.count,
            )
            writer.transport.abort()
            return
        self._connections.add(task)
        self._total.count += 1
        try:
            await self._forward(reader, writer)
            writer.close()
        except (OSError, TimeoutError):
            writer.transport.abort()  # one end is gone: the other end sees a reset
        except asyncio.CancelledError:
            writer.transport.abort()
        finally:
            self._connections.discard(task)
            self._total.count -= 1

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
            # An end that stops sending may still receive; a failure ends both directions.
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


async def stop_accepting(server: asyncio.Server) -> None:
    """Stop accepting, and let pending accepts complete: a closed server would leave their connections open."""
    loop = asyncio.get_running_loop()
    for listening in server.sockets:
        loop.remove_reader(listening.fileno())
    await asyncio.sleep(0)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(BUFFER_SIZE_BYTES):
        writer.write(data)
        await writer.drain()
    with suppress(OSError):  # the other end is gone too
        writer.write_eof()


class Publications:
    """Publishes, retires and withdraws addresses; `keep` stores the result.

    A node's own address is published without a forwarder: only the node itself ever listens there.
    """

    def __init__(self, published: Iterable[Publication], own_address: OwnAddress, keep: Keep) -> None:
        self._published = {publication.address: publication for publication in published}
        self._forwarders: dict[Address, Forwarder] = {}
        self._total = ForwardedTotal(raise_file_limit())
        self._own_address = own_address
        self._keep = keep

    def current(self) -> tuple[Publication, ...]:
        """Return every address that points at a node."""
        return tuple(
            replace(publication, connections=self._forwarders[address].connections)
            if address in self._forwarders
            else publication
            for address, publication in self._published.items()
        )

    def add_own(self, desired: DesiredCluster) -> None:
        """Publish the own addresses that nodes advertise: they listen there as soon as they run."""
        own = own_publications(desired, self._own_address, clock.now_ms())
        missing = [publication for publication in own if publication.address not in self._published]
        self._published.update({publication.address: publication for publication in missing})
        if missing:
            self._write()

    async def resume(self) -> None:
        """Publish the addresses again that the last supervisor published. Raises PlayError."""
        for publication in self._published.values():
            try:
                target = self._own_address(publication.node_id, publication.listener)
            except KeyError:
                continue  # its listener was removed: the address is withdrawn
            await self._open(publication.address, target)

    async def publish(self, action: PublishAddress) -> None:
        """Point an address at a node. Raises PlayError; StepError while it points at another node."""
        known = self._published.get(action.address)
        if known is not None and (known.node_id, known.listener) != (action.node_id, action.listener):
            raise StepError(f"{action.address} still points at node {known.node_id}, not {action.node_id}")
        try:
            target = self._own_address(action.node_id, action.listener)
        except KeyError:
            raise StepError(f"node {action.node_id} has no listener {action.listener}") from None
        await self._open(action.address, target)
        since_ms = known.since_ms if known is not None else clock.now_ms()
        self._published[action.address] = Publication(
            address=action.address, node_id=action.node_id, listener=action.listener, since_ms=since_ms
        )
        self._write()

    def retire(self, action: RetireAddress) -> None:
        """Store that no node advertises the address any more."""
        known = self._of(action.address, action.node_id)
        if known is not None and known.retired_at_ms is None:
            self._published[action.address] = replace(known, retired_at_ms=clock.now_ms())
            self._write()

    async def withdraw(self, action: WithdrawAddress) -> None:
        """Stop forwarding from the address, and close its connections."""
        if self._of(action.address, action.node_id) is None:
            return
        forwarder = self._forwarders.pop(action.address, None)
        if forwarder is not None:
            await forwarder.close()
        del self._published[action.address]
        self._write()

    async def close(self) -> None:
        """Close every listener. Publications stay stored."""
        forwarders, self._forwarders = self._forwarders, {}
        for forwarder in forwarders.values():
            await forwarder.close()

    def _of(self, address: Address, node_id: int) -> Publication | None:
        known = self._published.get(address)
        return known if known is not None and known.node_id == node_id else None

    async def _open(self, address: Address, target: Address) -> None:
        if address == target or address in self._forwarders:
            return
        forwarder = Forwarder(address, target, self._total)
        await forwarder.open()
        self._forwarders[address] = forwarder

    def _write(self) -> None:
        self._keep(tuple(self._published.values()))


def own_publications(
    desired: DesiredCluster, own_address: OwnAddress, now_ms: int
) -> tuple[Publication, ...]:
    """Return the addresses that nodes both advertise and listen on."""
    return tuple(
        Publication(address=address, node_id=node.node_id, listener=listener, since_ms=now_ms)
        for node in desired.nodes
        for listener, address in node.advertised.items()
        if address == own_address(node.node_id, listener)
    )
