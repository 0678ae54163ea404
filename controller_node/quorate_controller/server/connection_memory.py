"""The memory of the requests and responses of all listeners.

Each class of service has a budget for requests. Bytes count when they arrive, so an announced length takes nothing.
Each connection may hold `UNCOUNTED_REQUEST_BYTES_MAX`; the rest comes from the budget of its class. While a budget is
used up, its connections are not read. If that lasts, the request that has been arriving for the longest time is
dropped, and the one that lacks least continues: a few connections that never finish their requests delay others by
`ARRIVING_S_MIN` and `CHECK_EVERY_S` at most. `Arrival` bounds the time of a single request.

Responses that clients do not read share one budget, see `ResponseMemory`. Pure: time and timers are parameters.
"""

from __future__ import annotations

import logging
from heapq import heapify, heappop
from math import inf
from typing import TYPE_CHECKING, Final

from quorate_protocol.plain_data import dataclass

from quorate_controller.scheduler import ServiceClass
from quorate_controller.server.counters import Limit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from quorate_controller.server.connection_quotas import Place
    from quorate_controller.server.counters import RequestCounters

log = logging.getLogger(__name__)

MIB: Final = 1024 * 1024
UNCOUNTED_REQUEST_BYTES_MAX: Final = 16 * 1024
"""What each connection may hold uncounted: heartbeats, votes and fetches never wait for memory."""
READ_BYTES_MAX: Final = 32 * 1024
"""Bytes that are read at once: a connection that has to wait holds no more beyond its budget."""
ARRIVING_S_MIN: Final = 0.5
"""A request that has been arriving for this long gives way when others wait for memory."""
CHECK_EVERY_S: Final = 0.1
LEAST_BYTES_PER_S: Final = 16 * 1024
"""The least rate at which an unfinished request arrives."""
CREDIT_S_MAX: Final = 10.0
"""How long a request may stall, and how far it may run ahead of the least rate."""
RESERVED_BYTES: Final[Mapping[ServiceClass, int]] = {
    ServiceClass.QUORUM: 8 * MIB,
    ServiceClass.NODES: 32 * MIB,
    ServiceClass.STRANGERS: 8 * MIB,
}
"""The budgets of the classes but `CLIENTS`, which have queued.max.request.bytes. They bound a single request, too."""
ELEMENTS_MAX: Final[Mapping[ServiceClass, int]] = {
    ServiceClass.QUORUM: 1_000_000,
    ServiceClass.NODES: 1_000_000,
    ServiceClass.CLIENTS: 300_000,
    ServiceClass.STRANGERS: 10_000,
}
"""The elements of all arrays of a request: their objects take up to a hundred times their bytes."""

UNCOUNTED_RESPONSE_BYTES_MAX: Final = 64 * 1024
"""The number of bytes that may wait on each connection without being counted."""
SLOW_S_MIN: Final = 1.0
"""A client that has read nothing of its responses for this long is slow."""
HARD_FACTOR: Final = 4
"""At this multiple of the bound, clients are closed also if they have read something in the last `SLOW_S_MIN`."""


class Arrival:
    """The time that the unfinished request of one connection may take: each byte gives it credit."""

    __slots__ = ("_credit_s", "due_s")

    def __init__(self) -> None:
        self.due_s: float | None = None
        """When the connection is closed; None while no request is unfinished, or the connection is not read."""
        self._credit_s = 0.0

    def arrived(self, size_bytes: int, now_s: float, *, is_new: bool) -> None:
        """Note bytes of an unfinished request, which `is_new` if it has just begun."""
        latest_s = now_s + CREDIT_S_MAX
        if is_new or self.due_s is None:
            self.due_s = latest_s
        else:
            self.due_s = min(latest_s, self.due_s + size_bytes / LEAST_BYTES_PER_S)

    def is_overdue(self, now_s: float) -> bool:
        """Whether the connection has to be closed."""
        return self.due_s is not None and self.due_s < now_s

    def completed(self) -> None:
        """No request is unfinished."""
        self.due_s, self._credit_s = None, 0.0

    def pause(self, now_s: float) -> None:
        """The connection is not read: that time does not count."""
        if self.due_s is not None:
            self._credit_s, self.due_s = self.due_s - now_s, None

    def resume(self, now_s: float) -> None:
        """The connection is read again."""
        if self._credit_s:
            self.due_s, self._credit_s = now_s + self._credit_s, 0.0


