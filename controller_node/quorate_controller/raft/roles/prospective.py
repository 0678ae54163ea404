"""Prospective: asks, without disturbing anybody, whether an election could be won (KIP-996).

It still knows the leader of the epoch, if there is one, and goes back to it when too many refuse.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from quorate_controller.raft import outgoing
from quorate_controller.raft.messages import Role
from quorate_controller.raft.model import ReplicaKey
from quorate_controller.raft.roles.base import RoleState, can_grant_without_leader
from quorate_controller.raft.voters import VoteTally

if TYPE_CHECKING:
    from quorate_controller.raft.quorum import Quorum


@dataclass(slots=True, kw_only=True)
class Prospective(RoleState):
    role: ClassVar[Role] = Role.PROSPECTIVE
    tally: VoteTally
    election_deadline_ms: int

    def can_grant_vote(self, candidate: ReplicaKey, *, is_up_to_date: bool, is_pre_vote: bool) -> bool:
        return can_grant_without_leader(self, candidate, is_up_to_date=is_up_to_date, is_pre_vote=is_pre_vote)

    def poll(self, quorum: "Quorum") -> int:
        if self.tally.is_won:
            quorum.become_candidate()
            return quorum.now_ms
        if self.tally.is_lost or quorum.now_ms >= self.election_deadline_ms:
            quorum.give_up_standing()
            return quorum.now_ms
        return min(outgoing.send_votes(quorum, self.tally, is_pre_vote=True), self.election_deadline_ms)
