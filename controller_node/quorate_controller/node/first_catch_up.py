"""Requests to a node that has just started wait until its image has what is committed.

The image of such a node is its latest checkpoint, and then that of a part of the log. An answer from it would show
the cluster as it was a while ago, also to a client that has seen later states at other nodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from quorate_controller.node.events import ControlRequest
    from quorate_controller.node.metadata import MetadataState
    from quorate_controller.raft.node import RaftNode

NO_LEADER_WAIT_MS: Final = 5_000
"""How long requests wait after the start while no leader answers. Then they are served from the image as it is: the
tools that find out why a quorum has no leader need to know which nodes are registered."""


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
        """Keeps a request if it has to wait. Returns whether it has."""
        is_waiting = self._is_waiting(now_ms)
        if is_waiting:
            self._held.append(event)
        return is_waiting

    @property
    def deadline_ms(self) -> int | None:
        """When the waiting requests are answered in any case; None if no request waits."""
        if not self._held:
            return None
        overdue_ms = min(event.deadline_ms for event in self._held) + 1
        return overdue_ms if self._raft.is_led else min(overdue_ms, self._wait_ends_ms)

    def take_due(self, now_ms: int) -> Sequence[ControlRequest]:
        """Removes and returns the requests that need not wait any more, or whose time is over."""
        if not self._held:
            return ()
        is_waiting = self._is_waiting(now_ms)
        due = [event for event in self._held if not is_waiting or event.deadline_ms < now_ms]
        self._held = [event for event in self._held if is_waiting and event.deadline_ms >= now_ms]
        return due
