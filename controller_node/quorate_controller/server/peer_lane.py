"""One outbound connection to a peer: opened when needed, negotiated once, opened again after a break.

States of a lane: unconnected -> connecting (after any backoff) -> negotiating (ApiVersions sent) -> authenticating,
if the listeners of controllers require SASL -> ready. A lane whose session ends soon authenticates again (KIP-368).
A connection to another node than the intended one is closed at once: the response to ApiVersions has an error
(KIP-1242; not from Java up to 4.3). A broken connection leads back to unconnected. Its requests fail, and the next
request connects again. Kafka responds to the requests of one connection strictly in order, so responses are
matched by order and checked by correlation id.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from dataclasses import field
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from quorate_protocol.errors import ErrorCode, ProtocolError, UnsupportedVersion
from quorate_protocol.kafka.apis import api_of
from quorate_protocol.plain_data import dataclass
from quorate_protocol.wire.client import ClientConnection
from quorate_protocol.wire.versions import CONTROLLER_SOFTWARE_NAME, Negotiation, PeerVersions

from quorate_controller.raft.events import FailureReason
from quorate_controller.server.peer_authentication import PeerAuthentication, PeerAuthenticationError
from quorate_controller.server.response_writer import set_no_delay

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from quorate_protocol.kafka.apis import Payload
    from quorate_protocol.security.tokens import TokenKeeper

    from quorate_controller.config.listener_sasl import Login
    from quorate_controller.server.tls import TlsOfListener

log = logging.getLogger(__name__)

REAUTHENTICATION_SHARE: Final = 0.85
"""How much of a session passes before it is renewed, as in Kafka's clients."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneLimits:
    """Bounds of outbound connections; the backoff is Kafka's for its raft channel."""

    frame_size_bytes_max: int = 100 * 1024 * 1024
    waiting_max: int = 64
    """Requests that may wait for the connection."""
    in_flight_max: int = 5
    setup_timeout_s: float = 3.0
    """The time for the connection and the peer's ApiVersions: elections do not wait for the 10 s that Kafka
    allows."""
    backoff_s: float = 0.05
    backoff_s_max: float = 0.5
    idle_timeout_s: float = 540.0
    """Kafka's default for clients. A peer closes earlier when its connections.max.idle.ms is smaller."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a lane leads. `node_id` is negative for a bootstrap server of unknown id."""

    node_id: int
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.node_id} ({self.host}:{self.port})"


class _State(Enum):
    UNCONNECTED = "unconnected"
    CONNECTING = "connecting"
    NEGOTIATING = "negotiating"
    AUTHENTICATING = "authenticating"
    READY = "ready"


@dataclass(slots=True, kw_only=True, eq=False)
class Outbound:
    """A request on its way: exactly one of the callbacks is called, unless the lane is closed first."""

    request: Payload
    on_response: Callable[[Payload], None]
    on_failure: Callable[[FailureReason], None]
    timer: asyncio.TimerHandle | None = field(default=None, init=False)

    def succeed(self, response: Payload) -> None:
        """The response is here."""
        self.cancel_timer()
        self.on_response(response)

    def fail(self, reason: FailureReason) -> None:
        """Report that there will be no response."""
        self.cancel_timer()
        self.on_failure(reason)

    def cancel_timer(self) -> None:
        """Cancel the timeout."""
        if self.timer is not None:
            self.timer.cancel()


class _Wire(asyncio.Protocol):
    """The socket of one connection. It serves its lane until the lane drops it."""

    def __init__(self, lane: PeerLane) -> None:
        self._lane: PeerLane | None = lane

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if self._lane is None:
            cast("asyncio.Transport", transport).abort()
            return
        set_no_delay(transport)
        self._lane.connected(cast("asyncio.Transport", transport))

    def data_received(self, data: bytes) -> None:
        if self._lane is not None:
            self._lane.received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._lane is not None:
            self._lane.broken("closed by the peer" if exc is None else str(exc))

    def detach(self) -> None:
        """The lane has dropped this connection."""
        self._lane = None


