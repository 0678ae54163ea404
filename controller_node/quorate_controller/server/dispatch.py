"""Passes each request to raft, to control, or to the server itself.

A `Call` is one request on its way to an answer. It knows how the answer goes back: directly, or inside the
envelope in which a broker forwarded the request.
"""

from __future__ import annotations

import logging
import time
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kio.schema.envelope.v0.response import EnvelopeResponse
from kio.schema.errors import ErrorCode
from quorate_protocol.errors import ProtocolError, TooManyElements, UnsupportedVersion
from quorate_protocol.kafka.apis import EXTENSION_APIS, SERVED_APIS, AnsweredBy, ApiKey
from quorate_protocol.wire.server import parse_head, parse_request

from quorate_controller.control.api import ControlError
from quorate_controller.node.events import ANONYMOUS, Caller, Principal
from quorate_controller.raft.messages import FetchRequest, Role
from quorate_controller.scheduler import LONG_READS, Scheduler, ServiceClass, Steps
from quorate_controller.security.access import UNRESTRICTED
from quorate_controller.server import misrouting
from quorate_controller.server.answer_frames import LENGTH, SharedFrames, encode_answer, writing_answer
from quorate_controller.server.api_versions import answer_api_versions
from quorate_controller.server.authorization import Authorization
from quorate_controller.server.counters import Limit
from quorate_controller.server.envelope import forwarder_of, open_envelope
from quorate_controller.server.error_responses import error_response
from quorate_controller.server.large_requests import PARSED_AT_ONCE_BYTES_MAX, LargeRequests
from quorate_controller.server.long_answers import long_arrays, writing_long
from quorate_controller.server.misrouting import Misrouting
from quorate_controller.server.raft_wire import (
    RefusedMessage,
    describe_quorum_to_wire,
    request_from_wire,
)
from quorate_controller.server.request_memory import ELEMENTS_MAX

if TYPE_CHECKING:
    from asyncio import Future, TimerHandle
    from collections.abc import Callable, Mapping

    from kio.static.protocol import Payload
    from quorate_protocol.kafka.apis import Api
    from quorate_protocol.wire.server import Request

    from quorate_controller.node.events import RaftAnswer
    from quorate_controller.node.port import NodePort
    from quorate_controller.raft.messages import RaftRequest, RaftResponse
    from quorate_controller.security.access import Access
    from quorate_controller.server.counters import RequestCounters
    from quorate_controller.server.envelope import Forwarded
    from quorate_controller.server.exchange import Exchange, Peer
    from quorate_controller.server.misrouting import ConnectionFindings

log = logging.getLogger(__name__)

DEFAULT_TIMEOUT_MS: Final = 30_000
"""The timeout of control requests that have no field for it."""

_MILLISECOND: Final = timedelta(milliseconds=1)
_Parsed = TypeVar("_Parsed")


