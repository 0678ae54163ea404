"""Unattached: knows the epoch, follows nobody. A voter waits for its time to stand; all look for a leader."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from quorate_controller.raft import outgoing
from quorate_controller.raft.messages import Role
from quorate_controller.raft.model import ReplicaKey
from quorate_controller.raft.roles.base import RoleState, can_grant_without_leader

if TYPE_CHECKING:
    from quorate_controller.raft.quorum import Quorum


@dataclass(slots=True, kw_only=True)
class Unattached(RoleState):
    role: ClassVar[Role] = Role.UNATTACHED
    election_deadline_ms: int

    def can_grant_vote(self, candidate: ReplicaKey, *, is_up_to_date: bool, is_pre_vote: bool) -> bool:
        return can_grant_without_leader(self, candidate, is_up_to_date=is_up_to_date, is_pre_vote=is_pre_vote)

    def poll(self, quorum: "Quorum") -> int:
        if not quorum.can_stand:
            return outgoing.discover(quorum)
        if quorum.now_ms >= self.election_deadline_ms:
            quorum.become_prospective()
            return quorum.now_ms
        return min(outgoing.discover(quorum), self.election_deadline_ms)
