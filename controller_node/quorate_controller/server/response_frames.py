"""Encodes responses as frames: at once, or one element in each step.

Long responses are written in pieces, so that the event loop reads heartbeats and takes turns in between. A response
with many elements is long, and so is each response to some requests: hundreds of them may be due at once.
"""

from __future__ import annotations

import struct
import time
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.apis import find_api
from quorate_protocol.kafka.generated.delete_acls_response import DeleteAclsResponse
from quorate_protocol.kafka.generated.describe_acls_response import DescribeAclsResponse
from quorate_protocol.kafka.generated.describe_configs_response import DescribeConfigsResponse
from quorate_protocol.kafka.generated.describe_topic_partitions_response import (
    DescribeTopicPartitionsResponse,
)
from quorate_protocol.kafka.generated.list_partition_reassignments_response import (
    ListPartitionReassignmentsResponse,
)
from quorate_protocol.wire.codec import around_elements, write_entity
from quorate_protocol.wire.convert import convert
from quorate_protocol.wire.headers import encode_response_header
from quorate_protocol.wire.schema import element_class, schema_of

from quorate_controller.control.api import ControlError
from quorate_controller.scheduler import STEP_S_MAX, Budget, StepResult
from quorate_controller.server.raft_wire import response_to_wire

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Callable, Generator

    from quorate_protocol.kafka.apis import Api
    from quorate_protocol.wire.schema import FieldSchema
    from quorate_protocol.wire.server import Request

    from quorate_controller.node.events import ResponseWithData

LENGTH: Final = struct.Struct(">i")
"""The length at the start of a frame."""
_CORRELATION: Final = struct.Struct(">i")
"""The correlation id, which follows the length in each version of the header."""
SHARED_BYTES_MAX: Final = 64 * 1024
"""The largest frame that is kept for further clients that get the same response."""
INNER_ELEMENTS_AT_ONCE_MAX: Final = 128
"""Elements of an array inside an element that are written at once."""

RESPONSE_SIZE_BYTES_MAX: Final = 100 * 1024 * 1024
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


def encode_response_frame(api: Api, version: int, correlation_id: int, response: object) -> bytearray:
    """A response as a frame. Built in one buffer, so that record batches are copied once."""
    header_version, response_class = _response_format(api.key, version)
    frame = bytearray(LENGTH.size)
    frame += encode_response_header(correlation_id, header_version)
    write_entity(frame, convert(response, response_class))
    LENGTH.pack_into(frame, 0, len(frame) - LENGTH.size)
    return frame


class SharedFrames:
    """Frames of raft's responses. After a commit hundreds of observers get the same one, which is encoded once.

    It keeps the last response and its frame; frames differ in the correlation id alone.
    """

    def __init__(self) -> None:
        self._raft_response: ResponseWithData | None = None
        self._version = -1
        self._frame = bytearray()

    def frame(self, raft_response: ResponseWithData, request: Request) -> bytearray:
        """Encode as `encode_response_frame` the response to a request of raft."""
        version, correlation_id = request.version, request.correlation_id
        if raft_response is self._raft_response and version == self._version:
            frame = bytearray(self._frame)
            _CORRELATION.pack_into(frame, LENGTH.size, correlation_id)
            return frame
        response = response_to_wire(raft_response.response, raft_response.data, version=version)
        frame = encode_response_frame(request.api, version, correlation_id, response)
        if len(frame) <= SHARED_BYTES_MAX:
            self._raft_response, self._version, self._frame = raft_response, version, frame
        return frame


def response_frame_steps(
    api: Api, version: int, correlation_id: int, response: Any, arrays: tuple[str, str | None]
) -> Generator[int, None, bytearray]:
    """Encode as `encode_response_frame`, an element of an array in each step, or a piece of the element's own array.

    `arrays` are the names of both, None if elements have no array.
    Yields the bytes so far, returns the frame.
    """
    array, inner = arrays
    header_version, response_class = _response_format(api.key, version)
    class_of_elements = element_class(response_class, array)
    elements = getattr(response, array)
    frame = bytearray()
    for element in elements:
        if inner is not None and len(getattr(element, inner) or ()) > INNER_ELEMENTS_AT_ONCE_MAX:
            yield from _writing_element(frame, element, class_of_elements, inner)
        else:
            write_entity(frame, convert(element, class_of_elements))
            yield len(frame)
    rest = convert(replace(response, **{array: ()}), response_class)
    before, after = around_elements(rest, array, len(elements))
    frame[:0] = bytes(LENGTH.size) + encode_response_header(correlation_id, header_version) + before
    frame += after
    LENGTH.pack_into(frame, 0, len(frame) - LENGTH.size)
    return frame


def _writing_element(
    frame: bytearray, element: Any, target: type[Any], array: str
) -> Generator[int, None, None]:
    """Append an element as `target`, some elements of its own array in each step."""
    inner_class = element_class(target, array)
    elements = getattr(element, array)
    before, after = around_elements(convert(replace(element, **{array: ()}), target), array, len(elements))
    frame += before
    for start in range(0, len(elements), INNER_ELEMENTS_AT_ONCE_MAX):
        for inner in elements[start : start + INNER_ELEMENTS_AT_ONCE_MAX]:
            write_entity(frame, convert(inner, inner_class))
        yield len(frame)
    frame += after


@cache
def _response_format(api_key: int, version: int) -> tuple[int, type[Any]]:
    """Header version and class of a response."""
    api = find_api(api_key)
    return api.response_header_version(version), api.response_class(version)


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


def write_long_response(
    pieces: Generator[int, None, bytearray], done: Callable[[bytearray | Exception], None], budget: Budget
) -> Generator[StepResult | Future[Any], None, None]:
    """Write a response and pass the frame, or the exception, to `done`.

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
) -> Generator[StepResult | Future[Any], None, bytearray]:
    ends_s = time.monotonic() + STEP_S_MAX
    while True:
        try:
            size_bytes = next(pieces)
        except StopIteration as ended:
            frame: bytearray = ended.value
            return frame
        if size_bytes > RESPONSE_SIZE_BYTES_MAX:
            raise ControlError(
                ErrorCode.policy_violation,
                f"The response has more than {RESPONSE_SIZE_BYTES_MAX} bytes: ask for less at once.",
            )
        budget.hold(pieces, size_bytes)
        if time.monotonic() >= ends_s:
            yield StepResult.MORE
            while not budget.has_room(pieces, size_bytes):
                yield budget.freed()
            ends_s = time.monotonic() + STEP_S_MAX