class Call:
    """One request that waits for its answer."""

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
            request_timeout_ms=DEFAULT_TIMEOUT_MS if timeout is None else max(0, timeout // _MILLISECOND),
            forwarded=envelope is not None,
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
        return self.exchange.findings

    def answer(self, response: object) -> None:
        """Send a canonical response, unless the request is answered already.

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
        """Whether the client was answered before, or is not answered at all; counts what comes after that."""
        is_over = self.exchange.is_over
        self._counters.dropped_answers += is_over
        return is_over

    def _send(self, response: object) -> None:
        request = self.request
        arrays = long_arrays(response)
        if arrays is None:
            frame = encode_answer(request.api, request.version, request.correlation_id, response)
            self._send_frame(frame, getattr(response, "throttle_time", None))
            return
        pieces = writing_answer(request.api, request.version, request.correlation_id, response, arrays)
        exchange = self.exchange
        written = partial(self._written, throttle_time=getattr(response, "throttle_time", None))
        writing = writing_long(pieces, written, self._scheduler.long_responses)
        work = Steps(writing, exchange.service_class, exchange.account)
        exchange.on_abandoned(work.abandon)
        self._scheduler.add(work)

    def _written(self, outcome: bytearray | Exception, throttle_time: timedelta | None) -> None:
        """Send a long answer, or an error if it can't be written."""
        if self._is_over():
            return
        if isinstance(outcome, UnsupportedVersion):
            self.exchange.refuse(outcome.message)
        elif isinstance(outcome, Exception):
            self._refuse_because(outcome)
        else:
            self._send_frame(outcome, throttle_time)

    def _send_frame(self, frame: bytearray, throttle_time: timedelta | None) -> None:
        if self._envelope is not None:
            self._answer_envelope(
                EnvelopeResponse(error_code=ErrorCode.none, response_data=bytes(frame[LENGTH.size :]))
            )
            return
        self._hold_for(throttle_time)
        self.exchange.respond(frame)

    def _hold_for(self, throttle_time: timedelta | None) -> None:
        """Read no more from a client that is beyond its quota, for as long as it is told to wait (KIP-219).

        The broker that forwards a request does this itself.
        """
        if not throttle_time:
            return
        self._counters.limited[Limit.MUTATION_RATE] += 1
        facts = {
            "peer": str(self.peer),
            "principal": str(self.caller.principal),
            "client_id": self.caller.client_id,
            "throttle_time_ms": throttle_time // _MILLISECOND,
        }
        log.info("client_throttled", extra={"facts": facts})
        self.exchange.hold_for(throttle_time / timedelta(seconds=1))

    def refuse(self, error_code: ErrorCode, message: str | None = None) -> None:
        """Send an error for the request as a whole, in the shape of its API, unless the request is answered already.

        If that cannot be encoded either, the connection closes.
        """
        if self._is_over():
            return
        request = self.request
        self._counters.errors[request.api.key, error_code] += 1
        try:
            if self._envelope is not None and error_code is ErrorCode.not_controller:
                # On the envelope, so that the broker looks for the active controller and forwards again.
                self._answer_envelope(EnvelopeResponse(error_code=error_code))
            else:
                self._send(error_response(request.body, error_code, message, version=request.version))
        except Exception as error:
            self.exchange.refuse(
                f"no {request.api.name} response with {error_code.name} can be sent: {error!r}"
            )

    def fail(self, error: BaseException) -> None:
        """Answer for an unexpected exception. Its text is for the log only."""
        log.error("request_failed", extra={"facts": {"api": self.request.api.name}}, exc_info=error)
        self.refuse(ErrorCode.unknown_server_error)

    def _answer_envelope(self, response: EnvelopeResponse) -> None:
        envelope = self._envelope
        assert envelope is not None
        self.exchange.respond(
            encode_answer(envelope.api, envelope.version, envelope.correlation_id, response)
        )

    # ------------------------------------------------------------------------------- answers that take time

    def wait_for_raft(
        self,
        future: Future[RaftAnswer],
        judge: Callable[[RaftResponse], None] | None,
        frames: SharedFrames,
    ) -> None:
        """Answer with raft's reply, encoded by `frames`; `judge` gets it, too.

        Raft keeps the time itself: a Fetch may wait, a vote does not.
        """
        self._future, self._judge = future, judge
        self.exchange.on_abandoned(future.cancel)
        future.add_done_callback(partial(self._raft_answered, frames))

    def wait_for_control(self, future: Future[Payload]) -> None:
        """Answer with control's decision after its commit, or with REQUEST_TIMED_OUT."""
        loop = future.get_loop()
        self._future = future
        self._started_s = loop.time()
        self._timer = loop.call_later(self.caller.request_timeout_ms / 1000, self._timed_out)
        self.exchange.on_abandoned(self._abandon)
        future.add_done_callback(self._control_answered)

    def _raft_answered(self, frames: SharedFrames, future: Future[RaftAnswer]) -> None:
        if future.cancelled():
            self.exchange.drop()
            return
        error = future.exception()
        if error is not None:
            self._refuse_because(error)
            return
        reply = future.result()
        self._answer_of_raft(reply, frames)
        if self._judge is not None:
            self._judge(reply.response)

    def _answer_of_raft(self, reply: RaftAnswer, frames: SharedFrames) -> None:
        if self._envelope is not None and reply.response.error_code is ErrorCode.not_leader_or_follower:
            # AddRaftVoter, RemoveRaftVoter: only the broker can look for the leader and forward again.
            self.refuse(ErrorCode.not_controller)
            return
        if self._is_over():
            return
        try:
            frame = frames.frame(reply, self.request)
        except UnsupportedVersion as error:
            self.exchange.refuse(error.message)
        except Exception as error:
            self.fail(error)
        else:
            self._send_frame(frame, None)

    def _control_answered(self, future: Future[Payload]) -> None:
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
        self.answer(future.result())

    def _refuse_because(self, error: BaseException) -> None:
        if isinstance(error, (ControlError, ProtocolError)):
            self.refuse(error.error_code, error.message)
        else:
            self.fail(error)

    def _timed_out(self) -> None:
        assert self._future is not None
        # One that is done has an outcome: its callback is about to answer.
        if self._future.cancel():
            self.refuse(ErrorCode.request_timed_out)

    def _abandon(self) -> None:
        assert self._future is not None
        assert self._timer is not None
        self._timer.cancel()
        self._future.cancel()


class Dispatcher:
    """Passes each request to raft, to control or to the server itself. Implements `listener.RequestHandler`."""

    def __init__(
        self,
        node: NodePort,
        counters: RequestCounters,
        apis: Mapping[int, Api] = SERVED_APIS,
        scheduler: Scheduler | None = None,
    ) -> None:
        """`apis`: those that anybody is offered. The extensions are served, too."""
        self._node = node
        self._counters = counters
        self._scheduler = scheduler or Scheduler()
        self._large_requests = LargeRequests()
        self._frames = SharedFrames()
        authorizer = node.authorizer
        self._authorization = None if authorizer is None else Authorization(authorizer, counters)
        self._offered = apis
        self._apis = {**apis, **EXTENSION_APIS}
        parts = {
            AnsweredBy.RAFT: self._raft,
            AnsweredBy.ACTIVE_CONTROLLER: self._active,
            AnsweredBy.ANY_CONTROLLER: self._control,
        }
        self._handlers: dict[int, Callable[[Call], None]] = {
            **{
                key: parts[api.answered_by]
                for key, api in {**SERVED_APIS, **EXTENSION_APIS}.items()
                if api.answered_by in parts
            },
            ApiKey.API_VERSIONS: self._api_versions,
            ApiKey.SASL_HANDSHAKE: self._sasl,
            ApiKey.SASL_AUTHENTICATE: self._sasl,
            ApiKey.DESCRIBE_QUORUM: self._describe_quorum,
            ApiKey.ENVELOPE: self._open,
        }

    def handle(self, exchange: Exchange) -> None:
        """Serve one frame. A frame that is not a served request ends the connection, as in Kafka."""
        size_bytes = len(exchange.frame)
        if size_bytes > PARSED_AT_ONCE_BYTES_MAX and self._is_refused_unparsed(exchange):
            return
        elements_max = ELEMENTS_MAX[exchange.service_class]
        parse = partial(parse_request, exchange.frame, self._apis, elements_max)
        self._parse(exchange, size_bytes, parse, partial(self._parsed, exchange))

    def _is_refused_unparsed(self, exchange: Exchange) -> bool:
        """Refuse a large request before its body is parsed, if the response depends on the sender alone."""
        if self._authorization is None:
            return False
        peer = exchange.peer
        try:
            head = parse_head(exchange.frame, self._apis)
            is_denied = self._authorization.denies(head.api, str(peer.principal), peer.host)
        except ProtocolError:
            return False  # it is refused once it is parsed
        if is_denied:
            self._parsed(exchange, head)
        return is_denied

    def _parse(
        self,
        exchange: Exchange,
        size_bytes: int,
        parse: Callable[[], _Parsed],
        done: Callable[[_Parsed | BaseException], None],
    ) -> None:
        """Parse so many bytes at once or, if they are many, in a thread."""
        if size_bytes > PARSED_AT_ONCE_BYTES_MAX:
            exchange.hold()
            work = Steps(
                self._large_requests.parsing(exchange, parse, done), exchange.service_class, exchange.account
            )
            exchange.on_abandoned(work.abandon)
            self._scheduler.add(work)
            return
        try:
            parsed: _Parsed | BaseException = parse()
        except ProtocolError as error:
            parsed = error
        done(parsed)

    def _parsed(self, exchange: Exchange, outcome: Request | BaseException) -> None:
        if isinstance(outcome, ProtocolError):
            self._counters.refused_connections += 1
            if isinstance(outcome, TooManyElements):
                self._counters.limited[Limit.REQUEST_ELEMENTS] += 1
            exchange.refuse(outcome.message)
            return
        if isinstance(outcome, BaseException):
            log.error("request_failed", extra={"facts": {"peer": str(exchange.peer)}}, exc_info=outcome)
            exchange.refuse(f"{type(outcome).__name__} while a request was parsed")
            return
        call = Call(
            outcome,
            exchange,
            self._counters,
            self._scheduler,
            principal=exchange.peer.principal,
            authorization=self._authorization,
        )
        self._serve(call)

    def close(self) -> None:
        """Serve no more."""
        self._large_requests.close()

    def _serve(self, call: Call) -> None:
        try:
            if self._authorization is None or _is_permitted(call, self._authorization):
                self._handlers[call.request.api.key](call)
        except Exception as error:
            call.fail(error)

    def _open(self, outer: Call) -> None:
        envelope = outer.request.body
        opening = partial(open_envelope, envelope, self._apis, ELEMENTS_MAX[ServiceClass.CLIENTS])
        self._parse(outer.exchange, len(envelope.request_data), opening, partial(self._opened, outer))

    def _opened(self, outer: Call, forwarded: Forwarded | BaseException) -> None:
        if isinstance(forwarded, ProtocolError):
            facts = {"peer": str(outer.peer), "reason": forwarded.message}
            log.warning("envelope_refused", extra={"facts": facts})
            if isinstance(forwarded.__cause__, TooManyElements):
                self._counters.limited[Limit.REQUEST_ELEMENTS] += 1
            outer.refuse(forwarded.error_code)
            return
        if isinstance(forwarded, BaseException):
            outer.fail(forwarded)
            return
        call = Call(
            forwarded.request,
            outer.exchange,
            self._counters,
            self._scheduler,
            envelope=outer.request,
            principal=forwarded.principal,
            client_host=forwarded.client_host,
            authorization=self._authorization,
        )
        self._serve(call)

    def _active(self, call: Call) -> None:
        if not self._node.is_active:
            call.refuse(ErrorCode.not_controller)
            return
        self._control(call)

    def _control(self, call: Call) -> None:
        if call.request.api.key in LONG_READS and not call.caller.forwarded:
            call.exchange.hold()
        call.wait_for_control(self._node.control(call.request.body, call.caller))

    def _raft(self, call: Call) -> None:
        try:
            request = request_from_wire(call.request.body)
        except RefusedMessage as refusal:
            if refusal.response is not None:
                call.answer(refusal.response)
            else:
                call.refuse(refusal.error_code, refusal.message)
            return
        judge = None if call.caller.forwarded else partial(self._judge, call, request)
        call.wait_for_raft(self._node.raft(request, call.caller.listener), judge, self._frames)

    def _judge(self, call: Call, request: RaftRequest, response: RaftResponse) -> None:
        """Find out whether the sender of a Raft request meant this node, see `misrouting`."""
        what = misrouting.of_request(request, response, node_id=self._node.node_id)
        if what is None:
            if isinstance(request, FetchRequest) and response.error_code is ErrorCode.none:
                call.findings.served()
            return
        if call.findings.is_told(what):
            return
        if what is Misrouting.LEADER and self._node.status().current_state != Role.FOLLOWER.value:
            return  # this node has lost the leader, too
        if call.findings.take(what, int(time.monotonic() * 1000)):
            self._note_misrouting(call, what, misrouting.meant_by(request, response))

    def _api_versions(self, call: Call) -> None:
        response = answer_api_versions(call.request, self._node, self._offered.values())
        if response.error_code is not ErrorCode.none:
            self._counters.errors[ApiKey.API_VERSIONS, response.error_code] += 1
        if response.error_code is ErrorCode.rebootstrap_required:
            body, node = call.request.body, self._node
            what = misrouting.of_client(body, cluster_id=node.cluster_id, node_id=node.node_id)
            assert what is not None, "REBOOTSTRAP_REQUIRED is sent to misrouted clients only"
            meant = {
                "software": f"{body.client_software_name} {body.client_software_version}",
                "meant_cluster_id": body.cluster_id,
                "meant_node_id": body.node_id,
            }
            self._note_misrouting(call, what, meant)
        call.answer(response)

    def _note_misrouting(self, call: Call, what: Misrouting, meant: Mapping[str, object]) -> None:
        """Log a client or peer whose address of another node leads here. The log bounds how often."""
        self._counters.misrouted_connections[what.value] += 1
        facts = {
            "peer": str(call.peer),
            "listener": call.caller.listener,
            "client_id": call.caller.client_id,
            "meant": what.value,
            **meant,
            "cluster_id": self._node.cluster_id,
            "node_id": self._node.node_id,
        }
        log.warning("misrouted_connection", extra={"facts": facts})

    def _describe_quorum(self, call: Call) -> None:
        description = self._node.describe_quorum()
        if call.caller.forwarded and description.error_code is ErrorCode.not_leader_or_follower:
            call.refuse(ErrorCode.not_controller)
            return
        call.answer(describe_quorum_to_wire(call.request.body, description, version=call.request.version))

    def _sasl(self, call: Call) -> None:
        # As Kafka answers on a listener that has no authentication, or has finished it.
        call.refuse(ErrorCode.illegal_sasl_state)


def _is_permitted(call: Call, authorization: Authorization) -> bool:
    """Whether a request may be served; one that may not is answered."""
    try:
        authorization.check(call.request.api, call.caller.access, str(call.caller.principal))
    except (ControlError, ProtocolError) as refusal:
        call.refuse(refusal.error_code, refusal.message)
        return False
    return True
