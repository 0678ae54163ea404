"""Resigned: led the epoch and leads no more; sends EndQuorumEpoch with the preferred successors."""

from dataclasses import dataclass, field
from typing import ClassVar

from quorate_controller.raft import outgoing
from quorate_controller.raft.messages import Role
from quorate_controller.raft.model import ReplicaKey
from quorate_controller.raft.replica import Replica, RoleState


@dataclass(slots=True, kw_only=True)
class Resigned(RoleState):
    """`others` are the other voters; `unacknowledged` have not answered EndQuorumEpoch, and the connection
    to `unreachable` failed.
    """

    role: ClassVar[Role] = Role.RESIGNED
    election_deadline_ms: int
    successors: tuple[ReplicaKey, ...]
    others: frozenset[int]
    unacknowledged: set[int]
    unreachable: set[int] = field(default_factory=set)

    def can_grant_vote(self, candidate: ReplicaKey, *, is_up_to_date: bool, is_pre_vote: bool) -> bool:  # noqa: ARG002
        return is_pre_vote and is_up_to_date

    @property
    def has_nobody_to_hand_over_to(self) -> bool:
        """Whether no other voter can be reached."""
        return self.others <= self.unreachable

    def acknowledge(self, voter_id: int) -> None:
        """A voter answered EndQuorumEpoch."""
        self.unacknowledged.discard(voter_id)
        self.unreachable.discard(voter_id)

    def poll(self, replica: Replica) -> int:
        if replica.is_shutting_down:
            return outgoing.send_end_epoch(replica, self.unacknowledged, self.successors)
        if replica.now_ms >= self.election_deadline_ms:
            # The epoch has to increase: within this one, we would still be reported as the leader.
            replica.become_unattached(self.epoch + 1)
            return replica.now_ms
        return min(
            outgoing.send_end_epoch(replica, self.unacknowledged, self.successors), self.election_deadline_ms
        )
