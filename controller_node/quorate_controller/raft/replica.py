"""One replica of the metadata log: its log, its voters, and the transitions between its roles."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from quorate_protocol.records.batch import scan_batches
from quorate_protocol.records.control import encode_control_batch

from quorate_controller.raft.effects import Effects
from quorate_controller.raft.log import LogMetadata, VoterHistory
from quorate_controller.raft.lookup import VoterLookup
from quorate_controller.raft.messages import HIGH_WATERMARK_UNKNOWN, LeaderEndpoint, Role
from quorate_controller.raft.model import (
    EPOCH_MAX,
    NO_NODE_ID,
    Endpoint,
    RaftSafetyError,
    ReplicaKey,
    SnapshotId,
    Voter,
    find_endpoint,
)
from quorate_controller.raft.peers import BACKOFF_MS_MAX, NEVER_MS, Peers
from quorate_controller.raft.progress import Progress
from quorate_controller.raft.records import kraft_version_record, leader_change, quorum_changes
from quorate_controller.raft.roles import TRANSITIONS, RoleState
from quorate_controller.raft.roles.election import Candidate, Prospective, Unattached
from quorate_controller.raft.roles.follower import Follower
from quorate_controller.raft.roles.leader import HeldFetches, Leader, Resigned, check_quorum_ms
from quorate_controller.raft.startup import KRAFT_VERSION_DYNAMIC, HardState, LogState, RaftConfig
from quorate_controller.raft.voters import VoterSet, VoteTally

if TYPE_CHECKING:
    from random import Random

    from quorate_protocol.records.control import ControlRecord

_DOWNLOAD_PAUSE_MS = 1_000
_DOWNLOAD_PAUSE_MS_MAX = 60_000


class Replica:
    """The state that handlers and roles share. They change it only through its methods.

    Each `become_*` is one transition, which checks that it is legal; the roles decide when.
    """

    def __init__(self, config: RaftConfig, hard_state: HardState, log: LogState, rng: "Random") -> None:
        self.config = config
        self.rng = rng
        self.log = LogMetadata(log)
        self.history = VoterHistory(config.static_voters, log)
        self.peers = Peers(
            request_timeout_ms=config.request_timeout_ms,
            retry_backoff_ms=config.retry_backoff_ms,
            # A follower that backs off from its leader must not run into the fetch timeout.
            backoff_ms_max=min(BACKOFF_MS_MAX, config.fetch_timeout_ms // 2),
            rng=rng,
        )
        self.lookup = VoterLookup(config.listener)
        self.effects = Effects()
        self.now_ms = 0
        self.high_watermark = HIGH_WATERMARK_UNKNOWN
        self.has_caught_up = False
        self.restoring: SnapshotId | None = None
        self.shutdown_deadline_ms: int | None = None
        self.elections_lost = 0
        self.next_discovery_ms = 0
        self.downloads_refused = 0
        self.next_download_ms = 0
        self.state: RoleState = Unattached(epoch=hard_state.leader_epoch, election_deadline_ms=NEVER_MS)
        self._hard_state = hard_state

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

        These are the voters and, until the removal is committed, a replica that has just been removed. It may be the
        only replica with the record of the removal, and then no other could be elected (Ongaro's dissertation,
        4.2.2). It does not count its own vote, and resigns once the removal is committed. A voter set in a checkpoint
        is committed, or is the first one: that of the bootstrap checkpoint.
        """
        if self.is_voter:
            return True
        previous, offset = self.history.previous_voters, self.history.voters_offset
        snapshot_offset = -1 if self.log.snapshot_id is None else self.log.snapshot_id.offset
        is_committed = offset is None or offset < max(self.high_watermark, snapshot_offset)
        return (
            self.config.can_vote and not is_committed and previous is not None and previous.is_voter(self.key)
        )

    @property
    def is_only_voter(self) -> bool:
        return self.config.can_vote and self.voters.is_only_voter(self.key)

    def voter_endpoints(self, node_id: int) -> tuple[Endpoint, ...]:
        """The endpoints of a voter, in the voter set or as a lookup found them; empty for other nodes."""
        voter = self.voters.get(node_id)
        return () if voter is None else self.lookup.endpoints(voter)

    @property
    def own_voter(self) -> Voter:
        """This replica as a VotersRecord should describe it."""
        return Voter(key=self.key, endpoints=self.config.endpoints, kraft_versions=self.config.kraft_versions)

    @property
    def is_shutting_down(self) -> bool:
        return self.shutdown_deadline_ms is not None

    @property
    def can_fetch(self) -> bool:
        """Whether the whole log is durable, and no snapshot is replacing it."""
        return self.restoring is None and self.log.persisted_offset == self.log.end_offset

    @property
    def can_reach_leader(self) -> bool:
        """Whether the leader of the epoch is known, with an endpoint."""
        return self.state.has_leader and bool(self.state.leader_endpoints)

    def leader_endpoint(self, listener: str) -> LeaderEndpoint | None:
        """The leader's endpoint on that listener, when both are known."""
        endpoint = find_endpoint(self.state.leader_endpoints, listener)
        if endpoint is None or not self.state.has_leader:
            return None
        return LeaderEndpoint(node_id=self.state.leader_id, host=endpoint.host, port=endpoint.port)

    def random_election_timeout_ms(self) -> int:
        """Kafka's election timeout: one to two times the configured one, at least 1 ms.

        After 0 ms a role would end in the step in which it began, and so would the next one.
        """
        timeout_ms = max(1, self.config.election_timeout_ms)
        return timeout_ms + self.rng.randrange(timeout_ms)

    def fast_backoff_ms(self) -> int:
        """A short random pause before an election, so that voters do not stand all at once.

        It grows with each election lost in a row, for networks slower than the first guess.
        """
        exponent = min(self.elections_lost, 10)
        backoff_ms = min(self.config.fast_backoff_ms_max << exponent, self.config.election_backoff_ms_max)
        self.elections_lost += 1
        return self.rng.randrange(backoff_ms + 1)

    # -------------------------------------------------------------------------------------- transitions

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

    # ---------------------------------------------------------------------------------------------- log

    def append_control(self, records: "list[ControlRecord]") -> int:
        """Append one control batch as the leader. Returns the offset of its last record."""
        unix_ms = self.config.unix_ms_of(self.now_ms)
        batch = encode_control_batch(records, self.log.end_offset, self.epoch, unix_ms)
        self.append(batch)
        return self.log.end_offset - 1

    def append(self, batches: bytes) -> None:
        """Append whole batches to the log: a leader's own, or the checked batches that a follower fetched."""
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
        self.state.log_appended(self)

    def _add_voters(self, offset: int, voters: VoterSet) -> None:
        before, before_offset = self.voters, self.history.voters_offset
        if before_offset is not None and before_offset >= 0 and not before.overlaps(voters):
            # Voters of configuration or bootstrap checkpoint may differ from node to node; the log's may not.
            self.effects.warn("voters_do_not_overlap", before=before.ids, after=voters.ids)
        self.history.add_voters(offset, voters)
        self._voters_changed()

    def truncate_to(self, end_offset: int) -> None:
        """Remove the records that the leader does not have, and the voter sets in them."""
        if end_offset < self.high_watermark:
            raise RaftSafetyError(
                f"truncation to {end_offset} would remove committed records up to {self.high_watermark}"
            )
        voters = self.voters
        self.log.truncate_to(end_offset)
        self.history.truncate_to(end_offset)
        self.effects.truncate_to = end_offset
        if self.voters != voters:
            self._voters_changed()

    def begin_restore(self, snapshot_id: SnapshotId) -> None:
        """A snapshot has been downloaded: it replaces the log if it is complete and undamaged."""
        if self.state.role is Role.LEADER:
            raise RaftSafetyError(f"the leader of epoch {self.epoch} would load the snapshot {snapshot_id}")
        self.restoring = snapshot_id
        self.effects.restore = snapshot_id

    def end_restore(
        self, snapshot_id: SnapshotId, kraft_version: int | None, voters: VoterSet | None
    ) -> None:
        """Storage has loaded the snapshot. `kraft_version` and `voters` are those in it."""
        self._end_restoring(snapshot_id)
        self.downloads_refused = 0
        self.log.reset_to(snapshot_id)
        self.history.reset(snapshot_id.offset - 1, kraft_version, voters)
        self._voters_changed()
        self.set_high_watermark(snapshot_id.offset)

    def refuse_restore(self, snapshot_id: SnapshotId, reason: str) -> None:
        """The downloaded snapshot is damaged: keep the log, and download again after a pause that grows."""
        self._end_restoring(snapshot_id)
        pause_ms = min(_DOWNLOAD_PAUSE_MS << min(self.downloads_refused, 10), _DOWNLOAD_PAUSE_MS_MAX)
        self.downloads_refused += 1
        self.next_download_ms = self.now_ms + pause_ms
        self.effects.warn(
            "fetched_snapshot_damaged",
            offset=snapshot_id.offset,
            epoch=snapshot_id.epoch,
            leader_id=self.state.leader_id,
            reason=reason,
            next_download_in_ms=pause_ms,
        )

    def _end_restoring(self, snapshot_id: SnapshotId) -> None:
        if self.restoring != snapshot_id:
            raise RaftSafetyError(f"snapshot {snapshot_id} is put in place instead of {self.restoring}")
        self.restoring = None

    def set_high_watermark(self, offset: int) -> None:
        """Everything below `offset` is known to be committed. A lower one than before is ignored."""
        if offset > self.log.end_offset:
            raise RaftSafetyError(f"{offset} is committed, but the log ends at {self.log.end_offset}")
        if offset > self.high_watermark:
            self.high_watermark = offset
            self.effects.high_watermark = offset

    def follow_high_watermark(self, offset: int) -> None:
        """The leader reports that everything below `offset` is committed; the log may not have all of it yet."""
        self.set_high_watermark(min(offset, self.log.end_offset))
        if HIGH_WATERMARK_UNKNOWN < offset <= self.log.end_offset:
            self.has_caught_up = True

    def _voters_changed(self) -> None:
        self.effects.voters = self.voters
        self.state.voters_changed(self.voters)
