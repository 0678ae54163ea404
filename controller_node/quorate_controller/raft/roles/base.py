"""What all roles have in common."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from quorate_controller.raft.messages import Role
from quorate_controller.raft.model import NO_NODE_ID, Endpoint, ReplicaKey
from quorate_controller.raft.startup import HardState

if TYPE_CHECKING:
    from quorate_controller.raft.quorum import Quorum


@dataclass(slots=True, kw_only=True)
class RoleState(ABC):
    """A role in an epoch. `leader_endpoints` are those we know, maybe none, when `leader_id` is known."""

    role: ClassVar[Role]
    epoch: int
    leader_id: int = NO_NODE_ID
    leader_endpoints: tuple[Endpoint, ...] = ()
    voted_key: ReplicaKey | None = None

    @property
    def hard_state(self) -> HardState:
        """What a restart must not forget of this role."""
        return HardState(leader_epoch=self.epoch, leader_id=self.leader_id, voted_key=self.voted_key)

    @property
    def has_leader(self) -> bool:
        return self.leader_id != NO_NODE_ID

    @abstractmethod
    def can_grant_vote(self, candidate: ReplicaKey, *, is_up_to_date: bool, is_pre_vote: bool) -> bool:
        """Whether `candidate`, which stands in our epoch, gets our vote.

        `is_up_to_date`: its log reaches at least as far as ours.
        """

    @abstractmethod
    def poll(self, quorum: "Quorum") -> int:
        """Do what is due now, and say when to look again (Unix milliseconds).

        May change the role; it then returns a time that has come, so that the new role is polled, too.
        """

    def close(self, quorum: "Quorum") -> None:  # noqa: B027 -- most roles owe nobody an answer
        """Answer what waits on this role; `quorum` has the next one already."""


def can_grant_without_leader(
    state: RoleState, candidate: ReplicaKey, *, is_up_to_date: bool, is_pre_vote: bool
) -> bool:
    """The rule of those who follow nobody: one vote per epoch, to a log that is not behind ours.

    A pre-vote binds nobody, so only the log counts (KIP-996).
    """
    if is_pre_vote:
        return is_up_to_date
    if state.voted_key is not None:
        voted = state.voted_key
        is_same = voted.node_id == candidate.node_id
        return is_same and voted.directory_id in (None, candidate.directory_id)
    return is_up_to_date and not state.has_leader
