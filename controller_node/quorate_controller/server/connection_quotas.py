"""The bounds of connections that all listeners of a process share, as Kafka's ConnectionQuotas.

Each accepted connection takes a `Place`, from before its TLS handshake until it is gone. A place is in one of four
stages: its handshake has not begun, it is under way, its client is still a stranger, or a request of it was served,
behind authentication where the listener requires it. When no place is free, Kafka accepts no connection until another
one ends, so that a client that holds all places keeps controllers and brokers out. Here the stranger that came first
loses its place, or else a client without a request for `IDLE_S_MIN`. Voters and brokers send requests more often.

`ConnectionQuotas` is pure: time is a parameter, in seconds of a monotonic clock. `bounds_of` derives its limits from
the configuration, the addresses of hosts, and the open files that the system allows. Source of the rules:
SocketServer.ConnectionQuotas and Rate of Kafka 4.0, KIP-402, KIP-612.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import resource
import socket
import sys
from collections import OrderedDict, deque
from dataclasses import field
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from quorate_protocol.bounded_http.places import DEFAULT_BOUNDS
from quorate_protocol.file_limit import raise_file_limit
from quorate_protocol.plain_data import dataclass

from quorate_controller.config.connection_limits import MAX_CONNECTIONS, OVERRIDES
from quorate_controller.server.counters import Limit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from quorate_controller.config import ControllerConfig
    from quorate_controller.server.counters import RequestCounters

log = logging.getLogger(__name__)

IDLE_S_MIN: Final = 10.0
"""A client that was served keeps its place for this long: a broker silent for longer loses its session, too."""
HANDSHAKES_MAX: Final = 256
"""Handshakes of a listener under way. Each costs a millisecond or two of the event loop, perhaps all at once."""
HANDSHAKE_S_MIN: Final = 0.5
"""How long a handshake keeps its place at HANDSHAKES_MAX: many clients may connect at the same time."""
UNBOUNDED: Final = 2**31 - 1
"""Kafka's default of each of these limits."""

FILES_KEPT: Final = 200
"""File descriptors that no connection of a client can use: for the log, snapshots, peers, and their replacements."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """Kafka's limits of connections."""

    total_max: int = 10_000
    """max.connections"""
    files_max: int = UNBOUNDED
    """Connections for which there are file descriptors: also those beyond `total_max` of a protected listener."""
    of_listener: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """listener.name.<name>.max.connections, by the name of the listener; not there: `total_max`."""
    per_host_max: int = UNBOUNDED
    """max.connections.per.ip"""
    of_host: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """max.connections.per.ip.overrides, by address."""
    rate_max: int = UNBOUNDED
    """max.connection.creation.rate: connections a second."""
    rate_of_listener: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """listener.name.<name>.max.connection.creation.rate; not there: `rate_max`."""
    windows: int = 11
    """quota.window.num"""
    window_s: float = 1.0
    """quota.window.size.seconds"""
    protected_listener: str | None = None
    """The listener whose connections are accepted beyond `total_max`; those of other listeners give way."""


class Stage(Enum):
    """The progress of the client of a connection."""

    SILENT = "silent"
    """A TLS handshake is to come."""
    HANDSHAKE = "handshake"
    STRANGER = "stranger"
    SERVED = "served"


class Place:
    """One connection, from its accept until it is gone."""

    __slots__ = ("close", "host", "is_taken", "listener", "memory_granted", "peer", "stage", "used_s")

    def __init__(self, listener: str, host: str, peer: str, stage: Stage, now_s: float) -> None:
        self.listener = listener
        self.host = host
        self.peer = peer
        self.stage = stage
        self.used_s = now_s
        """When it came, or when a request of it was last served."""
        self.is_taken = True
        self.close: Callable[[], object] = _nothing
        """Closes the connection at once. Set by the connection, as is `memory_granted`."""
        self.memory_granted: Callable[[], object] = _nothing
        """Called once there is memory for more of its unfinished request."""


