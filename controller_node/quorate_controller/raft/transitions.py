"""The transitions of a replica between roles. Each `become_*` is one transition; the roles decide when.

`TRANSITIONS` lists the legal ones; each transition checks it.
"""

from collections.abc import Iterable
from enum import Enum
from typing import TYPE_CHECKING, Final

from quorate_controller.raft.events import Role
from quorate_controller.raft.model import (
    EPOCH_MAX,
    NO_NODE_ID,
    Endpoint,
    RaftSafetyError,
    ReplicaKey,
    find_endpoint,
)
from quorate_controller.raft.peers import NEVER_MS
from quorate_controller.raft.progress import Progress
from quorate_controller.raft.records import kraft_version_record, leader_change
from quorate_controller.raft.replica import Replica, RoleState, Transition
from quorate_controller.raft.roles.candidate import Candidate, Prospective, Unattached
from quorate_controller.raft.roles.follower import Follower
from quorate_controller.raft.roles.leader import HeldFetches, Leader, Resigned, check_quorum_ms
from quorate_controller.raft.startup import KRAFT_VERSION_DYNAMIC, HardState, LogState, RaftConfig
from quorate_controller.raft.voters import VoteTally

if TYPE_CHECKING:
    from random import Random

    from quorate_protocol.records.control import ControlRecord


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


