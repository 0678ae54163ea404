"""Parses large requests in a thread, so that the event loop goes on meanwhile.

A request of a few MiB may have hundreds of thousands of elements, whose objects take a second. The thread that
creates them releases the interpreter every `SWITCH_INTERVAL_S`, which the process sets. Requests of nodes have their
own thread, so they do not wait for those of clients.

The objects of a request take up to a hundred times its bytes, which are what `queued.max.request.bytes` counts. So
there are few parsed requests of clients at a time: the others wait as bytes until those are answered.
"""

from __future__ import annotations

import asyncio
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from quorate_controller.server.serving_queue import KEYS_OF_NODES

if TYPE_CHECKING:
    from collections.abc import Callable

    from quorate_controller.server.exchange import Exchange

PARSED_AT_ONCE_BYTES_MAX: Final = 16 * 1024
"""A smaller request is parsed on the spot: it takes at most some milliseconds."""
SWITCH_INTERVAL_S: Final = 0.001
"""How long the event loop may wait for the interpreter. Python's default is 5 ms."""
PARSED_BYTES_MAX: Final = 2 * 1024 * 1024
"""The size of the huge requests of clients that are parsed and not answered, where a single one may be larger; and
that of the other large ones.
"""
HUGE_BYTES_MIN: Final = 256 * 1024
"""Requests of this size and more have a bound of their own: they take long, and others should not wait for them."""

_Parsed = TypeVar("_Parsed")


class _Unparsed(NamedTuple):
    """A request that waits until others are answered."""

    exchange: Exchange
    parse: Callable[[], Any]
    done: Callable[[Any], None]


class LargeRequests:
    """Parses one request of clients and one of nodes at a time, in order of arrival."""

    def __init__(self) -> None:
        self._unparsed: deque[_Unparsed] = deque()
        self._parsed: set[Exchange] = set()
        """Requests of clients that are being parsed or answered."""
        self._of_clients = ThreadPoolExecutor(1, thread_name_prefix="parsing")
        self._of_nodes = ThreadPoolExecutor(1, thread_name_prefix="parsing-of-nodes")

    def parse(
        self,
        exchange: Exchange,
        parse: Callable[[], _Parsed],
        done: Callable[[_Parsed | BaseException], None],
    ) -> None:
        """Call `parse` in a thread, then `done` with what it returned or raised, unless the connection is gone.

        The connection takes no other request until then.
        """
        exchange.alone()
        if exchange.frame[:2] in KEYS_OF_NODES:
            self._begin(self._of_nodes, exchange, parse, done)
        elif exchange in self._parsed:  # what is in an envelope is parsed after the envelope
            self._begin(self._of_clients, exchange, parse, done)
        else:
            unparsed = _Unparsed(exchange, parse, done)
            self._unparsed.append(unparsed)
            exchange.on_abandoned(partial(self._withdraw, unparsed))
            self._begin_next()

    def _begin_next(self) -> None:
        """Parse those that have waited longest and have room."""
        kept: deque[_Unparsed] = deque()
        waiting_kinds: set[bool] = set()
        for unparsed in self._unparsed:
            exchange, parse, done = unparsed
            is_huge = _is_huge(exchange)
            if is_huge in waiting_kinds or not self._has_room(exchange):
                waiting_kinds.add(is_huge)
                kept.append(unparsed)
                continue
            self._parsed.add(exchange)
            exchange.on_ended(partial(self._ended, exchange))
            self._begin(self._of_clients, exchange, parse, done)
        self._unparsed = kept

    def _has_room(self, exchange: Exchange) -> bool:
        others = [len(one.frame) for one in self._parsed if _is_huge(one) is _is_huge(exchange)]
        return not others or sum(others) + len(exchange.frame) <= PARSED_BYTES_MAX

    def _withdraw(self, unparsed: _Unparsed) -> None:
        self._unparsed.remove(unparsed)

    def _ended(self, exchange: Exchange) -> None:
        self._parsed.discard(exchange)
        self._begin_next()

    @staticmethod
    def _begin(
        threads: ThreadPoolExecutor,
        exchange: Exchange,
        parse: Callable[[], _Parsed],
        done: Callable[[_Parsed | BaseException], None],
    ) -> None:
        future = asyncio.get_running_loop().run_in_executor(threads, parse)
        exchange.on_abandoned(future.cancel)

        def parsed(future: asyncio.Future[Any]) -> None:
            if future.cancelled():
                return
            exchange.no_longer_alone()
            done(future.exception() or future.result())

        future.add_done_callback(parsed)

    def close(self) -> None:
        """Parse no more."""
        self._unparsed.clear()
        for threads in (self._of_clients, self._of_nodes):
            threads.shutdown(wait=False, cancel_futures=True)


def _is_huge(exchange: Exchange) -> bool:
    return len(exchange.frame) >= HUGE_BYTES_MIN
