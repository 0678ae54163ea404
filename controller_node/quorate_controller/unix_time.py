"""From the time of turns to Unix time.

Turns, timers and deadlines are measured in milliseconds that never jump (`now_ms`). They begin as Unix time, and
differ from it once the system's clock was set, or the host was suspended. Times that others compare with their
clocks are converted: expiries of delegation tokens, times of records and of checkpoints, the times in responses to
DescribeQuorum (ADR 39).
"""

from collections.abc import Callable

UnixTime = Callable[[int], int]
"""The Unix time in ms of a time of turns."""


def unchanged(now_ms: int) -> int:
    """The time itself: the clock is not set."""
    return now_ms