@dataclass(slots=True)
class _Share:
    """The part of a budget that a connection holds."""

    service_class: ServiceClass
    size_bytes: int = 0
    missing_bytes: int = 0
    """The missing bytes of its unfinished request; 0 without one."""
    began_s: float = 0.0
    """When its unfinished request began."""


class RequestMemory:
    """Counts what connections hold, class by class."""

    def __init__(
        self,
        client_bytes_max: int,
        counters: RequestCounters,
        call_later: Callable[[float, Callable[[], None]], object],
        now_s: Callable[[], float],
    ) -> None:
        """`client_bytes_max` is at least the size of a request; 0 or less for no bound."""
        self._bytes_max: dict[ServiceClass, int | None] = {
            **RESERVED_BYTES,
            ServiceClass.CLIENTS: client_bytes_max if client_bytes_max > 0 else None,
        }
        self._counters = counters
        self._call_later = call_later
        self._now_s = now_s
        self._shares: dict[Place, _Share] = {}
        self._waiting: dict[ServiceClass, set[Place]] = {each: set() for each in ServiceClass}
        self._is_checking = False
        self.used_bytes = dict.fromkeys(ServiceClass, 0)

    @property
    def total_bytes(self) -> int:
        """What is counted in all classes."""
        return sum(self.used_bytes.values())

    def size_bytes_max(self, service_class: ServiceClass) -> int | None:
        """The bound of a single request; None: no other than the listener's."""
        return self._bytes_max[service_class]

    def hold(
        self, place: Place, service_class: ServiceClass, size_bytes: int, missing_bytes: int = 0
    ) -> bool:
        """Note how many bytes a connection holds, and how many its unfinished request lacks.

        Returns whether the connection may read on; if not, `memory_granted` is called later.
        """
        size_bytes -= UNCOUNTED_REQUEST_BYTES_MAX
        share = self._shares.get(place)
        if share is None:
            if size_bytes <= 0:
                return True
            share = self._shares[place] = _Share(service_class)
        elif size_bytes <= 0:
            self.forget(place)
            return True
        else:
            self._waiting[share.service_class].discard(place)
        self.used_bytes[share.service_class] -= share.size_bytes
        self.used_bytes[service_class] += size_bytes
        if missing_bytes and not share.missing_bytes:
            share.began_s = self._now_s()
        share.service_class, share.size_bytes, share.missing_bytes = service_class, size_bytes, missing_bytes
        if not missing_bytes or self._room_bytes(service_class) > 0:
            return True
        self._wait(place, service_class)
        return False

    def forget(self, place: Place) -> None:
        """The connection holds nothing more."""
        share = self._shares.pop(place, None)
        if share is not None:
            self.used_bytes[share.service_class] -= share.size_bytes
            self._waiting[share.service_class].discard(place)

    def _room_bytes(self, service_class: ServiceClass) -> float:
        bytes_max = self._bytes_max[service_class]
        return inf if bytes_max is None else bytes_max - self.used_bytes[service_class]

    def _missing_bytes(self, place: Place) -> int:
        return self._shares[place].missing_bytes

    def _wait(self, place: Place, service_class: ServiceClass) -> None:
        waiting = self._waiting[service_class]
        if not waiting:
            used_bytes, bytes_max = self.used_bytes[service_class], self._bytes_max[service_class]
            facts = {"class": service_class.value, "used_bytes": used_bytes, "size_bytes_max": bytes_max}
            log.warning("request_memory_full", extra={"facts": facts})
        self._counters.limited[Limit.REQUEST_MEMORY] += 1
        waiting.add(place)
        self._check_later()

    def _check_later(self) -> None:
        if not self._is_checking:
            self._is_checking = True
            self._call_later(CHECK_EVERY_S, self._check)

    def _check(self) -> None:
        """Let waiting connections read again. The work is bounded: there are few checks a second."""
        self._is_checking = False
        for service_class, waiting in self._waiting.items():
            if waiting:
                self._make_room(service_class)
                self._grant(service_class)
        if any(self._waiting.values()):
            self._check_later()

    def _make_room(self, service_class: ServiceClass) -> None:
        """Close connections whose requests have been arriving for the longest time, if that is long enough.

        No connection is closed while complete requests take all of the budget: these are served soon.
        """
        latest_s = self._now_s() - ARRIVING_S_MIN
        lacks_least = min(self._waiting[service_class], key=self._missing_bytes)
        arriving = [
            (share.began_s, id(place), place, share.size_bytes)
            for place, share in self._shares.items()
            if share.service_class is service_class and share.missing_bytes and share.began_s <= latest_s
            if place is not lacks_least
        ]
        if self._room_bytes(service_class) + sum(size_bytes for *_, size_bytes in arriving) <= 0:
            return
        heapify(arriving)
        while arriving and self._room_bytes(service_class) < READ_BYTES_MAX:
            began_s, _, place, size_bytes = heappop(arriving)
            self.forget(place)
            self._counters.limited[Limit.REQUEST_MEMORY] += 1
            facts = {
                "class": service_class.value,
                "peer": place.peer,
                "size_bytes": size_bytes,
                "arriving_s": round(self._now_s() - began_s, 1),
            }
            log.warning("unfinished_request_gave_way", extra={"facts": facts})
            place.close()

    def _grant(self, service_class: ServiceClass) -> None:
        """Let connections read on as far as there is room, those first whose requests lack least."""
        waiting, room_bytes = self._waiting[service_class], self._room_bytes(service_class)
        for place in sorted(waiting, key=self._missing_bytes):
            if room_bytes <= 0:
                return
            room_bytes -= min(self._missing_bytes(place), READ_BYTES_MAX)
            waiting.discard(place)
            place.memory_granted()


