"""Waiting for conditions of real processes: polling with a deadline, and what was seen last when it is missed."""

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

POLL_EVERY_S_MIN = 0.05
POLL_EVERY_S_MAX = 0.25
UNTIL_EVERY_S = 0.01
HANG_S = 60
"""For waits that last as long only if something hangs: no machine is so slow."""

_Found = TypeVar("_Found")


async def turn_until(condition: Callable[[], bool]) -> None:
    """Let the event loop turn until something holds for which the code under test has no event."""
    async with asyncio.timeout(HANG_S):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0)


async def until(poll: Callable[[], _Found | None], what: str, timeout_s: float = HANG_S) -> _Found:
    """The first true value that `poll` returns while the event loop turns; fails if none comes in time."""
    deadline_s = time.monotonic() + timeout_s
    while not (found := poll()):
        assert time.monotonic() < deadline_s, f"waited {timeout_s:g} s for {what}"
        await asyncio.sleep(UNTIL_EVERY_S)
    return found


def eventually(
    poll: Callable[[], _Found | None], timeout_s: float, what: str, seen: Callable[[], object] | None = None
) -> _Found:
    """The first true value that `poll` returns; fails after `timeout_s` with the last one, or with `seen()`.

    `poll` may raise ConnectionError while no node answers. It is called more rarely with time: the
    awaited work needs the processor.
    """
    started = time.monotonic()
    while True:
        last: object
        try:
            found = poll()
            if found:
                return found
            last = found
        except ConnectionError as error:
            last = error
        waited_s = time.monotonic() - started
        if waited_s >= timeout_s:
            shown = seen() if seen is not None else last
            raise AssertionError(f"waited {timeout_s:g} s for {what}; last seen: {shown}")
        time.sleep(min(max(waited_s / 20, POLL_EVERY_S_MIN), POLL_EVERY_S_MAX))
