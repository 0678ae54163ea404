"""Passes each request to raft, to control, or to the server itself.

Large requests are parsed in a thread, so that the event loop runs meanwhile: a request of a few MiB may have hundreds
of thousands of elements, whose objects take a second. The thread releases the interpreter every `SWITCH_INTERVAL_S`,
which the process sets. Requests of nodes have their own thread, so they do not wait for those of clients.

The objects of a request take up to a hundred times its bytes, which are what budgets of memory count. So few requests
of clients are parsed at a time: the others wait as bytes until those have their responses.
"""

from __future__ import annotations

import asyncio
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from quorate_protocol.errors import ErrorCode, ProtocolError, TooManyElements
from quorate_protocol.kafka.apis import (
    CONTROLLER_READ_APIS,
    EXTENSION_APIS,
    SERVED_APIS,
    ApiKey,
    HandledBy,
)
from quorate_protocol.wire.server import parse_head, parse_request

from quorate_controller.control.api import ControlError
from quorate_controller.node.request_queue import LONG_READS
from quorate_controller.raft.events import Role
from quorate_controller.raft.messages import FetchRequest
from quorate_controller.scheduler import Budget, Scheduler, ServiceClass, Steps
from quorate_controller.server import misrouting
from quorate_controller.server.api_versions import api_versions_response
from quorate_controller.server.authorization import Authorization
from quorate_controller.server.call import Call
from quorate_controller.server.connection_memory import ELEMENTS_MAX
from quorate_controller.server.counters import Limit
from quorate_controller.server.envelope import open_envelope
from quorate_controller.server.misrouting import Misrouting
from quorate_controller.server.raft_wire import RefusedMessage, describe_quorum_to_wire, request_from_wire
from quorate_controller.server.response_frames import SharedFrames

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from quorate_protocol.kafka.apis import Api
    from quorate_protocol.wire.server import Request

    from quorate_controller.node.port import NodePort
    from quorate_controller.raft.messages import RaftRequest, RaftResponse
    from quorate_controller.server.connection import Exchange
    from quorate_controller.server.counters import RequestCounters
    from quorate_controller.server.envelope import Forwarded

log = logging.getLogger(__name__)

PARSED_AT_ONCE_BYTES_MAX: Final = 16 * 1024
"""A smaller request is parsed on the spot: it takes at most some milliseconds."""
SWITCH_INTERVAL_S: Final = 0.001
"""How long the event loop may wait for the interpreter. Python's default is 5 ms."""
PARSED_BYTES_MAX: Final = 2 * 1024 * 1024
"""The size of the huge requests of clients that are parsed and have no response, where a single one may be larger;
and that of the other large ones.
"""
HUGE_BYTES_MIN: Final = 256 * 1024
"""Requests of this size and more have a bound of their own: they take long, and others should not wait for them."""

_Parsed = TypeVar("_Parsed")


class LargeRequests:
    """Parses one request of clients and one of nodes at a time."""

    def __init__(self) -> None:
        self._huge, self._large = Budget(PARSED_BYTES_MAX), Budget(PARSED_BYTES_MAX)
        self._of_clients = ThreadPoolExecutor(1, thread_name_prefix="parsing")
        self._of_nodes = ThreadPoolExecutor(1, thread_name_prefix="parsing-of-nodes")

    def parsing(
        self,
        exchange: Exchange,
        parse: Callable[[], _Parsed],
        done: Callable[[_Parsed | BaseException], None],
    ) -> Generator[asyncio.Future[Any], None, None]:
        """Call `parse` in a thread, then `done` with what it returned or raised, unless the connection is gone."""
        threads, size_bytes = self._of_nodes, len(exchange.frame)
        if exchange.service_class in (ServiceClass.CLIENTS, ServiceClass.STRANGERS):
            threads = self._of_clients
            budget = self._huge if size_bytes >= HUGE_BYTES_MIN else self._large
            while not budget.has_room(exchange, size_bytes):
                yield budget.freed()
            # What is in an envelope is parsed after the envelope, in the room that this has.
            budget.hold(exchange, size_bytes)
            exchange.on_ended(partial(budget.release, exchange))
        future = asyncio.get_running_loop().run_in_executor(threads, parse)
        exchange.on_abandoned(future.cancel)
        yield future
        if not future.cancelled():
            exchange.release()
            done(future.exception() or future.result())

    def close(self) -> None:
        """Parse no more."""
        for threads in (self._of_clients, self._of_nodes):
            threads.shutdown(wait=False, cancel_futures=True)


