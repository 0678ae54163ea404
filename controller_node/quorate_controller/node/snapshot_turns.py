"""Turns to write a checkpoint: the active controller gives one controller the turn at a time (KIP-631).

`SnapshotTurns` is soft state of the active controller, from the heartbeats of the others; it begins empty in each
epoch. `HeartbeatKeeper` is the standby's side. A standby that gets no turn in time writes without one: turns only
keep controllers from being busy at the same time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.extensions.controller_heartbeat_request import (
    ControllerHeartbeatRequest,
    SnapshotState,
)
from quorate_protocol.kafka.extensions.controller_heartbeat_response import ControllerHeartbeatResponse
from quorate_protocol.plain_data import dataclass

from quorate_controller.control.api import ControlError
from quorate_controller.node.events import OWN_REQUEST_TIMEOUT_MS
from quorate_controller.node.snapshotter import NO_SNAPSHOT

if TYPE_CHECKING:
    from collections.abc import Container

    from quorate_controller.raft.node import RaftNode

SILENCE_MS_MAX: Final = 15_000
"""A controller silent for this long loses its turn. Heartbeats come at least every 5 s."""

BEHIND_MS_MAX: Final = 10_000
"""A voter that has been behind for this long could not replace another one."""

WAITING_MS_MAX: Final = 2_000
"""A controller whose snapshot is due reports every 0.5 s. Once it is silent for longer, no other one waits for it."""

HANDOVER_PAUSE_MS: Final = 60_000
"""The least time between two leaderships that are handed over for a checkpoint."""

INTERVAL_MS: Final = 5_000
INTERVAL_WAITING_MS: Final = 500
"""While a checkpoint waits for its turn or is being written: others wait for the end of a turn."""

PATIENCE_MS: Final = 10_000
"""A due checkpoint is written without a turn once the active controller has been silent for this long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerState:
    """The content of a controller's last heartbeat, and its time. `last_snapshot_offset` is -1 without a snapshot."""

    state: SnapshotState
    last_snapshot_offset: int
    at_ms: int


class SnapshotTurns:
    """The active controller's side."""

    def __init__(self, raft: RaftNode, *, node_id: int, hands_over: bool) -> None:
        self._raft = raft
        self._node_id = node_id
        self._hands_over = hands_over
        self._epoch = -1
        self._states: dict[int, ControllerState] = {}
        self._own: ControllerState | None = None
        self._holder: int | None = None
        self._handed_over_ms: int | None = None

    def heartbeat(
        self, request: ControllerHeartbeatRequest, registered: Container[int], now_ms: int
    ) -> ControllerHeartbeatResponse | ControlError:
        """Note the state of another controller, and respond whether it has the turn. Strangers are refused."""
        node_id = request.controller_id
        if node_id not in registered or node_id == self._node_id:
            return ControlError(
                ErrorCode.unknown_controller_id, f"Controller {node_id} is not a registered other controller."
            )
        try:
            state = SnapshotState(request.snapshot_state)
        except ValueError:
            return ControlError(
                ErrorCode.invalid_request, f"SnapshotState is {request.snapshot_state}; 0, 1 and 2 are known."
            )
        offset = request.last_snapshot_offset
        if offset < NO_SNAPSHOT:
            return ControlError(
                ErrorCode.invalid_request, f"LastSnapshotOffset is {offset}; it is -1 without a snapshot."
            )
        self._begin_epoch()
        self._states[node_id] = ControllerState(state=state, last_snapshot_offset=offset, at_ms=now_ms)
        has_turn = self._has_turn(node_id, state, now_ms)
        return ControllerHeartbeatResponse(error_code=ErrorCode.none, start_snapshot=has_turn)

    def own(self, state: SnapshotState, last_snapshot_offset: int, now_ms: int) -> bool:
        """Note the state of the active controller itself. Returns whether it has the turn."""
        self._begin_epoch()
        self._own = ControllerState(state=state, last_snapshot_offset=last_snapshot_offset, at_ms=now_ms)
        return self._has_turn(self._node_id, state, now_ms)

    def has_successor(self, now_ms: int) -> bool:
        """Whether leadership should go to another controller before the active one writes.

        Only a voter of ours that is caught up and has no checkpoint of its own to write is worth an election.
        """
        if not self._hands_over:
            return False
        if self._handed_over_ms is not None and now_ms - self._handed_over_ms < HANDOVER_PAUSE_MS:
            return False
        idle = {
            node_id
            for node_id, controller in self._alive(now_ms).items()
            if controller.state is SnapshotState.IDLE
        }
        return not idle.isdisjoint(self._caught_up(now_ms))

    def handed_over(self, now_ms: int) -> None:
        """The active controller resigns, so as to write as a standby."""
        self._handed_over_ms = now_ms

    def _begin_epoch(self) -> None:
        if self._raft.epoch != self._epoch:
            self._epoch = self._raft.epoch
            self._states.clear()
            self._own = None
            self._holder = None

    def _alive(self, now_ms: int) -> dict[int, ControllerState]:
        if self._raft.epoch != self._epoch:
            return {}
        return {
            node_id: controller
            for node_id, controller in self._states.items()
            if now_ms - controller.at_ms <= SILENCE_MS_MAX
        }

    def _has_turn(self, node_id: int, state: SnapshotState, now_ms: int) -> bool:
        """Revoke the turn of a controller that is done. Returns whether the controller has it now."""
        if self._holder == node_id and state is SnapshotState.IDLE:
            self._holder = None
        return state is SnapshotState.DUE and self._give(node_id, now_ms)

    def _give(self, node_id: int, now_ms: int) -> bool:
        """Grant the turn if it is free, no other controller writes, and losing a voter keeps the majority."""
        alive = self._alive(now_ms)
        if self._holder is not None and self._holder not in (node_id, self._node_id, *alive):
            self._holder = None
        if self._holder is None:
            writes = any(
                controller.state is SnapshotState.WRITING
                for other, controller in alive.items()
                if other != node_id
            )
            if writes or self._is_fragile(now_ms) or self._another_is_first(node_id, now_ms):
                return False
            self._holder = node_id
        return self._holder == node_id

    def _another_is_first(self, node_id: int, now_ms: int) -> bool:
        """Whether another controller waits whose snapshot is older: it replays more after a restart, and keeps more
        of its log.
        """
        controllers = dict(self._alive(now_ms))
        if self._own is not None:
            controllers[self._node_id] = self._own
        asking = controllers.pop(node_id)
        return any(
            other.state is SnapshotState.DUE
            and now_ms - other.at_ms <= WAITING_MS_MAX
            and other.last_snapshot_offset < asking.last_snapshot_offset
            for other in controllers.values()
        )

    def last_snapshot_offsets(self, now_ms: int) -> dict[int, int]:
        """The end offset of the last snapshot of each other controller that sends heartbeats, -1 without one."""
        return {
            node_id: controller.last_snapshot_offset for node_id, controller in self._alive(now_ms).items()
        }

    def _is_fragile(self, now_ms: int) -> bool:
        """Whether voters have fallen behind, and the loss of one more would cost the majority."""
        voters = self._raft.voters.voters
        caught_up = len(self._caught_up(now_ms)) + any(voter.node_id == self._node_id for voter in voters)
        return caught_up < len(voters) and caught_up - 1 < len(voters) // 2 + 1

    def _caught_up(self, now_ms: int) -> frozenset[int]:
        """Return the other voters that are caught up."""
        described = self._raft.describe_quorum(now_ms).voters
        return frozenset(
            voter.key.node_id
            for voter in described
            if voter.key.node_id != self._node_id
            and now_ms - voter.last_caught_up_timestamp_ms <= BEHIND_MS_MAX
        )


