"""Since when nothing could be read from the API server, as the requests of one client found it."""

import time
from collections.abc import Callable


class Reachability:
    """The age of the last answer. A request that waits for its time limit counts from its beginning."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._responded_s = clock()
        self._failing_since_s: float | None = None
        self.problem = ""
        """Why the last request was not answered; empty while requests are answered."""

    def now_s(self) -> float:
        """Return the time that `failed` takes."""
        return self._clock()

    def succeeded(self) -> None:
        """Record that the API server answered, if only with a refusal."""
        self._responded_s = self._clock()
        self._failing_since_s = None
        self.problem = ""

    def failed(self, began_s: float, problem: str) -> None:
        """Record that a request that began at this time was not answered, or that nothing is served."""
        if self._responded_s > began_s:
            return  # others were answered meanwhile
        if self._failing_since_s is None:
            self._failing_since_s = began_s
        self.problem = problem

    @property
    def quiet_s(self) -> float:
        """The time since the last answer, in which nothing may have been requested."""
        return self._clock() - self._responded_s

    @property
    def unread_s(self) -> float:
        """The time since which no request was answered; 0 while requests are answered, or none was sent."""
        return 0.0 if self._failing_since_s is None else self._clock() - self._failing_since_s
