"""Many pseudo brokers in one process: they register, send heartbeats and follow the log, and cost little.

The measuring process starts it as a child and sends it commands with `Fleet`, so that neither waits for the other.
Requests are encoded once. A response is decoded once, however many brokers get the same bytes.
A broker or an observer that fails ends the child, and the next command raises its error.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import time
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Self
from uuid import uuid4

from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.generated.describe_cluster_request import DescribeClusterRequest
from quorate_protocol.kafka.generated.fetch_request import ReplicaState
from quorate_protocol.observer.events import Position
from quorate_protocol.observer.wire import fetch_request, read_fetch
from quorate_protocol.records.batch import decode_batches

from benchmarks.broker import heartbeat_request, registration_request
from benchmarks.client import CONTROLLER_ENDPOINTS, decode_response, request_frame

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from multiprocessing.connection import Connection as Pipe

    from quorate_protocol.kafka.apis import Payload

    from benchmarks.quorum import Quorum

Address = tuple[str, int]
Sample = tuple[float, float]
"""When a heartbeat was due (time.monotonic), and how long its response took from then on."""

OBSERVER_ID: Final = 0x7A5A5A5A
"""The placeholder of the observer id in the Fetch that all observers share."""
OBSERVERS_FROM_ID: Final = 5_000
FETCH_MAX_WAIT_MS: Final = 500
FETCH_BYTES_MAX: Final = 1024 * 1024
RETRY_SECONDS: Final = 0.05
COMMAND_TIMEOUT_SECONDS: Final = 180.0
EXIT_SECONDS: Final = 10.0
"""The time of a child that has closed its pipe until it has an exit status."""


class Fleet:
    """The child process, for a `with` block whose end raises its error, too.

    Methods raise RuntimeError when it has failed, and TimeoutError when it does not respond.
    """

    def __init__(self, addresses: Mapping[int, Address], cluster_id: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        arguments = (theirs, dict(addresses), cluster_id)
        self._process = context.Process(target=_serve, args=arguments, name="fleet", daemon=True)
        self._process.start()
        theirs.close()  # so that the pipe ends with the child
        self._failure: str | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self.check()
        finally:
            self.close()

    def grow(self, brokers: int, interval_seconds: float) -> None:
        """Run this number of brokers, each with a heartbeat per interval, and wait until all are unfenced."""
        self._ask("grow", brokers, interval_seconds)

    def pace(self, interval_seconds: float) -> None:
        """Change the interval of all brokers, and forget the samples so far."""
        self._ask("pace", interval_seconds)

    def samples(self) -> list[Sample]:
        """Return the heartbeats since the last change of their pace."""
        return list(self._ask("samples"))

    def fence(self, broker_id: int) -> None:
        """Make a broker request its fencing, as before a stop, and end. Does not wait for the response."""
        self._ask("fence", broker_id)

    def observe(self, observers: int, offset: int, epoch: int, *, first_id: int = OBSERVERS_FROM_ID) -> None:
        """Start this number of observers, which follow the log from its end."""
        self._ask("observe", observers, offset, epoch, first_id)

    def processor_seconds(self) -> float:
        """Processor time, user and system, that the process has used so far."""
        return float(self._ask("processor_seconds"))

    def check(self) -> None:
        """Raise RuntimeError if a broker or an observer has failed."""
        self._ask("check")

    def close(self) -> None:
        """End the process."""
        if self._pipe.closed:
            return
        self._process.kill()
        self._process.join()
        self._pipe.close()

    def _ask(self, command: str, *arguments: float) -> Any:
        if self._failure is not None:
            raise RuntimeError(self._failure)
        with suppress(ConnectionError):  # the error that it sent before it ended is still in the pipe
            self._pipe.send((command, arguments))
        if not self._pipe.poll(COMMAND_TIMEOUT_SECONDS):
            raise TimeoutError(f"the fleet did not respond to {command} in {COMMAND_TIMEOUT_SECONDS:.0f} s")
        try:
            result, failure = self._pipe.recv()
        except (EOFError, ConnectionError):
            self._process.join(EXIT_SECONDS)
            result, failure = None, f"its process ended with exit status {self._process.exitcode}"
        if failure is not None:
            self._failure = f"the fleet failed: {failure}"
            raise RuntimeError(self._failure)
        return result


@contextmanager
def started(quorum: Quorum) -> Iterator[Fleet]:
    """Start a quorum and a fleet without brokers. At the end no process is left."""
    try:
        quorum.start()
        quorum.wait_until_registered()
        with Fleet(quorum.addresses, quorum.cluster_id) as fleet:
            yield fleet
    finally:
        quorum.stop()


def _serve(pipe: Pipe, addresses: Mapping[int, Address], cluster_id: str) -> None:
    try:
        asyncio.run(_Fleet(addresses, cluster_id).serve(pipe))
    except Exception as error:
        with suppress(ConnectionError):
            pipe.send((None, _reason(error)))
        raise  # with its traceback on stderr


def _reason(error: BaseException) -> str:
    """The first error of a group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"