class Dispatcher:
    """Passes each request to raft, to control or to the server itself. Implements `connection.RequestHandler`."""

    def __init__(
        self,
        node: NodePort,
        counters: RequestCounters,
        apis: Mapping[int, Api] = SERVED_APIS,
        scheduler: Scheduler | None = None,
    ) -> None:
        """`apis`: those that all clients are offered. Extensions and reads of controllers are served, too."""
        self._node = node
        self._counters = counters
        self._scheduler = scheduler or Scheduler()
        self._large_requests = LargeRequests()
        self._frames = SharedFrames()
        authorizer = node.authorizer
        self._authorization = None if authorizer is None else Authorization(authorizer, counters)
        self._offered = apis
        self._apis = {**apis, **EXTENSION_APIS, **CONTROLLER_READ_APIS}
        parts = {
            HandledBy.RAFT: self._raft,
            HandledBy.ACTIVE_CONTROLLER: self._active,
            HandledBy.ANY_CONTROLLER: self._control,
        }
        self._handlers: dict[int, Callable[[Call], None]] = {
            **{
                key: parts[api.handled_by]
                for key, api in {**SERVED_APIS, **EXTENSION_APIS, **CONTROLLER_READ_APIS}.items()
                if api.handled_by in parts
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
        """Parse a request at once or, if it is large, in a thread."""
        if size_bytes > PARSED_AT_ONCE_BYTES_MAX:
            exchange.hold()
            work = Steps(
                self._large_requests.parsing(exchange, parse, done),
                exchange.service_class,
                exchange.connection.account,
            )
            exchange.on_abandoned(work.abandon)
            self._scheduler.add(work)
            return
        try:
            parsed: _Parsed | BaseException = parse()
        except ProtocolError as error:
            parsed = error
        done(parsed)

    def _parsed(self, exchange: Exchange, result: Request | BaseException) -> None:
        if isinstance(result, BaseException):
            self._refuse(exchange, result)
            return
        call = Call(
            result,
            exchange,
            self._counters,
            self._scheduler,
            principal=exchange.peer.principal,
            authorization=self._authorization,
        )
        self._serve(call)

    def _refuse(self, exchange: Exchange, error: BaseException) -> None:
        """End the connection of a request that cannot be parsed."""
        if not isinstance(error, ProtocolError):
            log.error("request_failed", extra={"facts": {"peer": str(exchange.peer)}}, exc_info=error)
            exchange.refuse(f"{type(error).__name__} while a request was parsed")
            return
        self._counters.refused_connections += 1
        if isinstance(error, TooManyElements):
            self._counters.limited[Limit.REQUEST_ELEMENTS] += 1
        exchange.refuse(error.message)

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
                call.respond(refusal.response)
            else:
                call.refuse(refusal.error_code, refusal.message)
            return
        judge = None if call.caller.forwarded else partial(self._judge, call, request)
        call.wait_for_raft(self._node.raft(request, call.caller.listener), judge, self._frames)

    def _judge(self, call: Call, request: RaftRequest, response: RaftResponse) -> None:
        """Detect a Raft request for another node, see `misrouting`."""
        is_lookup = call.findings.looks_up_voters
        what = misrouting.of_request(request, response, node_id=self._node.node_id, is_lookup=is_lookup)
        if what is None:
            if isinstance(request, FetchRequest) and response.error_code is ErrorCode.none:
                call.findings.served()
            return
        if call.findings.is_reported(what):
            return
        if what is Misrouting.LEADER and self._node.status().current_state != Role.FOLLOWER.value:
            return  # this node has lost the leader, too
        if call.findings.report(what, int(time.monotonic() * 1000)):
            self._note_misrouting(call, what, misrouting.meant_by(request, response))

    def _api_versions(self, call: Call) -> None:
        response = api_versions_response(call.request, self._node, self._offered.values())
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
        call.findings.looks_up_voters = misrouting.looks_up_voters(call.request.body)
        call.respond(response)

    def _note_misrouting(self, call: Call, what: Misrouting, meant: Mapping[str, object]) -> None:
        """Log a client or peer whose address of another node leads here. The log limits repeats."""
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
        call.respond(describe_quorum_to_wire(call.request.body, description, version=call.request.version))

    def _sasl(self, call: Call) -> None:
        # As Kafka responds on a listener without authentication, or after it.
        call.refuse(ErrorCode.illegal_sasl_state)


def _is_permitted(call: Call, authorization: Authorization) -> bool:
    """Whether a request may be served; otherwise it is refused."""
    try:
        authorization.check(call.request.api, call.caller.access, str(call.caller.principal))
    except (ControlError, ProtocolError) as refusal:
        call.refuse(refusal.error_code, refusal.message)
        return False
    return True
