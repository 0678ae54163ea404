"""One replica of the metadata log: the state that its roles and its handlers share, and the interface of a role.

A role acts on its replica and a replica is in a role, so both are here. `roles` has the roles, `transitions` the
replica with the transitions between them.
"""

from abc import ABC, abstractmethod
from enum import Enum
from typing import TYPE_CHECKING, ClassVar

from quorate_protocol.plain_data import dataclass
from quorate_protocol.records.batch import scan_batches
from quorate_protocol.records.control import encode_control_batch

from quorate_controller.raft.effects import Effects
from quorate_controller.raft.events import Role
from quorate_controller.raft.log import LogMetadata, VoterHistory
from quorate_controller.raft.lookup import VoterLookup
from quorate_controller.raft.messages import HIGH_WATERMARK_UNKNOWN, LeaderEndpoint
from quorate_controller.raft.model import (
    NO_NODE_ID,
    Endpoint,
    RaftSafetyError,
    ReplicaKey,
    SnapshotId,
    Voter,
    find_endpoint,
)
from quorate_controller.raft.peers import BACKOFF_MS_MAX, Peers
from quorate_controller.raft.records import quorum_changes
from quorate_controller.raft.startup import HardState, LogState, RaftConfig
from quorate_controller.raft.voters import VoterSet

if TYPE_CHECKING:
    from random import Random

    from quorate_protocol.records.control import ControlRecord

_DOWNLOAD_PAUSE_MS = 1_000
_DOWNLOAD_PAUSE_MS_MAX = 60_000


class Transition(Enum):
    """The transitions that a role requests when it is polled."""

    STAND = "begin with a pre-vote"
    BECOME_CANDIDATE = "the pre-vote was won"
    GIVE_UP_STANDING = "the pre-vote was lost"
    LEAD = "the election was won"
    RESIGN = "lead no longer"
    LEAVE_EPOCH = "nothing more to do in the epoch of a former leader"


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
    def poll(self, replica: "Replica") -> "int | Transition":
        """Do what is due now. Returns when the next call is due (Unix milliseconds), or a due transition."""

    def close(self, replica: "Replica") -> None:  # noqa: B027 -- only a leader holds requests
        """Respond to the requests that this role holds. `replica` has the next role already."""

    def log_appended(self, replica: "Replica") -> None:  # noqa: B027 -- only a leader serves the log
        """Records were appended to the log."""

    def voters_changed(self, voters: VoterSet) -> None:  # noqa: B027 -- only a leader counts voters
        """Another voter set is in force."""


class Replica:
    """The state that handlers and roles share. They change it only through its methods."""

    def __init__(self, config: RaftConfig, log: LogState, state: RoleState, rng: "Random") -> None:
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
        self.state = state

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
