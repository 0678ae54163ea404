"""Judges each fact about a cluster once: which nodes follow the log, are caught up, are ghosts, block a feature.

The doctor judges what its examination found (`judge`), the operator what it observed, in its module
`planning.registrations`. Both fill the same `ClusterFacts`, so that they agree. Whether something may be
*done* about a ghost is up to the caller. Reasons: docs/adr/0015-one-judgement.md.
"""

from collections.abc import Mapping
from dataclasses import field
from enum import Enum, auto
from typing import Final, Self

from quorate_protocol.features import CONTROLLER_REGISTRATION_SINCE, KRAFT_VERSION, METADATA_VERSION
from quorate_protocol.plain_data import dataclass

from quorate_admin.diagnosis.facts import Blocker, Examination, FeatureOutlook, NodeKind, RegisteredNode
from quorate_admin.diagnosis.features import missing_voters, registered_outlooks, supports
from quorate_admin.diagnosis.quorum_search import majority
from quorate_admin.types.cluster import QuorumDescription, ReplicaDescription

FETCH_SILENCE_MS_MAX: Final = 5_000
"""A replica that has not fetched for longer does not follow the log.

A live replica fetches at least every 500 ms. The leader itself stops counting a voter towards its majority after
1.5 times `controller.quorum.fetch.timeout.ms`, 3,000 ms by default.
"""
CAUGHT_UP_AGE_MS_MAX: Final = 10_000
"""A replica that lacks committed records counts as caught up if it had all of them at most this long ago."""


class Presence(Enum):
    """Whether the node of a registration is there."""

    ALIVE = auto()
    """It follows the metadata log."""
    SILENT_VOTER = auto()
    """It is a voter, and does not follow the log."""
    GONE = auto()
    """It is not a voter and does not follow the log. The registration of such a controller is a ghost."""
    UNKNOWN = auto()
    """No leader answers, or the node has not fetched from a new leader yet."""


