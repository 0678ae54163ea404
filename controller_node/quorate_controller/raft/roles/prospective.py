"""Prospective: asks for pre-votes, which do not disturb a leader, before it stands (KIP-996).

It still knows the leader of the epoch, if there is one, and goes back to it when too many refuse.
"""

from dataclasses import dataclass
from typing import ClassVar

from quorate_controller.raft import outgoing
from quorate_controller.raft.messages import Role
from quorate_controller.raft.model import ReplicaKey
from quorate_controller.raft.replica import Replica, RoleState
from quorate_controller.raft.voters import VoteTally


@dataclass(slots=True, kw_only=True)
class Prospective(RoleState):
    role: ClassVar[Role] = Role.PROSPECTIVE
    tally: VoteTally
    election_deadline_ms: int

    def can_grant_vote(self, candidate: ReplicaKey, *, is_up_to_date: bool, is_pre_vote: bool) -> bool:
        return self.can_grant_without_leader(candidate, is_up_to_date=is_up_to_date, is_pre_vote=is_pre_vote)

    def poll(self, replica: Replica) -> int:
        if self.tally.is_won:
            replica.become_candidate()
            return replica.now_ms
        if self.tally.is_lost or replica.now_ms >= self.election_deadline_ms:
            replica.give_up_standing()
            return replica.now_ms
        return min(outgoing.send_votes(replica, self.tally, is_pre_vote=True), self.election_deadline_ms)
