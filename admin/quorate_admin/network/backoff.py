"""How long to wait before the next try."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random

JITTER = 0.2


def backoff_ms(failures: int, first_ms: int, max_ms: int, random: "Random") -> int:
    """The wait after this many failures in a row: it doubles up to the maximum, give or take a fifth (KIP-580).

    Without a failure, and with `first_ms` 0, there is none.
    """
    if failures <= 0 or first_ms <= 0:
        return 0
    # Past 31 doublings any maximum is reached; the bound keeps the number small.
    wait_ms = min(first_ms << min(failures - 1, 31), max(max_ms, first_ms))
    return round(wait_ms * random.uniform(1 - JITTER, 1 + JITTER))
