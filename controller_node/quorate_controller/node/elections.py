"""How often this node stood for election, and how many leaders it has seen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from quorate_controller.raft.messages import Role

if TYPE_CHECKING:
    from quorate_controller.raft.messages import RoleChange

_STANDING: Final = frozenset({Role.PROSPECTIVE, Role.CANDIDATE})


class ElectionCounts:
    """Counts since the start of the process, for metrics."""

    def __init__(self) -> None:
        self.elections = 0
        """Elections that this node started, pre-votes included."""
        self.leaders = 0
        """Leaders of the quorum, this node included; one that leads again counts again."""
        self._last_role = Role.UNATTACHED
        self._last_leader = (0, -1)

    def role_changed(self, change: RoleChange) -> None:
        """Notes a role of this node. One election goes through several of them."""
        if change.role in {*_STANDING, Role.LEADER} and self._last_role not in _STANDING:
            self.elections += 1
        self._last_role = change.role
        if change.leader_id >= 0 and (change.epoch, change.leader_id) != self._last_leader:
            self._last_leader = (change.epoch, change.leader_id)
            self.leaders += 1
