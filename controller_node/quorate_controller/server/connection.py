"""One accepted connection: frames in, responses out, in the order in which the requests came.

A `Connection` decodes frames and hands each to the handler as an `Exchange`: one request and its place in the
order of responses. The handler responds at once or later; several requests of one connection may be in flight,
so that what a client pipelines is committed together, yet responses leave in order, as Kafka's clients expect.

Everything is bounded: the size of a frame before memory is taken for it, the memory of requests by the class of their
senders, the time of an unfinished request, requests in flight per connection, bytes waiting to be sent. At a bound we
stop reading, and TCP slows the peer down.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from dataclasses import field, replace
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, cast

from quorate_protocol.errors import ProtocolError
from quorate_protocol.kafka.enums import SecurityProtocol
from quorate_protocol.plain_data import dataclass

from quorate_controller.node.events import ANONYMOUS, Principal
from quorate_controller.scheduler import Account, ServiceClass, StepResult, class_of
from quorate_controller.server.connection_peer import Peer
from quorate_controller.server.connection_quotas import Stage
from quorate_controller.server.counters import Limit
from quorate_controller.server.misrouting import ConnectionFindings
from quorate_controller.server.request_intake import RequestIntake
from quorate_controller.server.response_writer import ENDED, ResponseWriter, set_no_delay, set_send_buffer
from quorate_controller.server.tls import UnmappedNameError

if TYPE_CHECKING:
    from collections.abc import Callable

    from quorate_controller.scheduler import Scheduler
    from quorate_controller.server.connection_memory import RequestMemory, ResponseMemory
    from quorate_controller.server.connection_quotas import ConnectionQuotas, Place
    from quorate_controller.server.counters import RequestCounters
    from quorate_controller.server.listener_limits import ListenerLimits
    from quorate_controller.server.tls import TlsOfListener

log = logging.getLogger(__name__)

REQUEST_BYTES_MAX: Final = 1024 * 1024
"""A connection that holds more bytes of requests passes no other on before those in flight have their responses."""
REQUESTS_AT_ONCE: Final = 8
"""Requests of one connection that are passed on before it is another's turn."""
_PROTOCOLS: Final = {(protocol.is_tls, protocol.is_sasl): protocol for protocol in SecurityProtocol}


class RequestHandler(Protocol):
    """Serves requests: `dispatch.Dispatcher`, and before authentication `sasl.SaslGate`."""

    def handle(self, exchange: Exchange) -> None:
        """Respond now or later by `exchange.respond`, or end the connection by `exchange.refuse`.

        Raises:
            Exception: a mistake of ours; the connection is closed.
        """


