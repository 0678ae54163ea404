"""Unattached: knows the epoch, follows nobody. A voter waits for its time to stand; all look for a leader."""

from dataclasses import dataclass
from typing import ClassVar

from quorate_controller.raft import outgoing
from quorate_controller.raft.messages import Role
from quorate_controller.raft.model import ReplicaKey
from quorate_controller.raft.replica import Replica, RoleState


@dataclass(slots=True, kw_only=True)
class Unattached(RoleState):
    role: ClassVar[Role] = Role.UNATTACHED
    election_deadline_ms: int

    def can_grant_vote(self, candidate: ReplicaKey, *, is_up_to_date: bool, is_pre_vote: bool) -> bool:
        return self.can_grant_without_leader(candidate, is_up_to_date=is_up_to_date, is_pre_vote=is_pre_vote)

    def poll(self, replica: Replica) -> int:
        if not replica.can_stand:
            return outgoing.discover(replica)
        if replica.now_ms >= self.election_deadline_ms:
            replica.become_prospective()
            return replica.now_ms
        return min(outgoing.discover(replica), self.election_deadline_ms)
