"""Encodes responses as frames: at once, or one element in each step."""

from __future__ import annotations

import struct
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from quorate_protocol.kafka.apis import find_api
from quorate_protocol.wire.codec import around_elements, write_entity
from quorate_protocol.wire.convert import convert
from quorate_protocol.wire.headers import encode_response_header
from quorate_protocol.wire.schema import schema_of

from quorate_controller.server.raft_wire import response_to_wire

if TYPE_CHECKING:
    from collections.abc import Generator

    from quorate_protocol.kafka.apis import Api
    from quorate_protocol.wire.server import Request

    from quorate_controller.node.events import RaftAnswer

LENGTH: Final = struct.Struct(">i")
"""The length at the start of a frame."""
_CORRELATION: Final = struct.Struct(">i")
"""The correlation id, which follows the length in each version of the header."""
SHARED_BYTES_MAX: Final = 64 * 1024
"""The largest frame that is kept for further clients that get the same answer."""
INNER_ELEMENTS_AT_ONCE_MAX: Final = 128
"""Elements of an array inside an element that are written at once."""


def encode_answer(api: Api, version: int, correlation_id: int, response: object) -> bytearray:
    """A response as a frame. Built in one buffer, so that record batches are copied once."""
    header_version, response_class = _answer_format(api.key, version)
    frame = bytearray(LENGTH.size)
    frame += encode_response_header(correlation_id, header_version)
    write_entity(frame, convert(response, response_class))
    LENGTH.pack_into(frame, 0, len(frame) - LENGTH.size)
    return frame


class SharedFrames:
    """Frames of raft's answers. After a commit hundreds of observers get the same one, which is encoded once.

    It keeps the last answer and its frame; frames differ in the correlation id alone.
    """

    def __init__(self) -> None:
        self._reply: RaftAnswer | None = None
        self._version = -1
        self._frame = bytearray()

    def frame(self, reply: RaftAnswer, request: Request) -> bytearray:
        """Return the frame that `encode_answer` makes of the answer to a request of raft."""
        version, correlation_id = request.version, request.correlation_id
        if reply is self._reply and version == self._version:
            frame = bytearray(self._frame)
            _CORRELATION.pack_into(frame, LENGTH.size, correlation_id)
            return frame
        response = response_to_wire(reply.response, reply.data, version=version)
        frame = encode_answer(request.api, version, correlation_id, response)
        if len(frame) <= SHARED_BYTES_MAX:
            self._reply, self._version, self._frame = reply, version, frame
        return frame


def writing_answer(
    api: Api, version: int, correlation_id: int, response: Any, arrays: tuple[str, str | None]
) -> Generator[int, None, bytearray]:
    """Write what `encode_answer` gives, an element of an array in each step, or a piece of the element's own array.

    `arrays` are the names of both, None if elements have no array.
    Yields the bytes so far, returns the frame.
    """
    array, inner = arrays
    header_version, response_class = _answer_format(api.key, version)
    element_class = _class_of_elements(response_class, array)
    elements = getattr(response, array)
    frame = bytearray()
    for element in elements:
        if inner is not None and len(getattr(element, inner) or ()) > INNER_ELEMENTS_AT_ONCE_MAX:
            yield from _writing_element(frame, element, element_class, inner)
        else:
            write_entity(frame, convert(element, element_class))
            yield len(frame)
    rest = convert(replace(response, **{array: ()}), response_class)
    before, after = around_elements(rest, array, len(elements))
    frame[:0] = bytes(LENGTH.size) + encode_response_header(correlation_id, header_version) + before
    frame += after
    LENGTH.pack_into(frame, 0, len(frame) - LENGTH.size)
    return frame


def _writing_element(
    frame: bytearray, element: Any, element_class: type[Any], array: str
) -> Generator[int, None, None]:
    """Append an element, some elements of its own array in each step."""
    inner_class = _class_of_elements(element_class, array)
    elements = getattr(element, array)
    before, after = around_elements(
        convert(replace(element, **{array: ()}), element_class), array, len(elements)
    )
    frame += before
    for start in range(0, len(elements), INNER_ELEMENTS_AT_ONCE_MAX):
        for inner in elements[start : start + INNER_ELEMENTS_AT_ONCE_MAX]:
            write_entity(frame, convert(inner, inner_class))
        yield len(frame)
    frame += after


def _class_of_elements(of: type[Any], array: str) -> type[Any]:
    element_class = next(field.struct for field in schema_of(of) if field.name == array)
    assert element_class is not None, f"{array} is no array of structs"
    return element_class


@cache
def _answer_format(api_key: int, version: int) -> tuple[int, type[Any]]:
    """Header version and class of a response."""
    api = find_api(api_key)
    return api.response_header_version(version), api.response_class(version)
