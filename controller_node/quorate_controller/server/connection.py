"""One accepted connection: frames in, answers out, in the order in which the requests came.

A `Connection` decodes frames and hands each to the handler as an `Exchange`: one request and its place in the
order of answers. The handler answers at once or later; several requests of one connection may be in flight,
so that what a client pipelines is committed together, yet answers leave in order, as Kafka's clients expect.

Everything is bounded: the size of a frame before memory is taken for it, the memory of requests by the class of their
senders, the time of an unfinished request, requests in flight per connection, bytes waiting to be sent. At a bound we
stop reading, and TCP slows the peer down.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Final, cast

from quorate_protocol.errors import ProtocolError
from quorate_protocol.plain_data import dataclass
from quorate_protocol.wire.frames import FrameDecoder

from quorate_controller.node.events import ANONYMOUS
from quorate_controller.scheduler import Account, Outcome, ServiceClass, class_of
from quorate_controller.server.connection_memory import (
    UNCOUNTED_REQUEST_BYTES_MAX,
    UNCOUNTED_RESPONSE_BYTES_MAX,
    Arrival,
)
from quorate_controller.server.connection_quotas import Stage
from quorate_controller.server.counters import Limit
from quorate_controller.server.exchange import Exchange, Peer
from quorate_controller.server.misrouting import ConnectionFindings
from quorate_controller.server.tls import UnmappedNameError

if TYPE_CHECKING:
    from collections.abc import Callable

    from quorate_controller.node.events import Principal
    from quorate_controller.server.connection_quotas import Place
    from quorate_controller.server.listener import Listener
    from quorate_controller.server.sasl import SaslSession
    from quorate_controller.server.tls import TlsOfListener

log = logging.getLogger(__name__)

REQUEST_BYTES_MAX: Final = 1024 * 1024
"""A connection that holds more bytes of requests passes no other on before those in flight have their responses."""
REQUESTS_AT_ONCE: Final = 8
"""Requests of one connection that are passed on before it is another's turn."""
WRITE_BUFFER_BYTES_MAX: Final = 64 * 1024
"""With more than this unsent, the peer is not reading."""
PIECE_BYTES_MAX: Final = WRITE_BUFFER_BYTES_MAX
"""What is written at once. A transport with TLS encrypts all that it is given, and keeps that until it is sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerLimits:
    """Bounds of one listener, with Kafka's property names where it has them."""

    frame_size_bytes_max: int = 100 * 1024 * 1024
    """socket.request.max.bytes"""
    in_flight_max: int = 256
    """Requests of one connection that may wait for their answers."""
    socket_send_buffer_bytes: int = 100 * 1024
    """socket.send.buffer.bytes, what the system keeps for a peer that does not read; negative: the system decides."""
    send_buffer_bytes_max: int = 4 * 1024 * 1024
    """Answers of one connection that may wait for the peer to read; one answer may be larger."""
    answer_memory_bytes_max: int = 128 * 1024 * 1024
    """The maximum memory of the answers on all connections of all listeners, see `AnswerMemory`."""
    idle_timeout_ms: int = 600_000
    """connections.max.idle.ms; negative: never."""


class _EndedTransport(asyncio.Transport):
    """The transport of a connection that has ended: nothing is sent or read."""

    def is_closing(self) -> bool:
        return True

    def close(self) -> None:
        pass

    def abort(self) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0


ENDED: Final = _EndedTransport()