def _nothing() -> None:
    pass


class _Places:
    """The places of one listener. Those of each stage are in the order of `used_s`."""

    def __init__(self, name: str, places_max: int, rate: SampledRate) -> None:
        self.name = name
        self.places_max = places_max
        self.rate = rate
        self.by_stage: dict[Stage, OrderedDict[Place, None]] = {stage: OrderedDict() for stage in Stage}
        self.is_full = False
        """Whether that was logged."""

    def __len__(self) -> int:
        return sum(map(len, self.by_stage.values()))

    def first(self, stage: Stage) -> Place | None:
        """The place that was used longest ago."""
        return next(iter(self.by_stage[stage]), None)


class ConnectionQuotas:
    """The places of one process."""

    def __init__(self, limits: ConnectionLimits, listeners: Iterable[str], counters: RequestCounters) -> None:
        self._limits = limits
        self._counters = counters
        self._rate = self._new_rate(limits.rate_max)
        self._by_listener = {
            name: _Places(
                name,
                limits.of_listener.get(name, limits.total_max),
                self._new_rate(limits.rate_of_listener.get(name, limits.rate_max)),
            )
            for name in listeners
        }
        # As in Kafka, a listener that is alone is not protected: there would be no limit.
        is_protecting = len(self._by_listener) > 1
        self._protected = limits.protected_listener if is_protecting else None
        self._of_host: dict[str, int] = {}
        self.count = 0

    def _new_rate(self, rate_max: int) -> SampledRate:
        return SampledRate(rate_max, windows=self._limits.windows, window_s=self._limits.window_s)

    def enter(self, listener: str, host: str, peer: str, stage: Stage, now_s: float) -> Place | None:
        """Return the place of a new connection; None if the connection has to be closed."""
        of_host_max = self._limits.of_host.get(host, self._limits.per_host_max)
        if self._of_host.get(host, 0) >= of_host_max:
            facts = {"listener": listener, "peer": peer, "connections_of_host_max": of_host_max}
            self._note(Limit.CONNECTIONS_OF_HOST, "host_has_too_many_connections", facts)
            return None
        places = self._by_listener[listener]
        if not self._make_room(places, peer, now_s):
            return None
        place = Place(listener, host, peer, stage, now_s)
        places.by_stage[stage][place] = None
        self._of_host[host] = self._of_host.get(host, 0) + 1
        self.count += 1
        return place

    def _make_room(self, places: _Places, peer: str, now_s: float) -> bool:
        if len(places) >= places.places_max:
            if self._evict_first((places,), now_s):
                return True
        elif (
            self.count < self._limits.total_max
            or self._evict_first(self._unprotected(first=places), now_s)
            or (places.name == self._protected and self._has_file(places, now_s))
        ):
            return True
        facts = {"listener": places.name, "connections_max": places.places_max, "peer": peer}
        self._counters.limited[Limit.CONNECTIONS] += 1
        if not places.is_full:
            log.warning("listener_full", extra={"facts": facts})
        places.is_full = True
        return False

    def _has_file(self, places: _Places, now_s: float) -> bool:
        """Whether there is a file descriptor for another connection of the protected listener.

        Without one, a client of another listener gives way even if it is not idle.
        """
        return (
            self.count < self._limits.files_max
            or self._evict_first((places,), now_s)
            or self._evict_first(self._unprotected(first=places), now_s + IDLE_S_MIN)
        )

    def _unprotected(self, first: _Places) -> list[_Places]:
        found = [places for places in self._by_listener.values() if places.name != self._protected]
        return sorted(found, key=lambda places: places is not first)

    def _evict_first(self, candidates: Iterable[_Places], now_s: float) -> bool:
        """Free a place of a stranger, or of an idle client; False without one."""
        in_turn = list(candidates)
        for stage in Stage:
            idle_s_min = IDLE_S_MIN if stage is Stage.SERVED else 0.0
            for places in in_turn:
                place = places.first(stage)
                if place is not None and now_s - place.used_s >= idle_s_min:
                    self._evict(place, Limit.CONNECTIONS, now_s)
                    return True
        return False

    def _evict(self, place: Place | None, limit: Limit, now_s: float) -> None:
        assert place is not None, "some are there, or the limit would not be reached"
        facts = {
            "listener": place.listener,
            "peer": place.peer,
            "stage": place.stage.value,
            "idle_s": round(now_s - place.used_s, 1),
            "limit": limit.value,
        }
        self._note(limit, "connection_gave_way", facts)
        close = place.close
        self.leave(place)
        close()

    def _note(self, limit: Limit, event: str, facts: Mapping[str, object]) -> None:
        self._counters.limited[limit] += 1
        log.warning(event, extra={"facts": facts})

    def handshake_delay_s(self, listener: str, now_s: float) -> float:
        """Return for how long a listener must begin no other handshake, because none under way is slow yet."""
        handshakes = self._by_listener[listener].by_stage[Stage.HANDSHAKE]
        if len(handshakes) < HANDSHAKES_MAX:
            return 0.0
        return max(0.0, next(iter(handshakes)).used_s + HANDSHAKE_S_MIN - now_s)

    def delay_s(self, listener: str, now_s: float) -> float:
        """Count a new connection; return for how long its listener must accept no other."""
        rates = [self._by_listener[listener].rate]
        if listener != self._protected:
            rates.append(self._rate)
        delay_s = max(rate.record(now_s) for rate in rates)
        if delay_s > 0:
            facts = {"listener": listener, "delay_ms": round(delay_s * 1000)}
            self._note(Limit.CREATION_RATE, "connections_created_too_fast", facts)
        return delay_s

    def shakes_hands(self, place: Place, now_s: float) -> None:
        """A TLS handshake begins. If too many are under way, the oldest of them ends."""
        places = self._by_listener[place.listener]
        if len(places.by_stage[Stage.HANDSHAKE]) >= HANDSHAKES_MAX:
            self._evict(places.first(Stage.HANDSHAKE), Limit.HANDSHAKES, now_s)
        place.used_s = now_s
        self._move(place, Stage.HANDSHAKE)

    def shook_hands(self, place: Place, now_s: float) -> None:
        """The TLS handshake is done."""
        if place.stage is Stage.HANDSHAKE:
            place.used_s = now_s
            self._move(place, Stage.STRANGER)

    def served(self, place: Place, now_s: float) -> None:
        """A request of the connection was served, after authentication where the listener requires it."""
        place.used_s = now_s
        if place.stage is not Stage.SERVED:
            self._move(place, Stage.SERVED)
        elif place.is_taken:
            self._by_listener[place.listener].by_stage[Stage.SERVED].move_to_end(place)

    def _move(self, place: Place, stage: Stage) -> None:
        if place.is_taken:
            by_stage = self._by_listener[place.listener].by_stage
            del by_stage[place.stage][place]
            by_stage[stage][place] = None
        place.stage = stage

    def leave(self, place: Place) -> None:
        """The connection is gone. Without effect if it has lost its place."""
        place.close = _nothing  # it refers to the connection, and the connection to its place
        place.memory_granted = _nothing
        if not place.is_taken:
            return
        place.is_taken = False
        places = self._by_listener[place.listener]
        del places.by_stage[place.stage][place]
        places.is_full = False
        self.count -= 1
        self._of_host[place.host] -= 1
        if not self._of_host[place.host]:
            del self._of_host[place.host]

    def count_of(self, listener: str) -> int:
        """Connections of a listener, those included whose handshake is under way."""
        return len(self._by_listener[listener])

    def strangers(self, listener: str, before_s: float) -> list[Place]:
        """The connections that a listener accepted before a time, and that were never served."""
        found = []
        for place in self._by_listener[listener].by_stage[Stage.STRANGER]:
            if place.used_s >= before_s:
                break
            found.append(place)
        return found


