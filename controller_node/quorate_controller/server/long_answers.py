"""Writes long responses in pieces, so that the event loop reads heartbeats and takes turns in between.

The kind of the request makes a response long, not its size: hundreds of short ones may be due at once.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from kio.schema.delete_acls.v3.response import DeleteAclsResponse
from kio.schema.describe_acls.v3.response import DescribeAclsResponse
from kio.schema.describe_configs.v4.response import DescribeConfigsResponse
from kio.schema.errors import ErrorCode
from kio.schema.list_partition_reassignments.v0.response import ListPartitionReassignmentsResponse

from quorate_controller.control.api import ControlError
from quorate_controller.scheduler import STEP_S_MAX, Budget, Outcome

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Callable, Generator

ANSWER_SIZE_BYTES_MAX: Final = 100 * 1024 * 1024
"""The limit of a response, the default limit of a request: clients of librdkafka read no more."""
_ARRAYS: Final[dict[type[Any], tuple[str, str]]] = {
    DescribeConfigsResponse: ("results", "configs"),
    DescribeAclsResponse: ("resources", "acls"),
    DeleteAclsResponse: ("filter_results", "matching_acls"),
    ListPartitionReassignmentsResponse: ("topics", "partitions"),
}


def long_arrays(response: object) -> tuple[str, str] | None:
    """Return the array of a response that may be long, and the array in its elements; None if it has none."""
    return _ARRAYS.get(type(response))


def writing_long(
    pieces: Generator[int, None, bytearray], done: Callable[[bytearray | Exception], None], budget: Budget
) -> Generator[Outcome | Future[Any], None, None]:
    """Write a response and pass the frame to `done`, or what went wrong.

    `pieces` writes a few elements each, yields the bytes so far, and returns the whole frame.
    """
    try:
        done((yield from _written(pieces, budget)))
    except Exception as error:
        done(error)
    finally:
        budget.release(pieces)
        pieces.close()


def _written(
    pieces: Generator[int, None, bytearray], budget: Budget
) -> Generator[Outcome | Future[Any], None, bytearray]:
    ends_s = time.monotonic() + STEP_S_MAX
    while True:
        try:
            size_bytes = next(pieces)
        except StopIteration as ended:
            frame: bytearray = ended.value
            return frame
        if size_bytes > ANSWER_SIZE_BYTES_MAX:
            raise ControlError(
                ErrorCode.policy_violation,
                f"The answer has more than {ANSWER_SIZE_BYTES_MAX} bytes: ask for less at once.",
            )
        budget.hold(pieces, size_bytes)
        if time.monotonic() >= ends_s:
            yield Outcome.MORE
            while not budget.has_room(pieces, size_bytes):
                yield budget.freed()
            ends_s = time.monotonic() + STEP_S_MAX
