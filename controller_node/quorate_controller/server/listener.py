"""TCP listeners: each accepts connections, closes those that are idle, and ends them all when it is closed.

A connection gets its place first, then the TLS handshake if there is one, then its `Connection`. Few are accepted at
a time, so that requests are served in between. A handshake begins with the client's first byte: silent connections
delay no handshake.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from functools import partial
from typing import TYPE_CHECKING, Final

from quorate_protocol.socket_acceptor import SocketAcceptor

from quorate_controller.scheduler import Scheduler
from quorate_controller.server.connection import Connection, ListenerContext
from quorate_controller.server.connection_memory import READ_BYTES_MAX, RequestMemory, ResponseMemory
from quorate_controller.server.connection_quotas import ConnectionLimits, ConnectionQuotas, Place, Stage
from quorate_controller.server.counters import Limit, RequestCounters

if TYPE_CHECKING:
    from collections.abc import Callable

    from quorate_controller.server.connection import RequestHandler
    from quorate_controller.server.listener_limits import ListenerLimits
    from quorate_controller.server.tls import TlsOfListener

log = logging.getLogger(__name__)

AUTHENTICATION_TIMEOUT_S: Final = 30.0
"""How long a client may take to authenticate with SASL. Kafka's only bound is connections.max.idle.ms."""
SWEEP_EVERY_S: Final = 1.0
REQUEST_MEMORY_BYTES_MAX: Final = 100 * 1024 * 1024
"""queued.max.request.bytes where it is not configured: the largest request."""

HANDSHAKE_TIMEOUT_S: Final = 10.0
"""How long it may take until a handshake can begin, and how long until it is complete."""
SHUTDOWN_TIMEOUT_S: Final = 2.0
"""How long the peer may take to confirm the end of a connection."""
HANDSHAKE_PAUSE_S: Final = 0.01
"""The time between two checks whether one of many handshakes is done."""


