"""The wall clock of the shells; pure packages get its time as a parameter."""

import time


def now_ms() -> int:
    """Unix time in milliseconds."""
    return time.time_ns() // 1_000_000
