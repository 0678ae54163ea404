"""Leader: tracks the voters' logs, and resigns when too few of them fetch (CheckQuorum). Resigned: hands over."""

from dataclasses import field
from enum import Enum
from typing import ClassVar

from quorate_protocol.errors import ErrorCode
from quorate_protocol.plain_data import dataclass

from quorate_controller.raft import peer_requests
from quorate_controller.raft.events import Role
from quorate_controller.raft.log import FetchPosition
from quorate_controller.raft.messages import (
    HIGH_WATERMARK_UNKNOWN,
    AddRaftVoterResponse,
    FetchRequest,
    FetchResponse,
    ReadRange,
    RemoveRaftVoterResponse,
)
from quorate_controller.raft.model import Endpoint, ReplicaKey
from quorate_controller.raft.peers import NEVER_MS
from quorate_controller.raft.progress import Progress
from quorate_controller.raft.replica import Replica, RoleState, Transition
from quorate_controller.raft.voters import VoterSet, majority_size


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldFetch:
    """A Fetch from the end of what its sender may read, held until `deadline_ms`."""

    token: int
    request: FetchRequest
    listener: str
    deadline_ms: int

    @property
    def response_key(self) -> tuple[int, int, int, str]:
        """The fields that determine the response. Voters with equal fields share a response, and so do observers."""
        request = self.request
        return request.fetch_offset, request.last_fetched_epoch, request.max_bytes, self.listener


class HeldFetches:
    """The Fetch requests that wait for records or a new high watermark, in order of arrival.

    `deadline_ms` is the earliest deadline.
    """

    __slots__ = ("_held", "_held_max", "deadline_ms")

    def __init__(self, held_max: int) -> None:
        self._held: list[HeldFetch] = []
        self._held_max = held_max
        self.deadline_ms = NEVER_MS

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, fetch: HeldFetch) -> bool:
        """Hold the request; False when there are too many, and it needs its response at once."""
        if len(self._held) >= self._held_max:
            return False
        self._held.append(fetch)
        self.deadline_ms = min(self.deadline_ms, fetch.deadline_ms)
        return True

    def pop_all(self) -> list[HeldFetch]:
        """Remove and return all requests."""
        held, self._held = self._held, []
        self.deadline_ms = NEVER_MS
        return held

    def pop_expired(self, now_ms: int) -> list[HeldFetch]:
        """Remove and return the requests whose deadline has passed."""
        if now_ms < self.deadline_ms:
            return []
        expired = [fetch for fetch in self._held if fetch.deadline_ms <= now_ms]
        self._held = [fetch for fetch in self._held if fetch.deadline_ms > now_ms]
        self.deadline_ms = min((fetch.deadline_ms for fetch in self._held), default=NEVER_MS)
        return expired


class ChangeKind(Enum):
    ADD = "add"
    REMOVE = "remove"


@dataclass(slots=True, kw_only=True)
class VoterChange:
    """An AddRaftVoter or RemoveRaftVoter under way.

    `offset` is that of the VotersRecord, None while the new voter is being probed. `is_acknowledged`: the client
    got its response after the append, without waiting for the commit.
    """

    kind: ChangeKind
    token: int
    voter: ReplicaKey
    deadline_ms: int
    endpoints: tuple[Endpoint, ...] = ()
    ack_when_committed: bool = True
    offset: int | None = None
    is_acknowledged: bool = False


