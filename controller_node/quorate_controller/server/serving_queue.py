"""Connections of one listener with requests that are not served yet: the cluster's nodes first, then all clients.

Clients are served by start-time fair queueing (Goyal, Vin, Cheng: SIGCOMM 1996): each connection has an account of
the time that its requests took, and the connection that has taken least is next. So a client that asks rarely does
not wait for a round over hundreds of busy ones, and a client whose requests take long is served less often.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import deque
from enum import Enum
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final, Protocol

from quorate_protocol.kafka.apis import ApiKey

from quorate_controller.arrivals import OF_NODES

if TYPE_CHECKING:
    from collections.abc import Iterable

REQUESTS_AT_ONCE: Final = 8
"""Requests of one connection that are passed on before it is another's turn."""
SERVING_S_MAX: Final = 0.004
"""How long requests are read in one turn of the event loop, before it looks at sockets and timers again."""

_OF_QUORUM: Final = frozenset(
    {
        ApiKey.FETCH,
        ApiKey.FETCH_SNAPSHOT,
        ApiKey.VOTE,
        ApiKey.BEGIN_QUORUM_EPOCH,
        ApiKey.END_QUORUM_EPOCH,
        ApiKey.UPDATE_RAFT_VOTER,
    }
)


class ServiceClass(Enum):
    """Whose request it is. Each class has its own budget of memory; those before are served first."""

    QUORUM = "quorum"
    """Controllers, and observers of the log."""
    NODES = "nodes"
    """Brokers and controllers that register, send heartbeats or change partitions."""
    CLIENTS = "clients"
    """Connections that have authenticated, or that were served before where nobody authenticates."""
    STRANGERS = "strangers"
    """Other connections."""


def _first_bytes(keys: Iterable[int]) -> frozenset[bytes]:
    return frozenset(int(key).to_bytes(2, "big") for key in keys)


_QUORUM: Final = _first_bytes(_OF_QUORUM)
KEYS_OF_NODES: Final = _first_bytes(OF_NODES | _OF_QUORUM)
"""The first bytes of requests that only controllers and brokers send: they are recognized without parsing."""


def class_of(key: bytes | bytearray) -> ServiceClass:
    """Return the class of a request that no stranger sends, by its first two bytes."""
    if key not in KEYS_OF_NODES:
        return ServiceClass.CLIENTS
    return ServiceClass.QUORUM if key in _QUORUM else ServiceClass.NODES


class Served(Protocol):
    """A connection."""

    served_until_s: float
    """The virtual time up to which it has used its account. Virtual time passes while clients are served."""

    @property
    def has_request_of_node(self) -> bool:
        """Whether the request that is next is one that nodes send."""

    def serve(self) -> bool:
        """Pass some requests on. Returns whether more of them may be served."""


class ServingQueue:
    """Decides which connection is served next. Otherwise, thousands of requests could be parsed in one turn."""

    def __init__(self) -> None:
        self._nodes: deque[Served] = deque()
        self._clients: list[tuple[float, int, Served]] = []
        """A heap by the virtual time at which the connection's turn begins."""
        self._spent_s = 0.0
        """The virtual time at which the last turn began."""
        self._numbers = itertools.count()
        self._loop = asyncio.get_running_loop()
        self._is_scheduled = False

    def __bool__(self) -> bool:
        return bool(self._nodes or self._clients)

    def add(self, connection: Served) -> None:
        """Serve a connection: a node after other nodes, a client after those that have taken less time."""
        if connection.has_request_of_node:
            self._nodes.append(connection)
        else:
            # A connection does not save up the time in which it asked for nothing.
            begins_s = max(connection.served_until_s, self._spent_s)
            heappush(self._clients, (begins_s, next(self._numbers), connection))
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._serve)

    def _serve(self) -> None:
        self._is_scheduled = False
        now_s = time.monotonic()
        ends_s = now_s + SERVING_S_MAX
        while self._nodes and now_s < ends_s:
            connection = self._nodes.popleft()
            if connection.serve():
                self.add(connection)
            now_s = time.monotonic()
        # One client is served however many nodes there are.
        while self._clients:
            self._spent_s, _, connection = heappop(self._clients)
            is_waiting = connection.serve()
            began_s, now_s = now_s, time.monotonic()
            connection.served_until_s = self._spent_s + now_s - began_s
            if is_waiting:
                self.add(connection)
            if now_s >= ends_s:
                break
        if self and not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._serve)
