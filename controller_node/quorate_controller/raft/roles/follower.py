"""Follower: fetches from the leader. A voter stands for election when the leader falls silent."""

from typing import ClassVar

from quorate_protocol.plain_data import dataclass

from quorate_controller.raft import peer_requests
from quorate_controller.raft.events import Role
from quorate_controller.raft.model import Download, Endpoint, ReplicaKey
from quorate_controller.raft.replica import Replica, RoleState, Transition
from quorate_controller.raft.startup import KRAFT_VERSION_DYNAMIC


@dataclass(slots=True, kw_only=True)
class Follower(RoleState):
    """`voter_update_due_ms`: when to check whether our entry in the voter set has to be updated.

    `is_endpoint_wrong`: another node answers at the leader's address; the next reported address replaces it.
    `has_leader_resigned`: this epoch will have no leader any more.
    `has_lost_connection`: the connection broke under a Fetch, and the leader has not responded since.
    """

    role: ClassVar[Role] = Role.FOLLOWER
    fetch_deadline_ms: int
    voter_update_due_ms: int
    has_fetched_from_leader: bool = False
    has_updated_leader: bool = False
    is_leader_doubted: bool = False
    has_leader_resigned: bool = False
    is_endpoint_wrong: bool = False
    has_lost_connection: bool = False
    download: Download | None = None

    def can_grant_vote(self, candidate: ReplicaKey, *, is_up_to_date: bool, is_pre_vote: bool) -> bool:  # noqa: ARG002
        """Only a pre-vote, and only while the leader has not proven itself to us (KIP-996)."""
        return is_pre_vote and is_up_to_date and not self.has_fetched_from_leader

    def record_leader_contact(self, replica: Replica) -> None:
        """A Fetch, FetchSnapshot or UpdateRaftVoter succeeded."""
        if self.has_leader_resigned:
            return  # EndQuorumEpoch overtook this response on another connection
        self.fetch_deadline_ms = replica.now_ms + replica.config.fetch_timeout_ms
        self.has_fetched_from_leader = True
        self.is_leader_doubted = False
        self.has_lost_connection = False
        replica.elections_lost = 0
        replica.lookup.leader_found()

    def resume_fetching(self, replica: Replica) -> None:
        """A snapshot was loaded, without a Fetch in the meantime: restart the fetch timeout."""
        if not self.is_leader_doubted:
            self.fetch_deadline_ms = replica.now_ms + replica.config.fetch_timeout_ms

    def update_endpoints(self, endpoints: tuple[Endpoint, ...]) -> None:
        """A peer reports the leader's endpoints: use them when ours are wrong or fewer."""
        if self.is_endpoint_wrong or len(endpoints) > len(self.leader_endpoints):
            self.leader_endpoints = endpoints
            self.is_endpoint_wrong = False

    def expect_election(self, replica: Replica, backoff_ms: int) -> None:
        """The leader is probably gone: stand within `backoff_ms`, and grant pre-votes until then."""
        self.has_fetched_from_leader = False
        self.is_leader_doubted = True
        self.fetch_deadline_ms = min(self.fetch_deadline_ms, replica.now_ms + backoff_ms)

    def leader_resigned(self, replica: Replica, backoff_ms: int) -> None:
        """EndQuorumEpoch: stand in `backoff_ms`, whatever responses of the leader are in flight."""
        self.has_leader_resigned = True
        self.expect_election(replica, backoff_ms)

    def may_fetch_again_at_once(self) -> bool:
        """The connection broke under a Fetch: the next Fetch shows whether the leader is gone.

        Returns False when that happens again before the leader has responded: then the retry backoff applies.
        """
        is_first_loss = not self.has_lost_connection
        self.has_lost_connection = True
        return is_first_loss

    def leader_unreachable(self, replica: Replica) -> None:
        """The leader refuses connections, or another node has its address: do not wait for the fetch timeout."""
        if not self.is_leader_doubted and replica.can_stand:
            self.expect_election(replica, replica.fast_backoff_ms())

    def poll(self, replica: Replica) -> int | Transition:
        if replica.now_ms >= self.fetch_deadline_ms:
            if replica.can_stand:
                return Transition.STAND
            # Another replica, which has a later voter set, may need our vote.
            self.has_fetched_from_leader = False
        if replica.now_ms >= self.voter_update_due_ms and replica.can_fetch:
            self._update_leader(replica)
        wake_ms = peer_requests.fetch(replica, self.download)
        if replica.can_stand or self.has_fetched_from_leader:
            wake_ms = min(wake_ms, self.fetch_deadline_ms)
        # An overdue request waits until the leader is ready for one, which wakes us anyway.
        return (
            wake_ms if self.voter_update_due_ms <= replica.now_ms else min(wake_ms, self.voter_update_due_ms)
        )

    def restart_voter_update_period(self, replica: Replica) -> None:
        self.voter_update_due_ms = replica.now_ms + replica.config.fetch_timeout_ms

    def _update_leader(self, replica: Replica) -> None:
        """Send UpdateRaftVoter, or as an observer a request to join, when it is needed."""
        if replica.is_voter:
            is_done = not self._must_update_leader(replica) or peer_requests.send_update_voter(replica)
        else:
            is_done = not self._must_join(replica) or peer_requests.send_join(replica)
        if is_done:
            self.restart_voter_update_period(replica)

    def _must_update_leader(self, replica: Replica) -> bool:
        """Whether our entry in the voter set is outdated; under kraft.version 0 each leader needs it."""
        if replica.history.kraft_version >= KRAFT_VERSION_DYNAMIC:
            return replica.voters.needs_update(replica.own_voter)
        return not self.has_updated_leader

    def _must_join(self, replica: Replica) -> bool:
        config = replica.config
        return config.auto_join and config.can_vote and replica.history.kraft_version >= KRAFT_VERSION_DYNAMIC
