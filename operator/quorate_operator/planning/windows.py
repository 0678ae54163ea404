"""Weekly windows in which restarts may begin that were not requested. Pure. Times are Unix milliseconds."""

from collections.abc import Iterable
from dataclasses import dataclass

DAY_MS = 86_400_000
_WEEK_DAYS = 7
_FIRST_WEEKDAY = 3
"""1970-01-01, from which Unix time counts, was a Thursday; 0 is Monday."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A weekly window: it opens at one time on some days of the week, and may extend into the following days."""

    days: frozenset[int]
    """0 is Monday."""
    start_ms: int
    """From midnight, UTC."""
    duration_ms: int

    def opens_at_ms(self, now_ms: int) -> int:
        """Return the first time from `now_ms` on at which the window is open, which is `now_ms` while it is."""
        today = now_ms // DAY_MS
        # It comes back each week: one that began earlier and is still open began again since.
        begins = (
            day * DAY_MS + self.start_ms
            for day in range(today - _WEEK_DAYS, today + _WEEK_DAYS + 1)
            if (day + _FIRST_WEEKDAY) % _WEEK_DAYS in self.days
        )
        return min(max(begin, now_ms) for begin in begins if begin + self.duration_ms > now_ms)


def opens_at_ms(windows: Iterable[Window], now_ms: int) -> int:
    """Return the first time from `now_ms` on at which one of the windows is open; `now_ms` without windows."""
    return min((window.opens_at_ms(now_ms) for window in windows), default=now_ms)