class _RefusedError(Exception):
    """The node is not the active controller, or not ready."""


class _Wire(asyncio.Protocol):
    """One connection with one request in flight, as bytes with their length in front."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._response: asyncio.Future[bytes] | None = None

    @classmethod
    async def open(cls, address: Address) -> _Wire:
        _, wire = await asyncio.get_running_loop().create_connection(cls, *address)
        return wire

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        if self._response is not None and not self._response.done():
            self._response.set_exception(exc or ConnectionError("closed by the peer"))

    def data_received(self, data: bytes) -> None:
        self._received += data
        if len(self._received) < 4 or len(self._received) < 4 + int.from_bytes(self._received[:4], "big"):
            return
        frame = bytes(self._received)
        self._received.clear()
        if self._response is not None and not self._response.done():
            self._response.set_result(frame)

    async def ask(self, frame: bytes) -> bytes:
        assert self._transport is not None
        if self._transport.is_closing():
            raise ConnectionError("closed")
        self._response = asyncio.get_running_loop().create_future()
        self._transport.write(frame)
        return await self._response

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


class _Codec:
    """Decodes each distinct response once."""

    def __init__(self) -> None:
        self._decoded: dict[bytes, Any] = {}

    def decode(self, request: Payload, frame: bytes) -> Any:
        response = self._decoded.get(frame)
        if response is None:
            if len(self._decoded) > 64:
                self._decoded.clear()
            response = self._decoded[frame] = decode_response(request, frame)
        return response


class _Broker:
    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.epoch = -1
        self.incarnation_id = uuid4()
        self.log_dir = uuid4()
        self.unfenced = asyncio.Event()
        self.task: asyncio.Task[None] | None = None


class _Fleet:
    def __init__(self, addresses: Mapping[int, Address], cluster_id: str) -> None:
        self._addresses = addresses
        self._cluster_id = cluster_id
        self._codec = _Codec()
        self._brokers: dict[int, _Broker] = {}
        self._interval_seconds = 1.0
        self._samples: list[Sample] = []
        self._active: asyncio.Task[Address] | None = None
        self._tasks = asyncio.TaskGroup()
        self._fetches: dict[tuple[Position, int], tuple[Payload, bytes]] = {}

    async def serve(self, pipe: Pipe) -> None:
        """Execute commands. Raises the errors of brokers and observers, in a group."""
        commands: asyncio.Queue[tuple[str, tuple[Any, ...]]] = asyncio.Queue()

        def read() -> None:
            try:
                commands.put_nowait(pipe.recv())
            except (EOFError, ConnectionError):
                os._exit(1)  # the measuring process is gone

        asyncio.get_running_loop().add_reader(pipe.fileno(), read)
        handlers: dict[str, Callable[..., Any]] = {
            "grow": self._grow,
            "pace": self._pace,
            "samples": self._copy_of_samples,
            "fence": self._fence,
            "observe": self._observe,
            "processor_seconds": self._processor_seconds,
            "check": self._check,
        }
        async with self._tasks:
            while True:
                name, arguments = await commands.get()
                pipe.send((await handlers[name](*arguments), None))

    # Commands

    async def _grow(self, brokers: int, interval_seconds: float) -> None:
        await self._pace(interval_seconds)
        for broker_id in range(len(self._brokers), brokers):
            broker = self._brokers[broker_id] = _Broker(broker_id)
            broker.task = self._tasks.create_task(self._live(broker))
        await asyncio.gather(*(broker.unfenced.wait() for broker in self._brokers.values()))

    async def _pace(self, interval_seconds: float) -> None:
        self._interval_seconds = interval_seconds
        self._samples.clear()

    async def _copy_of_samples(self) -> list[Sample]:
        return self._samples

    async def _processor_seconds(self) -> float:
        return time.process_time()

    async def _check(self) -> None:
        """Do nothing: that the child responds says that all tasks run."""

    async def _fence(self, broker_id: int) -> None:
        broker = self._brokers[broker_id]
        assert broker.task is not None
        broker.task.cancel()
        wire = await _Wire.open(await self._find_active())
        request = replace(heartbeat_request(broker_id, broker.epoch), want_fence=True)
        self._tasks.create_task(self._ignore_response(wire, request_frame(request)))

    @staticmethod
    async def _ignore_response(wire: _Wire, frame: bytes) -> None:
        with suppress(OSError):  # the controller may end before it responds
            await wire.ask(frame)
        wire.close()

    async def _observe(self, observers: int, offset: int, epoch: int, first_id: int) -> None:
        for number in range(observers):
            self._tasks.create_task(self._follow(first_id + number, Position(offset, epoch)))

    # Brokers

    async def _live(self, broker: _Broker) -> None:
        while True:
            wire = None
            try:
                wire = await _Wire.open(await self._find_active())
                await self._serve_broker(broker, wire)
            except (OSError, _RefusedError):
                await asyncio.sleep(RETRY_SECONDS)
            finally:
                if wire is not None:
                    wire.close()

    async def _serve_broker(self, broker: _Broker, wire: _Wire) -> None:
        if broker.epoch < 0:
            registration = registration_request(
                broker.broker_id, self._cluster_id, broker.incarnation_id, broker.log_dir
            )
            response = await self._ask(wire, registration)
            broker.epoch = response.broker_epoch
        request = heartbeat_request(broker.broker_id, broker.epoch)
        frame = request_frame(request)
        # Brokers do not speak all at once.
        due = time.monotonic() + self._interval_seconds * (broker.broker_id * 0.618 % 1)
        while True:
            delay = due - time.monotonic()
            if delay > 0:
                await asyncio.sleep(delay)
                due = max(due, time.monotonic())
            encoded = await wire.ask(frame)
            self._samples.append((due, time.monotonic() - due))
            response = self._checked(self._codec.decode(request, encoded))
            if response.is_fenced:
                await asyncio.sleep(RETRY_SECONDS)
                due = time.monotonic()
            else:
                broker.unfenced.set()
                due += self._interval_seconds

    async def _ask(self, wire: _Wire, request: Payload) -> Any:
        return self._checked(self._codec.decode(request, await wire.ask(request_frame(request))))

    @staticmethod
    def _checked(response: Any) -> Any:
        if response is None or response.error_code is not ErrorCode.none:
            raise _RefusedError
        return response

    async def _find_active(self) -> Address:
        """One search serves all brokers that wait for it."""
        if self._active is None or self._active.done():
            self._active = asyncio.create_task(self._search())
        return await asyncio.shield(self._active)

    async def _search(self) -> Address:
        request = DescribeClusterRequest(
            include_cluster_authorized_operations=False,
            endpoint_type=CONTROLLER_ENDPOINTS,
            include_fenced_brokers=False,
        )
        while True:
            for address in self._addresses.values():
                wire = None
                try:
                    wire = await _Wire.open(address)
                    response = await self._ask(wire, request)
                except (OSError, _RefusedError):
                    continue
                finally:
                    if wire is not None:
                        wire.close()
                if response.controller_id in self._addresses:
                    return self._addresses[response.controller_id]
            await asyncio.sleep(RETRY_SECONDS)

    # Observers

    async def _follow(self, observer_id: int, end: Position) -> None:
        high_watermark = -1
        replica_id = observer_id.to_bytes(4, "big")
        wire = None
        while True:
            try:
                wire = wire or await _Wire.open(await self._find_active())
                request, frame = self._fetch(end, high_watermark)
                encoded = await wire.ask(frame.replace(OBSERVER_ID.to_bytes(4, "big"), replica_id))
                fetched = self._checked(read_fetch(self._codec.decode(request, encoded)))
            except (OSError, _RefusedError):
                if wire is not None:
                    wire.close()
                wire = None
                await asyncio.sleep(RETRY_SECONDS)
                continue
            high_watermark = fetched.data.high_watermark
            end = _end_of(fetched.data.records) or end

    def _fetch(self, end: Position, high_watermark: int) -> tuple[Payload, bytes]:
        key = (end, high_watermark)
        known = self._fetches.get(key)
        if known is None:
            self._fetches.clear()
            request = replace(
                fetch_request(
                    cluster_id=self._cluster_id,
                    leader_epoch=end.epoch,
                    end=end,
                    high_watermark=high_watermark,
                    max_wait_ms=FETCH_MAX_WAIT_MS,
                    size_bytes_max=FETCH_BYTES_MAX,
                ),
                replica_state=ReplicaState(replica_id=OBSERVER_ID, replica_epoch=-1),
            )
            known = self._fetches[key] = (request, request_frame(request))
        return known


@lru_cache(maxsize=16)
def _end_of(records: bytes | None) -> Position | None:
    *_, last = (None, *decode_batches(records or b""))
    return None if last is None else Position(last.last_offset + 1, last.partition_leader_epoch)
