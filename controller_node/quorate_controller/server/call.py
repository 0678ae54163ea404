"""One request on its way to its response, which is sent directly or inside the envelope of a forwarding broker."""

from __future__ import annotations

import logging
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from quorate_protocol.errors import ErrorCode, ProtocolError, UnsupportedVersion
from quorate_protocol.kafka.field_types import MILLISECOND
from quorate_protocol.kafka.generated.envelope_response import EnvelopeResponse

from quorate_controller.control.api import ControlError
from quorate_controller.node.events import (
    ANONYMOUS,
    UNAWAITED_TIMEOUT_MS,
    Caller,
    NotAwaited,
    Principal,
)
from quorate_controller.scheduler import Scheduler, Steps
from quorate_controller.security.access import UNRESTRICTED
from quorate_controller.server.counters import Limit
from quorate_controller.server.envelope import forwarder_of
from quorate_controller.server.error_responses import error_response, not_awaited
from quorate_controller.server.response_frames import (
    LENGTH,
    SharedFrames,
    encode_response_frame,
    long_arrays,
    response_frame_steps,
    write_long_response,
)

if TYPE_CHECKING:
    from asyncio import Future, TimerHandle
    from collections.abc import Callable

    from quorate_protocol.kafka.apis import Payload
    from quorate_protocol.wire.server import Request

    from quorate_controller.node.events import ResponseWithData
    from quorate_controller.raft.messages import RaftResponse
    from quorate_controller.security.access import Access
    from quorate_controller.server.authorization import Authorization
    from quorate_controller.server.connection import Exchange
    from quorate_controller.server.connection_peer import Peer
    from quorate_controller.server.counters import RequestCounters
    from quorate_controller.server.misrouting import ConnectionFindings

log = logging.getLogger(__name__)

DEFAULT_TIMEOUT_MS: Final = 30_000
"""The timeout of control requests that have no field for it."""


