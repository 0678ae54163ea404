"""Accepts the connections of listening sockets, few at a time, so that other work is done in between.

The servers of asyncio accept all pending connections at once, and report a connection only after its TLS handshake:
a bound that is applied afterwards comes too late for the file descriptors of the process.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from typing import TYPE_CHECKING, Final

from quorate_protocol.wildcard_hosts import ALL_INTERFACES

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger(__name__)

BACKLOG: Final = 1024
ACCEPT_PAUSE_S: Final = 0.1
"""The pause after a failed accept: the process may be out of file descriptors."""
ACCEPTS_PER_TURN: Final = 16
_NO_SUCH_FAMILY: Final = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)
"""What binding all interfaces of a family fails with on a host without this family."""


class SocketAcceptor:
    """Listens on all addresses of a host and gives each accepted socket to `accept`.

    `accept` gets a socket, which it owns, and its address. It returns a pause in seconds before the next accept.
    `per_turn` connections are accepted in one turn of the event loop.
    """

    def __init__(
        self, accept: Callable[[socket.socket, tuple[str, int]], float], per_turn: int = ACCEPTS_PER_TURN
    ) -> None:
        self._accept = accept
        self._per_turn = per_turn
        self._loop = asyncio.get_running_loop()
        self._sockets: list[socket.socket] = []
        self._pause: asyncio.TimerHandle | None = None

    @property
    def port(self) -> int:
        """The bound port."""
        port: int = self._sockets[0].getsockname()[1]
        return port

    async def start(self, host: str, port: int) -> None:
        """Bind and accept. A host of ALL_INTERFACES binds all, port 0 a free port. Raises OSError."""
        is_wildcard = host in ALL_INTERFACES
        infos = await self._loop.getaddrinfo(
            None if is_wildcard else host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        missing: OSError | None = None
        try:
            for family, kind, protocol, _, address in dict.fromkeys(infos):
                try:
                    self._sockets.append(_bound(family, kind, protocol, address))
                except OSError as error:
                    if not is_wildcard or error.errno not in _NO_SUCH_FAMILY:
                        raise
                    missing = error  # a host may have IPv4 alone, or IPv6 alone
            if missing is not None and not self._sockets:
                raise missing
        except OSError:
            self.close()
            raise
        self._resume()

    def close(self) -> None:
        """Accept no more."""
        self._stop_accepting()
        if self._pause is not None:
            self._pause.cancel()
        for listening in self._sockets:
            listening.close()

    def _resume(self) -> None:
        self._pause = None
        for listening in self._sockets:
            self._loop.add_reader(listening, self._accept_some, listening)

    def _stop_accepting(self) -> None:
        for listening in self._sockets:
            if listening.fileno() >= 0:
                self._loop.remove_reader(listening)

    def _pause_for(self, delay_s: float) -> None:
        """Leave further connections to the kernel's backlog for a while."""
        if self._pause is None:
            self._stop_accepting()
            self._pause = self._loop.call_later(delay_s, self._resume)

    def _accept_some(self, listening: socket.socket) -> None:
        for _ in range(self._per_turn):
            try:
                accepted, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                log.warning("accept_failed", extra={"facts": {"reason": str(error)}})
                self._pause_for(ACCEPT_PAUSE_S)
                return
            accepted.setblocking(False)
            delay_s = self._accept(accepted, address)
            if delay_s > 0:
                self._pause_for(delay_s)
                return


def _bound(family: int, kind: int, protocol: int, address: object) -> socket.socket:
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.bind(address)  # type: ignore[arg-type]
        listening.listen(BACKLOG)
        listening.setblocking(False)
    except OSError as error:
        listening.close()
        reason = (error.strerror or str(error)).lower()
        raise OSError(
            error.errno, f"error while attempting to bind on address {address!r}: {reason}"
        ) from None
    return listening