class Acceptor:
    """Listens for one listener."""

    def __init__(
        self,
        *,
        listener: str,
        tls: TlsOfListener | None,
        make_protocol: Callable[[Place], asyncio.BaseProtocol],
        quotas: ConnectionQuotas,
        counters: RequestCounters,
    ) -> None:
        self._listener = listener
        self._tls = tls
        self._make_protocol = make_protocol
        self._quotas = quotas
        self._counters = counters
        self._loop = asyncio.get_running_loop()
        self._sockets = SocketAcceptor(self._accepted)
        self._openings: set[asyncio.Task[None]] = set()
        self._following: asyncio.Task[None] | None = None
        self._next_handshake = asyncio.Lock()
        """Held by the connection whose handshake begins next."""

    @property
    def port(self) -> int:
        """The bound port."""
        return self._sockets.port

    async def start(self, host: str, port: int) -> None:
        """Bind and accept. An empty host or 0.0.0.0 binds all interfaces. Raises OSError."""
        await self._sockets.start(host, port)
        if self._tls is not None:
            self._following = self._loop.create_task(self._tls.follow_files())

    async def close(self) -> None:
        """Stop accepting, and end connections without a finished handshake."""
        self._sockets.close()
        tasks = [*self._openings, *([] if self._following is None else [self._following])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _accepted(self, accepted: socket.socket, address: tuple[str, int]) -> float:
        """Open a connection, if there is a place for it. Return the delay in seconds before the next accept."""
        now_s = self._loop.time()
        host, port, *_ = address
        stage = Stage.STRANGER if self._tls is None else Stage.SILENT
        place = self._quotas.enter(self._listener, host.partition("%")[0], f"{host}:{port}", stage, now_s)
        if place is None:
            accepted.close()
        else:
            # The kernel detects a peer that vanished without closing, as in Kafka.
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            task = self._loop.create_task(self._open(accepted, place))
            place.close = task.cancel
            self._openings.add(task)
            task.add_done_callback(self._openings.discard)
        return self._quotas.delay_s(self._listener, now_s)

    async def _open(self, accepted: socket.socket, place: Place) -> None:
        made: list[asyncio.BaseProtocol] = []

        def make() -> asyncio.BaseProtocol:
            made.append(self._make_protocol(place))
            return made[0]

        try:
            if self._tls is None:
                await self._loop.connect_accepted_socket(make, accepted)
            else:
                await self._shake_hands(make, accepted, place)
        except BaseException:
            # A connection that was made leaves its place when it is lost.
            if not made:
                accepted.close()
                self._quotas.leave(place)
            raise

    async def _shake_hands(
        self, make: Callable[[], asyncio.BaseProtocol], accepted: socket.socket, place: Place
    ) -> None:
        assert self._tls is not None
        try:
            await self._begin_handshake(accepted, place)
            await self._loop.connect_accepted_socket(
                make,
                accepted,
                ssl=self._tls.server,
                ssl_handshake_timeout=HANDSHAKE_TIMEOUT_S,
                ssl_shutdown_timeout=SHUTDOWN_TIMEOUT_S,
            )
        except OSError as error:
            # Also ssl.SSLError, and TimeoutError.
            self._quotas.leave(place)
            self._counters.failed_handshakes += 1
            if isinstance(error, TimeoutError):
                self._counters.limited[Limit.HANDSHAKE_TIME] += 1
            reason = getattr(error, "reason", None) or str(error) or type(error).__name__
            if isinstance(error, ssl.SSLCertVerificationError):
                reason = f"{reason}: {error.verify_message}"
            facts = {"peer": place.peer, "listener": self._listener, "reason": reason}
            log.warning("tls_handshake_failed", extra={"facts": facts})
        else:
            self._quotas.shook_hands(place, self._loop.time())

    async def _begin_handshake(self, accepted: socket.socket, place: Place) -> None:
        """Wait for the first byte, and until the handshake may begin. Raises TimeoutError."""
        try:
            async with asyncio.timeout(HANDSHAKE_TIMEOUT_S):
                await self._first_byte(accepted)
                async with self._next_handshake:
                    # One connection polls at a time, for any of the others may end, or be old enough.
                    while (delay_s := self._handshake_delay_s()) > 0:  # noqa: ASYNC110
                        await asyncio.sleep(min(delay_s, HANDSHAKE_PAUSE_S))
                    self._quotas.shakes_hands(place, self._loop.time())
        except TimeoutError:
            accepted.close()
            raise

    def _handshake_delay_s(self) -> float:
        return self._quotas.handshake_delay_s(self._listener, self._loop.time())

    async def _first_byte(self, accepted: socket.socket) -> None:
        """Wait until there is something to read, or the client has gone: then the handshake fails."""
        came = asyncio.Event()
        self._loop.add_reader(accepted, came.set)
        try:
            await came.wait()
        finally:
            self._loop.remove_reader(accepted)


class Listener:
    """A named listener of this controller, for instance CONTROLLER on 0.0.0.0:9093."""

    def __init__(
        self,
        *,
        name: str,
        handler: RequestHandler,
        limits: ListenerLimits,
        tls: TlsOfListener | None = None,
        first_frames_size_bytes_max: int | None = None,
        quotas: ConnectionQuotas | None = None,
        counters: RequestCounters | None = None,
        memory: RequestMemory | None = None,
        responses: ResponseMemory | None = None,
        scheduler: Scheduler | None = None,
    ) -> None:
        counters = counters or RequestCounters()
        has_sasl = first_frames_size_bytes_max is not None
        self.context = ListenerContext(
            name=name,
            tls=tls,
            has_sasl=has_sasl,
            first_frames_size_bytes_max=first_frames_size_bytes_max or limits.frame_size_bytes_max,
            handler=handler,
            limits=limits,
            memory=memory or request_memory(REQUEST_MEMORY_BYTES_MAX, counters),
            responses=responses or ResponseMemory(limits.response_memory_bytes_max, counters),
            scheduler=scheduler or Scheduler(),
            quotas=quotas or ConnectionQuotas(ConnectionLimits(), [name], counters),
            counters=counters,
            read_buffer=memoryview(bytearray(READ_BYTES_MAX)),
        )
        self._acceptor: Acceptor | None = None
        self._sweep: asyncio.TimerHandle | None = None

    async def start(self, host: str, port: int) -> None:
        """Bind and listen. An empty host or 0.0.0.0 binds all interfaces, port 0 a free port.

        Raises:
            OSError: the address cannot be bound.
        """
        self._acceptor = Acceptor(
            listener=self.context.name,
            tls=self.context.tls,
            make_protocol=partial(Connection, self.context),
            quotas=self.context.quotas,
            counters=self.context.counters,
        )
        await self._acceptor.start(host, port)
        self._schedule_sweep()

    @property
    def port(self) -> int:
        """The bound port."""
        assert self._acceptor is not None, "the listener is started"
        return self._acceptor.port

    @property
    def connection_count(self) -> int:
        """Open connections."""
        return len(self.context.connections)

    async def close(self, grace_s: float) -> None:
        """Stop listening; close each connection once its requests have responses, all of them after `grace_s`."""
        if self._sweep is not None:
            self._sweep.cancel()
        if self._acceptor is not None:
            await self._acceptor.close()
        connections = self.context.connections
        for connection in list(connections):
            connection.drain()
        if not connections:
            return
        self.context.all_lost = asyncio.get_running_loop().create_future()
        try:
            await asyncio.wait_for(self.context.all_lost, grace_s)
        except TimeoutError:
            for connection in list(connections):
                connection.abort()

    def _schedule_sweep(self) -> None:
        interval_s = SWEEP_EVERY_S
        if self.context.limits.idle_timeout_ms >= 0:
            interval_s = min(interval_s, max(self.context.limits.idle_timeout_ms / 1000 / 4, 0.01))
        self._sweep = asyncio.get_running_loop().call_later(interval_s, self._close_late)

    def _close_late(self) -> None:
        now_s = asyncio.get_running_loop().time()
        if self.context.limits.idle_timeout_ms >= 0:
            self._close_idle(now_s - self.context.limits.idle_timeout_ms / 1000)
        if self.context.has_sasl:
            self._close_unauthenticated(now_s - AUTHENTICATION_TIMEOUT_S)
        self._close_slow(now_s)
        self._schedule_sweep()

    def _close_slow(self, now_s: float) -> None:
        """Close connections whose unfinished requests arrive too slowly."""
        connections = self.context.connections
        slow = [connection for connection in connections if connection.is_overdue(now_s)]
        for connection in slow:
            self._note(Limit.REQUEST_RATE, "request_too_slow", str(connection.peer))
            connection.abort()

    def _close_idle(self, oldest_s: float) -> None:
        for connection in list(self.context.connections):
            if connection.last_activity <= oldest_s and connection.expire():
                self._note(Limit.IDLE_TIME, "connection_idle", str(connection.peer))

    def _close_unauthenticated(self, oldest_s: float) -> None:
        for place in self.context.quotas.strangers(self.context.name, oldest_s):
            self._note(Limit.AUTHENTICATION_TIME, "authentication_timed_out", place.peer)
            place.close()

    def _note(self, limit: Limit, event: str, peer: str) -> None:
        self.context.counters.limited[limit] += 1
        log.info(event, extra={"facts": {"listener": self.context.name, "peer": peer}})


def request_memory(client_bytes_max: int, counters: RequestCounters) -> RequestMemory:
    """The memory of requests in the running event loop."""
    loop = asyncio.get_running_loop()
    return RequestMemory(client_bytes_max, counters, loop.call_later, loop.time)