@dataclass(slots=True, kw_only=True)
class Leader(RoleState):
    """`high_watermark` is None until a record of this epoch is committed. `fetched` are the voters that fetched
    since the last time a majority had. `outrun_since_ms`: when a replica first fetched in a later epoch.
    `volatile_voters`: under kraft.version 0, whose log has no VotersRecord, the voters as their UpdateRaftVoter
    requests describe them. `held_of_voters` get their responses when records are appended or committed,
    `held_of_observers` when records are committed.
    """

    role: ClassVar[Role] = Role.LEADER
    epoch_start_offset: int
    progress: Progress
    held_of_voters: HeldFetches
    held_of_observers: HeldFetches
    check_quorum_deadline_ms: int
    begin_epoch_due_ms: int
    volatile_voters: VoterSet | None
    high_watermark: int | None = None
    fetched: set[int] = field(default_factory=set)
    outrun_since_ms: int | None = None
    change: VoterChange | None = None
    is_resigning: bool = False

    def can_grant_vote(self, candidate: ReplicaKey, *, is_up_to_date: bool, is_pre_vote: bool) -> bool:  # noqa: ARG002
        return False

    def poll(self, replica: Replica) -> int | Transition:
        is_alone = self.progress.voters.keys() == {replica.key.node_id}
        has_lost_quorum = not is_alone and replica.now_ms >= self.check_quorum_deadline_ms
        if has_lost_quorum:
            replica.effects.warn("lost_quorum", epoch=self.epoch, fetched=sorted(self.fetched))
        if replica.is_shutting_down or self.is_resigning or has_lost_quorum:
            return Transition.RESIGN
        if self.change is not None and replica.now_ms >= self.change.deadline_ms:
            self.end_change(replica, ErrorCode.request_timed_out)
        self._respond_all(replica, self.held_of_voters.pop_expired(replica.now_ms), are_voters=True)
        self._respond_all(replica, self.held_of_observers.pop_expired(replica.now_ms), are_voters=False)
        if replica.now_ms >= self.begin_epoch_due_ms:
            self.begin_epoch_due_ms = replica.now_ms + replica.config.fetch_timeout_ms // 2
            peer_requests.send_begin_epoch(replica, self.silent_voters(replica))
        return min(
            self.held_of_voters.deadline_ms,
            self.held_of_observers.deadline_ms,
            self.change.deadline_ms if self.change is not None else NEVER_MS,
            NEVER_MS if is_alone else min(self.check_quorum_deadline_ms, self.begin_epoch_due_ms),
        )

    def log_appended(self, replica: Replica) -> None:
        """Respond to the voters, which wait for records. Observers wait until these are committed."""
        self._respond_all(replica, self.held_of_voters.pop_all(), are_voters=True)

    def voters_changed(self, voters: VoterSet) -> None:
        """Count the votes and offsets of the new voters."""
        self.progress.set_voters(voters)
        for fetch in self._pop_held():
            self.hold(fetch)

    def close(self, replica: Replica) -> None:
        """Refuse all held requests, so that their senders look for the next leader."""
        for fetch in self._pop_held():
            response = refuse_fetch(replica, ErrorCode.not_leader_or_follower, fetch.listener)
            replica.effects.respond(fetch.token, response)
        self.end_change(replica, ErrorCode.not_leader_or_follower)

    # -------------------------------------------------------------------------------------- replication

    def silent_voters(self, replica: Replica) -> tuple[ReplicaKey, ...]:
        """The other voters that have not fetched for half a fetch timeout: they may not follow this leader."""
        silent_since_ms = replica.now_ms - replica.config.fetch_timeout_ms // 2
        return tuple(
            voter.key
            for voter in self.progress.voters.values()
            if voter.key.node_id != replica.key.node_id and voter.last_fetch_ms <= silent_since_ms
        )

    def record_voter_contact(self, replica: Replica, key: ReplicaKey) -> None:
        """A voter fetched: once a majority has, restart the CheckQuorum period (1.5 fetch timeouts).

        The leader counts in the majority while it is a voter.
        """
        if self.progress.voter(key) is not None and key.node_id != replica.key.node_id:
            self.fetched.add(key.node_id)
        needed = majority_size(len(self.progress.voters)) - (replica.key.node_id in self.progress.voters)
        if len(self.fetched) >= needed:
            self.fetched.clear()
            self.check_quorum_deadline_ms = replica.now_ms + check_quorum_ms(replica.config.fetch_timeout_ms)

    def is_outrun(self, replica: Replica) -> bool:
        """A replica fetched in a later epoch: return whether this leader gives up, so that there is an election.

        A candidate began that epoch. If it is removed from the voters before it reaches them, no other node reports
        the epoch to them, and replicas in that epoch could never follow this leader. A live leader or candidate has
        a CheckQuorum period to reach this node.
        """
        if self.outrun_since_ms is None:
            self.outrun_since_ms = replica.now_ms
        return replica.now_ms - self.outrun_since_ms >= check_quorum_ms(replica.config.fetch_timeout_ms)

    def record_fetch(self, replica: Replica, request: FetchRequest) -> None:
        """Record a Fetch. The sender's log is a prefix of ours, and is durable up to the fetch offset."""
        key, fetch_offset = request.replica, request.fetch_offset
        known = self.progress.replica(key)
        if known is not None and known.end_offset is not None and fetch_offset < known.end_offset:
            self._note_fall(replica, request, known.end_offset)
        # Versions below 18 have no high watermark: only the records count.
        high_watermark = fetch_offset if request.high_watermark is None else request.high_watermark
        # Before the first commit of an epoch the readable end is unknown: the log's end is the upper bound.
        is_commit_known = self.high_watermark is not None
        end_offset = self.readable_end(replica, key) if is_commit_known else replica.log.end_offset
        self.progress.record_fetch(key, fetch_offset, high_watermark, end_offset, replica.now_ms)
        self.record_voter_contact(replica, key)
        if self.progress.voter(key) is not None:
            self.advance_high_watermark(replica)

    def _note_fall(self, replica: Replica, request: FetchRequest, offset_before: int) -> None:
        """A Fetch requests records that the replica had: it is late, as after a cut link, or the records are lost.

        Records are lost only with a restart, and a replica that has just started has no high watermark.
        """
        facts = {"replica": str(request.replica), "before": offset_before, "now": request.fetch_offset}
        if request.high_watermark is not None and request.high_watermark >= 0:
            replica.effects.note("fetch_arrived_late", **facts)
        else:
            cause = "the replica lost records, or this request arrived late"
            replica.effects.warn("fetch_offset_fell", **facts, cause=cause)

    def record_own_end(self, replica: Replica) -> None:
        """Our own log is durable further than before."""
        self.progress.record_own_end(replica.log.persisted_offset)
        self.advance_high_watermark(replica)

    def advance_high_watermark(self, replica: Replica) -> None:
        """Commit the offset that a majority has, once that includes a record of our epoch (Raft 5.4.2)."""
        offset = self.progress.committed_offset
        if offset is None or offset <= self.epoch_start_offset:
            return
        if self.high_watermark is not None and offset <= self.high_watermark:
            return
        self.high_watermark = offset
        replica.follow_high_watermark(offset)
        if self.change is not None and self.change.offset is not None and self.change.offset < offset:
            self.end_change(replica, ErrorCode.none)
        voters_offset = replica.history.voters_offset
        if not replica.is_voter and voters_offset is not None and voters_offset < offset:
            replica.effects.note("removed_from_voters", epoch=self.epoch)
            self.is_resigning = True
        self._respond_all(replica, self.held_of_voters.pop_all(), are_voters=True)
        self._respond_all(replica, self.held_of_observers.pop_all(), are_voters=False)

    def readable_end(self, replica: Replica, key: ReplicaKey) -> int:
        """The end offset of a replica's reads: the log's end for voters, the high watermark for observers.

        Committed records are never truncated. A stock broker that truncates a VotersRecord does not read the next
        leader's at the same offset, and finds no controller from then on (ADR 29).
        """
        if self.progress.voter(key) is not None:
            return replica.log.end_offset
        return self.high_watermark or 0

    def hold(self, fetch: HeldFetch) -> bool:
        """Hold a request until there is something to send; False when there are too many."""
        is_voter = self.progress.voter(fetch.request.replica) is not None
        return (self.held_of_voters if is_voter else self.held_of_observers).hold(fetch)

    def _pop_held(self) -> list[HeldFetch]:
        return [*self.held_of_voters.pop_all(), *self.held_of_observers.pop_all()]

    def _respond_all(self, replica: Replica, held: list[HeldFetch], *, are_voters: bool) -> None:
        """Respond to held requests of voters or of observers. Equal requests share a response, encoded once."""
        responses: dict[tuple[int, int, int, str], FetchResponse] = {}
        for fetch in held:
            request = fetch.request
            response = responses.get(fetch.response_key)
            if response is None:
                position = replica.log.validate(request.fetch_offset, request.last_fetched_epoch)
                response = self.fetch_response(replica, request, position, fetch.listener)
                responses[fetch.response_key] = response
            replica.effects.respond(fetch.token, response, is_for_observer=not are_voters)

    def fetch_response(
        self, replica: Replica, request: FetchRequest, position: FetchPosition, listener: str
    ) -> FetchResponse:
        """The response to a Fetch from that position, as of now."""
        read, end_offset = None, self.readable_end(replica, request.replica)
        if position.is_valid and request.fetch_offset < end_offset:
            read = ReadRange(
                start_offset=request.fetch_offset,
                end_offset=end_offset,
                size_bytes_max=max(1, min(request.max_bytes, replica.config.fetch_size_bytes_max)),
            )
        return FetchResponse(
            leader_id=self.leader_id,
            leader_epoch=self.epoch,
            leader_endpoint=replica.leader_endpoint(listener),
            high_watermark=HIGH_WATERMARK_UNKNOWN if self.high_watermark is None else self.high_watermark,
            log_start_offset=replica.log.start_offset,
            diverging_epoch=position.diverging_epoch,
            snapshot_id=position.snapshot_id,
            read=read,
        )

    # ------------------------------------------------------------------------------------ voter changes

    def end_change(self, replica: Replica, error_code: ErrorCode, message: str | None = None) -> None:
        """Respond to the voter change under way, if there is one, and drop it."""
        change, self.change = self.change, None
        if change is None or change.is_acknowledged:
            return
        kind = AddRaftVoterResponse if change.kind is ChangeKind.ADD else RemoveRaftVoterResponse
        replica.effects.respond(change.token, kind(error_code=error_code, error_message=message))


