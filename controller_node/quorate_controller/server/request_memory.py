"""The memory of the large requests of one listener, shared by its connections (queued.max.request.bytes)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, Protocol

from quorate_controller.server.counters import Limit

if TYPE_CHECKING:
    from quorate_controller.server.counters import RequestCounters

log = logging.getLogger(__name__)

UNCOUNTED_BYTES_MAX: Final = 16 * 1024
"""Requests up to this size need no share: heartbeats, votes and fetches never wait for those who send large ones."""


class Waiter(Protocol):
    """A connection that has read no more than the length of a large request."""

    def memory_granted(self) -> None:
        """The requested share is available: read on."""


class RequestMemory:
    """Counts large requests from the moment that their length is known until they are answered.

    A request gets its share whole before more of it is read, so that it can always be completed; those that wait
    get theirs in the order in which they asked. Kafka's MemoryPool does the same, but admits one request more.
    """

    def __init__(self, listener: str, size_bytes_max: int, counters: RequestCounters) -> None:
        """`size_bytes_max` is at least that of one request; 0 or less for no bound."""
        self._listener = listener
        self._size_bytes_max = size_bytes_max
        self._counters = counters
        self._waiting: dict[Waiter, int] = {}
        self.used_bytes = 0

    def reserve(self, size_bytes: int, waiter: Waiter) -> bool:
        """Take a share for a request whose length is known. False: `waiter` hears of it later."""
        if not self._waiting and self._has_room(size_bytes):
            self.used_bytes += size_bytes
            return True
        if not self._waiting:
            facts = {
                "listener": self._listener,
                "used_bytes": self.used_bytes,
                "size_bytes_max": self._size_bytes_max,
            }
            log.warning("request_memory_full", extra={"facts": facts})
        self._counters.limited[Limit.REQUEST_MEMORY] += 1
        self._waiting[waiter] = size_bytes
        return False

    def take(self, size_bytes: int) -> None:
        """Count a request that was received as a whole."""
        self.used_bytes += size_bytes

    def release(self, size_bytes: int) -> None:
        """Give a share back, and pass on what is free."""
        self.used_bytes -= size_bytes
        self._grant()

    def withdraw(self, waiter: Waiter) -> None:
        """Forget a waiter."""
        del self._waiting[waiter]
        self._grant()

    def _has_room(self, size_bytes: int) -> bool:
        return self._size_bytes_max <= 0 or self.used_bytes + size_bytes <= self._size_bytes_max

    def _grant(self) -> None:
        while self._waiting:
            waiter, size_bytes = next(iter(self._waiting.items()))
            if not self._has_room(size_bytes):
                return
            del self._waiting[waiter]
            self.used_bytes += size_bytes
            waiter.memory_granted()
