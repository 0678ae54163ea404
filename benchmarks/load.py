"""A load generator: n connections to one node, each with one request in flight, from one thread.

A request costs little here: its frame is one concatenation, and responses are read after the clock has stopped. Both
implementations get the same bytes in the same way. The time of a response includes its wait for this thread.
"""

from __future__ import annotations

import selectors
import socket
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from benchmarks.client import RECEIVE_BYTES, request_frame
from benchmarks.topics import create_topics, new_topic

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

SILENCE_SECONDS_MAX: Final = 30.0
"""A load ends after this time without a response."""
TOPIC_NAME: Final = "topic-{:08}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What was measured of some requests."""

    seconds: float
    """From the first request to the last response."""
    latencies: list[float]
    """Seconds of each request."""
    generator_seconds: float
    """Processor time that the generator took for all of it."""
    responses: list[bytes]
    """Frames, with their length in front, as they came."""


class _Client:
    """One connection."""

    __slots__ = ("frames", "received", "sent", "socket")

    def __init__(self, address: tuple[str, int], frames: Iterator[bytes]) -> None:
        self.socket = socket.create_connection(address, timeout=SILENCE_SECONDS_MAX)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.frames = frames
        self.sent = 0.0
        self.received = b""

    def send(self) -> None:
        frame = next(self.frames)
        self.sent = time.perf_counter()
        self.socket.sendall(frame)

    def receive(self) -> bytes | None:
        """Return the response, None until it is complete. Raises OSError."""
        data = self.socket.recv(RECEIVE_BYTES)
        if not data:
            raise ConnectionError("closed by the peer")
        data = self.received + data
        if len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
            self.received = data
            return None
        self.received = b""
        return data


def drive(address: tuple[str, int], frames: Sequence[Iterator[bytes]], requests: int) -> Load:
    """Send n requests, those of each connection from its own frames; several may share an iterator.

    Raises OSError when a connection breaks, TimeoutError without a response for 30 seconds.
    """
    clients: list[_Client] = []
    latencies: list[float] = []
    responses: list[bytes] = []
    with selectors.DefaultSelector() as selector:
        try:
            for frames_of_client in frames[:requests]:
                client = _Client(address, frames_of_client)
                clients.append(client)
                selector.register(client.socket, selectors.EVENT_READ, client)
            cpu_before, started = time.thread_time(), time.perf_counter()
            for client in clients:
                client.send()
            unsent = requests - len(clients)
            while len(responses) < requests:
                events = selector.select(SILENCE_SECONDS_MAX)
                if not events:
                    raise TimeoutError(f"no response in {SILENCE_SECONDS_MAX:.0f} s")
                for key, _ in events:
                    client = key.data
                    response = client.receive()
                    if response is None:
                        continue
                    latencies.append(time.perf_counter() - client.sent)
                    responses.append(response)
                    if unsent:
                        unsent -= 1
                        client.send()
            return Load(
                seconds=time.perf_counter() - started,
                latencies=latencies,
                generator_seconds=time.thread_time() - cpu_before,
                responses=responses,
            )
        finally:
            for client in clients:
                client.socket.close()


def topic_frames(numbers: Iterable[int]) -> Iterator[bytes]:
    """CreateTopics requests of one topic of one partition each, whose names have these numbers."""
    placeholder = TOPIC_NAME.format(0)
    before, after = request_frame(create_topics([new_topic(placeholder)])).split(placeholder.encode())
    for number in numbers:
        yield before + TOPIC_NAME.format(number).encode() + after
