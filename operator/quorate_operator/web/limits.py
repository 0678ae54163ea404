"""The limits that the operator's HTTP servers apply: counted each time, logged now and then."""

import logging
import time
from collections.abc import Callable
from typing import Final

from quorate_protocol.bounded_http.places import HttpLimit

log = logging.getLogger(__name__)

LINE_EVERY_S: Final = 10.0


class LimitLog:
    """Writes a line for each limit at most every 10 seconds, so that strangers can't fill the log."""

    def __init__(
        self,
        server: str,
        count: Callable[[HttpLimit], object] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._server = server
        self._count = count
        self._clock = clock
        self._logged_s: dict[HttpLimit, float] = {}
        self._left_out: dict[HttpLimit, int] = {}

    def __call__(self, limit: HttpLimit, peer: str) -> None:
        self._count(limit)
        now_s = self._clock()
        logged_s = self._logged_s.get(limit)
        if logged_s is not None and now_s - logged_s < LINE_EVERY_S:
            self._left_out[limit] = self._left_out.get(limit, 0) + 1
            return
        self._logged_s[limit] = now_s
        left_out = self._left_out.pop(limit, 0)
        log.warning("%s: %s applied to %s (%d more since the last line)", self._server, limit, peer, left_out)
