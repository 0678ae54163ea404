"""Writes long responses in pieces, so that the event loop reads heartbeats and takes turns in between.

A response with many elements is long. Of some requests each response is: hundreds of them may be due at once.
"""

from __future__ import annotations

import time
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.generated.delete_acls_response import DeleteAclsResponse
from quorate_protocol.kafka.generated.describe_acls_response import DescribeAclsResponse
from quorate_protocol.kafka.generated.describe_configs_response import DescribeConfigsResponse
from quorate_protocol.kafka.generated.describe_topic_partitions_response import (
    DescribeTopicPartitionsResponse,
)
from quorate_protocol.kafka.generated.list_partition_reassignments_response import (
    ListPartitionReassignmentsResponse,
)
from quorate_protocol.wire.schema import schema_of

from quorate_controller.control.api import ControlError
from quorate_controller.scheduler import STEP_S_MAX, Budget, Outcome

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Callable, Generator

    from quorate_protocol.wire.schema import FieldSchema

ANSWER_SIZE_BYTES_MAX: Final = 100 * 1024 * 1024
"""The limit of a response, the default limit of a request: clients of librdkafka read no more."""
ELEMENTS_AT_ONCE_MAX: Final = 500
"""A response with more elements is long."""
_ALWAYS_LONG: Final = frozenset(
    {
        DescribeConfigsResponse,
        DescribeAclsResponse,
        DeleteAclsResponse,
        DescribeTopicPartitionsResponse,
        ListPartitionReassignmentsResponse,
    }
)


def long_arrays(response: object) -> tuple[str, str | None] | None:
    """Return the array of a long response, and the array in its elements if there is one; None if it is short."""
    response_class: Any = type(response)
    arrays = _arrays(response_class)
    if arrays is None or response_class in _ALWAYS_LONG:
        return arrays
    elements = getattr(response, arrays[0])
    return arrays if elements is not None and len(elements) > ELEMENTS_AT_ONCE_MAX else None


@cache
def _arrays(response_class: Any) -> tuple[str, str | None] | None:
    outer = _array_of_structs(response_class)
    if outer is None:
        return None
    assert outer.struct is not None
    inner = _array_of_structs(outer.struct)
    return outer.name, None if inner is None else inner.name


def _array_of_structs(entity_class: type[Any]) -> FieldSchema | None:
    for field in schema_of(entity_class):
        if field.is_array and field.struct is not None and field.tag is None:
            return field
    return None


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
