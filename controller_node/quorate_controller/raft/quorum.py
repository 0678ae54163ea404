"""The replica as a whole: its role, log, voters and high watermark, and the ways from role to role.

Each `become_*` is one transition; `TRANSITIONS` says which are legal. The roles decide when to call them.
"""

from collections.abc import Iterable
from enum import Enum
from typing import TYPE_CHECKING, Final

from quorate_protocol.records.batch import scan_batches
from quorate_protocol.records.control import encode_control_batch

from quorate_controller.raft.effects import Effects
from quorate_controller.raft.held import HeldFetches
from quorate_controller.raft.history import VoterHistory
from quorate_controller.raft.log import LogMetadata
from quorate_controller.raft.messages import HIGH_WATERMARK_UNKNOWN, Role
from quorate_controller.raft.model import NO_NODE_ID, Endpoint, ReplicaKey, SnapshotId, Voter, find_endpoint
from quorate_controller.raft.peers import NEVER_MS, Peers
from quorate_controller.raft.progress import Progress
from quorate_controller.raft.records import kraft_version_record, leader_change, quorum_changes
from quorate_controller.raft.roles.candidate import Candidate
from quorate_controller.raft.roles.follower import Follower
from quorate_controller.raft.roles.leader import Leader, check_quorum_ms
from quorate_controller.raft.roles.prospective import Prospective
from quorate_controller.raft.roles.resigned import Resigned
from quorate_controller.raft.roles.unattached import Unattached
from quorate_controller.raft.startup import KRAFT_VERSION_DYNAMIC, HardState, LogState, RaftConfig
from quorate_controller.raft.voters import VoterSet, VoteTally

if TYPE_CHECKING:
    from random import Random

    from quorate_protocol.records.control import ControlRecord

    from quorate_controller.raft.roles.base import RoleState


class EpochStep(Enum):
    """What a transition does to the epoch."""

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
"""From role to role, with what that does to the epoch; the package docstring says when."""


