"""Waits that keep clients from reading older metadata than they have seen.

`BrokerWaits`: a client that has created a topic asks the same broker for it next. The broker has forwarded the
request (KIP-590), but follows the metadata log on another connection, and may get the response before the records. So
the response waits, for a bounded time, until a Fetch of that broker shows that it has the records and knows that they
are committed (KIP-1166). `ResponsesWaitFor.BROKERS` waits for every broker that is not fenced, as KIP-4 proposed it.

`FirstCatchUp`: the image of a node that has just started is its latest checkpoint, and then that of a part of the
log. Requests wait until the image has all that is committed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from quorate_protocol.plain_data import dataclass

from quorate_controller.config.own_keys import ResponsesWaitFor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from quorate_protocol.image import BrokerRegistration

    from quorate_controller.config.own_keys import ResponsePolicy
    from quorate_controller.node.events import ControlRequest, Requester
    from quorate_controller.node.metadata import MetadataState, Waiter
    from quorate_controller.raft.node import RaftNode


NO_LEADER_WAIT_MS: Final = 5_000
"""How long requests wait after the start while no leader is known. Then they are served from the image as it is: the
tools that diagnose a quorum without a leader read which nodes are registered."""


@dataclass(slots=True)
class _HeldResponse:
    waiter: Waiter
    brokers: list[int]
    """The brokers that are not known to have the records."""
    due_ms: int


class BrokerWaits:
    """The responses that wait for brokers."""

    def __init__(self, policy: ResponsePolicy) -> None:
        self._policy = policy
        self._held: list[_HeldResponse] = []
        self.overdue_count = 0
        """Responses that left before a broker was known to have the records."""

    @property
    def deadline_ms(self) -> int | None:
        """When the next response has waited long enough; None if none waits."""
        return min((held.due_ms for held in self._held), default=None)

    def hold_back(
        self, committed: Iterable[Waiter], brokers: Mapping[int, BrokerRegistration], now_ms: int
    ) -> Sequence[Waiter]:
        """Keep the responses that have to wait for brokers, and return the others."""
        return [waiter for waiter in committed if not self._hold(waiter, brokers, now_ms)]

    def _hold(self, waiter: Waiter, brokers: Mapping[int, BrokerRegistration], now_ms: int) -> bool:
        requester = waiter.requester
        if requester is None:
            return False
        # The other half of the time is for sending the response.
        wait_ms = min(self._policy.max_ms, (requester.deadline_ms - now_ms) // 2)
        awaited = self._awaited(requester, brokers)
        if wait_ms <= 0 or not awaited:
            return False
        self._held.append(_HeldResponse(waiter, awaited, now_ms + wait_ms))
        return True

    def _awaited(self, requester: Requester, brokers: Mapping[int, BrokerRegistration]) -> list[int]:
        match self._policy.wait_for:
            case ResponsesWaitFor.NONE:
                return []
            case ResponsesWaitFor.FORWARDER:
                broker_id = requester.broker_id
                return [broker_id] if broker_id is not None and broker_id in brokers else []
            case ResponsesWaitFor.BROKERS:
                return [broker_id for broker_id, broker in brokers.items() if not broker.fenced]

    def pop_due(self, known_high_watermark: Callable[[int], int], now_ms: int) -> Sequence[Waiter]:
        """Remove and return the responses whose brokers have the records, or that have waited long enough.

        `known_high_watermark` returns what a node knows to be committed, by its id; -1 if that is unknown.
        """
        if not self._held:
            return ()
        due: list[Waiter] = []
        kept: list[_HeldResponse] = []
        for held in self._held:
            while held.brokers and known_high_watermark(held.brokers[-1]) >= held.waiter.end_offset:
                held.brokers.pop()
            is_overdue = bool(held.brokers) and held.due_ms <= now_ms
            self.overdue_count += is_overdue
            if is_overdue or not held.brokers:
                due.append(held.waiter)
            else:
                kept.append(held)
        self._held = kept
        return due

    def pop_all(self) -> Sequence[Waiter]:
        """Remove and return all responses, after a loss of leadership: a leader alone knows fetches."""
        waiters = [held.waiter for held in self._held]
        self._held = []
        return waiters


class FirstCatchUp:
    """The time from a node's start until its image has caught up with the quorum, once."""

    def __init__(self, *, raft: RaftNode, metadata: MetadataState, now_ms: int) -> None:
        self._raft = raft
        self._metadata = metadata
        self._wait_ends_ms = now_ms + NO_LEADER_WAIT_MS
        self._is_over = False
        self._held: list[ControlRequest] = []

    @property
    def is_over(self) -> bool:
        """Whether the image has had all that was committed, at least once."""
        if not self._is_over:
            raft = self._raft
            self._is_over = raft.has_caught_up and raft.high_watermark <= self._metadata.applied_offset
        return self._is_over

    def _is_waiting(self, now_ms: int) -> bool:
        return not self.is_over and (self._raft.is_led or now_ms < self._wait_ends_ms)

    def hold(self, event: ControlRequest, now_ms: int) -> bool:
        """Keep a request if it has to wait. Returns whether it has."""
        is_waiting = self._is_waiting(now_ms)
        if is_waiting:
            self._held.append(event)
        return is_waiting

    @property
    def deadline_ms(self) -> int | None:
        """When the waiting requests are served in any case; None if no request waits."""
        if not self._held:
            return None
        overdue_ms = min(event.deadline_ms for event in self._held) + 1
        return overdue_ms if self._raft.is_led else min(overdue_ms, self._wait_ends_ms)

    def pop_due(self, now_ms: int) -> Sequence[ControlRequest]:
        """Remove and return the requests that need not wait any more, or whose time is over."""
        if not self._held:
            return ()
        is_waiting = self._is_waiting(now_ms)
        due = [event for event in self._held if not is_waiting or event.deadline_ms < now_ms]
        self._held = [event for event in self._held if is_waiting and event.deadline_ms >= now_ms]
        return due
