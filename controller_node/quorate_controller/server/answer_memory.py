"""The memory of answers that clients have asked for and do not read, on all listeners together."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, Protocol

from quorate_controller.server.counters import Limit

if TYPE_CHECKING:
    from quorate_controller.server.counters import RequestCounters

log = logging.getLogger(__name__)

UNCOUNTED_BYTES_MAX: Final = 64 * 1024
"""The number of bytes that may wait on each connection without being counted."""
SLOW_S_MIN: Final = 1.0
"""A client that has read nothing of its answers for this long is slow."""
HARD_FACTOR: Final = 4
"""At this multiple of the bound, clients are closed also if they have read something in the last `SLOW_S_MIN`."""


class Debtor(Protocol):
    """A connection with answers that wait."""

    @property
    def address(self) -> str:
        """Host and port of the client."""

    def abort(self) -> None:
        """Close now."""


class AnswerMemory:
    """Counts the bytes that wait on each connection. Beyond the bound, the client that read least recently is closed.

    Kafka's bound is one answer for each connection.
    """

    def __init__(self, size_bytes_max: int, counters: RequestCounters) -> None:
        self._size_bytes_max = size_bytes_max
        self._counters = counters
        self._waiting: dict[Debtor, tuple[float, int]] = {}
        """Since when a client has read nothing, and how many bytes wait for it; in the order of the times."""
        self.used_bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether a connection should ask for one answer at a time."""
        return self.used_bytes > self._size_bytes_max

    def waits(self, debtor: Debtor, size_bytes: int, now_s: float) -> None:
        """Note how many bytes wait for a client. With up to `UNCOUNTED_BYTES_MAX` it counts as reading."""
        since_s, former = self._waiting.get(debtor, (now_s, 0))
        if size_bytes <= UNCOUNTED_BYTES_MAX:
            if former:
                del self._waiting[debtor]
                self.used_bytes -= former
            return
        self._waiting[debtor] = since_s, size_bytes
        self.used_bytes += size_bytes - former
        while self.is_full and self._close_slowest(now_s):
            pass

    def reads(self, debtor: Debtor, now_s: float) -> None:
        """A client has read, so it is not slow."""
        waiting = self._waiting.pop(debtor, None)
        if waiting is not None:
            self._waiting[debtor] = now_s, waiting[1]

    def _close_slowest(self, now_s: float) -> bool:
        debtor, (since_s, size_bytes) = next(iter(self._waiting.items()))
        is_hard = self.used_bytes > HARD_FACTOR * self._size_bytes_max
        if now_s - since_s < SLOW_S_MIN and not is_hard:
            return False
        del self._waiting[debtor]
        self.used_bytes -= size_bytes
        self._counters.limited[Limit.ANSWER_MEMORY] += 1
        facts = {
            "peer": debtor.address,
            "unread_bytes": size_bytes,
            "unread_s": round(now_s - since_s, 1),
        }
        log.warning("slow_reader_closed", extra={"facts": facts})
        debtor.abort()
        return True
