"""Accepts connections with TLS: a handshake first, bounded in number and time, then the connection.

The loop's own servers tell nothing of a connection before its handshake is done, so that those could not be bounded.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from quorate_controller.server.tls import TlsOfListener

log = logging.getLogger(__name__)

BACKLOG: Final = 1024
HANDSHAKE_TIMEOUT_S: Final = 10.0
SHUTDOWN_TIMEOUT_S: Final = 2.0
"""How long the other end may take to confirm the end of a connection."""
ACCEPT_PAUSE_S: Final = 0.1
"""After a failed accept: the process may be out of file descriptors."""


class TlsAcceptor:
    """Listens for one listener. `may_begin` is asked before each handshake."""

    def __init__(
        self,
        *,
        listener: str,
        tls: TlsOfListener,
        make_protocol: Callable[[], asyncio.Protocol],
        may_begin: Callable[[str], bool],
    ) -> None:
        self._listener = listener
        self._tls = tls
        self._make_protocol = make_protocol
        self._may_begin = may_begin
        self._loop = asyncio.get_running_loop()
        self._sockets: list[socket.socket] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._handshakes: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        """The bound port."""
        port: int = self._sockets[0].getsockname()[1]
        return port

    @property
    def handshake_count(self) -> int:
        """Connections whose handshake is not done."""
        return len(self._handshakes)

    async def start(self, host: str, port: int) -> None:
        """Bind and accept. An empty host binds all interfaces. Raises OSError."""
        infos = await self._loop.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        try:
            for family, kind, protocol, _, address in dict.fromkeys(infos):
                self._sockets.append(_bound(family, kind, protocol, address))
        except OSError:
            await self.close()
            raise
        for listening in self._sockets:
            self._tasks.add(self._loop.create_task(self._accept(listening)))
        self._tasks.add(self._loop.create_task(self._tls.follow_files()))

    async def close(self) -> None:
        """Accept no more, and end what has not finished its handshake."""
        tasks = [*self._tasks, *self._handshakes]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._tasks.clear()
        for listening in self._sockets:
            listening.close()

    async def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                accepted, address = await self._loop.sock_accept(listening)
            except OSError as error:
                log.warning("accept_failed", extra={"facts": {"reason": str(error)}})
                await asyncio.sleep(ACCEPT_PAUSE_S)
                continue
            peer = f"{address[0]}:{address[1]}"
            if not self._may_begin(peer):
                accepted.close()
                continue
            task = self._loop.create_task(self._shake_hands(accepted, peer))
            self._handshakes.add(task)
            task.add_done_callback(self._handshakes.discard)

    async def _shake_hands(self, accepted: socket.socket, peer: str) -> None:
        try:
            await self._loop.connect_accepted_socket(
                self._make_protocol,
                accepted,
                ssl=self._tls.server,
                ssl_handshake_timeout=HANDSHAKE_TIMEOUT_S,
                ssl_shutdown_timeout=SHUTDOWN_TIMEOUT_S,
            )
        except OSError as error:
            # Also ssl.SSLError, and TimeoutError.
            reason = getattr(error, "reason", None) or str(error) or type(error).__name__
            if isinstance(error, ssl.SSLCertVerificationError):
                reason = f"{reason}: {error.verify_message}"
            facts = {"peer": peer, "listener": self._listener, "reason": reason}
            log.warning("tls_handshake_failed", extra={"facts": facts})


def _bound(family: int, kind: int, protocol: int, address: object) -> socket.socket:
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.bind(address)  # type: ignore[arg-type]
        listening.listen(BACKLOG)
        listening.setblocking(False)
    except OSError:
        listening.close()
        raise
    return listening
