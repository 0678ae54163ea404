"""Parses large requests in a thread, so that the event loop goes on meanwhile.

A request of a few MiB may have hundreds of thousands of elements, whose objects take a second. The thread that
creates them releases the interpreter every `SWITCH_INTERVAL_S`, which the process sets. Requests of nodes have their
own thread, so they do not wait for those of clients.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, TypeVar

from quorate_controller.server.serving_queue import KEYS_OF_NODES

if TYPE_CHECKING:
    from collections.abc import Callable

    from quorate_controller.server.exchange import Exchange

PARSED_AT_ONCE_BYTES_MAX: Final = 16 * 1024
"""A smaller request is parsed on the spot: it takes at most some milliseconds."""
SWITCH_INTERVAL_S: Final = 0.001
"""How long the event loop may wait for the interpreter. Python's default is 5 ms."""

_Parsed = TypeVar("_Parsed")


class LargeRequests:
    """Parses one request of clients and one of nodes at a time, in order of arrival."""

    def __init__(self) -> None:
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
        threads = self._of_nodes if exchange.frame[:2] in KEYS_OF_NODES else self._of_clients
        future = asyncio.get_running_loop().run_in_executor(threads, parse)
        exchange.alone()
        exchange.on_abandoned(future.cancel)

        def parsed(future: asyncio.Future[Any]) -> None:
            if future.cancelled():
                return
            exchange.no_longer_alone()
            done(future.exception() or future.result())

        future.add_done_callback(parsed)

    def close(self) -> None:
        """Parse no more."""
        for threads in (self._of_clients, self._of_nodes):
            threads.shutdown(wait=False, cancel_futures=True)