class Exchange:
    """One request frame and its response."""

    __slots__ = (
        "_is_holding",
        "_on_abandoned",
        "_on_ended",
        "connection",
        "frame",
        "is_last",
        "response",
        "service_class",
    )

    def __init__(
        self, connection: Connection, frame: bytes, service_class: ServiceClass = ServiceClass.CLIENTS
    ) -> None:
        self.frame = frame
        """The request without its length prefix."""
        self.service_class = service_class
        self.response: bytes | bytearray | None = None
        """The response with its length prefix, once known."""
        self.is_last = False
        """Whether the connection closes without a response."""
        self.connection = connection
        self._is_holding = False
        self._on_abandoned: Callable[[], object] | None = None
        self._on_ended: Callable[[], object] | None = None

    @property
    def peer(self) -> Peer:
        """The sender of the request."""
        return self.connection.peer

    @property
    def is_over(self) -> bool:
        """Whether the response is known, or the connection closes instead."""
        return self.response is not None or self.is_last

    def respond(self, response: bytes | bytearray) -> None:
        """Send a frame with its length prefix, once all earlier ones are sent.

        Without effect when the exchange is over, or the connection gone.
        """
        if self.is_over:
            return
        self.response = response
        self._on_abandoned = None
        self.connection.response_ready(len(response))

    def refuse(self, reason: str) -> None:
        """Close the connection after the responses to earlier requests; `reason` is logged.

        Without effect when the exchange is over.
        """
        if not self.is_over:
            self.is_last = True
            self._on_abandoned = None
            self.connection.refuse(reason)

    def end_later(self, response: bytes | None, delay_s: float) -> None:
        """Read no more, and after `delay_s` send the response, if there is one, and close the connection."""
        self.connection.drain()
        finish = self.drop if response is None else partial(self.respond, response)
        self.connection.call_later(delay_s, finish)

    def hold_for(self, delay_s: float) -> None:
        """Serve no other request of the connection for `delay_s` (KIP-219)."""
        self.connection.hold()
        self.connection.call_later(delay_s, self.connection.release)

    def hold(self) -> None:
        """Serve no other request of the connection until `release`, at the latest until the response is sent."""
        if not self._is_holding:
            self._is_holding = True
            self.connection.hold()

    def release(self) -> None:
        """Serve other requests of the connection again."""
        if self._is_holding:
            self._is_holding = False
            self.connection.release()

    def drop(self) -> None:
        """There will be no response: close the connection after those to earlier requests.

        Without effect when the exchange is over, or the connection gone.
        """
        if not self.is_over:
            self.is_last = True
            self._on_abandoned = None
            self.connection.drain()

    def on_abandoned(self, callback: Callable[[], object]) -> None:
        """Have `callback` called if the connection is lost before the response is known."""
        self._on_abandoned = callback

    def abandon(self) -> None:
        """Cancel the work on the response: the connection is lost."""
        if self._on_abandoned is not None:
            self._on_abandoned()
            self._on_abandoned = None
        self.end()

    def on_ended(self, callback: Callable[[], object]) -> None:
        """Have `callback` called once the response is written, or the connection lost."""
        self._on_ended = callback

    def end(self) -> None:
        """The response is sent, or the connection lost."""
        if self._is_holding:
            self.release()
        if self._on_ended is not None:
            callback, self._on_ended = self._on_ended, None
            callback()


@dataclass(slots=True, kw_only=True, eq=False)
class ListenerContext:
    """What the connections of a listener share; scheduler, quotas, memory and counters also with other listeners."""

    name: str
    tls: TlsOfListener | None
    has_sasl: bool
    """Whether the handler authenticates: then certificates do not."""
    first_frames_size_bytes_max: int
    """The bound of frames until the other end is authenticated."""
    handler: RequestHandler
    limits: ListenerLimits
    memory: RequestMemory
    responses: ResponseMemory
    scheduler: Scheduler
    quotas: ConnectionQuotas
    counters: RequestCounters
    read_buffer: memoryview
    """Received bytes are copied out of it before the next connection reads."""
    connections: set[Connection] = field(default_factory=set)
    all_lost: asyncio.Future[None] | None = None
    """Set when the listener closes; done once there are no connections."""

    @property
    def security_protocol(self) -> SecurityProtocol:
        """How the listener is secured."""
        return _PROTOCOLS[self.tls is not None, self.has_sasl]

    def lost(self, connection: Connection) -> None:
        """Forget a connection."""
        self.connections.discard(connection)
        if self.all_lost is not None and not self.connections and not self.all_lost.done():
            self.all_lost.set_result(None)


