"""Since when nothing could be read from the API server, as the requests of one client found it."""

import time
from collections.abc import Callable


class Reachability:
    """The age of the last response. A request that waits for its time limit counts from its beginning."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._responded_s = clock()
        self._failing_since_s: float | None = None
        self.problem = ""
        """Why the last request had no response; empty while requests have responses."""

    def now_s(self) -> float:
        """Return the time that `failed` takes."""
        return self._clock()

    def succeeded(self) -> None:
        """Record that the API server responded, if only with a refusal."""
        self._responded_s = self._clock()
        self._failing_since_s = None
        self.problem = ""

    def failed(self, began_s: float, problem: str) -> None:
        """Record that a request that began at this time had no response, or that nothing is served."""
        if self._responded_s > began_s:
            return  # others had responses meanwhile
        if self._failing_since_s is None:
            self._failing_since_s = began_s
        self.problem = problem

    @property
    def quiet_s(self) -> float:
        """The time since the last response, in which nothing may have been requested."""
        return self._clock() - self._responded_s

    @property
    def unread_s(self) -> float:
        """The time since which no request had a response; 0 while requests have responses, or none was sent."""
        return 0.0 if self._failing_since_s is None else self._clock() - self._failing_since_s
