"""Parses large requests in a thread, so that the event loop goes on meanwhile.

A request of a few MiB may have hundreds of thousands of elements, whose objects take a second. The thread that
creates them releases the interpreter every `SWITCH_INTERVAL_S`, which the process sets. Requests of nodes have their
own thread, so they do not wait for those of clients.

The objects of a request take up to a hundred times its bytes, which are what budgets of memory count. So there are
few parsed requests of clients at a time: the others wait as bytes until those are answered.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from quorate_controller.scheduler import Budget, ServiceClass

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

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


class LargeRequests:
    """Parses one request of clients and one of nodes at a time."""

    def __init__(self) -> None:
        self._huge, self._large = Budget(PARSED_BYTES_MAX), Budget(PARSED_BYTES_MAX)
        self._of_clients = ThreadPoolExecutor(1, thread_name_prefix="parsing")
        self._of_nodes = ThreadPoolExecutor(1, thread_name_prefix="parsing-of-nodes")

    def parsing(
        self,
        exchange: Exchange,
        parse: Callable[[], _Parsed],
        done: Callable[[_Parsed | BaseException], None],
    ) -> Generator[asyncio.Future[Any], None, None]:
        """Call `parse` in a thread, then `done` with what it returned or raised, unless the connection is gone."""
        threads, size_bytes = self._of_nodes, len(exchange.frame)
        if exchange.service_class in (ServiceClass.CLIENTS, ServiceClass.STRANGERS):
            threads = self._of_clients
            budget = self._huge if size_bytes >= HUGE_BYTES_MIN else self._large
            while not budget.has_room(exchange, size_bytes):
                yield budget.freed()
            # What is in an envelope is parsed after the envelope, in the room that this has.
            budget.hold(exchange, size_bytes)
            exchange.on_ended(partial(budget.release, exchange))
        future = asyncio.get_running_loop().run_in_executor(threads, parse)
        exchange.on_abandoned(future.cancel)
        yield future
        if not future.cancelled():
            exchange.release()
            done(future.exception() or future.result())

    def close(self) -> None:
        """Parse no more."""
        for threads in (self._of_clients, self._of_nodes):
            threads.shutdown(wait=False, cancel_futures=True)