def refuse_fetch(replica: Replica, error_code: ErrorCode, listener: str) -> FetchResponse:
    """An error for the partition, with the leader to ask instead."""
    return FetchResponse(
        error_code=error_code,
        leader_id=replica.state.leader_id,
        leader_epoch=replica.epoch,
        leader_endpoint=replica.leader_endpoint(listener),
        log_start_offset=replica.log.start_offset,
    )


def check_quorum_ms(fetch_timeout_ms: int) -> int:
    """The longest time that a leader stays without a majority fetching; it allows for network delays."""
    return fetch_timeout_ms * 3 // 2


@dataclass(slots=True, kw_only=True)
class Resigned(RoleState):
    """A former leader of the epoch; sends EndQuorumEpoch with the preferred successors.

    `others` are the other voters; `unacknowledged` have not responded to EndQuorumEpoch, and the connection
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
    def has_no_successor(self) -> bool:
        """Whether no other voter can be reached."""
        return self.others <= self.unreachable

    def acknowledge(self, voter_id: int) -> None:
        """A voter responded to EndQuorumEpoch."""
        self.unacknowledged.discard(voter_id)
        self.unreachable.discard(voter_id)

    def poll(self, replica: Replica) -> int | Transition:
        if replica.is_shutting_down:
            return peer_requests.send_end_epoch(replica, self.unacknowledged, self.successors)
        if replica.now_ms >= self.election_deadline_ms:
            # The epoch has to increase: within this one, we would still be reported as the leader.
            return Transition.LEAVE_EPOCH
        return min(
            peer_requests.send_end_epoch(replica, self.unacknowledged, self.successors),
            self.election_deadline_ms,
        )