class Connection(asyncio.BufferedProtocol):
    """One accepted connection."""

    def __init__(self, listener: Listener, place: Place) -> None:
        self.peer = Peer(host="", port=0, listener=listener.name)
        self.findings = ConnectionFindings()
        self.session: SaslSession | None = None
        self.last_activity = 0.0
        """When a request was complete, or an answer sent: single bytes do not keep a connection open."""
        self._place = place
        self._listener = listener
        self._may_ask = not listener.has_sasl
        """Whether requests are those of a client that has authenticated, or need not."""
        self._loop = asyncio.get_running_loop()
        self._decoder = FrameDecoder(listener.first_frames_size_bytes_max)
        self._in_flight: deque[Exchange] = deque()
        self._undispatched: deque[bytes] = deque()
        self.arrival = Arrival()
        """The time that the unfinished request may take."""
        self._arriving_class = ServiceClass.STRANGERS
        """The class of the last request that was counted."""
        self._request_bytes = 0
        """Size of the complete requests that have no response yet."""
        self._is_counted = False
        """Whether the connection holds more than it may without being counted."""
        self._is_queued = False
        self.account = Account()
        self._waits_for_memory = False
        self._is_writable = True
        self._is_reading = True
        self._is_refused = False
        self._is_flush_scheduled = False
        self._holds = 0
        """While there are some, no further request is taken."""
        self._unsent_bytes = 0
        """Size of the answers that wait for earlier ones, or for the flush."""
        self._has_unread = False
        """Whether so many answers wait that they are counted, see `AnswerMemory`."""
        self._unwritten: deque[memoryview] = deque()
        """What is left of answers that are written in pieces; nothing while the transport takes more."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        # There is no address any more when the peer has left before we looked.
        host, port, *_ = transport.get_extra_info("peername") or ("unknown", 0)
        self.peer = Peer(
            host=host,
            port=port,
            listener=self._listener.name,
            security_protocol=self._listener.security_protocol,
        )
        self.last_activity = self._loop.time()
        self._place.close = self.abort
        self._listener.admit(self)
        self._transport.set_write_buffer_limits(
            high=min(self._listener.limits.send_buffer_bytes_max, WRITE_BUFFER_BYTES_MAX)
        )
        set_no_delay(transport)
        if self._listener.limits.socket_send_buffer_bytes >= 0:
            transport.get_extra_info("socket").setsockopt(
                socket.SOL_SOCKET, socket.SO_SNDBUF, self._listener.limits.socket_send_buffer_bytes
            )
        if self._listener.tls is not None and not self._listener.has_sasl:
            self._identify(self._listener.tls)

    @property
    def address(self) -> str:
        """Host and port of the other end."""
        return str(self.peer)

    def _identify(self, tls: TlsOfListener) -> None:
        """Find out whom the certificate of the other end names."""
        try:
            principal = tls.principal_of(self._transport.get_extra_info("ssl_object"))
        except (UnmappedNameError, ValueError) as error:
            self.refuse(str(error))
        else:
            self.peer = replace(self.peer, principal=principal)

    def authenticated(self, principal: Principal) -> None:
        """The other end has proven who it is, and may send requests of each size."""
        self.peer = replace(self.peer, principal=principal)
        self._may_ask = True
        self._decoder.limit(self._listener.limits.frame_size_bytes_max)

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> None:
        """Call back after a while."""
        self._loop.call_later(delay_s, callback)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's interface
        self._take_no_more()
        self._unwritten.clear()
        self._listener.answers.waits(self, 0, self._loop.time())
        self._listener.quotas.leave(self._place)
        while self._in_flight:
            self._in_flight.popleft().abandon()
        self._listener.memory.forget(self)
        self._listener.forget(self)
        # The transport of uvloop refers to this connection, and has a buffer of 256 KiB with TLS: without a cycle of
        # references, it is freed now.
        self._transport = ENDED

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's interface
        """Return the buffer that all connections share: received bytes are taken before the next connection reads."""
        return self._listener.read_buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Take what was read."""
        self.data_received(bytes(self._listener.read_buffer[:nbytes]))

    def data_received(self, data: bytes) -> None:
        """Take bytes: split them into requests, and serve these when it is their turn."""
        if self._is_refused:
            return
        try:
            frames = self._decoder.feed(data)
        except ProtocolError as error:
            self._listener.counters.limited[Limit.REQUEST_SIZE] += 1
            self.refuse(error.message)
            return
        if frames:
            self.last_activity = self._loop.time()
            self._request_bytes += sum(map(len, frames))
            self._undispatched.extend(frames)
        held_bytes = self._decoder.buffered_size_bytes
        if held_bytes:
            now_s = self._loop.time()
            self.arrival.arrived(len(data), now_s, is_new=bool(frames))
            if not self._is_reading:  # TLS may pass on what it has already
                self.arrival.pause(now_s)
        elif frames:
            self.arrival.completed()
        # Most data is one small request.
        if self._is_counted or self._request_bytes + held_bytes > UNCOUNTED_REQUEST_BYTES_MAX:
            self._find_class()
            self._count()
        self._serve_in_turn()

    @property
    def _is_known(self) -> bool:
        """Whether the other end is no stranger: it has authenticated or, where it need not, was served before."""
        if not self._may_ask or self._listener.has_sasl:
            return self._may_ask
        return self._place.stage is Stage.SERVED or self.peer.principal != ANONYMOUS

    def _class_of(self, key: bytes) -> ServiceClass:
        return class_of(key) if self._is_known else ServiceClass.STRANGERS

    def _find_class(self) -> None:
        """Derive the class from the last request, as far as it has come, and bound its size."""
        key = self._decoder.unfinished_key or (self._undispatched[-1][:2] if self._undispatched else b"")
        self._arriving_class = self._class_of(key)
        size_bytes = self._decoder.unfinished_size_bytes
        bytes_max = self._listener.memory.size_bytes_max(self._arriving_class)
        if bytes_max is not None and size_bytes > bytes_max:
            self._listener.counters.limited[Limit.REQUEST_SIZE] += 1
            self.refuse(f"a request of {size_bytes} bytes; {self._arriving_class.value} may send {bytes_max}")

    def _count(self) -> None:
        """Count the memory of requests, if the connection holds more than it may uncounted."""
        buffered_bytes, size_bytes = self._decoder.buffered_size_bytes, self._decoder.unfinished_size_bytes
        held_bytes = self._request_bytes + buffered_bytes
        missing_bytes = max(0, size_bytes - buffered_bytes)
        may_read = self._listener.memory.hold(self, self._arriving_class, held_bytes, missing_bytes)
        self._waits_for_memory = not may_read
        self._is_counted = held_bytes > UNCOUNTED_REQUEST_BYTES_MAX

    def memory_granted(self) -> None:
        """Read on: there is memory for more of the unfinished request."""
        self._waits_for_memory = False
        self._regulate_reading()

    def eof_received(self) -> bool:
        """A peer that has shut down its side wants no answers: close, and abandon what is in flight."""
        return False

    def pause_writing(self) -> None:
        self._is_writable = False
        self._regulate_reading()

    def resume_writing(self) -> None:
        self._is_writable = True
        self._listener.answers.reads(self, self._loop.time())
        self._write_pieces()
        self._note_unread()
        self._go_on()

    def answered(self, size_bytes: int) -> None:
        """An exchange has its answer: send what is due, once per turn of the loop for all that became due."""
        self._unsent_bytes += size_bytes
        self._note_unread()
        self._schedule_flush()

    def _note_unread(self) -> None:
        """Count the answers that wait for earlier ones, and those that the peer does not read."""
        unread_bytes = self._unsent_bytes
        if not self._is_writable:
            unread_bytes += self._transport.get_write_buffer_size() + sum(map(len, self._unwritten))
        if unread_bytes > UNCOUNTED_RESPONSE_BYTES_MAX or self._has_unread:
            self._has_unread = unread_bytes > UNCOUNTED_RESPONSE_BYTES_MAX
            self._listener.answers.waits(self, unread_bytes, self._loop.time())

    def _schedule_flush(self) -> None:
        if not self._is_flush_scheduled:
            self._is_flush_scheduled = True
            self._loop.call_soon(self._flush)

    def refuse(self, reason: str) -> None:
        """Read no more; close when all that came before is answered."""
        if not self._is_refused:
            facts = {"peer": str(self.peer), "listener": self.peer.listener, "reason": reason}
            log.warning("connection_refused", extra={"facts": facts})
        self.drain()

    def drain(self) -> None:
        """Take no more requests, and close once those in flight are answered."""
        self._take_no_more()
        self._regulate_reading()
        self._schedule_flush()

    def _take_no_more(self) -> None:
        """Forget what is not dispatched, and the unfinished request."""
        self._is_refused = True
        self._request_bytes -= sum(map(len, self._undispatched))
        self._undispatched.clear()
        self._decoder.clear()
        self.arrival.completed()
        self._count()

    def hold(self) -> None:
        """Take no further request until `release`: a client is beyond its quota, or a request excludes others."""
        self._holds += 1

    def release(self) -> None:
        """Take further requests, if nothing else holds them back."""
        self._holds -= 1
        if not self._holds:
            self._schedule_flush()

    def expire(self) -> bool:
        """Close after the idle timeout, unless an answer is being worked on. Returns whether it closes."""
        if self._is_refused or not self._is_writable:
            self.abort()  # the peer does not even read what is to be sent
        elif self._in_flight:
            return False
        else:
            self.drain()
        return True

    def abort(self) -> None:
        """Close now, whatever is in flight."""
        self._transport.abort()

    def _serve_in_turn(self) -> None:
        """Serve the received requests now or, if other work waits, when it is this connection's turn."""
        if self._undispatched and not self._is_queued:
            scheduler = self._listener.scheduler
            if scheduler.is_idle:
                self._serve_some()
            else:
                self._is_queued = self._may_serve()
            if self._is_queued:
                scheduler.add(self)
        # Most often it reads, and nothing keeps it from that.
        if self._undispatched or self._waits_for_memory or not self._is_reading:
            self._regulate_reading()

    @property
    def service_class(self) -> ServiceClass:
        """See `scheduler.Work`."""
        return self._class_of(self._undispatched[0][:2]) if self._undispatched else ServiceClass.STRANGERS

    def _may_serve(self) -> bool:
        if not self._undispatched or not self._is_writable or self._is_refused or self._holds:
            return False
        if self._in_flight and self._request_bytes > REQUEST_BYTES_MAX:
            return False
        limits = self._listener.limits
        is_full = len(self._in_flight) >= (1 if self._listener.answers.is_full else limits.in_flight_max)
        return not is_full and self._unsent_bytes <= limits.send_buffer_bytes_max

    def step(self) -> Outcome:
        """Pass some requests of one class on."""
        self._serve_some()
        self._regulate_reading()
        return Outcome.MORE if self._is_queued else Outcome.DONE

    def _serve_some(self) -> None:
        last_class: ServiceClass | None = None
        for _ in range(REQUESTS_AT_ONCE):
            if not self._may_serve():
                break
            service_class = self.service_class
            if last_class is not None and service_class is not last_class:
                break
            last_class = service_class
            exchange = Exchange(self, self._undispatched.popleft(), service_class)
            self._in_flight.append(exchange)
            try:
                self._listener.handler.handle(exchange)
            except Exception as error:
                # Otherwise neither this request nor those behind it would ever be answered.
                log.exception("request_failed", extra={"facts": {"peer": str(self.peer)}})
                exchange.refuse(f"{type(error).__name__} while a request was served")
            if not self._is_refused and self._may_ask:
                self._listener.quotas.served(self._place, self.last_activity)
            if not self._undispatched:
                break
        self._is_queued = bool(self._undispatched) and self._may_serve()

    def _regulate_reading(self) -> None:
        is_blocked = self._undispatched or self._waits_for_memory or self._is_refused
        may_read = self._is_writable and not is_blocked
        if may_read == self._is_reading or self._transport.is_closing():
            return
        self._is_reading = may_read
        if may_read:
            self.arrival.resume(self._loop.time())
            self._transport.resume_reading()
        else:
            self.arrival.pause(self._loop.time())
            self._transport.pause_reading()

    def _flush(self) -> None:
        self._is_flush_scheduled = False
        in_flight = self._in_flight
        due: list[bytes | bytearray] = []
        while in_flight and (response := in_flight[0].answer) is not None:
            exchange = in_flight.popleft()
            self._request_bytes -= len(exchange.frame)
            exchange.end()
            self._unsent_bytes -= len(response)
            due.append(response)
        if self._is_counted:
            self._count()
        if due and not self._transport.is_closing():
            self.last_activity = self._loop.time()
            self._write(due)
            self._note_unread()
        self._go_on()

    def _write(self, answers: list[bytes | bytearray]) -> None:
        size_bytes = sum(map(len, answers))
        if size_bytes <= PIECE_BYTES_MAX and not self._unwritten:
            self._transport.write(answers[0] if len(answers) == 1 else b"".join(answers))
            return
        self._unwritten.extend(map(memoryview, answers))
        self._write_pieces()

    def _write_pieces(self) -> None:
        """Write what is left until the transport has enough for now."""
        while self._unwritten and self._is_writable and not self._transport.is_closing():
            rest = self._unwritten.popleft()
            if len(rest) > PIECE_BYTES_MAX:
                self._unwritten.appendleft(rest[PIECE_BYTES_MAX:])
            self._transport.write(rest[:PIECE_BYTES_MAX])

    def _go_on(self) -> None:
        """Serve the next requests, or close after the last answer."""
        if not self._is_refused:
            self._serve_in_turn()
        elif (not self._in_flight or self._in_flight[0].is_last) and not self._unwritten:
            self._transport.close()


def set_no_delay(transport: asyncio.BaseTransport) -> None:
    """Send small frames at once: a request waits for its answer, so Nagle's algorithm would only add delay."""
    transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