class SampledRate:
    """Events a second over the last windows, the present one included, as Kafka's Rate with a Quota."""

    def __init__(self, rate_max: int, *, windows: int, window_s: float) -> None:
        # Kafka divides by the bound: with 0, each new connection waits for the longest possible delay.
        self._rate_max = rate_max or sys.float_info.min
        self._windows = windows
        self._window_s = window_s
        self._samples: deque[tuple[float, int]] = deque()
        """Begin and events of each window."""

    def record(self, now_s: float) -> float:
        """Count an event; return how long to wait until the rate is within its bound, one window at most."""
        if self._rate_max >= UNBOUNDED:
            return 0.0
        samples = self._samples
        while samples and now_s - samples[0][0] >= self._windows * self._window_s:
            samples.popleft()
        if samples and now_s - samples[-1][0] < self._window_s:
            began_s, events = samples.pop()
            samples.append((began_s, events + 1))
        else:
            samples.append((now_s, 1))
        elapsed_s = self._elapsed_s(now_s)
        rate = sum(events for _, events in samples) / elapsed_s
        if rate <= self._rate_max:
            return 0.0
        return min((rate - self._rate_max) / self._rate_max * elapsed_s, self._window_s)

    def _elapsed_s(self, now_s: float) -> float:
        """Return the time since the first sample, at least all windows but the present one, as in Kafka."""
        elapsed_s = now_s - self._samples[0][0]
        missing = self._windows - 1 - int(elapsed_s / self._window_s)
        return max(elapsed_s + max(missing, 0) * self._window_s, 0.001)


