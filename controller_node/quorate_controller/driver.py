"""The event loop around a `ControllerNode`. Sockets and the clock are outside of it.

All events of one pass of the loop share one turn, so that their appends share one flush.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket
import time
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from quorate_protocol.errors import UnsupportedVersion
from quorate_protocol.kafka.apis import ApiKey
from quorate_protocol.kafka.generated.alter_client_quotas_request import AlterClientQuotasRequest

from quorate_controller.control.client_quotas import host_names
from quorate_controller.node.events import (
    UNAWAITED_TIMEOUT_MS,
    ControlRequest,
    OwnRequestAnswered,
    OwnRequestFailed,
)
from quorate_controller.node.measurements import LatencyHistogram
from quorate_controller.node.port import FinalizedFeatures
from quorate_controller.node.request_queue import LONG_READS, OF_NODES, FairQueue
from quorate_controller.node.status import finalized_features, node_status
from quorate_controller.raft.events import RequestReceived, Shutdown
from quorate_controller.scheduler import REQUESTS_PER_TURN_MAX, Scheduler, ServiceClass, StepResult, Steps

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Callable, Generator, Iterable

    from quorate_protocol.kafka.apis import Payload

    from quorate_controller.node import ControllerNode, Effects, OwnRequest
    from quorate_controller.node.events import (
        Caller,
        NodeEvent,
        NotAwaited,
        OutgoingRaftResponse,
        ResponseWithData,
    )
    from quorate_controller.node.port import PeerTransport
    from quorate_controller.node.status import NodeStatus
    from quorate_controller.raft import messages
    from quorate_controller.raft.events import (
        ConnectionLost,
        QuorumDescription,
        RequestFailed,
        ResponseReceived,
    )
    from quorate_controller.security.authorizer import Authorizer
    from quorate_controller.security.sasl import Credentials

log = logging.getLogger(__name__)

TURN_INTERVAL_MS_MAX: Final = 1_000
"""The longest time between two turns, idle or not. Liveness is judged by it."""

STALL_LOGGED_MS_MIN: Final = 100
"""Shorter stalls are not logged: timers are late by as much on a busy machine, and a node would log each second."""

OBSERVERS_AT_ONCE: Final = 4
"""The observers that get responses in one pass of the event loop. All of them fetch again at once, so that hundreds
of responses would delay clients and voters by many milliseconds. Observers served later get more records per fetch.
"""

EVENTS_PER_TURN_MAX: Final = 384
"""The maximum events per turn. The others wait, so that a burst does not starve the timers."""
_DECISIONS: Final = frozenset({ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS})
"""Long reads that change something: they are decided even if the client has gone."""

SHUTDOWN_TIMEOUT_MS: Final = 5_000


STEP_MS_MIN: Final = 10
"""Smaller differences of the clocks are no step: each read of them takes some time."""


class HostNames:
    """Looks names up, one at a time: a request with many of them occupies one thread."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    async def unresolved(self, names: Iterable[str]) -> frozenset[str]:
        """Those of `names` that are neither addresses nor names of hosts."""
        async with self._turn:
            return frozenset([name for name in sorted(names) if not await _resolves(name)])


async def _resolves(name: str) -> bool:
    is_bracketed = name.startswith("[") and name.endswith("]")
    try:
        await asyncio.get_running_loop().getaddrinfo(
            name[1:-1] if is_bracketed else name,
            None,
            family=socket.AF_INET6 if is_bracketed else socket.AF_UNSPEC,
            type=socket.SOCK_STREAM,
        )
    except (OSError, ValueError):  # ValueError: text that no name can have
        return False
    return True


