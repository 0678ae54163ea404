"""Writes long answers in pieces, so that the event loop reads heartbeats and takes turns in between.

The kind of the request makes an answer long, not its size: hundreds of short ones may be due at once.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from kio.schema.delete_acls.v3.response import DeleteAclsResponse
from kio.schema.describe_acls.v3.response import DescribeAclsResponse
from kio.schema.describe_configs.v4.response import DescribeConfigsResponse
from kio.schema.errors import ErrorCode
from kio.schema.list_partition_reassignments.v0.response import ListPartitionReassignmentsResponse
from quorate_protocol.plain_data import dataclass

from quorate_controller.control.api import ControlError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

WRITING_S_MAX: Final = 0.004
"""How long answers are written before the loop looks at sockets and timers again."""
ANSWER_SIZE_BYTES_MAX: Final = 100 * 1024 * 1024
"""The limit of an answer, the default limit of a request: clients of librdkafka read no more."""
UNFINISHED_BYTES_MAX: Final = 128 * 1024 * 1024
"""If unfinished answers have more bytes than this in total, only one of them is continued."""

_ARRAYS: Final[dict[type[Any], tuple[str, str]]] = {
    DescribeConfigsResponse: ("results", "configs"),
    DescribeAclsResponse: ("resources", "acls"),
    DeleteAclsResponse: ("filter_results", "matching_acls"),
    ListPartitionReassignmentsResponse: ("topics", "partitions"),
}


def long_arrays(response: object) -> tuple[str, str] | None:
    """Return the array of a response that may be long, and the array in its elements; None if it has none."""
    return _ARRAYS.get(type(response))


@dataclass(slots=True, kw_only=True, eq=False)
class LongAnswer:
    """An answer that is being written."""

    steps: Generator[int, None, bytearray]
    """Writes a few elements each, yields the bytes so far, and returns the whole frame."""
    done: Callable[[bytearray | Exception], None]
    """Gets the frame, or what went wrong."""
    size_bytes: int = 0
    is_abandoned: bool = False

    def abandon(self) -> None:
        """Nobody waits for it any more."""
        self.is_abandoned = True


class LongAnswers:
    """Writes long answers in turn, a piece of each."""

    def __init__(self) -> None:
        self._waiting: deque[LongAnswer] = deque()
        self._unfinished_bytes = 0
        self._loop = asyncio.get_running_loop()
        self._is_scheduled = False

    def add(self, answer: LongAnswer) -> None:
        """Write an answer from now on."""
        self._waiting.append(answer)
        self._schedule()

    def _schedule(self) -> None:
        if self._waiting and not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._write)

    def _write(self) -> None:
        self._is_scheduled = False
        ends_s = time.monotonic() + WRITING_S_MAX
        while self._waiting:
            answer = self._waiting.popleft()
            before_bytes = answer.size_bytes
            outcome = None if answer.is_abandoned else _write_on(answer, ends_s)
            if answer.is_abandoned or outcome is not None:
                self._unfinished_bytes -= before_bytes
                answer.steps.close()
            else:
                self._unfinished_bytes += answer.size_bytes - before_bytes
                is_full = self._unfinished_bytes > UNFINISHED_BYTES_MAX
                (self._waiting.appendleft if is_full else self._waiting.append)(answer)
            if outcome is not None:
                answer.done(outcome)
            if time.monotonic() >= ends_s:
                break
        self._schedule()


def _write_on(answer: LongAnswer, ends_s: float) -> bytearray | Exception | None:
    """Write until a time. Returns the frame or an error once it is done."""
    try:
        while True:
            answer.size_bytes = next(answer.steps)
            if answer.size_bytes > ANSWER_SIZE_BYTES_MAX:
                return ControlError(
                    ErrorCode.policy_violation,
                    f"The answer has more than {ANSWER_SIZE_BYTES_MAX} bytes: ask for less at once.",
                )
            if time.monotonic() >= ends_s:
                return None
    except StopIteration as ended:
        frame: bytearray = ended.value
        return frame
    except Exception as error:
        return error