@dataclass(frozen=True, slots=True)
class LeaderView:
    """Judges replicas by the leader's description of the quorum (DescribeQuorum, KIP-836), on the leader's clock."""

    quorum: QuorumDescription
    now_ms: int
    """The leader's clock when it described the quorum."""
    since_ms: int
    """The leader was elected at this time or before."""

    @classmethod
    def of(cls, quorum: QuorumDescription, since_ms: int | None = None) -> Self:
        """The view of a leader that was elected at `since_ms` or before; None if that is unknown.

        A leader sets its own times to now, so the newest time in the description is its clock. No
        replica fetches from it before its election, so the oldest time of a fetch is later.
        """
        replicas = (*quorum.voters, *quorum.observers)
        fetches_ms = [replica.last_fetch_ms for replica in replicas if replica.last_fetch_ms is not None]
        caught_up_ms = [
            replica.last_caught_up_ms for replica in replicas if replica.last_caught_up_ms is not None
        ]
        now_ms = max((*fetches_ms, *caught_up_ms), default=0)
        known_ms = (*fetches_ms, now_ms) if since_ms is None else (*fetches_ms, now_ms, since_ms)
        return cls(quorum, now_ms, min(known_ms))

    @property
    def is_new(self) -> bool:
        """Whether the leader may have been elected so lately that a live replica has not fetched from it yet."""
        return self.now_ms - self.since_ms <= FETCH_SILENCE_MS_MAX

    def silence_ms(self, replica: ReplicaDescription) -> int | None:
        """Return the milliseconds since the replica's last fetch; None if it has not fetched from this leader."""
        if self._leads(replica):
            return 0
        return None if replica.last_fetch_ms is None else max(0, self.now_ms - replica.last_fetch_ms)

    def behind_ms(self, replica: ReplicaDescription) -> int | None:
        """Return the milliseconds since the replica had everything; None if it never had under this leader."""
        if self._leads(replica):
            return 0
        return None if replica.last_caught_up_ms is None else max(0, self.now_ms - replica.last_caught_up_ms)

    def follows(self, replica: ReplicaDescription) -> bool:
        """Whether the replica, that is this node with this directory, fetches. The leader follows itself.

        The leader keeps describing a replica for minutes after its last fetch.
        """
        silence_ms = self.silence_ms(replica)
        return silence_ms is not None and silence_ms <= FETCH_SILENCE_MS_MAX

    def node_follows(self, node_id: int) -> bool:
        """Whether a node fetches, with any directory: a controller, or a broker, which is an observer."""
        replicas = (*self.quorum.voters, *self.quorum.observers)
        return any(self.follows(replica) for replica in replicas if replica.node_id == node_id)

    def is_caught_up(self, replica: ReplicaDescription) -> bool:
        """Whether the replica follows and has all that is committed, or had everything a moment ago."""
        if self._leads(replica):
            return True
        behind_ms = self.behind_ms(replica)
        was_caught_up = behind_ms is not None and behind_ms <= CAUGHT_UP_AGE_MS_MAX
        return self.follows(replica) and (
            replica.log_end_offset >= self.quorum.high_watermark or was_caught_up
        )

    def _leads(self, replica: ReplicaDescription) -> bool:
        return replica.node_id == self.quorum.leader_id and replica in self.quorum.voters


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedReplica:
    """A voter or observer of the metadata log, as judged by `LeaderView`."""

    node_id: int
    follows: bool
    caught_up: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFacts:
    """What holds for a cluster at one moment. `leader_id` is None while no leader answers.

    `is_leader_new` as in `LeaderView`. `observers` may leave out brokers; then only controllers can be judged.
    `registrations` are those of brokers and controllers, `finalized` has the finalized level of each feature.
    """

    leader_id: int | None = None
    is_leader_new: bool = False
    voters: tuple[JudgedReplica, ...] = ()
    observers: tuple[JudgedReplica, ...] = ()
    registrations: tuple[RegisteredNode, ...] = ()
    finalized: Mapping[str, int] = field(default_factory=dict)

    def follows(self, node_id: int) -> bool | None:
        """Whether a node follows the metadata log with any of its directories.

        None while no leader answers, and while the node has not fetched from a new leader.
        """
        if any(replica.follows for replica in (*self.voters, *self.observers) if replica.node_id == node_id):
            return True
        return None if self.leader_id is None or self.is_leader_new else False

    def presence_of(self, node_id: int) -> Presence:
        """Whether a registered node is there, as the leader sees it."""
        match self.follows(node_id):
            case None:
                return Presence.UNKNOWN
            case True:
                return Presence.ALIVE
        return Presence.SILENT_VOTER if node_id in self.voter_ids else Presence.GONE

    @property
    def voter_ids(self) -> frozenset[int]:
        """The voters' node ids."""
        return frozenset(voter.node_id for voter in self.voters)

    @property
    def caught_up_voters(self) -> frozenset[int]:
        """The voters that are caught up, by node id."""
        return frozenset(voter.node_id for voter in self.voters if voter.caught_up)

    @property
    def spare_voters(self) -> int:
        """How many caught-up voters can fail while a majority stays; negative while a majority is missing."""
        return len(self.caught_up_voters) - majority(len(self.voters))

    @property
    def ghosts(self) -> tuple[int, ...]:
        """The controllers that are registered and gone, in ascending order; empty while no leader answers."""
        registered = {
            registration.node_id
            for registration in self.registrations
            if registration.kind is NodeKind.CONTROLLER
        }
        return tuple(node_id for node_id in sorted(registered) if self.presence_of(node_id) is Presence.GONE)

    @property
    def unregistered(self) -> tuple[int, ...]:
        """The nodes that follow the log without being voters or registered, in ascending order.

        Empty below the level at which controllers register. The registrations have to be complete.
        """
        if self.finalized.get(METADATA_VERSION, 0) < CONTROLLER_REGISTRATION_SINCE:
            return ()
        known = {*self.voter_ids, *(registration.node_id for registration in self.registrations)}
        return tuple(sorted({observer.node_id for observer in self.observers if observer.follows} - known))

    @property
    def possible_voters(self) -> tuple[int, ...]:
        """The controllers that could become voters, in ascending order.

        They are registered, caught up, and no voters with any directory; the quorum is dynamic (KIP-853).
        """
        if self.leader_id is None or self.finalized.get(KRAFT_VERSION, 0) < 1:
            return ()
        registered = {
            registration.node_id
            for registration in self.registrations
            if registration.kind is NodeKind.CONTROLLER
        }
        caught_up = {observer.node_id for observer in self.observers if observer.caught_up}
        return tuple(sorted((registered & caught_up) - self.voter_ids))

    def blockers(self, feature: str, level: int) -> tuple[Blocker, ...]:
        """Return what keeps a feature from a level: voters that are not registered, then registrations."""
        return (
            *missing_voters(self.finalized, self.registrations, self.voter_ids),
            *(
                Blocker.of(registration, feature)
                for registration in self.registrations
                if registration.features is not None and not supports(registration.features, feature, level)
            ),
        )

    def outlooks(self) -> tuple[FeatureOutlook, ...]:
        """Return how far each feature can go by the registrations; the target is the highest registered level."""
        highest: dict[str, int] = {}
        for registration in self.registrations:
            for feature, (_, high) in (registration.features or {}).items():
                highest[feature] = max(high, highest.get(feature, 0))
        return registered_outlooks(self.finalized, highest, self.registrations, self.voter_ids)


def judge(facts: Examination) -> ClusterFacts:
    """Return the facts about a cluster that was examined, in the form that all judgements use."""
    finalized = {} if facts.features is None else facts.features.finalized
    registrations = (*(facts.controllers or {}).values(), *(facts.brokers or {}).values())
    if facts.quorum is None:
        return ClusterFacts(registrations=registrations, finalized=finalized)
    view = LeaderView.of(facts.quorum, facts.leader_since_ms)

    def judged(replica: ReplicaDescription) -> JudgedReplica:
        return JudgedReplica(
            node_id=replica.node_id, follows=view.follows(replica), caught_up=view.is_caught_up(replica)
        )

    return ClusterFacts(
        leader_id=facts.quorum.leader_id,
        is_leader_new=view.is_new,
        voters=tuple(judged(voter) for voter in facts.quorum.voters),
        observers=tuple(judged(observer) for observer in facts.quorum.observers),
        registrations=registrations,
        finalized=finalized,
    )
