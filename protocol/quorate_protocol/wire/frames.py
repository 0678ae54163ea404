"""Frames: the length of a request or response, an i32, precedes it."""

import struct
from typing import Final

from quorate_protocol.errors import FrameTooLarge

__all__ = ("FRAME_SIZE_BYTES_MAX", "FrameDecoder", "encode_frame")

FRAME_SIZE_BYTES_MAX: Final = 104_857_600
"""Kafka's default for ``socket.request.max.bytes``."""

_LENGTH: Final = struct.Struct(">i")


def encode_frame(payload: bytes) -> bytes:
    """Prepend the length."""
    return _LENGTH.pack(len(payload)) + payload


class FrameDecoder:
    """Splits a byte stream into frames. It buffers at most one unfinished frame; sans-IO."""

    def __init__(self, frame_size_bytes_max: int = FRAME_SIZE_BYTES_MAX) -> None:
        self._frame_size_bytes_max = frame_size_bytes_max
        self._buffer = bytearray()
        self._refusal: str | None = None
        self.unfinished_size_bytes = 0
        """The size of the frame that is not complete yet; 0 as long as its length is not known."""

    def feed(self, data: bytes) -> list[bytes]:
        """Add received bytes; return the frames that they complete, without their lengths.

        Raises:
            FrameTooLarge: a length is above the limit or negative; so does each later call, since nothing after
                it can be decoded. Frames of the same call before it are lost.
        """
        if self._refusal is not None:
            raise FrameTooLarge(self._refusal)
        buffer = self._buffer
        buffer += data
        frames = []
        position = self.unfinished_size_bytes = 0
        while len(buffer) - position >= _LENGTH.size:
            (size_bytes,) = _LENGTH.unpack_from(buffer, position)
            if not 0 <= size_bytes <= self._frame_size_bytes_max:
                self._refusal = (
                    f"a frame of {size_bytes} bytes; at most {self._frame_size_bytes_max} are accepted"
                )
                buffer.clear()
                raise FrameTooLarge(self._refusal)
            end = position + _LENGTH.size + size_bytes
            if end > len(buffer):
                self.unfinished_size_bytes = size_bytes
                break
            frames.append(bytes(memoryview(buffer)[position + _LENGTH.size : end]))
            position = end
        if position:
            del buffer[:position]
        return frames

    def clear(self) -> None:
        """Forget the unfinished frame, because the connection is not read any more."""
        self._buffer.clear()
        self.unfinished_size_bytes = 0

    def limit(self, frame_size_bytes_max: int) -> None:
        """Accept frames up to another size from now on."""
        self._frame_size_bytes_max = frame_size_bytes_max

    @property
    def unfinished_key(self) -> bytes:
        """The first two bytes of the frame that is not complete yet, as far as they have come."""
        return bytes(self._buffer[_LENGTH.size : _LENGTH.size + 2])

    @property
    def buffered_size_bytes(self) -> int:
        """Buffered bytes of the frame that is not complete yet."""
        return len(self._buffer)
