"""Limits of an HTTP server's connections, by number and time. Pure: time is a parameter, in monotonic seconds.

A connection has a place from its accept until it is gone. Its state says what it waits for:

| state | waits for | may last | gives way to a newcomer |
|---|---|---|---|
| ARRIVING | a whole request of the client, the first or the next | `request_s_max` | yes, the oldest first |
| WAITING | the rate of its address | `handling_s_max` | yes, the oldest first |
| HANDLING | our handler | `handling_s_max` | no |
| RESPONDING | the client, which reads the response | `response_s_max` | no |
| STREAMING | changes that we send, each as a response | | no |

When one address has all its places, its own oldest gives way. When all places are taken, the oldest of the address
with the most places gives way, so that strangers with few addresses do not displace a scraper.
"""

from __future__ import annotations

from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Final

from quorate_protocol.counted_address import counted_address
from quorate_protocol.plain_data import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ADDRESSES_MAX: Final = 1024
"""Addresses whose rate is remembered; the one that came first is forgotten."""


class HttpLimit(StrEnum):
    """What was applied to a connection: the label `limit` of a metric."""

    CONNECTIONS = "http.connections"
    CONNECTIONS_OF_ADDRESS = "http.connections.of.address"
    REQUEST_RATE = "http.request.rate"
    REQUEST_TIME = "http.request.time"
    HANDLING_TIME = "http.handling.time"
    RESPONSE_TIME = "http.response.time"
    BAD_REQUEST = "http.bad.request"


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpBounds:
    """The bounds of one HTTP server. The defaults are for probes and scrapers."""

    connections_max: int = 64
    connections_of_address_max: int = 16
    requests_of_address_per_s_max: float = 20.0
    """Further requests wait, and keep their places."""
    request_s_max: float = 5.0
    handling_s_max: float = 60.0
    response_s_max: float = 5.0
    header_line_bytes_max: int = 4096
    headers_max: int = 32
    body_bytes_max: int = 4096

    @property
    def files_max(self) -> int:
        """The file descriptors of the server: its connections, one that is being refused, the listening sockets."""
        return self.connections_max + 3


DEFAULT_BOUNDS: Final = HttpBounds()


class State(Enum):
    """What a connection waits for."""

    ARRIVING = "arriving"
    WAITING = "waiting"
    HANDLING = "handling"
    RESPONDING = "responding"
    STREAMING = "streaming"


_LIMIT: Final = {
    State.ARRIVING: HttpLimit.REQUEST_TIME,
    State.WAITING: HttpLimit.HANDLING_TIME,
    State.HANDLING: HttpLimit.HANDLING_TIME,
    State.RESPONDING: HttpLimit.RESPONSE_TIME,
}


class Place:
    """One connection."""

    __slots__ = ("address", "close", "is_taken", "peer", "since_s", "state")

    def __init__(self, address: str, peer: str, close: Callable[[], object], now_s: float) -> None:
        self.address = address
        """The address that connections are counted by: an IPv4 address, or the first 64 bits of an IPv6 address."""
        self.peer = peer
        self.close = close
        """Ends the connection at once."""
        self.state = State.ARRIVING
        self.since_s = now_s
        """When the state began."""
        self.is_taken = True


class HttpPlaces:
    """The places of one server. `note` gets each limit that applies, and the peer."""

    def __init__(self, bounds: HttpBounds, note: Callable[[HttpLimit, str], None]) -> None:
        self._bounds = bounds
        self._note = note
        self._places: dict[Place, None] = {}
        """In the order in which their states began."""
        self._of_address: dict[str, int] = {}
        self._due_s: dict[str, float] = {}
        """When the next request of an address is due."""

    def __len__(self) -> int:
        return len(self._places)

    def admit(self, host: str, peer: str, close: Callable[[], object], now_s: float) -> Place | None:
        """Return the place of a new connection; None if it has to be closed."""
        address = counted_address(host)
        if self._of_address.get(address, 0) >= self._bounds.connections_of_address_max:
            limit, giving_way = HttpLimit.CONNECTIONS_OF_ADDRESS, self._oldest(address)
        elif len(self._places) >= self._bounds.connections_max:
            limit, giving_way = HttpLimit.CONNECTIONS, self._oldest_of_largest()
        else:
            return self._add(Place(address, peer, close, now_s))
        if giving_way is None:
            self._note(limit, peer)
            return None
        self._end(giving_way, limit)
        return self._add(Place(address, peer, close, now_s))

    def _add(self, place: Place) -> Place:
        self._places[place] = None
        self._of_address[place.address] = self._of_address.get(place.address, 0) + 1
        return place

    def _oldest(self, address: str) -> Place | None:
        return next((place for place in self._giving_way() if place.address == address), None)

    def _oldest_of_largest(self) -> Place | None:
        # max returns the first of several, which is the oldest.
        return max(self._giving_way(), key=lambda place: self._of_address[place.address], default=None)

    def _giving_way(self) -> Iterator[Place]:
        return (place for place in self._places if place.state in (State.ARRIVING, State.WAITING))

    def _end(self, place: Place, limit: HttpLimit) -> None:
        self._note(limit, place.peer)
        self.leave(place)
        place.close()

    def enter(self, place: Place, state: State, now_s: float) -> None:
        """The connection waits for something else from now on."""
        place.state = state
        place.since_s = now_s
        if place.is_taken:
            del self._places[place]
            self._places[place] = None

    def leave(self, place: Place) -> None:
        """The connection is gone. Without effect if it has lost its place."""
        if not place.is_taken:
            return
        place.is_taken = False
        del self._places[place]
        self._of_address[place.address] -= 1
        if not self._of_address[place.address]:
            del self._of_address[place.address]

    def end_late(self, now_s: float) -> None:
        """Close the connections that have waited for too long."""
        bounds = self._bounds
        may_last_s = {
            State.ARRIVING: bounds.request_s_max,
            State.WAITING: bounds.handling_s_max,
            State.HANDLING: bounds.handling_s_max,
            State.RESPONDING: bounds.response_s_max,
        }
        for place in list(self._places):
            if place.state in may_last_s and now_s - place.since_s >= may_last_s[place.state]:
                self._end(place, _LIMIT[place.state])

    def delay_s(self, place: Place, now_s: float) -> float:
        """Count a request; return for how long it has to wait. A second's requests may come at once."""
        interval_s = 1 / self._bounds.requests_of_address_per_s_max
        # Requests whose clients left while they waited count, too, but not for ever.
        due_s_max = now_s + 1.0 + self._bounds.connections_of_address_max * interval_s
        # Removed and stored again, so that the address used longest ago is the first.
        due_s = max(self._due_s.pop(place.address, now_s), now_s)
        self._due_s[place.address] = min(due_s + interval_s, due_s_max)
        if len(self._due_s) > ADDRESSES_MAX:
            del self._due_s[next(iter(self._due_s))]
        delay_s = max(0.0, due_s - now_s - 1.0)
        if delay_s > 0:
            self._note(HttpLimit.REQUEST_RATE, place.peer)
        return delay_s