class Quorum:
    """The state that handlers and roles share. They change it only through its methods."""

    def __init__(self, config: RaftConfig, hard_state: HardState, log: LogState, rng: "Random") -> None:
        self.config = config
        self.rng = rng
        self.log = LogMetadata(log)
        self.history = VoterHistory(config.static_voters, log)
        self.peers = Peers(
            request_timeout_ms=config.request_timeout_ms, retry_backoff_ms=config.retry_backoff_ms
        )
        self.effects = Effects()
        self.now_ms = 0
        self.high_watermark = HIGH_WATERMARK_UNKNOWN
        self.restoring: SnapshotId | None = None
        self.shutdown_deadline_ms: int | None = None
        self.elections_lost = 0
        self.next_discovery_ms = 0
        self._hard_state = hard_state
        self.state: RoleState = Unattached(epoch=hard_state.leader_epoch, election_deadline_ms=NEVER_MS)

    # ------------------------------------------------------------------------------------------ queries

    @property
    def key(self) -> ReplicaKey:
        return self.config.key

    @property
    def epoch(self) -> int:
        return self.state.epoch

    @property
    def voters(self) -> VoterSet:
        """The voter set in force."""
        return self.history.voters

    @property
    def is_voter(self) -> bool:
        return self.config.can_vote and self.voters.is_voter(self.key)

    @property
    def can_stand(self) -> bool:
        """Whether this replica may stand for election.

        Besides the voters that is a replica that has just been removed, until the removal is committed. It
        may be the only one with the record of it, and then nobody else could be elected (Ongaro's
        dissertation, 4.2.2). It does not count its own vote, and resigns once the removal is committed.
        """
        if self.is_voter:
            return True
        previous, offset = self.history.previous_voters, self.history.voters_offset
        if not self.config.can_vote or previous is None or offset is None or offset < self.high_watermark:
            return False
        return previous.is_voter(self.key)

    @property
    def is_only_voter(self) -> bool:
        return self.config.can_vote and self.voters.is_only_voter(self.key)

    @property
    def own_voter(self) -> Voter:
        """This replica as a VotersRecord should describe it."""
        return Voter(key=self.key, endpoints=self.config.endpoints, kraft_versions=self.config.kraft_versions)

    @property
    def is_shutting_down(self) -> bool:
        return self.shutdown_deadline_ms is not None

    @property
    def can_fetch(self) -> bool:
        """Whether everything we have is durable, and no snapshot is being put in place of it."""
        return self.restoring is None and self.log.persisted_offset == self.log.end_offset

    @property
    def can_reach_leader(self) -> bool:
        """Whether the leader of the epoch is known, with an endpoint unless it is us."""
        return self.state.has_leader and bool(self.state.leader_endpoints)

    def random_election_timeout_ms(self) -> int:
        """Kafka's election timeout: one to two times the configured one."""
        timeout_ms = self.config.election_timeout_ms
        return timeout_ms + self.rng.randrange(timeout_ms) if timeout_ms > 0 else 0

    def fast_backoff_ms(self) -> int:
        """A short random pause before standing, to keep voters from standing all at once.

        It grows with each election lost in a row, for networks slower than the first guess.
        """
        exponent = min(self.elections_lost, 10)
        backoff_ms = min(self.config.fast_backoff_ms_max << exponent, self.config.election_backoff_ms_max)
        self.elections_lost += 1
        return self.rng.randrange(backoff_ms + 1)

    # -------------------------------------------------------------------------------------- transitions

    def start(self) -> None:
        """Take the role that the disk remembers (Kafka's QuorumState.initialize)."""
        hard_state, epoch = self._hard_state, self._hard_state.leader_epoch
        leader_id, voted_key = hard_state.leader_id, hard_state.voted_key
        if epoch < self.log.last_epoch:
            self.effects.warn("quorum_state_behind_log", epoch=epoch, log_epoch=self.log.last_epoch)
            self._enter(Unattached(epoch=self.log.last_epoch, election_deadline_ms=self._start_deadline_ms()))
        elif leader_id == self.key.node_id:
            self._enter(self._resigned(epoch, ()))
        elif self.is_voter and voted_key is not None and self._is_own_vote(voted_key):
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
        """After a start nothing is known of a leader, and asking does no harm: do not wait a full timeout."""
        return self.now_ms + self.rng.randrange(self.config.fast_backoff_ms_max + 1)

    def _is_own_vote(self, voted_key: ReplicaKey) -> bool:
        is_own_id = voted_key.node_id == self.key.node_id
        return is_own_id and voted_key.directory_id in (None, self.key.directory_id)

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
        """It is time to stand for election: ask first."""
        assert self.can_stand, "observers do not stand for election"
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
        """The pre-vote was won, or a voter does not know pre-votes: stand in the next epoch."""
        assert self.can_stand, "observers do not stand for election"
        self._transition(self._candidate(self.epoch + 1))

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
        assert self.can_stand, "observers do not lead"
        voters = self.voters
        is_dynamic = self.history.kraft_version >= KRAFT_VERSION_DYNAMIC
        leader = Leader(
            epoch=self.epoch,
            leader_id=self.key.node_id,
            leader_endpoints=self.config.endpoints,
            epoch_start_offset=self.log.end_offset,
            progress=Progress(self.key, voters, observers_max=self.config.observers_max),
            held=HeldFetches(self.config.fetches_held_max),
            check_quorum_deadline_ms=self.now_ms + check_quorum_ms(self.config.fetch_timeout_ms),
            begin_epoch_due_ms=self.now_ms,
            volatile_voters=None if is_dynamic else voters.update_ignoring_directory(self.own_voter),
        )
        self._transition(leader)
        self.elections_lost = 0
        records: list[ControlRecord] = [
            leader_change(leader_id=self.key.node_id, voters=voters, granting=tuple(granting))
        ]
        if is_dynamic and (self.history.voters_offset == -1 or voters.needs_update(self.own_voter)):
            # The voters come from the bootstrap checkpoint, which is not replicated, or know us differently.
            updated = voters.update(self.own_voter)
            assert updated is not None
            records.append(kraft_version_record(self.history.kraft_version))
            records.append(updated.to_record())
        self.append_control(records)

    def become_resigned(self, successors: tuple[ReplicaKey, ...]) -> None:
        """Lead no more: too few voters fetch, we were removed, or we shut down."""
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
        """A leader of this or a higher epoch was found: become its follower if there is a way to reach it."""
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
        assert isinstance(prospective, Prospective)
        if self.can_reach_leader and prospective.leader_id != self.key.node_id:
            self._become_follower(prospective.epoch, prospective.leader_id, prospective.leader_endpoints)
        else:
            self.become_unattached(prospective.epoch, prospective.leader_id)

    def record_vote(self, candidate: ReplicaKey) -> None:
        """Give `candidate` our only vote of this epoch; durable before the answer leaves (Raft 5.2)."""
        state = self.state
        assert isinstance(state, Unattached | Prospective)
        assert state.voted_key is None
        assert candidate.node_id != self.key.node_id
        state.voted_key = candidate
        state.election_deadline_ms = self.now_ms + self.random_election_timeout_ms()
        self._save_hard_state()

    def _transition(self, after: "RoleState") -> None:
        before = self.state
        step = TRANSITIONS[before.role].get(after.role)
        assert step is not None, f"no way from {before.role} to {after.role}"
        assert step.allows(before.epoch, after.epoch), (
            f"{before.role}, {before.epoch} to {after.role}, {after.epoch}"
        )
        self._enter(after)
        before.close(self)

    def _enter(self, after: "RoleState") -> None:
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

    # ---------------------------------------------------------------------------------------------- log

    def append_control(self, records: "list[ControlRecord]") -> int:
        """Append one control batch as the leader. Returns the offset of its last record."""
        batch = encode_control_batch(records, self.log.end_offset, self.epoch, self.now_ms)
        self.append(batch)
        return self.log.end_offset - 1

    def append(self, batches: bytes) -> None:
        """Append whole batches to the log: a leader's own, or what a follower fetched and checked."""
        self.effects.append(batches)
        for header in scan_batches(batches):
            self.log.append(
                base_offset=header.base_offset,
                last_offset=header.last_offset,
                epoch=header.partition_leader_epoch,
            )
            if header.is_control:
                for offset, change in quorum_changes(batches, header):
                    if isinstance(change, VoterSet):
                        self._add_voters(offset, change)
                    else:
                        self.history.add_kraft_version(offset, change)
        if isinstance(self.state, Leader):
            self.state.answer_held(self)

    def _add_voters(self, offset: int, voters: VoterSet) -> None:
        before, before_offset = self.voters, self.history.voters_offset
        if before_offset is not None and before_offset >= 0 and not before.overlaps(voters):
            # Voters of configuration or bootstrap checkpoint may differ from node to node; the log's may not.
            self.effects.warn("voters_do_not_overlap", before=before.ids, after=voters.ids)
        self.history.add_voters(offset, voters)
        self._voters_changed()

    def truncate_to(self, end_offset: int) -> None:
        """Cut off what the leader does not have, and forget the voter sets in it."""
        assert end_offset >= self.high_watermark, "what is committed stays"
        voters = self.voters
        self.log.truncate_to(end_offset)
        self.history.truncate_to(end_offset)
        self.effects.truncate_to = end_offset
        if self.voters != voters:
            self._voters_changed()

    def begin_restore(self, snapshot_id: SnapshotId) -> None:
        """A snapshot has been downloaded: it takes the place of the log."""
        assert not isinstance(self.state, Leader), "a leader never loads a snapshot"
        self.log.reset_to(snapshot_id)
        self.restoring = snapshot_id
        self.effects.restore = snapshot_id

    def end_restore(
        self, snapshot_id: SnapshotId, kraft_version: int | None, voters: VoterSet | None
    ) -> None:
        """Storage has done so, and tells what the snapshot says of the quorum."""
        assert self.restoring == snapshot_id
        self.restoring = None
        self.history.reset(snapshot_id.offset - 1, kraft_version, voters)
        self._voters_changed()
        self.set_high_watermark(snapshot_id.offset)

    def set_high_watermark(self, offset: int) -> None:
        """Everything below `offset` is committed, for all that we know now."""
        if offset > self.high_watermark:
            self.high_watermark = offset
            self.effects.high_watermark = offset

    def _voters_changed(self) -> None:
        self.effects.voters = self.voters
        if isinstance(self.state, Leader):
            self.state.progress.set_voters(self.voters)
