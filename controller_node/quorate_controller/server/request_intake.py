"""The requests of one connection from their first bytes until they are served: frames, time and memory."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from quorate_protocol.wire.frames import FrameDecoder

from quorate_controller.scheduler import ServiceClass
from quorate_controller.server.connection_memory import UNCOUNTED_REQUEST_BYTES_MAX, Arrival

if TYPE_CHECKING:
    from collections.abc import Callable

    from quorate_controller.server.connection_memory import RequestMemory
    from quorate_controller.server.connection_quotas import Place


class RequestIntake:
    """Splits received bytes into requests, and counts them while the connection holds many."""

    __slots__ = (
        "_decoder",
        "_memory",
        "_place",
        "_service_class",
        "arrival",
        "is_counted",
        "is_large",
        "size_bytes",
        "waiting",
        "waits_for_memory",
    )

    def __init__(self, memory: RequestMemory, place: Place, frame_size_bytes_max: int) -> None:
        self.waiting: deque[bytes] = deque()
        """Complete requests that are not served yet, without their length prefixes."""
        self.size_bytes = 0
        """Size of the complete requests that have no response yet."""
        self.arrival = Arrival()
        """The time that the unfinished request may take."""
        self.is_counted = False
        """Whether the connection holds more than it may without being counted."""
        self.is_large = False
        """Whether the last data has to be counted. Most data is one small request, which need not. No property: each
        request would take the size of the decoder's buffer twice.
        """
        self.waits_for_memory = False
        """Whether there is no memory for more of the unfinished request."""
        self._decoder = FrameDecoder(frame_size_bytes_max)
        self._memory = memory
        self._place = place
        self._service_class = ServiceClass.STRANGERS
        """The class of the last request that was counted."""

    def limit(self, frame_size_bytes_max: int) -> None:
        """Bound the size of further requests."""
        self._decoder.limit(frame_size_bytes_max)

    def receive(self, data: bytes, now_s: float, *, is_reading: bool) -> bool:
        """Add received bytes. Returns whether they complete a request.

        Raises:
            ProtocolError: a request is too large.
        """
        frames = self._decoder.feed(data)
        if frames:
            self.size_bytes += sum(map(len, frames))
            self.waiting.extend(frames)
        buffered_bytes = self._decoder.buffered_size_bytes
        if buffered_bytes:
            self.arrival.arrived(len(data), now_s, is_new=bool(frames))
            if not is_reading:  # TLS may pass on what it has already
                self.arrival.pause(now_s)
        elif frames:
            self.arrival.completed()
        self.is_large = self.is_counted or self.size_bytes + buffered_bytes > UNCOUNTED_REQUEST_BYTES_MAX
        return bool(frames)

    def find_class(self, class_of: Callable[[bytes], ServiceClass]) -> str | None:
        """Derive the class from the last request, as far as it has come.

        Returns:
            the reason to refuse the request if it is too large for its class.
        """
        key = self._decoder.unfinished_key or (self.waiting[-1][:2] if self.waiting else b"")
        self._service_class = class_of(key)
        size_bytes = self._decoder.unfinished_size_bytes
        bytes_max = self._memory.size_bytes_max(self._service_class)
        if bytes_max is None or size_bytes <= bytes_max:
            return None
        return f"a request of {size_bytes} bytes; {self._service_class.value} may send {bytes_max}"

    def count(self) -> None:
        """Count the memory of the requests, if the connection holds more than it may uncounted."""
        buffered_bytes, size_bytes = self._decoder.buffered_size_bytes, self._decoder.unfinished_size_bytes
        held_bytes = self.size_bytes + buffered_bytes
        missing_bytes = max(0, size_bytes - buffered_bytes)
        may_read = self._memory.hold(self._place, self._service_class, held_bytes, missing_bytes)
        self.waits_for_memory = not may_read
        self.is_counted = held_bytes > UNCOUNTED_REQUEST_BYTES_MAX

    def drop(self) -> None:
        """Drop the requests that are not served, and the unfinished one."""
        self.size_bytes -= sum(map(len, self.waiting))
        self.waiting.clear()
        self._decoder.clear()
        self.arrival.completed()
        self.count()

    def end(self) -> None:
        """Give the memory back: the connection is lost."""
        self._memory.forget(self._place)