class PeerLane:
    """One lane to one peer. `on_lost` is called when a ready connection breaks, `on_misrouted` when a connection
    led to another node or cluster.
    """

    def __init__(
        self,
        address: Address,
        *,
        client_id: str,
        cluster_id: str,
        limits: LaneLimits,
        rng: Random,
        on_lost: Callable[[], None],
        on_misrouted: Callable[[], None],
        tls: TlsOfListener | None = None,
        login: Login | None = None,
        tokens: TokenKeeper | None = None,
    ) -> None:
        self.address = address
        self._client_id = client_id
        self._cluster_id = cluster_id
        self._limits = limits
        self._rng = rng
        self._on_lost = on_lost
        self._on_misrouted = on_misrouted
        self._tls = tls
        self._login = login
        self._tokens = tokens
        self._authentication: PeerAuthentication | None = None
        self._authenticate_at_s: float | None = None
        """When to authenticate again."""
        self._loop = asyncio.get_running_loop()
        self._state = _State.UNCONNECTED
        self._waiting: deque[Outbound] = deque()
        self._in_flight: deque[Outbound] = deque()
        self._connect_task: asyncio.Task[None] | None = None
        self._setup_timer: asyncio.TimerHandle | None = None
        self._codec = ClientConnection(client_id)
        self._wire: _Wire | None = None
        self._transport: asyncio.Transport | None = None
        self._negotiation = Negotiation()
        self._versions = PeerVersions()
        self._failures = 0
        self._not_before_s = 0.0
        self._last_used_s = 0.0

    def submit(self, outbound: Outbound, timeout_s: float) -> None:
        """Send when the connection is ready and has room; fails after `timeout_s`, or soon with no room."""
        if len(self._waiting) >= self._limits.waiting_max:
            self._loop.call_soon(outbound.fail, FailureReason.DISCONNECTED)
            return
        outbound.timer = self._loop.call_later(timeout_s, self._timed_out, outbound)
        self._waiting.append(outbound)
        self._advance()

    def ask(self, request: Payload, timeout_s: float) -> asyncio.Future[Any]:
        """Send, and have the response as a future; after `close` it stays pending.

        The future raises OSError, or UnsupportedVersion if the peer does not have the API.
        """
        future: asyncio.Future[Any] = self._loop.create_future()
        outbound = Outbound(
            request=request, on_response=partial(_resolve, future), on_failure=partial(_reject, future)
        )
        self.submit(outbound, timeout_s)
        return future

    def close(self) -> None:
        """Close the connection; requests that wait or are in flight end without a callback."""
        for outbound in (*self._waiting, *self._in_flight):
            outbound.cancel_timer()
        self._waiting.clear()
        self._in_flight.clear()
        self._disconnect()

    def abandon(self) -> None:
        """Close the connection; requests that wait or are in flight fail."""
        self._disconnect()
        self._fail_all(FailureReason.DISCONNECTED)

    def close_if_idle(self) -> None:
        """Close a connection that was not used for the idle timeout."""
        is_in_use = self._waiting or self._in_flight or self._state is not _State.READY
        if not is_in_use and self._loop.time() - self._last_used_s >= self._limits.idle_timeout_s:
            self._disconnect()

    # ------------------------------------------------------------------------------------ the connection

    def _advance(self) -> None:
        """Send or connect for the requests that wait, as the state allows."""
        if self._state is _State.READY:
            self._send_waiting()
        elif self._state is _State.UNCONNECTED and self._waiting:
            self._state = _State.CONNECTING
            self._connect_task = self._loop.create_task(self._connect())

    async def _connect(self) -> None:
        delay_s = self._not_before_s - self._loop.time()
        if delay_s > 0:
            await asyncio.sleep(delay_s)
        wire = self._wire = _Wire(self)
        self._setup_timer = self._loop.call_later(
            self._limits.setup_timeout_s, self.broken, "timed out while connecting"
        )
        try:
            # The name is resolved for each connection: a node may have moved.
            await self._loop.create_connection(
                lambda: wire,
                self.address.host,
                self.address.port,
                ssl=None if self._tls is None else self._tls.client,
                server_hostname=None if self._tls is None else self.address.host,
            )
        except (OSError, UnicodeError) as error:
            self._connect_task = None
            self.broken(str(error))

    def connected(self, transport: asyncio.Transport) -> None:
        """The socket is connected, with TLS if that is configured: ask for the versions of the peer."""
        self._transport = transport
        self._codec = ClientConnection(
            self._client_id,
            frame_size_bytes_max=self._limits.frame_size_bytes_max,
            in_flight_max=self._limits.in_flight_max,
        )
        self._state = _State.NEGOTIATING
        # Versions of ApiVersions below 5 have no field for the intended node, and leave it out.
        is_known = self.address.node_id >= 0
        meant = (self._cluster_id, self.address.node_id) if is_known else ()
        self._negotiation = Negotiation(*meant, software_name=CONTROLLER_SOFTWARE_NAME)
        self._ask_versions()

    def _disconnect(self) -> None:
        """Drop the connection without a callback."""
        if self._setup_timer is not None:
            self._setup_timer.cancel()
        if self._connect_task is not None:
            self._connect_task.cancel()
            self._connect_task = None
        if self._wire is not None:
            self._wire.detach()
            self._wire = None
        if self._transport is not None:
            self._transport.abort()
            self._transport = None
        self._authentication = self._authenticate_at_s = None
        self._state = _State.UNCONNECTED

    def broken(self, reason: str) -> None:
        """The connection broke, or could not be made."""
        was_ready = self._state is _State.READY
        self._disconnect()
        if was_ready:
            self._log(logging.INFO, "peer_connection_lost", reason)
            self._not_before_s = 0.0
        else:
            self._back_off(reason)
        self._fail_all(FailureReason.DISCONNECTED if was_ready else FailureReason.UNREACHABLE)
        if was_ready:
            self._on_lost()

    def _misrouted(self) -> None:
        """Another node is at this address: the source of the address is out of date (KIP-1242)."""
        self._disconnect()
        facts = {"peer": str(self.address), "cluster_id": self._cluster_id}
        log.warning("peer_misrouted", extra={"facts": facts})
        self._on_misrouted()
        self._back_off("another node is there")
        self._fail_all(FailureReason.MISROUTED)

    def _log(self, level: int, event: str, reason: str) -> None:
        log.log(level, event, extra={"facts": {"peer": str(self.address), "reason": reason}})

    def _back_off(self, reason: str) -> None:
        if self._failures == 0:
            self._log(logging.INFO, "peer_unreachable", reason)
        backoff_s = min(self._limits.backoff_s * 2**self._failures, self._limits.backoff_s_max)
        self._failures = min(self._failures + 1, 16)
        self._not_before_s = self._loop.time() + backoff_s * self._rng.uniform(0.8, 1.2)

    def _fail_all(self, reason: FailureReason) -> None:
        failed = (*self._in_flight, *self._waiting)
        self._in_flight.clear()
        self._waiting.clear()
        for outbound in failed:
            outbound.fail(reason)

    def _timed_out(self, outbound: Outbound) -> None:
        if outbound in self._waiting:
            self._waiting.remove(outbound)
            outbound.fail(FailureReason.TIMED_OUT)
            return
        # Responses come in order: if one does not come, none of the later ones will.
        self._in_flight.remove(outbound)
        self._disconnect()
        outbound.fail(FailureReason.TIMED_OUT)
        self._fail_all(FailureReason.DISCONNECTED)

    # -------------------------------------------------------------------------------------- the protocol

    def _ask_versions(self) -> None:
        assert self._transport is not None
        self._transport.write(self._codec.send(self._negotiation.request, self._negotiation.version))

    def _send_waiting(self) -> None:
        if self._authenticate_at_s is not None and self._loop.time() >= self._authenticate_at_s:
            # The peer serves no other request meanwhile: those in flight come first.
            if not self._in_flight and self._waiting:
                self._set_up_again()
            return
        self._send_within_session()

    def _send_within_session(self) -> None:
        assert self._transport is not None
        while self._waiting and self._codec.can_send:
            outbound = self._waiting.popleft()
            api = api_of(outbound.request)
            try:
                frame = self._codec.send(outbound.request, self._versions.version_for(api))
            except UnsupportedVersion as error:
                if not api.is_extension:
                    self._log(logging.WARNING, "peer_too_old", error.message)
                outbound.fail(FailureReason.UNSUPPORTED_VERSION)
                continue
            self._in_flight.append(outbound)
            self._transport.write(frame)

    def received(self, data: bytes) -> None:
        """Bytes from the peer."""
        try:
            for _, response in self._codec.receive_data(data):
                self._receive(response)
        except ProtocolError as error:
            self._log(logging.WARNING, "peer_sent_garbage", error.message)
            self.broken(error.message)

    def _receive(self, response: Payload) -> None:
        self._last_used_s = self._loop.time()
        if self._state is _State.NEGOTIATING:
            self._receive_versions(response)
        elif self._state is _State.AUTHENTICATING:
            self._receive_authentication(response)
        elif self._state is _State.READY:
            self._in_flight.popleft().succeed(response)
            self._advance()

    def _receive_versions(self, response: Payload) -> None:
        try:
            versions = self._negotiation.receive(response)
        except ProtocolError as error:
            if error.error_code is not ErrorCode.rebootstrap_required:
                raise
            self._misrouted()
            return
        if versions is None:
            self._ask_versions()
            return
        self._versions = versions
        if self._login is None:
            self._be_ready()
        else:
            self._begin_authentication(self._login)

    def _be_ready(self) -> None:
        assert self._setup_timer is not None, "it runs until the lane is ready"
        self._setup_timer.cancel()
        self._failures = 0
        self._state = _State.READY
        # Waiting requests are sent, however short the session is.
        self._send_within_session()

    # ---------------------------------------------------------------------------------- authentication

    def _set_up_again(self) -> None:
        assert self._login is not None
        self._setup_timer = self._loop.call_later(
            self._limits.setup_timeout_s, self.broken, "timed out while authenticating again"
        )
        self._begin_authentication(self._login)

    def _begin_authentication(self, login: Login) -> None:
        self._state = _State.AUTHENTICATING
        self._authenticate_at_s = None
        self._authentication = PeerAuthentication(login, self._tokens)
        self._ask_to_authenticate(self._authentication.first)

    def _ask_to_authenticate(self, request: Payload) -> None:
        assert self._transport is not None
        try:
            frame = self._codec.send(request, self._versions.version_for(api_of(request)))
        except UnsupportedVersion as error:
            self._refused(error.message)
        else:
            self._transport.write(frame)

    def _receive_authentication(self, response: Payload) -> None:
        authentication = self._authentication
        assert authentication is not None, "a lane that authenticates has one"
        try:
            request = authentication.next(response)
        except PeerAuthenticationError as error:
            self._refused(str(error))
            return
        if request is not None:
            self._ask_to_authenticate(request)
            return
        self._authentication = None
        lifetime_s = authentication.lifetime_ms / 1000
        if lifetime_s > 0:
            self._authenticate_at_s = self._loop.time() + lifetime_s * REAUTHENTICATION_SHARE
        self._be_ready()

    def _refused(self, reason: str) -> None:
        """The peer refuses the login, or has failed to prove that it knows the password."""
        self._log(logging.WARNING, "peer_authentication_failed", reason)
        self.broken(reason)


def _resolve(future: asyncio.Future[Any], response: Payload) -> None:
    if not future.done():
        future.set_result(response)


def _reject(future: asyncio.Future[Any], reason: FailureReason) -> None:
    if future.done():
        return
    if reason is FailureReason.UNSUPPORTED_VERSION:
        future.set_exception(UnsupportedVersion(reason.value))
        return
    error = TimeoutError if reason is FailureReason.TIMED_OUT else ConnectionError
    future.set_exception(error(reason.value))
