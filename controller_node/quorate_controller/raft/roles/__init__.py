"""The roles: the state of a replica in each role, the votes that it grants, and what is due when time passes.

`TRANSITIONS` lists the legal transitions, and the docstring of `quorate_controller.raft` when each happens.
"""

from abc import ABC, abstractmethod
from enum import Enum
from typing import TYPE_CHECKING, ClassVar, Final

from quorate_protocol.plain_data import dataclass

from quorate_controller.raft.messages import Role
from quorate_controller.raft.model import NO_NODE_ID, Endpoint, ReplicaKey
from quorate_controller.raft.startup import HardState
from quorate_controller.raft.voters import VoterSet

if TYPE_CHECKING:
    from quorate_controller.raft.replica import Replica


@dataclass(slots=True, kw_only=True)
class RoleState(ABC):
    """A role in an epoch. `leader_endpoints` may be empty although `leader_id` is known."""

    role: ClassVar[Role]
    epoch: int
    leader_id: int = NO_NODE_ID
    leader_endpoints: tuple[Endpoint, ...] = ()
    voted_key: ReplicaKey | None = None

    @property
    def hard_state(self) -> HardState:
        """The part of this role that must survive a restart."""
        return HardState(leader_epoch=self.epoch, leader_id=self.leader_id, voted_key=self.voted_key)

    @property
    def has_leader(self) -> bool:
        return self.leader_id != NO_NODE_ID

    @abstractmethod
    def can_grant_vote(self, candidate: ReplicaKey, *, is_up_to_date: bool, is_pre_vote: bool) -> bool:
        """Whether `candidate`, which stands in our epoch, gets our vote.

        `is_up_to_date`: its log reaches at least as far as ours.
        """

    def can_grant_without_leader(
        self, candidate: ReplicaKey, *, is_up_to_date: bool, is_pre_vote: bool
    ) -> bool:
        """The rule of the roles without a leader: one vote per epoch, to a log that is not behind ours.

        A pre-vote does not bind the voter, so only the log counts (KIP-996).
        """
        if is_pre_vote:
            return is_up_to_date
        if self.voted_key is not None:
            return self.voted_key.matches(candidate)
        return is_up_to_date and not self.has_leader

    @abstractmethod
    def poll(self, replica: "Replica") -> int:
        """Do what is due now. Returns when the next call is due (Unix milliseconds).

        May change the role; it then returns a time that has come, so that the new role is polled, too.
        """

    def close(self, replica: "Replica") -> None:  # noqa: B027 -- only a leader holds requests
        """Respond to the requests that this role holds. `replica` has the next role already."""

    def log_appended(self, replica: "Replica") -> None:  # noqa: B027 -- only a leader serves the log
        """Records were appended to the log."""

    def voters_changed(self, voters: VoterSet) -> None:  # noqa: B027 -- only a leader counts voters
        """Another voter set is in force."""


class EpochStep(Enum):
    """The effect of a transition on the epoch."""

    SAME = "same"
    NEXT = "next"
    HIGHER = "higher"
    SAME_OR_HIGHER = "same or higher"

    def allows(self, before: int, after: int) -> bool:
        """Whether the epoch may go from `before` to `after`."""
        match self:
            case EpochStep.SAME:
                return after == before
            case EpochStep.NEXT:
                return after == before + 1
            case EpochStep.HIGHER:
                return after > before
            case EpochStep.SAME_OR_HIGHER:
                return after >= before


TRANSITIONS: Final = {
    Role.UNATTACHED: {
        Role.UNATTACHED: EpochStep.HIGHER,
        Role.PROSPECTIVE: EpochStep.SAME,
        Role.FOLLOWER: EpochStep.SAME_OR_HIGHER,
    },
    Role.PROSPECTIVE: {
        Role.UNATTACHED: EpochStep.SAME_OR_HIGHER,
        Role.CANDIDATE: EpochStep.NEXT,
        Role.FOLLOWER: EpochStep.SAME_OR_HIGHER,
    },
    Role.CANDIDATE: {
        Role.UNATTACHED: EpochStep.HIGHER,
        Role.PROSPECTIVE: EpochStep.SAME,
        Role.LEADER: EpochStep.SAME,
        Role.FOLLOWER: EpochStep.SAME_OR_HIGHER,
    },
    Role.LEADER: {
        Role.UNATTACHED: EpochStep.HIGHER,
        Role.RESIGNED: EpochStep.SAME,
        Role.FOLLOWER: EpochStep.HIGHER,
    },
    Role.FOLLOWER: {
        Role.UNATTACHED: EpochStep.HIGHER,
        Role.PROSPECTIVE: EpochStep.SAME,
        Role.FOLLOWER: EpochStep.HIGHER,
    },
    Role.RESIGNED: {
        Role.UNATTACHED: EpochStep.HIGHER,
        Role.PROSPECTIVE: EpochStep.SAME,
        Role.FOLLOWER: EpochStep.HIGHER,
    },
}
"""The legal transitions and their effect on the epoch; the docstring of `raft` says when each happens."""
