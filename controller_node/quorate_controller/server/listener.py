"""TCP listeners: each accepts connections, closes those that are idle, and ends them all when it is closed."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from quorate_protocol.kafka.enums import SecurityProtocol

from quorate_controller.scheduler import Scheduler
from quorate_controller.server.acceptor import Acceptor
from quorate_controller.server.answer_memory import AnswerMemory
from quorate_controller.server.connection import Connection, ListenerLimits
from quorate_controller.server.connection_quotas import ConnectionLimits, ConnectionQuotas, Place
from quorate_controller.server.counters import Limit, RequestCounters
from quorate_controller.server.request_memory import READ_BYTES_MAX, RequestMemory

if TYPE_CHECKING:
    from quorate_controller.server.exchange import RequestHandler
    from quorate_controller.server.tls import TlsOfListener

log = logging.getLogger(__name__)

AUTHENTICATION_TIMEOUT_S: Final = 30.0
"""How long a client may take to authenticate with SASL. Kafka's only bound is connections.max.idle.ms."""
SWEEP_EVERY_S: Final = 1.0
_PROTOCOLS: Final = {(protocol.is_tls, protocol.is_sasl): protocol for protocol in SecurityProtocol}
REQUEST_MEMORY_BYTES_MAX: Final = 100 * 1024 * 1024
"""queued.max.request.bytes where it is not configured: the largest request."""


class Listener:
    """A named listener of this controller, for instance CONTROLLER on 0.0.0.0:9093."""

    def __init__(
        self,
        *,
        name: str,
        handler: RequestHandler,
        limits: ListenerLimits,
        tls: TlsOfListener | None = None,
        first_frames_size_bytes_max: int | None = None,
        quotas: ConnectionQuotas | None = None,
        counters: RequestCounters | None = None,
        memory: RequestMemory | None = None,
        answers: AnswerMemory | None = None,
        scheduler: Scheduler | None = None,
    ) -> None:
        self.name = name
        self.tls = tls
        self.has_sasl = first_frames_size_bytes_max is not None
        """Whether the handler authenticates: then certificates do not."""
        self.security_protocol = _PROTOCOLS[tls is not None, self.has_sasl]
        self.first_frames_size_bytes_max = first_frames_size_bytes_max or limits.frame_size_bytes_max
        """The bound of frames until the other end is authenticated."""
        self.handler = handler
        self.limits = limits
        self.counters = counters or RequestCounters()
        self.quotas = quotas or ConnectionQuotas(ConnectionLimits(), [name], self.counters)
        """Shared with the other listeners of the process, and so are memory and scheduler."""
        self.memory = memory or request_memory(REQUEST_MEMORY_BYTES_MAX, self.counters)
        self.scheduler = scheduler or Scheduler()
        self.answers = answers or AnswerMemory(limits.answer_memory_bytes_max, self.counters)
        self.read_buffer = memoryview(bytearray(READ_BYTES_MAX))
        self._connections: set[Connection] = set()
        self._acceptor: Acceptor | None = None
        self._sweep: asyncio.TimerHandle | None = None
        self._all_gone: asyncio.Future[None] | None = None

    async def start(self, host: str, port: int) -> None:
        """Bind and listen. An empty host binds all interfaces, port 0 a free port.

        Raises:
            OSError: the address cannot be bound.
        """
        self._acceptor = Acceptor(
            listener=self.name,
            tls=self.tls,
            make_protocol=self._new_connection,
            quotas=self.quotas,
            counters=self.counters,
        )
        await self._acceptor.start(host, port)
        self._schedule_sweep()

    def _new_connection(self, place: Place) -> Connection:
        return Connection(self, place)

    @property
    def port(self) -> int:
        """The bound port."""
        assert self._acceptor is not None, "the listener is started"
        return self._acceptor.port

    @property
    def connection_count(self) -> int:
        """Open connections."""
        return len(self._connections)

    async def close(self, grace_s: float) -> None:
        """Stop listening; close each connection once its requests are answered, all of them after `grace_s`."""
        if self._sweep is not None:
            self._sweep.cancel()
        if self._acceptor is not None:
            await self._acceptor.close()
        for connection in list(self._connections):
            connection.drain()
        if not self._connections:
            return
        self._all_gone = asyncio.get_running_loop().create_future()
        try:
            await asyncio.wait_for(self._all_gone, grace_s)
        except TimeoutError:
            for connection in list(self._connections):
                connection.abort()

    def admit(self, connection: Connection) -> None:
        """Know a connection that has its place."""
        self._connections.add(connection)

    def forget(self, connection: Connection) -> None:
        """A connection is gone."""
        self._connections.discard(connection)
        if self._all_gone is not None and not self._connections and not self._all_gone.done():
            self._all_gone.set_result(None)

    def _schedule_sweep(self) -> None:
        interval_s = SWEEP_EVERY_S
        if self.limits.idle_timeout_ms >= 0:
            interval_s = min(interval_s, max(self.limits.idle_timeout_ms / 1000 / 4, 0.01))
        self._sweep = asyncio.get_running_loop().call_later(interval_s, self._close_late)

    def _close_late(self) -> None:
        now_s = asyncio.get_running_loop().time()
        if self.limits.idle_timeout_ms >= 0:
            self._close_idle(now_s - self.limits.idle_timeout_ms / 1000)
        if self.has_sasl:
            self._close_unauthenticated(now_s - AUTHENTICATION_TIMEOUT_S)
        self._close_slow(now_s)
        self._schedule_sweep()

    def _close_slow(self, now_s: float) -> None:
        """Close connections whose unfinished requests arrive too slowly."""
        slow = [
            one for one in self._connections if one.arrival.due_s is not None and one.arrival.due_s < now_s
        ]
        for connection in slow:
            self._note(Limit.REQUEST_RATE, "request_too_slow", str(connection.peer))
            connection.abort()

    def _close_idle(self, oldest_s: float) -> None:
        for connection in list(self._connections):
            if connection.last_activity <= oldest_s and connection.expire():
                self._note(Limit.IDLE_TIME, "connection_idle", str(connection.peer))

    def _close_unauthenticated(self, oldest_s: float) -> None:
        for place in self.quotas.strangers(self.name, oldest_s):
            self._note(Limit.AUTHENTICATION_TIME, "authentication_timed_out", place.peer)
            place.close()

    def _note(self, limit: Limit, event: str, peer: str) -> None:
        self.counters.limited[limit] += 1
        log.info(event, extra={"facts": {"listener": self.name, "peer": peer}})


def request_memory(client_bytes_max: int, counters: RequestCounters) -> RequestMemory:
    """The memory of requests in the running event loop."""
    loop = asyncio.get_running_loop()
    return RequestMemory(client_bytes_max, counters, loop.call_later, loop.time)
