"""`ControllerNode`: one turn of a controller, from events to effects.

The order of the code is the proof of durability: hard state, truncation and appends reach the disk as raft
asks for them; one flush closes the turn; only then do messages and responses leave, and only then does raft
count the appended records as ours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.extensions.controller_heartbeat_request import ControllerHeartbeatRequest

from quorate_controller.control.api import ControlError
from quorate_controller.node.credentials import ImageCredentials
from quorate_controller.node.events import (
    ControlRequest,
    ControlResponse,
    Effects,
    NotAwaited,
    OutgoingRaftResponse,
    OwnRequestAnswered,
    OwnRequestFailed,
    ResponseWithData,
)
from quorate_controller.node.measurements import ElectionCounts
from quorate_controller.node.metadata import Proposals, not_controller
from quorate_controller.node.request_processor import RequestProcessor, decision_failed
from quorate_controller.node.response_data import read_response_data
from quorate_controller.raft.events import (
    LogStartMoved,
    Note,
    Persisted,
    Resign,
    Role,
    SnapshotRestored,
    SnapshotTaken,
    Tick,
)
from quorate_controller.unix_time import unchanged

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from quorate_protocol.kafka.apis import Payload

    from quorate_controller.control.api import ControlResult
    from quorate_controller.node.consistency import BrokerWaits, FirstCatchUp
    from quorate_controller.node.events import NodeEvent
    from quorate_controller.node.measurements import LatencyHistogram
    from quorate_controller.node.metadata import MetadataState, Waiter
    from quorate_controller.node.own_requests import OwnRequests
    from quorate_controller.node.snapshot_turns import SnapshotTurns
    from quorate_controller.node.snapshotter import SnapshotLoader, Snapshotter
    from quorate_controller.raft.events import OutgoingResponse, Ready, RoleChange
    from quorate_controller.raft.node import RaftNode
    from quorate_controller.security.authorizer import Authorizer
    from quorate_controller.storage.controller_storage import ControllerStorage
    from quorate_controller.unix_time import UnixTime

ACTIVATION_PAUSE_MS: Final = 5_000
"""The pause before this node becomes active again after a fault of its own: a persistent fault causes no hot loop."""
TIMER_DECISIONS_PER_TURN_MAX: Final = 16
TIMER_RECORDS_PER_TURN_MAX: Final = 500
"""At either bound timers leave the rest to the next turn: the sessions of many brokers may expire at the same time.
"""
REGISTRATION_TOKEN = -1
"""Token of our own registration, when this node itself is the active controller."""


class ControllerNode:
    """Raft, storage, image and control of one controller. Not thread-safe; deterministic by its `rng`."""

    def __init__(
        self,
        *,
        raft: RaftNode,
        storage: ControllerStorage,
        metadata: MetadataState,
        snapshotter: Snapshotter,
        loader: SnapshotLoader,
        own_requests: OwnRequests,
        snapshot_turns: SnapshotTurns,
        broker_waits: BrokerWaits,
        clock: Callable[[], int],
        first_catch_up: FirstCatchUp,
        now_ms: int,
        unix_ms_of: UnixTime = unchanged,
        authorizer: Authorizer | None = None,
        token_secret: str | None = None,
    ) -> None:
        self.raft = raft
        self.storage = storage
        self.metadata = metadata
        self.snapshotter = snapshotter
        self.loader = loader
        self.broker_waits = broker_waits
        self._first_catch_up = first_catch_up
        self.authorizer = authorizer
        self.credentials = ImageCredentials(metadata.image, token_secret)
        self.election_counts = ElectionCounts()
        self._proposals = Proposals(
            raft=raft,
            metadata=metadata,
            applied=snapshotter.applied,
            perform=self._perform,
            unix_ms_of=unix_ms_of,
        )
        self._requests = RequestProcessor(
            metadata=metadata,
            proposals=self._proposals,
            clock=clock,
            deliver=self._deliver,
            note=self._append_note,
        )
        self._own_requests = own_requests
        self._snapshot_turns = snapshot_turns
        self.now_ms = now_ms
        self._unix_ms_of = unix_ms_of
        self._needs_flush = False
        self._is_behind = False
        self._activation_due_ms = 0
        self._effects = Effects()
        self._outgoing: list[OutgoingResponse] = []

    # ------------------------------------------------------------------------------------------ queries

    @property
    def node_id(self) -> int:
        """This controller's id."""
        return self._own_requests.node_id

    @property
    def is_active(self) -> bool:
        """Whether this node is the active controller: leader, caught up, and deciding."""
        return self.metadata.control.is_active

    @property
    def is_reading(self) -> bool:
        """Whether reads are under way that will need more turns: others should wait."""
        return self._requests.is_reading

    @property
    def waiting_count(self) -> int:
        """The number of requests of clients that wait to be decided in the next turns."""
        return self._requests.waiting_count

    @property
    def commit_latency(self) -> LatencyHistogram:
        """How long proposals of this process took until their commit."""
        return self._proposals.commit_latency

    @property
    def last_snapshot_offsets(self) -> dict[int, int]:
        """On the active controller, the end offset of each controller's last snapshot, -1 without one; else empty."""
        if not self.is_active:
            return {}
        others = self._snapshot_turns.last_snapshot_offsets(self.now_ms)
        return {self.node_id: self.snapshotter.latest_offset, **others}

    @property
    def is_registered(self) -> bool:
        """Whether the image has the registration of this process; never below metadata.version 15."""
        return self._own_requests.registration_reason is None

    @property
    def deadline_ms(self) -> int:
        """When the next turn is due without another event."""
        if self._is_behind or self.loader.is_loading or self._requests.has_work:
            return self.now_ms
        deadlines = [
            self.raft.deadline_ms,
            self.metadata.control.deadline_ms,
            self.snapshotter.deadline_ms(),
            self._own_requests.deadline_ms,
            self.broker_waits.deadline_ms,
            self._first_catch_up.deadline_ms,
            self._activation_due_ms if self._activation_due_ms > self.now_ms else None,
        ]
        return min(deadline for deadline in deadlines if deadline is not None)

    # -------------------------------------------------------------------------------------------- turns

    @property
    def _unix_ms(self) -> int:
        """The Unix time of this turn, for records and for what is compared with their times."""
        return self._unix_ms_of(self.now_ms)

    def start(self, now_ms: int) -> Effects:
        """The first turn. The image has the latest checkpoint; the log follows as it commits."""
        self.now_ms = now_ms
        self._perform(self.raft.start(now_ms))
        return self._finish()

    def turn(self, events: Sequence[NodeEvent], now_ms: int) -> Effects:
        """Process the events since the last turn. `now_ms` is Unix time and never decreases.

        Raises:
            StorageError: the disk failed. The process has to end.
            RaftSafetyError: a step would break a promise of Raft. The process has to end.
        """
        self.now_ms = now_ms
        may_hold = not self._first_catch_up.is_over
        for event in events:
            match event:
                case ControlRequest():
                    if not (may_hold and self._first_catch_up.hold(event, now_ms)):
                        self._accept(event)
                case OwnRequestAnswered() | OwnRequestFailed():
                    note = self._own_requests.receive(event, now_ms)
                    if note is not None:
                        self._effects.notes.append(note)
                case _:
                    # Raft may append records of its own: what was decided before comes first in the log.
                    self._proposals.propose(self.now_ms)
                    self._perform(self.raft.step(event, now_ms))
        self._requests.decide_waiting(now_ms)
        self._run_timers()
        return self._finish()

    def _finish(self) -> Effects:
        self._is_behind = False
        self._load_snapshot()
        self._requests.run_long_reads(self.now_ms)
        self._settle()
        if due := self._first_catch_up.pop_due(self.now_ms):
            for event in due:
                self._accept(event)
            self._requests.decide_waiting(self.now_ms)
        self._send_own_requests()
        self._settle()
        self._write_snapshot()
        self._release(self.broker_waits.pop_due(self.raft.high_watermark_of, self.now_ms), None)
        self._read_responses()
        effects, self._effects, self._outgoing = self._effects, Effects(), []
        return effects

    def _read_responses(self) -> None:
        """Read the records and snapshots of raft's responses: once for all replicas that get the same response."""
        responses: dict[int, ResponseWithData] = {}
        for outgoing in self._outgoing:
            response = responses.get(id(outgoing.response))
            if response is None:
                response = responses[id(outgoing.response)] = read_response_data(
                    outgoing.response, self.storage
                )
            self._effects.raft_responses.append(
                OutgoingRaftResponse(
                    token=outgoing.token, response=response, is_for_observer=outgoing.is_for_observer
                )
            )

    def _settle(self) -> None:
        """Flush the records of this turn and follow the high watermark until nothing is left to do.

        A standby replays one slice of the committed log in a turn, however often this is called.
        """
        while True:
            self._proposals.propose(self.now_ms)
            if self._needs_flush:
                self.storage.flush()
                self.storage.keep_recovery_point(self.now_ms)
                self._needs_flush = False
                self._perform(self.raft.step(Persisted(end_offset=self.storage.log.end_offset), self.now_ms))
            elif not self._follow_high_watermark():
                return

    def _run_timers(self) -> None:
        if self.now_ms >= self.raft.deadline_ms:
            self._proposals.propose(self.now_ms)
            self._perform(self.raft.step(Tick(), self.now_ms))
        control, before = self.metadata.control, self._proposals.next_offset
        for _ in range(TIMER_DECISIONS_PER_TURN_MAX):
            deadline_ms = control.deadline_ms
            if deadline_ms is None or deadline_ms > self.now_ms:
                return
            if not self._decide_unrequested("timer", control.tick):
                return
            if self._proposals.next_offset - before >= TIMER_RECORDS_PER_TURN_MAX:
                return

    # --------------------------------------------------------------------------------- raft's effects

    def _perform(self, ready: Ready, *, is_proposal: bool = False) -> None:
        """Carry out raft's effects in their order. The flush and the messages wait for the end of the turn."""
        if ready.hard_state is not None:
            self.storage.save_hard_state(ready.hard_state, kraft_version=self.raft.kraft_version)
        if ready.truncate_to is not None:
            self.storage.truncate_to(ready.truncate_to)
        if ready.append:
            self.storage.append(ready.append)
            self._needs_flush = True
            if self.is_active and not is_proposal:
                self.metadata.skip_to(self.storage.log.end_offset, self.raft.epoch, self._unix_ms)
        if ready.snapshot_chunk is not None:
            chunk = ready.snapshot_chunk
            self.storage.write_snapshot_chunk(chunk.snapshot_id, chunk.position, chunk.data)
        self._effects.sends.extend(ready.sends)
        self._outgoing.extend(ready.responses)
        self._effects.notes.extend(ready.notes)
        if ready.role is not None:
            self._role_changed(ready.role)
        if ready.restore is not None:
            self.loader.begin(ready.restore)

    def _load_snapshot(self) -> None:
        """Continue loading a fetched snapshot, which replaces image and log once all of it was read."""
        self._effects.has_loaded = self.loader.is_loading
        result = self.loader.load_slice()
        if result is None:
            return
        if isinstance(result, SnapshotRestored):
            self._needs_flush = False
            self.snapshotter.restart(self.now_ms)
            self._note("snapshot_loaded", offset=result.snapshot_id.offset, epoch=result.snapshot_id.epoch)
        self._perform(self.raft.step(result, self.now_ms))

    def _role_changed(self, change: RoleChange) -> None:
        self.election_counts.role_changed(change)
        if change.role is not Role.LEADER and self.is_active:
            self._release(self.metadata.abandon(), not_controller())
            self._requests.abandon()
            self._release(self.broker_waits.pop_all(), None)
            self._proposals.abandon()
            self._note("no_longer_active", epoch=change.epoch, leader_id=change.leader_id)

    def _follow_high_watermark(self) -> bool:
        """Apply newly committed records. Returns whether there is something to append now."""
        high_watermark = self.raft.high_watermark
        if self.is_active:
            self._proposals.committed(high_watermark, self.now_ms)
            committed = self.metadata.committed(high_watermark, self._unix_ms)
            brokers = self.metadata.image.cluster.brokers
            self._release(self.broker_waits.hold_back(committed, brokers, self.now_ms), None)
            return False
        if self._is_behind:
            return False
        size_bytes = self.metadata.catch_up(self.storage, high_watermark, self.now_ms)
        self.snapshotter.applied(size_bytes)
        if self.metadata.applied_offset < high_watermark:
            self._is_behind = True
            return False
        return self._activate_if_leader()

    def _activate_if_leader(self) -> bool:
        """A leader becomes active once its whole log, its LeaderChange included, is replayed."""
        epoch_start_offset = self.raft.epoch_start_offset
        if epoch_start_offset is None or self.metadata.applied_offset <= epoch_start_offset:
            return False
        if self.now_ms < self._activation_due_ms:
            return False
        if self.metadata.applied_offset != self.raft.log_end_offset:
            return False
        self._note("active", epoch=self.raft.epoch, offset=self.metadata.applied_offset)
        self._decide_unrequested("activation", self._activate)
        return True

    def _activate(self, now_ms: int) -> ControlResult:
        result = self.metadata.control.activate(now_ms)
        note = self.metadata.repair_note(result)
        if note is not None:
            self._effects.notes.append(note)
        return result

    # ---------------------------------------------------------------------------------------- decisions

    def _accept(self, event: ControlRequest) -> None:
        if isinstance(event.request, ControllerHeartbeatRequest):
            self._receive_heartbeat(event.token, event.request)
        else:
            self._requests.accept(event, self.now_ms)

    def _decide_unrequested(self, task: str, decide: Callable[[int], ControlResult | None]) -> bool:
        """Make a decision without a request. Returns whether it succeeded.

        After an unforeseen exception this node resigns, so that another controller can try. It may lead again,
        but becomes active only after a pause.
        """
        try:
            result = decide(self.now_ms)
        except Exception as error:
            fault: Exception | None = error
        else:
            fault = None if result is None else self._proposals.write(result, self.now_ms)
        if fault is None:
            return True
        if self.raft.epoch_start_offset is None:
            return False  # deposed on the way; what was decided is abandoned
        self._append_note(decision_failed(fault, task=task))
        self._activation_due_ms = self.now_ms + ACTIVATION_PAUSE_MS
        self._perform(self.raft.step(Resign(epoch=self.raft.epoch), self.now_ms))
        return False

    def _release(self, waiters: Sequence[Waiter], refusal: ControlError | None) -> None:
        for waiter in waiters:
            self._deliver(waiter.token, refusal or waiter.result)

    def _deliver(self, token: int, result: Payload | NotAwaited | ControlError) -> None:
        if token == REGISTRATION_TOKEN:
            assert not isinstance(result, NotAwaited), "only clients send a timeout of 0"
            self._effects.notes.append(self._own_requests.registered(*_error_of(result), self.now_ms))
        else:
            self._effects.control_responses.append(ControlResponse(token=token, result=result))

    # ------------------------------------------------------------------------- own requests, snapshots

    def _send_own_requests(self) -> None:
        if self._is_behind:
            return
        for due in self._own_requests.pop_due(self.now_ms):
            if due.note is not None:
                self._effects.notes.append(due.note)
            if due.own.destination.node_id != self.node_id:
                self._effects.own_requests.append(due.own)
                continue
            self._requests.decide_own(due.own.request, REGISTRATION_TOKEN, self.now_ms)

    def _receive_heartbeat(self, token: int, request: ControllerHeartbeatRequest) -> None:
        """Respond to another controller's heartbeat."""
        if not self.is_active:
            result: Payload | ControlError = not_controller()
        else:
            turns, snapshotter = self._snapshot_turns, self.snapshotter
            turns.own(snapshotter.state, snapshotter.latest_offset, self.now_ms)
            result = turns.heartbeat(request, self.metadata.image.cluster.controllers, self.now_ms)
        self._effects.control_responses.append(ControlResponse(token=token, result=result))

    def _may_begin_snapshot(self) -> bool:
        """Whether a checkpoint is due and, so that controllers do not write at the same time, its turn has come."""
        snapshotter, now_ms = self.snapshotter, self.now_ms
        if not snapshotter.is_due(self.metadata.image, now_ms):
            return False
        if snapshotter.is_overdue(now_ms):
            return True
        if not self.is_active:
            may_begin = self._own_requests.may_snapshot(now_ms)
        elif not self._snapshot_turns.own(snapshotter.state, snapshotter.latest_offset, now_ms):
            may_begin = False
        elif self._snapshot_turns.has_successor(now_ms):
            self._snapshot_turns.handed_over(now_ms)
            self._note("leadership_handed_over", reason="a snapshot is due", epoch=self.raft.epoch)
            self._perform(self.raft.step(Resign(epoch=self.raft.epoch), now_ms))
            may_begin = False
        else:
            may_begin = True
        if not may_begin:
            snapshotter.wait(now_ms)
        return may_begin

    def _write_snapshot(self) -> None:
        if self._may_begin_snapshot():
            started = self.snapshotter.begin(self.metadata.image, self.now_ms)
            if started is not None:
                self._effects.notes.append(started)
        snapshot_id = self.snapshotter.write_slice(self.now_ms)
        if snapshot_id is None:
            return
        self._note("snapshot_written", offset=snapshot_id.offset, epoch=snapshot_id.epoch)
        self._perform(self.raft.step(SnapshotTaken(snapshot_id=snapshot_id), self.now_ms))
        start_offset = self.storage.clean(self._unix_ms)
        if start_offset is not None:
            self._perform(self.raft.step(LogStartMoved(start_offset=start_offset), self.now_ms))
            self._note("log_start_moved", offset=start_offset)
        self._settle()

    def _note(self, event: str, **facts: object) -> None:
        self._append_note(Note(event=event, facts=facts))

    def _append_note(self, note: Note) -> None:
        self._effects.notes.append(note)

    def close(self) -> None:
        """Release the disk."""
        self.storage.close()


def _error_of(result: Payload | ControlError) -> tuple[ErrorCode, str | None]:
    if isinstance(result, ControlError):
        return result.error_code, result.message
    return ErrorCode.none, None
