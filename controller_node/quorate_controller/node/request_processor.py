"""Requests from their arrival to their response: they are decided in bounded parts, so that every turn is short.

Small requests of nodes, such as heartbeats, are decided as soon as they arrive. All others wait in
queues, of which each turn decides a part: those of nodes first, then those of clients, one client after the other. A
turn decides at least one of each class, and none behind a decision that has used up its first step, which continues
in later turns (`LongReads`).

Reads and decisions that take longer than a turn should are done in slices, one in each turn. A step of a decision may
end with a part of it, which the node writes before the next step (`control/steps.py`). Each slice goes to the next
client: a client with many long requests delays those of others by one slice of its own.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from quorate_protocol.errors import ErrorCode
from quorate_protocol.plain_data import dataclass

from quorate_controller.control.api import ControlError, ControlResult, RequestContext
from quorate_controller.control.steps import StepBudget, work_of
from quorate_controller.node.events import NotAwaited, Requester
from quorate_controller.node.metadata import Waiter, not_controller
from quorate_controller.node.request_queue import LARGE_OF_NODES, LONG_READS, OF_NODES, FairQueue
from quorate_controller.node.slices import STEPS_PER_SLICE_MAX
from quorate_controller.raft.events import Note
from quorate_controller.raft.model import RaftSafetyError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Hashable, Iterator

    from quorate_protocol.kafka.apis import Payload

    from quorate_controller.node.events import ControlRequest
    from quorate_controller.node.metadata import MetadataState, Proposals

DECISIONS_MS_MAX: Final = 20
"""Once the decisions of a class have taken this long in a turn, the others are left for the next turn. Their work is
bounded, too, by that of one step (`control/steps.py`).
"""

TIMED_OUT_MESSAGE = "The request waited in the controller's queue for longer than its timeout"

READ_SLICE_MS: Final = 5
"""The time that a turn spends on all long reads."""

OF_BROKERS: Final = "brokers"
"""The client that the large reports of brokers count as: it is always next."""
READS: Final = "reads"
"""The client that all long reads count as: one response is in memory until its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LongRead:
    """A read without its response yet; it is given up after `requester.deadline_ms` (Unix time)."""

    token: int
    request: str
    """The name of the request's class."""
    steps: Generator[ControlResult | None, None, Payload | ControlResult]
    requester: Requester
    client: Hashable
    """OF_BROKERS, READS, or `Caller.client`."""
    has_written: bool = False
    """A part of it is written. It then runs to its end, since a half of it would be left behind."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a decision that is to be written now; more follows."""

    decided: ControlResult


class LongReads:
    """Reads and decisions under way, those of brokers first, then one client after the other."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._waiting: FairQueue[LongRead] = FairQueue()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    @property
    def has_reads(self) -> bool:
        """Whether one of LONG_READS is under way."""
        return READS in self._waiting

    def begin(self, read: LongRead) -> None:
        """Add a read behind those of the same client."""
        self._waiting.append(read.client, read)

    def run_slice(self, now_ms: int) -> Iterator[tuple[LongRead, Part | Payload | ControlResult | Exception]]:
        """Do the next steps of the reads.

        Yields those that are done, with the response or the exception, and at last a part that is to be written.
        """
        if not self._waiting:
            return
        ends_ms = self._clock() + READ_SLICE_MS
        while self._waiting:
            client, read = self._waiting.pop(preferred=OF_BROKERS)
            result = self._read_on(read, now_ms)
            if isinstance(result, Part):
                self._waiting.put_back(client, replace(read, has_written=True))
                yield read, result
                return
            if result is None:
                self._waiting.put_back(client, read)
                return
            yield read, result
            if self._clock() >= ends_ms:
                return

    def _read_on(self, read: LongRead, now_ms: int) -> Part | Payload | ControlResult | Exception | None:
        """Do the next steps, until one ends READ_SLICE_MS after the first began, or with a part."""
        if now_ms > read.requester.deadline_ms and not read.has_written:
            return ControlError(ErrorCode.request_timed_out)
        begun_ms = self._clock()
        try:
            for _ in range(STEPS_PER_SLICE_MAX):
                result = next(read.steps)
                if result is not None:
                    return Part(result)
                if self._clock() - begun_ms >= READ_SLICE_MS:
                    break
        except StopIteration as ended:
            last: Payload | ControlResult = ended.value
            return last
        except Exception as error:
            return error
        return None

    def give_up(self, read: LongRead) -> bool:
        """End a read before its time. Returns False if it has ended since."""
        return self._waiting.remove(read.client, lambda waiting: waiting.token == read.token)

    def pop_all(self) -> list[int]:
        """Give up all reads. Returns their tokens."""
        return [read.token for read in self._waiting.pop_all()]


class TurnBudget:
    """What a turn spends on the requests of a class: `DECISIONS_MS_MAX`, and the work of one step."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._ends_ms = clock() + DECISIONS_MS_MAX
        self._work = StepBudget()
        self.is_left = True
        """Whether another decision may begin."""

    def spend(self, work: int) -> None:
        """Note the work of a decision that has ended just now."""
        if self._work.spend(work) or self._clock() >= self._ends_ms:
            self.is_left = False