class Connection(asyncio.BufferedProtocol):
    """One accepted connection."""

    def __init__(self, context: ListenerContext, place: Place) -> None:
        self.peer = Peer(host="", port=0, listener=context.name, security_protocol=context.security_protocol)
        self.findings = ConnectionFindings()
        self.session: RequestHandler | None = None
        self.last_activity = 0.0
        """When a request was complete, or a response sent: single bytes do not keep a connection open."""
        self._place = place
        self._context = context
        self._may_ask = not context.has_sasl
        """Whether requests are those of a client that has authenticated, or need not."""
        self._loop = asyncio.get_running_loop()
        self._intake = RequestIntake(context.memory, place, context.first_frames_size_bytes_max)
        self._in_flight: deque[Exchange] = deque()
        self._is_queued = False
        self.account = Account()
        self._is_reading = True
        self._is_refused = False
        self._is_flush_scheduled = False
        self._holds = 0
        """While there are some, no further request is served."""
        self._writer: ResponseWriter

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        # A peer that has left already has no address.
        host, port, *_ = transport.get_extra_info("peername") or ("unknown", 0)
        self.peer = replace(self.peer, host=host, port=port)
        self.last_activity = self._loop.time()
        self._place.close = self.abort
        self._place.memory_granted = self._memory_granted
        context = self._context
        context.connections.add(self)
        limits, memory = context.limits, context.responses
        self._writer = ResponseWriter(self._transport, limits.send_buffer_bytes_max, memory, self._place)
        set_no_delay(transport)
        set_send_buffer(transport, limits.socket_send_buffer_bytes)
        if context.tls is not None and not context.has_sasl:
            self._identify(context.tls)

    def _identify(self, tls: TlsOfListener) -> None:
        """Derive the principal from the client certificate."""
        try:
            principal = tls.principal_of(self._transport.get_extra_info("ssl_object"))
        except (UnmappedNameError, ValueError) as error:
            self.refuse(str(error))
        else:
            self.peer = replace(self.peer, principal=principal)

    def authenticated(self, principal: Principal) -> None:
        """Set the authenticated principal, and raise the frame limit."""
        self.peer = replace(self.peer, principal=principal)
        self._may_ask = True
        self._intake.limit(self._context.limits.frame_size_bytes_max)

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> None:
        """Call back after `delay_s`."""
        self._loop.call_later(delay_s, callback)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's interface
        self._drop_unserved()
        self._writer.end()
        self._context.quotas.leave(self._place)
        while self._in_flight:
            self._in_flight.popleft().abandon()
        self._intake.end()
        self._context.lost(self)
        # The transport of uvloop refers to this connection, and has a buffer of 256 KiB with TLS: without a cycle of
        # references, it is freed now.
        self._transport = ENDED

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's interface
        """Return the buffer that all connections share, see `ListenerContext`."""
        return self._context.read_buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes are in the buffer."""
        self.data_received(bytes(self._context.read_buffer[:nbytes]))

    def data_received(self, data: bytes) -> None:
        """Split bytes into requests, and serve these when it is their turn."""
        if self._is_refused:
            return
        intake, now_s = self._intake, self._loop.time()
        try:
            is_complete = intake.receive(data, now_s, is_reading=self._is_reading)
        except ProtocolError as error:
            self._refuse_size(error.message)
            return
        if is_complete:
            self.last_activity = now_s
        if intake.is_large:
            if (reason := intake.find_class(self._class_of)) is not None:
                self._refuse_size(reason)
            intake.count()
        self._serve_in_turn()

    def _refuse_size(self, reason: str) -> None:
        self._context.counters.limited[Limit.REQUEST_SIZE] += 1
        self.refuse(reason)

    def is_overdue(self, now_s: float) -> bool:
        """Whether the unfinished request arrives too slowly."""
        return self._intake.arrival.is_overdue(now_s)

    @property
    def _is_known(self) -> bool:
        """Whether the other end is no stranger: it has authenticated or, where it need not, was served before."""
        if not self._may_ask or self._context.has_sasl:
            return self._may_ask
        return self._place.stage is Stage.SERVED or self.peer.principal != ANONYMOUS

    def _class_of(self, key: bytes) -> ServiceClass:
        return class_of(key) if self._is_known else ServiceClass.STRANGERS

    def _memory_granted(self) -> None:
        """Read on: there is memory for more of the unfinished request."""
        self._intake.waits_for_memory = False
        self._regulate_reading()

    def eof_received(self) -> bool:
        """A peer that has shut down its side reads no responses: close, and abandon what is in flight."""
        return False

    def pause_writing(self) -> None:
        self._writer.is_writable = False
        self._regulate_reading()

    def resume_writing(self) -> None:
        self._writer.resume()
        self._serve_or_close()

    def response_ready(self, size_bytes: int) -> None:
        """An exchange has its response: write what is due, once per pass of the loop for all that became due."""
        writer = self._writer
        writer.waiting_bytes += size_bytes
        writer.count_unread()
        self._schedule_flush()

    def _schedule_flush(self) -> None:
        if not self._is_flush_scheduled:
            self._is_flush_scheduled = True
            self._loop.call_soon(self._flush)

    def refuse(self, reason: str) -> None:
        """Read no more; close once all earlier requests have their responses."""
        if not self._is_refused:
            facts = {"peer": str(self.peer), "listener": self.peer.listener, "reason": reason}
            log.warning("connection_refused", extra={"facts": facts})
        self.drain()

    def drain(self) -> None:
        """Read no more requests, and close once those in flight have their responses."""
        self._drop_unserved()
        self._regulate_reading()
        self._schedule_flush()

    def _drop_unserved(self) -> None:
        """Drop the requests that are not dispatched, and the unfinished one."""
        self._is_refused = True
        self._intake.drop()

    def hold(self) -> None:
        """Serve no further request until `release`: a client is beyond its quota, or a request excludes others."""
        self._holds += 1

    def release(self) -> None:
        """Serve further requests, if nothing else holds them back."""
        self._holds -= 1
        if not self._holds:
            self._schedule_flush()

    def expire(self) -> bool:
        """Close after the idle timeout, unless a request is in flight. Returns whether it closes."""
        if self._is_refused or not self._writer.is_writable:
            self.abort()  # the peer does not read what was sent
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
        intake = self._intake
        if intake.waiting and not self._is_queued:
            scheduler = self._context.scheduler
            if scheduler.is_idle:
                self._serve_some()
            else:
                self._is_queued = self._may_serve()
            if self._is_queued:
                scheduler.add(self)
        # Most often it reads, and nothing keeps it from that.
        if intake.waiting or intake.waits_for_memory or not self._is_reading:
            self._regulate_reading()

    @property
    def service_class(self) -> ServiceClass:
        """See `scheduler.Work`."""
        waiting = self._intake.waiting
        return self._class_of(waiting[0][:2]) if waiting else ServiceClass.STRANGERS

    def _may_serve(self) -> bool:
        if not self._intake.waiting or not self._writer.is_writable or self._is_refused or self._holds:
            return False
        if self._in_flight and self._intake.size_bytes > REQUEST_BYTES_MAX:
            return False
        limits = self._context.limits
        is_full = len(self._in_flight) >= (1 if self._context.responses.is_full else limits.in_flight_max)
        return not is_full and self._writer.waiting_bytes <= limits.send_buffer_bytes_max

    def step(self) -> StepResult:
        """Pass some requests of one class on."""
        self._serve_some()
        self._regulate_reading()
        return StepResult.MORE if self._is_queued else StepResult.DONE

    def _serve_some(self) -> None:
        waiting = self._intake.waiting
        last_class: ServiceClass | None = None
        for _ in range(REQUESTS_AT_ONCE):
            if not self._may_serve():
                break
            service_class = self.service_class
            if last_class is not None and service_class is not last_class:
                break
            last_class = service_class
            exchange = Exchange(self, waiting.popleft(), service_class)
            self._in_flight.append(exchange)
            try:
                self._context.handler.handle(exchange)
            except Exception as error:
                # Otherwise neither this request nor those behind it would get a response.
                log.exception("request_failed", extra={"facts": {"peer": str(self.peer)}})
                exchange.refuse(f"{type(error).__name__} while a request was served")
            if not self._is_refused and self._may_ask:
                self._context.quotas.served(self._place, self.last_activity)
            if not waiting:
                break
        self._is_queued = bool(waiting) and self._may_serve()

    def _regulate_reading(self) -> None:
        intake = self._intake
        is_blocked = intake.waiting or intake.waits_for_memory or self._is_refused
        may_read = self._writer.is_writable and not is_blocked
        if may_read == self._is_reading or self._transport.is_closing():
            return
        self._is_reading = may_read
        if may_read:
            intake.arrival.resume(self._loop.time())
            self._transport.resume_reading()
        else:
            intake.arrival.pause(self._loop.time())
            self._transport.pause_reading()

    def _flush(self) -> None:
        self._is_flush_scheduled = False
        in_flight, intake = self._in_flight, self._intake
        due: list[bytes | bytearray] = []
        while in_flight and (response := in_flight[0].response) is not None:
            exchange = in_flight.popleft()
            intake.size_bytes -= len(exchange.frame)
            exchange.end()
            due.append(response)
        if intake.is_counted:
            intake.count()
        if due:
            self.last_activity = self._loop.time()
            self._writer.write(due)
        self._serve_or_close()

    def _serve_or_close(self) -> None:
        """Serve the next requests, or close after the last response."""
        if not self._is_refused:
            self._serve_in_turn()
        elif (not self._in_flight or self._in_flight[0].is_last) and not self._writer.has_rest:
            self._transport.close()
