"""Statuses that the API server did not store as they were sent: definitions of an older release lack their fields.

Without this memory each pass would send them again.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

RESOURCES_MAX = 4096
RETRY_S = 60.0
"""The time after which an equal status is sent again: the definitions may have been upgraded."""

Status = Mapping[str, Any]


class DroppedStatuses:
    """What was sent, and what was stored in its place, by the uid of the resource."""

    def __init__(self, retry_s: float = RETRY_S, clock: Callable[[], float] = time.monotonic) -> None:
        self._retry_s = retry_s
        self._clock = clock
        self._known: OrderedDict[str, tuple[float, Status, Status]] = OrderedDict()

    def is_known(self, uid: str, status: Status, stored: Status) -> bool:
        """Whether sending `status` again would change nothing in what is stored."""
        sent_s, *known = self._known.get(uid, (0.0, None, None))
        return known == [status, stored] and self._clock() - sent_s < self._retry_s

    def put(self, uid: str, status: Status, stored: Status) -> bool:
        """Remember what became of a status. Returns whether the resource had no such status yet."""
        is_new = uid not in self._known
        self._known[uid] = self._clock(), status, stored
        self._known.move_to_end(uid)
        while len(self._known) > RESOURCES_MAX:
            self._known.popitem(last=False)
        return is_new

    def forget(self, uid: str) -> None:
        """Note that the whole status was stored."""
        self._known.pop(uid, None)
