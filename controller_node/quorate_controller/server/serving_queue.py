"""Connections of one listener with requests that are not served yet, in turn."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, Protocol

REQUESTS_AT_ONCE: Final = 8
"""Requests of one connection that are passed on before it is another's turn."""
SERVING_S_MAX: Final = 0.01
"""How long requests are read in one turn of the event loop, before it looks at sockets and timers again."""


class Served(Protocol):
    """A connection."""

    def serve(self) -> None:
        """Pass some requests on; ask for another turn if there are more."""


class ServingQueue:
    """Whose turn it is. Without it, thousands of requests that came at once would be parsed at once."""

    def __init__(self) -> None:
        self._waiting: deque[Served] = deque()
        self._loop = asyncio.get_running_loop()
        self._is_scheduled = False

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, connection: Served) -> None:
        """Serve a connection after those that wait already."""
        self._waiting.append(connection)
        self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._serve)

    def _serve(self) -> None:
        self._is_scheduled = False
        ends_s = self._loop.time() + SERVING_S_MAX
        while self._waiting and self._loop.time() < ends_s:
            self._waiting.popleft().serve()
        if self._waiting:
            self._schedule()
