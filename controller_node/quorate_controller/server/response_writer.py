"""Writes the responses of one connection in pieces, and counts those that the peer does not read."""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from typing import TYPE_CHECKING, Final

from quorate_controller.server.connection_memory import UNCOUNTED_RESPONSE_BYTES_MAX

if TYPE_CHECKING:
    from quorate_controller.server.connection_memory import ResponseMemory
    from quorate_controller.server.connection_quotas import Place

WRITE_BUFFER_BYTES_MAX: Final = 64 * 1024
"""With more than this unsent, the peer is not reading."""
PIECE_BYTES_MAX: Final = WRITE_BUFFER_BYTES_MAX
"""What is written at once. A transport with TLS encrypts all that it is given, and keeps that until it is sent."""


class _EndedTransport(asyncio.Transport):
    """The transport of a connection that has ended: nothing is sent or read."""

    def is_closing(self) -> bool:
        return True

    def close(self) -> None:
        pass

    def abort(self) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0


ENDED: Final = _EndedTransport()


class ResponseWriter:
    """The write side of one connection."""

    __slots__ = (
        "_has_unread",
        "_loop",
        "_memory",
        "_place",
        "_rest",
        "_transport",
        "is_writable",
        "waiting_bytes",
    )

    def __init__(
        self, transport: asyncio.Transport, send_buffer_bytes_max: int, memory: ResponseMemory, place: Place
    ) -> None:
        transport.set_write_buffer_limits(high=min(send_buffer_bytes_max, WRITE_BUFFER_BYTES_MAX))
        self._transport = transport
        self._memory = memory
        self._place = place
        self._loop = asyncio.get_running_loop()
        self._has_unread = False
        """Whether the waiting bytes are counted, see `ResponseMemory`."""
        self._rest: deque[memoryview] = deque()
        """What is left of responses that are written in pieces; nothing while the transport takes more."""
        self.is_writable = True
        self.waiting_bytes = 0
        """Size of the responses that wait for earlier ones, or for the flush. `count_unread` follows a change."""

    @property
    def has_rest(self) -> bool:
        """Whether a part of a response is not written yet."""
        return bool(self._rest)

    def write(self, responses: list[bytes | bytearray]) -> None:
        """Write responses that `waiting_bytes` counts, in order."""
        size_bytes = sum(map(len, responses))
        self.waiting_bytes -= size_bytes
        if self._transport.is_closing():
            return
        if size_bytes <= PIECE_BYTES_MAX and not self._rest:
            self._transport.write(responses[0] if len(responses) == 1 else b"".join(responses))
        else:
            self._rest.extend(map(memoryview, responses))
            self._write_pieces()
        self.count_unread()

    def resume(self) -> None:
        """The transport takes more."""
        self.is_writable = True
        self._memory.reads(self._place, self._loop.time())
        self._write_pieces()
        self.count_unread()

    def end(self) -> None:
        """The connection is lost."""
        self._rest.clear()
        self._memory.waits(self._place, 0, self._loop.time())
        self._transport = ENDED

    def count_unread(self) -> None:
        """Count the responses that wait for earlier ones, and those that the peer does not read."""
        unread_bytes = self.waiting_bytes
        if not self.is_writable:
            unread_bytes += self._transport.get_write_buffer_size() + sum(map(len, self._rest))
        if unread_bytes > UNCOUNTED_RESPONSE_BYTES_MAX or self._has_unread:
            self._has_unread = unread_bytes > UNCOUNTED_RESPONSE_BYTES_MAX
            self._memory.waits(self._place, unread_bytes, self._loop.time())

    def _write_pieces(self) -> None:
        """Write what is left until the transport has enough for now."""
        while self._rest and self.is_writable and not self._transport.is_closing():
            rest = self._rest.popleft()
            if len(rest) > PIECE_BYTES_MAX:
                self._rest.appendleft(rest[PIECE_BYTES_MAX:])
            self._transport.write(rest[:PIECE_BYTES_MAX])


def set_no_delay(transport: asyncio.BaseTransport) -> None:
    """Send small frames at once: a request waits for its response, so Nagle's algorithm would only add delay."""
    transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def set_send_buffer(transport: asyncio.BaseTransport, size_bytes: int) -> None:
    """Set what the system keeps for a peer that does not read; negative: the system decides."""
    if size_bytes >= 0:
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, size_bytes)