class HeartbeatKeeper:
    """Decides when to send a heartbeat, one in flight, and what follows from the responses.

    A leader that does not have the API, as those of Java, gets one heartbeat in its epoch.
    """

    def __init__(self, raft: RaftNode, node_id: int) -> None:
        self._raft = raft
        self._node_id = node_id
        self._in_flight_until_ms: int | None = None
        self._last_state = SnapshotState.IDLE
        self._last_sent_ms: int | None = None
        self._last_response_ms: int | None = None
        self._recipient: tuple[int, int] | None = None
        """Id and epoch of the leader that got the last heartbeat: its response may come when another one leads."""
        self._silent_leader: tuple[int, int] | None = None
        """Id and epoch of the leader that does not have the API."""
        self._turn_of: tuple[int, int] | None = None
        """Id and epoch of the leader that gave the turn, which counts while that one leads."""

    @property
    def is_coordinated(self) -> bool:
        """Whether another controller leads, and may have the API."""
        leader = self._leader()
        return leader is not None and leader != self._silent_leader

    def deadline_ms(self, state: SnapshotState) -> int | None:
        """When to send the next heartbeat; None without another leader that may have the API. 0: now."""
        if not self.is_coordinated:
            return None
        if self._in_flight_until_ms is not None:
            return self._in_flight_until_ms
        if self._last_sent_ms is None or state is not self._last_state:
            return 0
        pause_ms = INTERVAL_MS if state is SnapshotState.IDLE else INTERVAL_WAITING_MS
        return self._last_sent_ms + pause_ms

    def request(
        self, state: SnapshotState, last_snapshot_offset: int, now_ms: int
    ) -> ControllerHeartbeatRequest:
        """Return the heartbeat to send now."""
        self._recipient = self._leader()
        if state is SnapshotState.IDLE:
            self._turn_of = None  # this heartbeat gives it back
        self._last_state = state
        self._last_sent_ms = now_ms
        self._in_flight_until_ms = now_ms + 2 * OWN_REQUEST_TIMEOUT_MS
        return ControllerHeartbeatRequest(
            controller_id=self._node_id, last_snapshot_offset=last_snapshot_offset, snapshot_state=state
        )

    def responded(self, response: ControllerHeartbeatResponse, now_ms: int) -> None:
        """The active controller's response came. Any error counts as silence."""
        self._in_flight_until_ms = None
        if response.error_code is ErrorCode.none:
            self._last_response_ms = now_ms
            has_turn = response.start_snapshot and self._last_state is SnapshotState.DUE
            self._turn_of = self._recipient if has_turn else None

    def failed(self, *, is_unsupported: bool) -> None:
        """No response will come; `is_unsupported`: the leader does not have the API."""
        self._in_flight_until_ms = None
        if is_unsupported:
            self._silent_leader = self._recipient

    def may_begin(self, due_since_ms: int, now_ms: int) -> bool:
        """Whether to begin a checkpoint that has been due since `due_since_ms`. A turn counts once."""
        has_turn = self._turn_of is not None and self._turn_of == self._leader()
        if has_turn or not self.is_coordinated:
            self._turn_of = None
            return True
        return now_ms - max(due_since_ms, self._last_response_ms or 0) >= PATIENCE_MS

    def _leader(self) -> tuple[int, int] | None:
        leader_id = self._raft.leader_id
        return None if leader_id in (-1, self._node_id) else (leader_id, self._raft.epoch)