class ElectingReplica(Replica):
    """A replica with the transitions between its roles."""

    def __init__(self, config: RaftConfig, hard_state: HardState, log: LogState, rng: "Random") -> None:
        state = Unattached(epoch=hard_state.leader_epoch, election_deadline_ms=NEVER_MS)
        super().__init__(config, log, state, rng)
        self._hard_state = hard_state

    def poll(self) -> int:
        """Poll the role. Returns when the next call is due (Unix milliseconds): at once after a transition."""
        state = self.state
        due = state.poll(self)
        match due:
            case int():
                return due
            case Transition.STAND:
                self.become_prospective()
            case Transition.BECOME_CANDIDATE:
                self.become_candidate()
            case Transition.GIVE_UP_STANDING:
                self.give_up_standing()
            case Transition.LEAD if isinstance(state, Candidate):
                self.become_leader(state.tally.granting)
            case Transition.RESIGN if isinstance(state, Leader):
                self.become_resigned(state.progress.successors())
            case Transition.LEAVE_EPOCH:
                self.become_unattached(self.epoch + 1)
            case _:
                raise RaftSafetyError(f"{due} is requested in the role {state.role}")
        return self.now_ms

    def start(self) -> None:
        """Enter the role that follows from the state on disk (Kafka's QuorumState.initialize)."""
        hard_state, epoch = self._hard_state, self._hard_state.leader_epoch
        leader_id, voted_key = hard_state.leader_id, hard_state.voted_key
        if epoch < self.log.last_epoch:
            self.effects.warn("quorum_state_behind_log", epoch=epoch, log_epoch=self.log.last_epoch)
            self._enter(Unattached(epoch=self.log.last_epoch, election_deadline_ms=self._start_deadline_ms()))
        elif leader_id == self.key.node_id:
            self._enter(self._resigned(epoch, ()))
        elif self.is_voter and voted_key is not None and voted_key.matches(self.key):
            self._enter(self._candidate(epoch))
        elif leader_id != NO_NODE_ID and self._has_endpoint(self.voters.endpoints(leader_id)):
            self._enter(self._follower(epoch, leader_id, self.voters.endpoints(leader_id), voted_key))
        else:
            self._enter(
                Unattached(
                    epoch=epoch,
                    leader_id=leader_id,
                    voted_key=voted_key,
                    election_deadline_ms=self._start_deadline_ms(),
                )
            )
        if self.is_only_voter and not isinstance(self.state, Candidate):
            self.become_prospective()

    def _start_deadline_ms(self) -> int:
        """After a start no leader is known, and a pre-vote does no harm: do not wait for a full timeout."""
        return self.now_ms + self.rng.randrange(self.config.fast_backoff_ms_max + 1)

    def become_unattached(self, epoch: int, leader_id: int = NO_NODE_ID) -> None:
        """A higher epoch was seen without a leader to follow, or a pre-vote was lost without one."""
        before = self.state
        voted_key = before.voted_key if epoch == before.epoch else None
        election_deadline_ms = self.now_ms + self.random_election_timeout_ms()
        match before:
            case Unattached() | Candidate() | Resigned():
                election_deadline_ms = before.election_deadline_ms
            case Prospective() if not before.tally.is_lost:
                election_deadline_ms = before.election_deadline_ms
        self._transition(
            Unattached(
                epoch=epoch,
                leader_id=leader_id,
                voted_key=voted_key,
                election_deadline_ms=election_deadline_ms,
            )
        )

    def become_prospective(self) -> None:
        """Start an election by asking for pre-votes."""
        self._check_can_stand()
        before = self.state
        self._transition(
            Prospective(
                epoch=before.epoch,
                leader_id=before.leader_id,
                leader_endpoints=before.leader_endpoints,
                voted_key=before.voted_key,
                tally=self._tally(),
                election_deadline_ms=self.now_ms + self.random_election_timeout_ms(),
            )
        )

    def become_candidate(self) -> None:
        """The pre-vote was won, or a voter does not support pre-votes: stand in the next epoch."""
        self._check_can_stand()
        if self.epoch >= EPOCH_MAX:
            self.effects.warn("epochs_used_up", epoch=self.epoch)
            self.become_unattached(self.epoch)
            return
        self._transition(self._candidate(self.epoch + 1))

    def _check_can_stand(self) -> None:
        if not self.can_stand:
            raise RaftSafetyError(f"{self.key} is no voter and does not stand: {self.voters.ids}")

    def _candidate(self, epoch: int) -> Candidate:
        return Candidate(
            epoch=epoch,
            voted_key=self.key,
            tally=self._tally(),
            election_deadline_ms=self.now_ms + self.random_election_timeout_ms(),
        )

    def _tally(self) -> VoteTally:
        tally = VoteTally(self.voters.ids)
        if self.is_voter:
            tally.record(self.key.node_id, is_granted=True)
        return tally

    def become_leader(self, granting: Iterable[int]) -> None:
        """The election was won: open the epoch with the control records that Kafka opens it with."""
        self._check_can_stand()
        voters = self.voters
        is_dynamic = self.history.kraft_version >= KRAFT_VERSION_DYNAMIC
        leader = Leader(
            epoch=self.epoch,
            leader_id=self.key.node_id,
            leader_endpoints=self.config.endpoints,
            epoch_start_offset=self.log.end_offset,
            progress=Progress(self.key, voters, observers_max=self.config.observers_max),
            held_of_voters=HeldFetches(self.config.fetches_held_max),
            held_of_observers=HeldFetches(self.config.fetches_held_max),
            check_quorum_deadline_ms=self.now_ms + check_quorum_ms(self.config.fetch_timeout_ms),
            begin_epoch_due_ms=self.now_ms,
            volatile_voters=None if is_dynamic else voters.update_ignoring_directory(self.own_voter),
        )
        self._transition(leader)
        self.elections_lost = 0
        self.lookup.leader_found()
        records: list[ControlRecord] = [
            leader_change(leader_id=self.key.node_id, voters=voters, granting=tuple(granting))
        ]
        updated = voters.update(self.own_voter)
        if is_dynamic and updated is not None and (self.history.voters_offset == -1 or updated != voters):
            # The voters are those of the bootstrap checkpoint, which is not replicated, or our entry is outdated.
            records.append(kraft_version_record(self.history.kraft_version))
            records.append(updated.to_record())
        self.append_control(records)

    def become_resigned(self, successors: tuple[ReplicaKey, ...]) -> None:
        """Stop leading: too few voters fetch, this replica was removed, or it shuts down."""
        self._transition(self._resigned(self.epoch, successors))

    def _resigned(self, epoch: int, successors: tuple[ReplicaKey, ...]) -> Resigned:
        others = frozenset(self.voters.ids) - {self.key.node_id}
        return Resigned(
            epoch=epoch,
            leader_id=self.key.node_id,
            leader_endpoints=self.config.endpoints,
            successors=successors,
            others=others,
            unacknowledged=set(others),
            election_deadline_ms=self.now_ms + self.random_election_timeout_ms(),
        )

    def follow(self, epoch: int, leader_id: int, endpoints: tuple[Endpoint, ...]) -> None:
        """A leader of this or a higher epoch was found: become its follower if an endpoint of it is known."""
        if leader_id != self.key.node_id and self._has_endpoint(endpoints):
            self._become_follower(epoch, leader_id, endpoints)
            return
        self.effects.warn("leader_unreachable", epoch=epoch, leader_id=leader_id)
        if epoch > self.epoch:
            self.become_unattached(epoch, leader_id)

    def _become_follower(self, epoch: int, leader_id: int, endpoints: tuple[Endpoint, ...]) -> None:
        voted_key = self.state.voted_key if epoch == self.epoch else None
        self._transition(self._follower(epoch, leader_id, endpoints, voted_key))

    def _follower(
        self, epoch: int, leader_id: int, endpoints: tuple[Endpoint, ...], voted_key: ReplicaKey | None
    ) -> Follower:
        deadline_ms = self.now_ms + self.config.fetch_timeout_ms
        return Follower(
            epoch=epoch,
            leader_id=leader_id,
            leader_endpoints=endpoints,
            voted_key=voted_key,
            fetch_deadline_ms=deadline_ms,
            voter_update_due_ms=deadline_ms,
        )

    def give_up_standing(self) -> None:
        """A pre-vote was lost: back to the leader of the epoch, or wait without one."""
        prospective = self.state
        if not isinstance(prospective, Prospective):
            raise RaftSafetyError(f"a pre-vote is lost in the role {prospective.role}")
        self.lookup.no_response(prospective.tally.unrecorded)
        if self.can_reach_leader and prospective.leader_id != self.key.node_id:
            self._become_follower(prospective.epoch, prospective.leader_id, prospective.leader_endpoints)
        else:
            self.become_unattached(prospective.epoch, prospective.leader_id)

    def record_vote(self, candidate: ReplicaKey) -> None:
        """Give `candidate` our only vote of this epoch; durable before the response leaves (Raft 5.2)."""
        state = self.state
        if not isinstance(state, Unattached | Prospective) or candidate.node_id == self.key.node_id:
            raise RaftSafetyError(f"{self.key} votes for {candidate} in the role {state.role}")
        if state.voted_key is not None:
            raise RaftSafetyError(
                f"votes for {state.voted_key} and then for {candidate} in epoch {state.epoch}"
            )
        state.voted_key = candidate
        state.election_deadline_ms = self.now_ms + self.random_election_timeout_ms()
        self._save_hard_state()

    def _transition(self, after: RoleState) -> None:
        before = self.state
        step = TRANSITIONS[before.role].get(after.role)
        if step is None:
            raise RaftSafetyError(f"no way from {before.role} to {after.role}")
        if not step.allows(before.epoch, after.epoch):
            raise RaftSafetyError(f"{before.role} of epoch {before.epoch} to {after.role} of {after.epoch}")
        self._enter(after)
        before.close(self)

    def _enter(self, after: RoleState) -> None:
        self.state = after
        self.peers.forget_all()
        self.next_discovery_ms = self.now_ms
        self._save_hard_state()

    def _save_hard_state(self) -> None:
        if self.state.hard_state != self._hard_state:
            self._hard_state = self.state.hard_state
            self.effects.hard_state = self._hard_state

    def _has_endpoint(self, endpoints: tuple[Endpoint, ...]) -> bool:
        return find_endpoint(endpoints, self.config.listener) is not None
