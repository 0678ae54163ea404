"""Reads that may take longer than a turn should: each turn does a slice, and events of others come in between.

A decision that has to read much first is one of them. Its records are found by its last step.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from kio.schema.errors import ErrorCode
from quorate_protocol.plain_data import dataclass

from quorate_controller.control.api import ControlError
from quorate_controller.node.slices import run_slice

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from kio.static.protocol import Payload

    from quorate_controller.control.api import ControlResult
    from quorate_controller.node.events import Asker

READ_SLICE_MS: Final = 5
"""The time that a turn spends on all long reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LongRead:
    """A read whose response is not found yet; after `asker.deadline_ms` (Unix time) nobody waits for it."""

    token: int
    request: str
    """The name of the request's class."""
    steps: Generator[None, None, Payload | ControlResult]
    asker: Asker


class LongReads:
    """Reads in the order in which they were decided: only one of them is under way."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._waiting: deque[LongRead] = deque()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def begin(self, read: LongRead) -> None:
        """Add a read, which comes after those that wait already."""
        self._waiting.append(read)

    def run_slice(self, now_ms: int) -> Iterator[tuple[LongRead, Payload | ControlResult | Exception]]:
        """Go on with the reads for a while. Yields those that are done, with the response or what went wrong."""
        ends_ms = self._clock() + READ_SLICE_MS
        while self._waiting:
            read = self._waiting[0]
            outcome = self._read_on(read, now_ms)
            if outcome is not None:
                self._waiting.popleft()
                yield read, outcome
            if outcome is None or self._clock() >= ends_ms:
                return

    def _read_on(self, read: LongRead, now_ms: int) -> Payload | ControlResult | Exception | None:
        if now_ms > read.asker.deadline_ms:
            return ControlError(ErrorCode.request_timed_out)
        try:
            return run_slice(read.steps, self._clock, READ_SLICE_MS)
        except Exception as error:
            return error

    def take_all(self) -> list[int]:
        """Give up all reads. Returns their tokens."""
        tokens = [read.token for read in self._waiting]
        self._waiting.clear()
        return tokens