class UnknownHostError(Exception):
    """A host of max.connections.per.ip.overrides has no address."""


async def bounds_of(config: ControllerConfig) -> ConnectionLimits:
    """Resolve the hosts and raise the limit of open files; return the limits. Raises UnknownHostError."""
    connections = config.connections
    windows, window_s = config.values["quota.window.num"], config.values["quota.window.size.seconds"]
    assert isinstance(windows, int)
    assert isinstance(window_s, int)
    possible = _possible_connections(raise_file_limit(), has_pages=config.http_listener is not None)
    return ConnectionLimits(
        total_max=_within_files(connections.total_max, possible),
        files_max=possible,
        of_listener=connections.of_listener,
        per_host_max=connections.per_host_max,
        of_host=await _addresses(connections.of_host),
        rate_max=connections.rate_max,
        rate_of_listener=connections.rate_of_listener,
        windows=windows,
        window_s=window_s,
        # Controllers and brokers connect to this listener, which corresponds to Kafka's inter-broker listener.
        protected_listener=config.controller_listener_names[0],
    )


def _possible_connections(files_max: int, *, has_pages: bool) -> int:
    """Return the number of connections that the Kafka listeners may have, beside the files and the HTTP pages.

    A controller that can't open a file of its log ends, so connections must not take the last file descriptors.
    """
    if files_max == resource.RLIM_INFINITY:
        return UNBOUNDED
    return max(files_max - FILES_KEPT - (DEFAULT_BOUNDS.files_max if has_pages else 0), 1)


def _within_files(connections_max: int, possible: int) -> int:
    if connections_max <= possible:
        return connections_max
    facts = {"limit": MAX_CONNECTIONS, "configured": connections_max, "applied": possible}
    log.warning("connections_bounded_by_open_files", extra={"facts": facts})
    return possible


async def _addresses(of_host: Mapping[str, int]) -> Mapping[str, int]:
    loop = asyncio.get_running_loop()
    found: dict[str, int] = {}
    for host, connections_max in of_host.items():
        try:
            addresses = {str(ipaddress.ip_address(host))}
        except ValueError:
            try:
                infos = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
            except OSError as error:
                raise UnknownHostError(f"{OVERRIDES}: {host} has no address: {error}") from None
            addresses = {str(address[0]) for *_, address in infos}
        found |= dict.fromkeys(addresses, connections_max)
    return found
