"""Requests from their arrival to their response: they are decided in bounded parts, so that every turn is short.

Small requests of nodes, such as heartbeats, are decided as soon as they arrive. All others wait in
queues, of which each turn decides a part: those of nodes first, then those of clients, one client after the other. A
turn decides at least one of each class, and none behind a decision that has used up its first step: that one goes on
in later turns, in slices of its own (`LongReads`).
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from quorate_protocol.errors import ErrorCode

from quorate_controller.control.api import ControlError, ControlResult, RequestContext
from quorate_controller.control.steps import StepBudget, work_of
from quorate_controller.node.events import Asker, NotAwaited
from quorate_controller.node.fair_queue import FairQueue
from quorate_controller.node.long_reads import LARGE_OF_NODES, READS, LongRead, LongReads, Part
from quorate_controller.node.metadata import Waiter
from quorate_controller.node.proposals import not_controller
from quorate_controller.node.request_classes import OF_NODES
from quorate_controller.raft.messages import Note
from quorate_controller.raft.safety import RaftSafetyError

if TYPE_CHECKING:
    from collections.abc import Callable

    from quorate_protocol.kafka.apis import Payload

    from quorate_controller.node.events import ControlRequest
    from quorate_controller.node.metadata import MetadataState
    from quorate_controller.node.proposals import Proposals

DECISIONS_MS_MAX: Final = 20
"""Once the decisions of a class have taken this long in a turn, the others are left for the next turn. Their work is
bounded, too, by that of one step (`control/steps.py`).
"""

UNEXPECTED_ERROR_MESSAGE = "The server experienced an unexpected error when processing the request."
"""Kafka's text for UNKNOWN_SERVER_ERROR (Errors.java)."""
TIMED_OUT_MESSAGE = "The request waited in the controller's queue for longer than its timeout"


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
    """Decides requests, has their records written, and answers them after the commit."""

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
        """Whether one of `READS` is under way, or waits to begin."""
        if self._long_reads.has_reads:
            return True
        return bool(self._of_clients) and any(
            type(client.request).__name__ in READS for client in self._of_clients.items()
        )

    @property
    def waiting_count(self) -> int:
        """The number of requests of clients that wait to be decided."""
        return len(self._of_clients)

    # ------------------------------------------------------------------------------------------- in turns

    def take(self, event: ControlRequest, now_ms: int) -> None:
        """Takes a request: it is decided now or waits for `decide_waiting`."""
        request = event.request
        if request.__api_key__ not in OF_NODES:
            self._of_clients.append(event.caller.client, event)
        elif type(request).__name__ in LARGE_OF_NODES:
            self._of_nodes.append(event)
        else:
            self._decide(event, now_ms)

    def decide_waiting(self, now_ms: int) -> None:
        """Decides the part of the waiting requests that a turn has time for, in order."""
        if self._of_nodes:
            budget = TurnBudget(self._clock)
            while self._of_nodes and budget.is_left:
                budget.spend(self._decide(self._of_nodes.popleft(), now_ms))
        if self._of_clients:
            budget = TurnBudget(self._clock)
            while self._of_clients and budget.is_left:
                _, event = self._of_clients.take()
                budget.spend(self._decide(event, now_ms))

    def go_on(self, now_ms: int) -> None:
        """Goes on with what takes several turns, and answers what is done."""
        for read, outcome in self._long_reads.run_slice(now_ms):
            if isinstance(outcome, Exception):
                self._answer_fault(read.token, outcome, request=read.request)
            elif isinstance(outcome, Part):
                fault = self._proposals.write(outcome.result, now_ms)
                if fault is not None and self._long_reads.give_up(read):
                    self._answer_fault(read.token, fault, request=read.request)
            elif isinstance(outcome, ControlResult):
                asker = read.asker if read.has_written or outcome.records else None
                self._take_last(outcome, read.token, read.request, asker, now_ms)
            else:
                self.answer(read.token, outcome)

    def abandon(self) -> None:
        """Refuses what waits and what is under way, because leadership is lost.

        Reads that are under way may have seen what is undone.
        """
        tokens = [event.token for event in (*self._of_nodes, *self._of_clients.take_all())]
        self._of_nodes.clear()
        tokens += self._long_reads.take_all()
        for token in tokens:
            self._deliver(token, not_controller())

    # ------------------------------------------------------------------------------------------ decisions

    def _decide(self, event: ControlRequest, now_ms: int) -> int:
        """Decides a request that was received. Returns the work of it, see `control/steps.py`."""
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
        """Decides a request of this controller itself."""
        context = RequestContext(now_ms=now_ms, next_offset=self._proposals.next_offset, api_version=0)
        self._decide_request(request, context, token)

    def _decide_request(
        self, request: Payload, context: RequestContext, token: int, event: ControlRequest | None = None
    ) -> int:
        """Decides a request and answers it. `event`: it was received. Returns its work.

        An unforeseen exception is answered and logged, and does not end the process. Otherwise the sender would
        repeat the request at the next active controller and end all of them, one after the other.
        """
        name = type(request).__name__
        try:
            result = self._metadata.control.decide(request, context)
        except RaftSafetyError:
            raise
        except Exception as error:
            self._answer_fault(token, error, request=name)
            return work_of(ControlResult())
        if result.steps is None:
            asker = None if event is None or not result.records else _asker_of(event)
            self._take_last(result, token, name, asker, context.now_ms)
        else:
            assert event is not None, "this controller asks for nothing that takes long"
            read = LongRead(
                token=token,
                request=name,
                steps=result.steps,
                asker=_asker_of(event),
                client=event.caller.client,
            )
            self._begin(read, result, context.now_ms)
        return work_of(result)

    def _begin(self, read: LongRead, first: ControlResult, now_ms: int) -> None:
        """Has the first part of a decision written, and goes on with it in later turns."""
        fault = self._proposals.write(first, now_ms)
        if fault is not None:
            self._answer_fault(read.token, fault, request=read.request)
        else:
            self._long_reads.begin(replace(read, has_written=bool(first.records)))

    def _take_last(
        self, result: ControlResult, token: int, request: str, asker: Asker | None, now_ms: int
    ) -> None:
        """Has the only, or the last, part of a decision written, and answers it.

        `asker` is given if the decision has records, which may have to reach brokers before the response leaves.
        """
        fault = self._proposals.write(result, now_ms)
        if fault is not None:
            self._answer_fault(token, fault, request=request)
        elif asker is not None and not asker.awaits_commit:
            self._deliver(token, NotAwaited(result.response))
        else:
            self.answer(token, result.response, asker)

    # ------------------------------------------------------------------------------------------ responses

    def _answer_fault(self, token: int, fault: Exception, *, request: str) -> None:
        if not isinstance(fault, ControlError):
            self._note(decision_failed(fault, request=request))
            fault = ControlError(ErrorCode.unknown_server_error, UNEXPECTED_ERROR_MESSAGE)
        self.answer(token, fault)

    def answer(self, token: int, outcome: Payload | ControlError, asker: Asker | None = None) -> None:
        """Answers after the commit of all that the decision wrote or saw; on a standby at once.

        Records that `asker` asked for may have to reach brokers, too.
        """
        metadata = self._metadata
        if metadata.control.is_active:
            metadata.wait(Waiter(self._proposals.next_offset, token, outcome, asker))
        else:
            self._deliver(token, outcome)


def _asker_of(event: ControlRequest) -> Asker:
    return Asker(event.caller.broker_id, event.deadline_ms, awaits_commit=event.caller.request_timeout_ms > 0)


def decision_failed(error: Exception, **facts: str) -> Note:
    """What is logged of an exception that nobody foresaw."""
    return Note(event="decision_failed", facts={**facts, "error": type(error).__name__}, exception=error)
