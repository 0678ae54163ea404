"""Whose turn it is to write a checkpoint: the active controller gives one controller the turn at a time (KIP-631).

All of it is soft state of the active controller, from the heartbeats of the others, and begins anew with its epoch.
A standby that gets no turn in time writes without one, see `heartbeats`: nothing depends on this but how busy the
controllers are at the same time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.extensions.controller_heartbeat_request import SnapshotState
from quorate_protocol.kafka.extensions.controller_heartbeat_response import ControllerHeartbeatResponse
from quorate_protocol.plain_data import dataclass

from quorate_controller.control.api import ControlError
from quorate_controller.node.snapshotter import NO_SNAPSHOT

if TYPE_CHECKING:
    from collections.abc import Container

    from quorate_protocol.kafka.extensions.controller_heartbeat_request import ControllerHeartbeatRequest

    from quorate_controller.raft.node import RaftNode

SILENCE_MS_MAX: Final = 15_000
"""A controller that was not heard for so long holds no turn any more. Heartbeats come at least every 5 s."""

BEHIND_MS_MAX: Final = 10_000
"""A voter that has not been caught up for so long does not count as one that could replace another."""

WAITING_MS_MAX: Final = 2_000
"""A controller whose snapshot is due reports every 0.5 s. Once it is silent for longer, no other one waits for it."""

HANDOVER_PAUSE_MS: Final = 60_000
"""The least time between two leaderships that are handed over for a checkpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """The last heartbeat of a controller, and its time. `last_snapshot_offset` is -1 without a snapshot."""

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
        self._heard: dict[int, Heard] = {}
        self._own: Heard | None = None
        self._holder: int | None = None
        self._handed_over_ms: int | None = None

    def heartbeat(
        self, request: ControllerHeartbeatRequest, registered: Container[int], now_ms: int
    ) -> ControllerHeartbeatResponse | ControlError:
        """Notes what another controller says, and answers whether it has the turn. Strangers are refused."""
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
        self._heard[node_id] = Heard(state=state, last_snapshot_offset=offset, at_ms=now_ms)
        has_turn = self._has_turn(node_id, state, now_ms)
        return ControllerHeartbeatResponse(error_code=ErrorCode.none, start_snapshot=has_turn)

    def own(self, state: SnapshotState, last_snapshot_offset: int, now_ms: int) -> bool:
        """Notes the state of the active controller itself. Returns whether it has the turn."""
        self._begin_epoch()
        self._own = Heard(state=state, last_snapshot_offset=last_snapshot_offset, at_ms=now_ms)
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
            node_id for node_id, heard in self._alive(now_ms).items() if heard.state is SnapshotState.IDLE
        }
        return not idle.isdisjoint(self._caught_up(now_ms))

    def handed_over(self, now_ms: int) -> None:
        """The active controller resigns, so as to write as a standby."""
        self._handed_over_ms = now_ms

    def _begin_epoch(self) -> None:
        if self._raft.epoch != self._epoch:
            self._epoch = self._raft.epoch
            self._heard.clear()
            self._own = None
            self._holder = None

    def _alive(self, now_ms: int) -> dict[int, Heard]:
        if self._raft.epoch != self._epoch:
            return {}
        return {node_id: one for node_id, one in self._heard.items() if now_ms - one.at_ms <= SILENCE_MS_MAX}

    def _has_turn(self, node_id: int, state: SnapshotState, now_ms: int) -> bool:
        """Takes the turn from who has nothing more to write. Returns whether the controller has it now."""
        if self._holder == node_id and state is SnapshotState.IDLE:
            self._holder = None
        return state is SnapshotState.DUE and self._give(node_id, now_ms)

    def _give(self, node_id: int, now_ms: int) -> bool:
        """Gives the turn if nobody has it, nobody else writes, and the quorum can do without one voter."""
        alive = self._alive(now_ms)
        if self._holder is not None and self._holder not in (node_id, self._node_id, *alive):
            self._holder = None
        if self._holder is None:
            writes = any(
                heard.state is SnapshotState.WRITING for other, heard in alive.items() if other != node_id
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
        return {node_id: heard.last_snapshot_offset for node_id, heard in self._alive(now_ms).items()}

    def _is_fragile(self, now_ms: int) -> bool:
        """Whether voters have fallen behind, and the loss of one more would cost the majority."""
        voters = self._raft.voters.voters
        caught_up = len(self._caught_up(now_ms)) + any(voter.node_id == self._node_id for voter in voters)
        return caught_up < len(voters) and caught_up - 1 < len(voters) // 2 + 1

    def _caught_up(self, now_ms: int) -> frozenset[int]:
        """Returns the other voters that are caught up."""
        described = self._raft.describe_quorum(now_ms).voters
        return frozenset(
            voter.key.node_id
            for voter in described
            if voter.key.node_id != self._node_id
            and now_ms - voter.last_caught_up_timestamp_ms <= BEHIND_MS_MAX
        )
