"""Accepts the connections of a listener: a place first, then the TLS handshake if there is one, then the connection.

Each connection has a place from the beginning, and few are accepted at a time: requests are served in between. A
handshake begins with the client's first byte: silent connections hold up no handshake.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from typing import TYPE_CHECKING, Final

from quorate_protocol.socket_acceptor import SocketAcceptor

from quorate_controller.server.connection_quotas import Stage
from quorate_controller.server.counters import Limit

if TYPE_CHECKING:
    from collections.abc import Callable

    from quorate_controller.server.connection_quotas import ConnectionQuotas, Place
    from quorate_controller.server.counters import RequestCounters
    from quorate_controller.server.tls import TlsOfListener

log = logging.getLogger(__name__)

HANDSHAKE_TIMEOUT_S: Final = 10.0
"""How long it may take until a handshake can begin, and how long until it is complete."""
SHUTDOWN_TIMEOUT_S: Final = 2.0
"""How long the other end may take to confirm the end of a connection."""
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
        self._sockets = SocketAcceptor(self._take)
        self._openings: set[asyncio.Task[None]] = set()
        self._following: asyncio.Task[None] | None = None
        self._next_handshake = asyncio.Lock()
        """Held by the connection whose handshake begins next."""

    @property
    def port(self) -> int:
        """The bound port."""
        return self._sockets.port

    async def start(self, host: str, port: int) -> None:
        """Bind and accept. An empty host binds all interfaces. Raises OSError."""
        await self._sockets.start(host, port)
        if self._tls is not None:
            self._following = self._loop.create_task(self._tls.follow_files())

    async def close(self) -> None:
        """Accept no more, and end what has not finished its handshake."""
        self._sockets.close()
        tasks = [*self._openings, *([] if self._following is None else [self._following])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _take(self, accepted: socket.socket, address: tuple[str, int]) -> float:
        """Begin a connection, if there is a place for it. Return for how many seconds no other may be accepted."""
        now_s = self._loop.time()
        host, port, *_ = address
        stage = Stage.STRANGER if self._tls is None else Stage.SILENT
        place = self._quotas.take(self._listener, host.partition("%")[0], f"{host}:{port}", stage, now_s)
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
            # A connection that was made gives its place back itself, when it is lost.
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
                    # One connection looks at a time, for any of the others may end, or be old enough.
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
