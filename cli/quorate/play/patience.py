"""How long `quorate play` waits: --wait counts from the last progress, as a slow machine needs longer for all."""

import time
from collections.abc import Callable, Iterable

from quorate_operator.runtime.local.supervisor import Event

Clock = Callable[[], float]


class Patience:
    """Ends `wait_s` after the last milestone that was new.

    A node that crashes again and again reaches no new one, so that every wait ends.
    """

    def __init__(self, wait_s: float, clock: Clock = time.monotonic) -> None:
        self.wait_s = wait_s
        self._clock = clock
        self._deadline = clock() + wait_s
        self._reached: set[str] = set()

    def note(self, events: Iterable[Event]) -> None:
        """Count again from now on if one of the events is progress."""
        reached = {event.milestone for event in events if event.milestone is not None}
        if not reached <= self._reached:
            self._reached |= reached
            self._deadline = self._clock() + self.wait_s

    @property
    def is_over(self) -> bool:
        """Whether there was no progress for that long."""
        return self._clock() >= self._deadline
