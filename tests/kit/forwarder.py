"""TCP forwarders on loopback: addresses that can be redirected to another server while clients keep them."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from kit.cluster import free_ports
from kit.loop_thread import LoopThread
from quorate_operator.runtime.local.forwarders import stop_accepting

READ_SIZE_BYTES = 64 * 1024
HOST = "127.0.0.1"


@dataclass(eq=False)
class Forwarder:
    """One address. `target` is the port that new connections are led to; None: nothing answers on them."""

    port: int
    target: int | None
    accepted: int = 0
    lag_s: float = 0.0
    """How late data from the server arrives, on connections whose first data contains `lags`."""
    lags: bytes = b""
    _server: asyncio.Server | None = field(default=None, repr=False)
    _connections: set[asyncio.Task[None]] = field(default_factory=set, repr=False)

    @property
    def address(self) -> str:
        """`host:port`, where clients come."""
        return f"{HOST}:{self.port}"

    async def open(self) -> None:
        """Accept connections."""
        self._server = await asyncio.start_server(self._accept, HOST, self.port)

    async def refuse(self) -> None:
        """Accept no more connections, and cut those that are there."""
        server, self._server = self._server, None
        if server is not None:
            await stop_accepting(server)
            server.close()
        await self.cut()

    async def cut(self) -> None:
        """End every connection; new ones are accepted."""
        for connection in list(self._connections):
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if self._server is None:  # refused while this connection was being accepted
            writer.close()
            return
        self._connections.add(task)
        self.accepted += 1
        try:
            if self.target is None:
                while await reader.read(READ_SIZE_BYTES):
                    pass
                return
            with suppress(OSError):
                onward_reader, onward = await asyncio.open_connection(HOST, self.target)
                try:
                    first = await reader.read(READ_SIZE_BYTES)
                    onward.write(first)
                    lag_s = self.lag_s if self.lags in first else 0.0
                    await _first(_copy(reader, onward), _copy(onward_reader, writer, lag_s))
                finally:
                    onward.close()
        except (OSError, asyncio.CancelledError):
            pass  # cut by the test, or by either end
        finally:
            self._connections.discard(task)
            writer.close()


class Network:
    """Forwarders, served by a thread of their own. Its methods return when the change is in force."""

    def __init__(self) -> None:
        self._loop = LoopThread("forwarders")
        self._forwarders: list[Forwarder] = []

    def addresses(self, targets: Sequence[int]) -> list[Forwarder]:
        """New addresses that lead to these ports."""
        first = free_ports(len(targets))
        forwarders = [Forwarder(port=first + place, target=target) for place, target in enumerate(targets)]
        for forwarder in forwarders:
            self._loop.do(forwarder.open())
        self._forwarders += forwarders
        return forwarders

    def lead(self, targets: Sequence[tuple[Forwarder, int | None]], *, cut: bool = True) -> None:
        """Lead addresses to other ports, all at once. `cut`: connections that are open end; else they stay."""

        async def lead() -> None:
            for forwarder, target in targets:
                forwarder.target = target
            if cut:
                await asyncio.gather(*(forwarder.cut() for forwarder, _ in targets))

        self._loop.do(lead())

    def swap(self, first: Forwarder, other: Forwarder, *, cut: bool = True) -> None:
        """Exchange what two addresses lead to."""
        self.lead([(first, other.target), (other, first.target)], cut=cut)

    def refuse(self, *forwarders: Forwarder) -> None:
        """Have addresses refuse connections."""
        for forwarder in forwarders:
            self._loop.do(forwarder.refuse())

    def close(self) -> None:
        """Close all forwarders and the thread."""
        self.refuse(*self._forwarders)
        self._loop.close()


@contextmanager
def network() -> Iterator[Network]:
    """A network, closed in the end."""
    made = Network()
    try:
        yield made
    finally:
        made.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, lag_s: float = 0.0) -> None:
    with suppress(OSError):
        while data := await reader.read(READ_SIZE_BYTES):
            if lag_s:
                await asyncio.sleep(lag_s)  # the slow link that a test asked for
            writer.write(data)
            await writer.drain()


async def _first(*copies: object) -> None:
    """Run both directions until one ends."""
    tasks = [asyncio.ensure_future(copy) for copy in copies]  # type: ignore[arg-type]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