class ResponseMemory:
    """Counts the bytes that wait on each connection. Beyond the bound, the client that read least recently is closed.

    Kafka's bound is one response for each connection.
    """

    def __init__(self, size_bytes_max: int, counters: RequestCounters) -> None:
        self._size_bytes_max = size_bytes_max
        self._counters = counters
        self._waiting: dict[Place, tuple[float, int]] = {}
        """Time of the last read of a client, and the bytes that wait for it; in the order of the times."""
        self.used_bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether a connection should have one request in flight at a time."""
        return self.used_bytes > self._size_bytes_max

    def waits(self, place: Place, size_bytes: int, now_s: float) -> None:
        """Note the bytes that wait for a client. With up to `UNCOUNTED_RESPONSE_BYTES_MAX` it counts as reading."""
        since_s, former = self._waiting.get(place, (now_s, 0))
        if size_bytes <= UNCOUNTED_RESPONSE_BYTES_MAX:
            if former:
                del self._waiting[place]
                self.used_bytes -= former
            return
        self._waiting[place] = since_s, size_bytes
        self.used_bytes += size_bytes - former
        while self.is_full and self._close_slowest(now_s):
            pass

    def reads(self, place: Place, now_s: float) -> None:
        """A client has read, so it is not slow."""
        waiting = self._waiting.pop(place, None)
        if waiting is not None:
            self._waiting[place] = now_s, waiting[1]

    def _close_slowest(self, now_s: float) -> bool:
        place, (since_s, size_bytes) = next(iter(self._waiting.items()))
        is_hard = self.used_bytes > HARD_FACTOR * self._size_bytes_max
        if now_s - since_s < SLOW_S_MIN and not is_hard:
            return False
        del self._waiting[place]
        self.used_bytes -= size_bytes
        self._counters.limited[Limit.RESPONSE_MEMORY] += 1
        facts = {
            "peer": place.peer,
            "unread_bytes": size_bytes,
            "unread_s": round(now_s - since_s, 1),
        }
        log.warning("slow_reader_closed", extra={"facts": facts})
        place.close()
        return True