class Clock:
    """The time of turns, which never jumps, and what the system's clock shows then (ADR 39).

    `wall_s` and `monotonic_s` return seconds, of the system's clock and of one that is never set.
    """

    def __init__(
        self,
        wall_s: Callable[[], float] = time.time,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._wall_s = wall_s
        self._monotonic_s = monotonic_s
        self._began_ms = wall_s() * 1000 - monotonic_s() * 1000
        self._stepped_ms = 0

    def now_ms(self) -> int:
        """Milliseconds for timers, non-decreasing: Unix time at the start plus what has passed since then."""
        return int(self._began_ms + self._monotonic_s() * 1000)

    def unix_ms_of(self, now_ms: int) -> int:
        """The Unix time of a time that `now_ms` has returned, as the system's clock counts now. It may go back."""
        stepped_ms = int(self._wall_s() * 1000) - self.now_ms()
        if abs(stepped_ms - self._stepped_ms) >= STEP_MS_MIN:
            facts = {"by_ms": stepped_ms - self._stepped_ms, "since_start_ms": stepped_ms}
            log.warning("clock_stepped", extra={"facts": facts})
            self._stepped_ms = stepped_ms
        return now_ms + self._stepped_ms


class Driver:
    """Runs the node's turns. Implements `NodePort` for the server; outbound requests go to a `PeerTransport`."""

    def __init__(
        self,
        node: ControllerNode,
        *,
        clock: Clock,
        node_id: int,
        cluster_id: str,
        supported_features: dict[str, tuple[int, int]],
        on_failure: Callable[[Exception], None],
        on_loaded: Callable[[], None],
        host_names: HostNames | None = None,
    ) -> None:
        self._node = node
        self._node_id = node_id
        self._cluster_id = cluster_id
        self._supported_features = supported_features
        self._on_failure = on_failure
        self._on_loaded = on_loaded
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._peers: PeerTransport | None = None
        self.scheduler = Scheduler()
        """Decides which requests come with the next turn."""
        self._events: deque[NodeEvent] = deque()
        self._long_reads: FairQueue[ControlRequest] = FairQueue()
        """Those that wait for the end of others."""
        self._oldest_event_s = 0.0
        self._event_queue_time = LatencyHistogram()
        self._host_names = host_names or HostNames()
        self._tokens = itertools.count()
        self._raft_futures: dict[int, Future[ResponseWithData]] = {}
        self._for_observers: deque[OutgoingRaftResponse] = deque()
        self._control_futures: dict[int, Future[Payload | NotAwaited]] = {}
        self._turn_handle: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due_ms = 0
        self._last_turn_ms = self._clock.now_ms()
        self._stopped = False
        self._shut_down = asyncio.Event()

    # ----------------------------------------------------------------------------------------- lifetime

    def start(self, peers: PeerTransport) -> None:
        """Run the first turn. From here on the node takes part in the quorum."""
        self._peers = peers
        self._apply(self._node.start(self._clock.now_ms()))

    async def shut_down(self) -> None:
        """Hand leadership over, respond to what is committed, then release the disk."""
        self._enqueue(Shutdown(timeout_ms=SHUTDOWN_TIMEOUT_MS))
        try:
            async with asyncio.timeout(SHUTDOWN_TIMEOUT_MS / 1000 + 1):
                await self._shut_down.wait()
        except TimeoutError:
            log.warning("shutdown_timed_out", extra={"facts": {"timeout_ms": SHUTDOWN_TIMEOUT_MS}})
        self.stop()

    def stop(self) -> None:
        """End the turns and release the disk immediately."""
        if self._stopped:
            return
        self._end_turns()
        self._node.close()

    def _end_turns(self) -> None:
        self._stopped = True
        for handle in (self._turn_handle, self._timer):
            if handle is not None:
                handle.cancel()
        for futures in (self._raft_futures, self._control_futures):
            for future in futures.values():
                future.cancel()

    # -------------------------------------------------------------------------------------------- turns

    def _enqueue(self, event: NodeEvent) -> None:
        if not self._stopped:
            self._wake()
            self._events.append(event)

    def _enqueue_request(self, event: ControlRequest) -> None:
        key = event.request.__api_key__
        if key not in OF_NODES:
            self.scheduler.passed_on()
        if key not in LONG_READS:
            self._enqueue(event)
        elif not self._stopped:
            self._wake()
            self._long_reads.append(event.caller.client, event)

    def _wake(self) -> None:
        """An event is about to be queued: have a turn take it."""
        if not self._events:
            self._oldest_event_s = self._loop.time()
        if self._turn_handle is None and self._peers is not None:
            self._turn_handle = self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._turn_handle = None
        events = self._events_of_turn()
        began_s = self._loop.time()
        now_ms = self._clock.now_ms()
        # Turns are at most this far apart unless the process stood still, and then it read no heartbeats either.
        stall_ms = now_ms - self._last_turn_ms - TURN_INTERVAL_MS_MAX
        self._last_turn_ms = now_ms
        if events:
            self._event_queue_time.observe_ms((self._loop.time() - self._oldest_event_s) * 1000)
        try:
            if stall_ms > 0:
                if stall_ms >= STALL_LOGGED_MS_MIN:
                    log.warning("stalled", extra={"facts": {"stall_ms": stall_ms}})
                self._node.metadata.control.excuse_silence(stall_ms)
            effects = self._node.turn(events, now_ms)
            self.scheduler.left_over(self._node.waiting_count)
            self._apply(effects)
            # Behind the callbacks of the futures, which write the responses.
            self._loop.call_soon(self._measure, began_s)
        except Exception as error:
            # The disk stays as it is: closing it would flush, and a failed flush must not be tried again.
            self._end_turns()
            self._on_failure(error)

    def _measure(self, began_s: float) -> None:
        self.scheduler.turn_took((self._loop.time() - began_s) * 1000)

    def _events_of_turn(self) -> list[NodeEvent]:
        """Remove some events from the queues, and a long read of each client unless one is under way.

        Reads whose clients have gone are dropped.
        """
        self.scheduler.turn_begins()
        events = [self._events.popleft() for _ in range(min(len(self._events), EVENTS_PER_TURN_MAX))]
        if self._long_reads and not self._node.is_reading:
            for _ in range(min(self._long_reads.client_count, REQUESTS_PER_TURN_MAX)):
                _, read = self._long_reads.pop()
                if read.request.__api_key__ in _DECISIONS or self._is_waited_for(read):
                    events.append(read)
        return events

    def _is_waited_for(self, event: ControlRequest) -> bool:
        future = self._control_futures.get(event.token)
        if future is None or not future.done():
            return future is not None
        del self._control_futures[event.token]
        return False

    def _apply(self, effects: Effects) -> None:
        """Send the effects of a turn and set the timer for the next one."""
        assert self._peers is not None
        for note in effects.notes:
            level = logging.WARNING if note.is_warning else logging.INFO
            if note.exception is not None:
                level = logging.ERROR
            log.log(level, note.event, extra={"facts": note.facts}, exc_info=note.exception)
        for send in effects.sends:
            self._peers.send(send)
        observers = []
        for outgoing in effects.raft_responses:
            if outgoing.is_for_observer:
                observers.append(outgoing)
            else:
                self._respond(outgoing)
        for response in effects.control_responses:
            _resolve(self._control_futures.pop(response.token, None), response.result)
        if observers:
            if not self._for_observers:
                self.scheduler.add(Steps(self._respond_to_observers(), ServiceClass.CLIENTS))
            self._for_observers += observers
        for own in effects.own_requests:
            self._ask(own)
        if effects.has_loaded:
            self._on_loaded()
        if self._node.raft.is_shut_down:
            self._shut_down.set()
        self._schedule()

    def _respond(self, outgoing: OutgoingRaftResponse) -> None:
        _resolve(self._raft_futures.pop(outgoing.token, None), outgoing.response)

    def _respond_to_observers(self) -> Generator[StepResult, None, None]:
        """Respond to observers, behind the responses to others, and in passes between which others are served."""
        while self._for_observers:
            yield StepResult.LATER
            for _ in range(min(OBSERVERS_AT_ONCE, len(self._for_observers))):
                self._respond(self._for_observers.popleft())

    def _schedule(self) -> None:
        if self._turn_handle is not None or self._stopped:
            return
        if self._events or (self._long_reads and not self._node.is_reading):
            self._turn_handle = self._loop.call_soon(self._turn)
            return
        now_ms = self._clock.now_ms()
        due_ms = min(self._node.deadline_ms, now_ms + TURN_INTERVAL_MS_MAX)
        if due_ms <= now_ms:
            self._turn_handle = self._loop.call_soon(self._turn)
        elif self._timer is None or due_ms != self._timer_due_ms:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_due_ms = due_ms
            self._timer = self._loop.call_later((due_ms - now_ms) / 1000, self._timer_fired)

    def _timer_fired(self) -> None:
        self._timer = None
        if self._turn_handle is None and not self._stopped:
            self._turn()

    def _ask(self, own: OwnRequest) -> None:
        assert self._peers is not None
        future = self._peers.ask(own)

        def responded(done: Future[Any]) -> None:
            if done.cancelled():
                return
            error = done.exception()
            if error is None:
                self._enqueue(OwnRequestAnswered(response=done.result()))
                return
            is_unsupported = isinstance(error, UnsupportedVersion)
            self._enqueue(
                OwnRequestFailed(request=own.request, reason=str(error), is_unsupported=is_unsupported)
            )

        future.add_done_callback(responded)

    # ----------------------------------------------------------------------- NodePort, for the server

    @property
    def node_id(self) -> int:
        """This node's id."""
        return self._node_id

    @property
    def cluster_id(self) -> str:
        """The cluster's id."""
        return self._cluster_id

    @property
    def is_active(self) -> bool:
        """Whether this node is the active controller."""
        return self._node.is_active

    @property
    def authorizer(self) -> Authorizer | None:
        """See `NodePort.authorizer`."""
        return self._node.authorizer

    @property
    def credentials(self) -> Credentials:
        """See `NodePort.credentials`."""
        return self._node.credentials

    def control(self, request: Payload, caller: Caller) -> Future[Payload | NotAwaited]:
        """See `NodePort.control`."""
        token = next(self._tokens)
        future: Future[Payload | NotAwaited] = self._loop.create_future()
        self._control_futures[token] = future
        # Timeout 0: the client does not wait for the commit, but the request must still be decided (KIP-4).
        deadline_ms = self._clock.now_ms() + (caller.request_timeout_ms or UNAWAITED_TIMEOUT_MS)
        event = ControlRequest(token=token, request=request, caller=caller, deadline_ms=deadline_ms)
        names = host_names(request) if isinstance(request, AlterClientQuotasRequest) else None
        if not names:
            self._enqueue_request(event)
            return future
        task = self._loop.create_task(self._resolve_and_enqueue(event, names))

        def abandoned(_done: Future[Payload | NotAwaited]) -> None:
            task.cancel()
            self._control_futures.pop(token, None)

        future.add_done_callback(abandoned)
        return future

    async def _resolve_and_enqueue(self, event: ControlRequest, names: frozenset[str]) -> None:
        unresolved = await self._host_names.unresolved(names)
        self._enqueue_request(replace(event, unresolved_hosts=unresolved))

    def raft(self, request: messages.RaftRequest, listener: str) -> Future[ResponseWithData]:
        """See `NodePort.raft`."""
        token = next(self._tokens)
        future: Future[ResponseWithData] = self._loop.create_future()
        self._raft_futures[token] = future
        self._enqueue(RequestReceived(token=token, request=request, listener=listener))
        return future

    def raft_event(self, event: ResponseReceived | RequestFailed | ConnectionLost) -> None:
        """See `NodePort.raft_event`."""
        self._enqueue(event)

    def describe_quorum(self) -> QuorumDescription:
        """See `NodePort.describe_quorum`."""
        described = self._node.raft.describe_quorum(self._clock.now_ms())
        return described.in_unix_time(self._clock.unix_ms_of)

    def features(self) -> FinalizedFeatures:
        """See `NodePort.features`."""
        levels, epoch = finalized_features(self._node)
        return FinalizedFeatures(levels=levels, epoch=epoch, supported=self._supported_features)

    def status(self) -> NodeStatus:
        """See `NodePort.status`."""
        return node_status(
            self._node,
            node_id=self._node_id,
            cluster_id=self._cluster_id,
            event_queue_time=self._event_queue_time,
        )

    def seconds_since_turn(self) -> float:
        """See `NodePort.seconds_since_turn`."""
        return (self._clock.now_ms() - self._last_turn_ms) / 1000


def _resolve(future: Future[Any] | None, result: object) -> None:
    """Resolve the future of a request, unless its client has gone."""
    if future is None or future.done():
        return
    if isinstance(result, Exception):
        future.set_exception(result)
    else:
        future.set_result(result)