class Call:
    """One request that waits for its response."""

    __slots__ = (
        "_counters",
        "_envelope",
        "_future",
        "_judge",
        "_scheduler",
        "_started_s",
        "_timer",
        "caller",
        "exchange",
        "request",
    )

    def __init__(
        self,
        request: Request,
        exchange: Exchange,
        counters: RequestCounters,
        scheduler: Scheduler,
        *,
        envelope: Request | None = None,
        principal: Principal = ANONYMOUS,
        client_host: str | None = None,
        authorization: Authorization | None = None,
    ) -> None:
        counters.requests[request.api.key] += 1
        peer = exchange.peer
        timeout = getattr(request.body, "timeout", None)
        host = peer.host if client_host is None else client_host
        access: Access = UNRESTRICTED
        if authorization is not None:
            access = authorization.access(request.api, str(principal), host)
        self.request = request
        self.caller = Caller(
            principal=principal,
            client_host=host,
            client_id=request.client_id,
            listener=peer.listener,
            api_version=request.version,
            request_timeout_ms=DEFAULT_TIMEOUT_MS if timeout is None else max(0, timeout // MILLISECOND),
            forwarded=envelope is not None,
            security_protocol=peer.security_protocol,
            broker_id=None if envelope is None else forwarder_of(envelope),
            access=access,
            connection=peer,
        )
        self.exchange = exchange
        self._counters = counters
        self._scheduler = scheduler
        self._envelope = envelope
        self._future: Future[Any] | None = None
        self._judge: Callable[[RaftResponse], None] | None = None
        self._timer: TimerHandle | None = None
        self._started_s = 0.0

    @property
    def peer(self) -> Peer:
        """The other end of the connection."""
        return self.exchange.peer

    @property
    def findings(self) -> ConnectionFindings:
        """What was found on the connection, see `misrouting`."""
        return self.exchange.connection.findings

    def respond(self, response: object) -> None:
        """Send a canonical response, unless there was one already.

        If the request's version cannot carry it, the connection closes; if it cannot be encoded, the client gets an
        error of its API.
        """
        if self._is_over():
            return
        try:
            self._send(response)
        except UnsupportedVersion as error:
            self.exchange.refuse(error.message)
        except Exception as error:
            self.fail(error)

    def _is_over(self) -> bool:
        """Whether there was a response, or there will be no response; counts responses after that."""
        if not self.exchange.is_over:
            return False
        self._counters.dropped_responses += 1
        return True

    def _send(self, response: object) -> None:
        request = self.request
        arrays = long_arrays(response)
        if arrays is None:
            frame = encode_response_frame(request.api, request.version, request.correlation_id, response)
            self._send_frame(frame, getattr(response, "throttle_time", None))
            return
        pieces = response_frame_steps(request.api, request.version, request.correlation_id, response, arrays)
        exchange = self.exchange
        written = partial(self._written, throttle_time=getattr(response, "throttle_time", None))
        writing = write_long_response(pieces, written, self._scheduler.long_responses)
        work = Steps(writing, exchange.service_class, exchange.connection.account)
        exchange.on_abandoned(work.abandon)
        self._scheduler.add(work)

    def _written(self, result: bytearray | Exception, throttle_time: timedelta | None) -> None:
        """Send a long response, or an error if it can't be written."""
        if self._is_over():
            return
        if isinstance(result, UnsupportedVersion):
            self.exchange.refuse(result.message)
        elif isinstance(result, Exception):
            self._refuse_because(result)
        else:
            self._send_frame(result, throttle_time)

    def _send_frame(self, frame: bytearray, throttle_time: timedelta | None) -> None:
        if self._envelope is not None:
            self._respond_to_envelope(
                EnvelopeResponse(error_code=ErrorCode.none, response_data=bytes(frame[LENGTH.size :]))
            )
            return
        if throttle_time:
            self._hold_for(throttle_time)
        self.exchange.respond(frame)

    def _hold_for(self, throttle_time: timedelta) -> None:
        """Read no more from a client beyond its quota for the throttle time of the response (KIP-219).

        The broker that forwards a request does this itself.
        """
        self._counters.limited[Limit.MUTATION_RATE] += 1
        facts = {
            "peer": str(self.peer),
            "principal": str(self.caller.principal),
            "client_id": self.caller.client_id,
            "throttle_time_ms": throttle_time // MILLISECOND,
        }
        log.info("client_throttled", extra={"facts": facts})
        self.exchange.hold_for(throttle_time / timedelta(seconds=1))

    def refuse(self, error_code: ErrorCode, message: str | None = None) -> None:
        """Send an error for the request as a whole, in the shape of its API, unless there was a response already.

        If that cannot be encoded either, the connection closes.
        """
        if self._is_over():
            return
        request = self.request
        self._counters.errors[request.api.key, error_code] += 1
        try:
            if self._envelope is not None and error_code is ErrorCode.not_controller:
                # On the envelope, so that the broker looks for the active controller and forwards again.
                self._respond_to_envelope(EnvelopeResponse(error_code=error_code))
            else:
                self._send(error_response(request.body, error_code, message, version=request.version))
        except Exception as error:
            self.exchange.refuse(
                f"no {request.api.name} response with {error_code.name} can be sent: {error!r}"
            )

    def fail(self, error: BaseException) -> None:
        """Respond to an unexpected exception. Its text is for the log only."""
        log.error("request_failed", extra={"facts": {"api": self.request.api.name}}, exc_info=error)
        self.refuse(ErrorCode.unknown_server_error)

    def _respond_to_envelope(self, response: EnvelopeResponse) -> None:
        envelope = self._envelope
        assert envelope is not None
        self.exchange.respond(
            encode_response_frame(envelope.api, envelope.version, envelope.correlation_id, response)
        )

    # ----------------------------------------------------------------------------- responses that take time

    def wait_for_raft(
        self,
        future: Future[ResponseWithData],
        judge: Callable[[RaftResponse], None] | None,
        frames: SharedFrames,
    ) -> None:
        """Respond with raft's response, encoded by `frames`; `judge` gets it, too.

        Raft keeps the time itself: a Fetch may wait, a vote does not.
        """
        self._future, self._judge = future, judge
        self.exchange.on_abandoned(future.cancel)
        future.add_done_callback(partial(self._raft_responded, frames))

    def wait_for_control(self, future: Future[Payload | NotAwaited]) -> None:
        """Respond with control's decision after its commit, or with REQUEST_TIMED_OUT.

        With a timeout of 0, respond as soon as it is decided: REQUEST_TIMED_OUT for changes, and any errors.
        """
        loop = future.get_loop()
        self._future = future
        self._started_s = loop.time()
        timeout_ms = self.caller.request_timeout_ms or UNAWAITED_TIMEOUT_MS
        self._timer = loop.call_later(timeout_ms / 1000, self._timed_out)
        self.exchange.on_abandoned(self._abandon)
        future.add_done_callback(self._control_decided)

    def _raft_responded(self, frames: SharedFrames, future: Future[ResponseWithData]) -> None:
        if future.cancelled():
            self.exchange.drop()
            return
        error = future.exception()
        if error is not None:
            self._refuse_because(error)
            return
        raft_response = future.result()
        self._send_raft_response(raft_response, frames)
        if self._judge is not None:
            self._judge(raft_response.response)

    def _send_raft_response(self, raft_response: ResponseWithData, frames: SharedFrames) -> None:
        if (
            self._envelope is not None
            and raft_response.response.error_code is ErrorCode.not_leader_or_follower
        ):
            # AddRaftVoter, RemoveRaftVoter: only the broker can look for the leader and forward again.
            self.refuse(ErrorCode.not_controller)
            return
        if self._is_over():
            return
        try:
            frame = frames.frame(raft_response, self.request)
        except UnsupportedVersion as error:
            self.exchange.refuse(error.message)
        except Exception as error:
            self.fail(error)
        else:
            self._send_frame(frame, None)

    def _control_decided(self, future: Future[Payload | NotAwaited]) -> None:
        assert self._timer is not None
        self._timer.cancel()
        if future.cancelled():
            self.exchange.drop()
            return
        elapsed_s = future.get_loop().time() - self._started_s
        self._counters.seconds[self.request.api.key].observe_ms(elapsed_s * 1000)
        error = future.exception()
        if error is not None:
            self._refuse_because(error)
            return
        result = future.result()
        self.respond(not_awaited(result.response) if isinstance(result, NotAwaited) else result)

    def _refuse_because(self, error: BaseException) -> None:
        if isinstance(error, (ControlError, ProtocolError)):
            self.refuse(error.error_code, error.message)
        else:
            self.fail(error)

    def _timed_out(self) -> None:
        assert self._future is not None
        # A future that is done has a result: its callback is about to respond.
        if self._future.cancel():
            self.refuse(ErrorCode.request_timed_out)

    def _abandon(self) -> None:
        assert self._future is not None
        assert self._timer is not None
        self._timer.cancel()
        self._future.cancel()
