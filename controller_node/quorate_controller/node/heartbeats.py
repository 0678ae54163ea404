"""A standby's heartbeats to the active controller (KIP-631), and whether it may write a checkpoint now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.extensions.controller_heartbeat_request import (
    ControllerHeartbeatRequest,
    SnapshotState,
)

from quorate_controller.node.events import OWN_REQUEST_TIMEOUT_MS

if TYPE_CHECKING:
    from quorate_protocol.kafka.extensions.controller_heartbeat_response import ControllerHeartbeatResponse

    from quorate_controller.raft.node import RaftNode

INTERVAL_MS: Final = 5_000
INTERVAL_WAITING_MS: Final = 500
"""While a checkpoint waits for its turn or is being written: others wait for the end of a turn."""

PATIENCE_MS: Final = 10_000
"""A checkpoint that is due is written without a turn when the active controller was not heard for so long."""


class HeartbeatKeeper:
    """Decides when to send a heartbeat, one in flight, and what follows from the answers.

    A leader that does not know the API, as those of Java, is asked once in its epoch.
    """

    def __init__(self, raft: RaftNode, node_id: int) -> None:
        self._raft = raft
        self._node_id = node_id
        self._in_flight_until_ms: int | None = None
        self._last_state = SnapshotState.IDLE
        self._last_sent_ms: int | None = None
        self._heard_ms: int | None = None
        self._asked: tuple[int, int] | None = None
        """Id and epoch of the leader that got the last heartbeat: its response may come when another one leads."""
        self._silent_leader: tuple[int, int] | None = None
        """Id and epoch of the leader that does not know the API."""
        self._turn_of: tuple[int, int] | None = None
        """Id and epoch of the leader that gave the turn, which counts while that one leads."""

    @property
    def is_coordinated(self) -> bool:
        """Whether another controller leads, and may know the API."""
        leader = self._leader()
        return leader is not None and leader != self._silent_leader

    def deadline_ms(self, state: SnapshotState) -> int | None:
        """When to send the next heartbeat; None without another leader that may know the API. 0: now."""
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
        """Returns the heartbeat to send now."""
        self._asked = self._leader()
        if state is SnapshotState.IDLE:
            self._turn_of = None  # this heartbeat gives it back
        self._last_state = state
        self._last_sent_ms = now_ms
        self._in_flight_until_ms = now_ms + 2 * OWN_REQUEST_TIMEOUT_MS
        return ControllerHeartbeatRequest(
            controller_id=self._node_id, last_snapshot_offset=last_snapshot_offset, snapshot_state=state
        )

    def answered(self, response: ControllerHeartbeatResponse, now_ms: int) -> None:
        """The active controller's response came. Any error counts as silence."""
        self._in_flight_until_ms = None
        if response.error_code is ErrorCode.none:
            self._heard_ms = now_ms
            has_turn = response.start_snapshot and self._last_state is SnapshotState.DUE
            self._turn_of = self._asked if has_turn else None

    def failed(self, *, is_unsupported: bool) -> None:
        """No response will come; `is_unsupported`: the leader does not know the API."""
        self._in_flight_until_ms = None
        if is_unsupported:
            self._silent_leader = self._asked

    def may_begin(self, due_since_ms: int, now_ms: int) -> bool:
        """Whether a checkpoint that is due since then may be begun. A turn counts once."""
        has_turn = self._turn_of is not None and self._turn_of == self._leader()
        if has_turn or not self.is_coordinated:
            self._turn_of = None
            return True
        return now_ms - max(due_since_ms, self._heard_ms or 0) >= PATIENCE_MS

    def _leader(self) -> tuple[int, int] | None:
        leader_id = self._raft.leader_id
        return None if leader_id in (-1, self._node_id) else (leader_id, self._raft.epoch)
