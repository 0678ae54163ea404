"""The roles of an election: Unattached, Prospective, Candidate (KIP-595, KIP-996)."""

from dataclasses import field
from typing import ClassVar

from quorate_protocol.plain_data import dataclass

from quorate_controller.raft import peer_requests
from quorate_controller.raft.events import Role
from quorate_controller.raft.model import ReplicaKey
from quorate_controller.raft.replica import Replica, RoleState, Transition
from quorate_controller.raft.voters import VoteTally


@dataclass(slots=True, kw_only=True)
class Unattached(RoleState):
    """Knows the epoch and no leader to follow. A voter waits for its election timeout; all look for a leader."""

    role: ClassVar[Role] = Role.UNATTACHED
    election_deadline_ms: int

    def can_grant_vote(self, candidate: ReplicaKey, *, is_up_to_date: bool, is_pre_vote: bool) -> bool:
        return self.can_grant_without_leader(candidate, is_up_to_date=is_up_to_date, is_pre_vote=is_pre_vote)

    def poll(self, replica: Replica) -> int | Transition:
        if not replica.can_stand:
            return peer_requests.discover(replica)
        if replica.now_ms >= self.election_deadline_ms:
            return Transition.STAND
        return min(peer_requests.discover(replica), self.election_deadline_ms)


@dataclass(slots=True, kw_only=True)
class Prospective(RoleState):
    """Asks for pre-votes, which do not disturb a leader, before it stands (KIP-996).

    It keeps the leader of the epoch, if there is one, and follows it again when too many voters refuse.
    """

    role: ClassVar[Role] = Role.PROSPECTIVE
    tally: VoteTally
    election_deadline_ms: int

    def can_grant_vote(self, candidate: ReplicaKey, *, is_up_to_date: bool, is_pre_vote: bool) -> bool:
        return self.can_grant_without_leader(candidate, is_up_to_date=is_up_to_date, is_pre_vote=is_pre_vote)

    def poll(self, replica: Replica) -> int | Transition:
        if self.tally.is_won:
            return Transition.BECOME_CANDIDATE
        if self.tally.is_lost or replica.now_ms >= self.election_deadline_ms:
            return Transition.GIVE_UP_STANDING
        wake_ms = peer_requests.send_votes(replica, self.tally, is_pre_vote=True)
        if self.tally.is_lost_without(replica.lookup.silent):
            wake_ms = peer_requests.look_up_voters(replica, self.tally)
        return min(wake_ms, self.election_deadline_ms)


@dataclass(slots=True, kw_only=True)
class Candidate(RoleState):
    """Has voted for itself in a new epoch and requests the votes of the others.

    `unreachable` are the voters whose connection failed: without them, a split vote shows at once.
    """

    role: ClassVar[Role] = Role.CANDIDATE
    tally: VoteTally
    election_deadline_ms: int
    unreachable: set[int] = field(default_factory=set)
    is_giving_up: bool = False

    def can_grant_vote(self, candidate: ReplicaKey, *, is_up_to_date: bool, is_pre_vote: bool) -> bool:
        is_own = self.voted_key is not None and candidate.node_id == self.voted_key.node_id
        return is_pre_vote and is_up_to_date and not is_own

    def poll(self, replica: Replica) -> int | Transition:
        if self.tally.is_won:
            return Transition.LEAD
        if not self.is_giving_up and self.tally.is_lost_without(self.unreachable):
            self.is_giving_up = True
            deadline_ms = replica.now_ms + replica.fast_backoff_ms()
            self.election_deadline_ms = min(self.election_deadline_ms, deadline_ms)
        if replica.now_ms >= self.election_deadline_ms:
            return Transition.STAND
        return min(
            peer_requests.send_votes(replica, self.tally, is_pre_vote=False), self.election_deadline_ms
        )