class RequestProcessor:
    """Decides requests, has their records written, and responds after the commit."""

    def __init__(
        self,
        *,
        metadata: MetadataState,
        proposals: Proposals,
        clock: Callable[[], int],
        deliver: Callable[[int, Payload | NotAwaited | ControlError], None],
        note: Callable[[Note], None],
    ) -> None:
        self._metadata = metadata
        self._proposals = proposals
        self._clock = clock
        self._deliver = deliver
        self._note = note
        self._of_nodes: deque[ControlRequest] = deque()
        self._of_clients: FairQueue[ControlRequest] = FairQueue()
        self._long_reads = LongReads(clock)

    @property
    def has_work(self) -> bool:
        """Whether there is something to do in the next turn."""
        return bool(self._of_nodes or self._of_clients or self._long_reads)

    @property
    def is_reading(self) -> bool:
        """Whether one of `LONG_READS` is under way, or waits to begin."""
        if self._long_reads.has_reads:
            return True
        return bool(self._of_clients) and any(
            event.request.__api_key__ in LONG_READS for event in self._of_clients.items()
        )

    @property
    def waiting_count(self) -> int:
        """The number of requests of clients that wait to be decided."""
        return len(self._of_clients)

    # ------------------------------------------------------------------------------------------- in turns

    def accept(self, event: ControlRequest, now_ms: int) -> None:
        """Decide a request now, or queue it for `decide_waiting`."""
        key = event.request.__api_key__
        if key not in OF_NODES:
            self._of_clients.append(event.caller.client, event)
        elif key in LARGE_OF_NODES:
            self._of_nodes.append(event)
        else:
            self._decide(event, now_ms)

    def decide_waiting(self, now_ms: int) -> None:
        """Decide the part of the waiting requests that a turn has time for, in order."""
        if self._of_nodes:
            budget = TurnBudget(self._clock)
            while self._of_nodes and budget.is_left:
                budget.spend(self._decide(self._of_nodes.popleft(), now_ms))
        if self._of_clients:
            budget = TurnBudget(self._clock)
            while self._of_clients and budget.is_left:
                _, event = self._of_clients.pop()
                budget.spend(self._decide(event, now_ms))

    def run_long_reads(self, now_ms: int) -> None:
        """Continue requests that take several turns, and respond to those that are done."""
        for read, result in self._long_reads.run_slice(now_ms):
            if isinstance(result, Exception):
                self._respond_fault(read.token, result, request=read.request)
            elif isinstance(result, Part):
                fault = self._proposals.write(result.decided, now_ms)
                if fault is not None and self._long_reads.give_up(read):
                    self._respond_fault(read.token, fault, request=read.request)
            elif isinstance(result, ControlResult):
                requester = read.requester if read.has_written or result.records else None
                self._finish(result, read.token, read.request, requester, now_ms)
            else:
                self.respond(read.token, result)

    def abandon(self) -> None:
        """Refuse all requests that wait or are under way, because leadership is lost.

        Reads that are under way may have seen what is undone.
        """
        tokens = [event.token for event in (*self._of_nodes, *self._of_clients.pop_all())]
        self._of_nodes.clear()
        tokens += self._long_reads.pop_all()
        for token in tokens:
            self._deliver(token, not_controller())

    # ------------------------------------------------------------------------------------------ decisions

    def _decide(self, event: ControlRequest, now_ms: int) -> int:
        """Decide a request that was received. Returns its work, see `control/steps.py`."""
        if now_ms > event.deadline_ms:
            self._deliver(event.token, ControlError(ErrorCode.request_timed_out, TIMED_OUT_MESSAGE))
            return 0
        caller = event.caller
        context = RequestContext(
            now_ms=now_ms,
            next_offset=self._proposals.next_offset,
            api_version=caller.api_version,
            principal=str(caller.principal),
            client_id=caller.client_id,
            client_host=caller.client_host,
            listener=caller.listener,
            request_timeout_ms=caller.request_timeout_ms,
            forwarded=caller.forwarded,
            token_authenticated=caller.principal.token_authenticated,
            security_protocol=caller.security_protocol,
            unresolved_hosts=event.unresolved_hosts,
            access=caller.access,
        )
        return self._decide_request(event.request, context, event.token, event)

    def decide_own(self, request: Payload, token: int, now_ms: int) -> None:
        """Decide a request of this controller itself."""
        context = RequestContext(now_ms=now_ms, next_offset=self._proposals.next_offset, api_version=0)
        self._decide_request(request, context, token)

    def _decide_request(
        self, request: Payload, context: RequestContext, token: int, event: ControlRequest | None = None
    ) -> int:
        """Decide a request and respond. `event` is None for a request of this controller itself. Returns its work.

        An unforeseen exception becomes an error response and a log line, and does not end the process. Otherwise the
        sender would repeat the request at the next active controller and end all of them, one after the other.
        """
        name = type(request).__name__
        try:
            result = self._metadata.control.decide(request, context)
        except RaftSafetyError:
            raise
        except Exception as error:
            self._respond_fault(token, error, request=name)
            return work_of(ControlResult())
        if result.steps is None:
            requester = None if event is None or not result.records else _requester_of(event)
            self._finish(result, token, name, requester, context.now_ms)
        else:
            assert event is not None, "this controller sends no request that takes long"
            read = LongRead(
                token=token,
                request=name,
                steps=result.steps,
                requester=_requester_of(event),
                client=_client_of(event),
            )
            self._begin(read, result, context.now_ms)
        return work_of(result)

    def _begin(self, read: LongRead, first: ControlResult, now_ms: int) -> None:
        """Write the first part of a decision; the rest follows in later turns."""
        fault = self._proposals.write(first, now_ms)
        if fault is not None:
            self._respond_fault(read.token, fault, request=read.request)
        else:
            self._long_reads.begin(replace(read, has_written=bool(first.records)))

    def _finish(
        self, result: ControlResult, token: int, request: str, requester: Requester | None, now_ms: int
    ) -> None:
        """Write the only, or the last, part of a decision, and respond.

        `requester` is given if the decision has records, which may have to reach brokers before the response leaves.
        """
        fault = self._proposals.write(result, now_ms)
        if fault is not None:
            self._respond_fault(token, fault, request=request)
        elif requester is not None and not requester.awaits_commit:
            self._deliver(token, NotAwaited(result.response))
        else:
            self.respond(token, result.response, requester)

    # ------------------------------------------------------------------------------------------ responses

    def _respond_fault(self, token: int, fault: Exception, *, request: str) -> None:
        if not isinstance(fault, ControlError):
            self._note(decision_failed(fault, request=request))
            fault = ControlError(ErrorCode.unknown_server_error, ErrorCode.unknown_server_error.text)
        self.respond(token, fault)

    def respond(self, token: int, result: Payload | ControlError, requester: Requester | None = None) -> None:
        """Respond after the commit of all that the decision wrote or saw; on a standby at once.

        The response to `requester` may wait for brokers, too.
        """
        metadata = self._metadata
        if metadata.control.is_active:
            metadata.wait(Waiter(self._proposals.next_offset, token, result, requester))
        else:
            self._deliver(token, result)


def _client_of(event: ControlRequest) -> Hashable:
    key = event.request.__api_key__
    if key in LARGE_OF_NODES:
        return OF_BROKERS
    return READS if key in LONG_READS else event.caller.client


def _requester_of(event: ControlRequest) -> Requester:
    return Requester(
        event.caller.broker_id, event.deadline_ms, awaits_commit=event.caller.request_timeout_ms > 0
    )


def decision_failed(error: Exception, **facts: str) -> Note:
    """The log line of an unforeseen exception."""
    return Note(event="decision_failed", facts={**facts, "error": type(error).__name__}, exception=error)
