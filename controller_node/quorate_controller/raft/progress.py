"""The end of each replica's log, as the leader knows it from Fetch requests."""

from quorate_protocol.plain_data import dataclass

from quorate_controller.raft.model import Endpoint, ReplicaKey
from quorate_controller.raft.voters import VoterSet, majority_offset

OBSERVER_SESSION_MS = 300_000
"""Observers are dropped after this long without a Fetch, as in Kafka."""

CAUGHT_UP_FETCH_AGE_MS_MAX = 3_600_000
"""A replica that fetched within the last hour, and had caught up once, may become a voter (KIP-853)."""

UNKNOWN_MS = -1


@dataclass(slots=True, kw_only=True)
class ReplicaProgress:
    """One replica. `end_offset` is None until it has fetched in this epoch; times are Unix milliseconds."""

    key: ReplicaKey
    endpoints: tuple[Endpoint, ...] = ()
    end_offset: int | None = None
    last_fetch_ms: int = UNKNOWN_MS
    last_fetch_leader_end_offset: int = -1
    last_caught_up_ms: int = UNKNOWN_MS

    def record_fetch(self, fetch_offset: int, leader_end_offset: int, now_ms: int) -> None:
        """Record a Fetch. A replica that has reached the log end as of its previous Fetch had caught up then."""
        if fetch_offset >= leader_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        elif 0 < self.last_fetch_leader_end_offset <= fetch_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.last_fetch_leader_end_offset = leader_end_offset
        self.last_fetch_ms = max(self.last_fetch_ms, now_ms)
        self.end_offset = fetch_offset


@dataclass(slots=True, kw_only=True)
class Divergence:
    """The end of a replica's log that the leader's log does not have, and how many Fetch requests named it."""

    fetch_offset: int
    last_fetched_epoch: int
    fetches: int = 1


class Progress:
    """The voters by node id, and every other replica that fetches, among them a leader that was removed."""

    __slots__ = ("_diverged", "_high_watermarks", "_observers", "_observers_max", "_own_key", "voters")

    def __init__(self, own_key: ReplicaKey, voters: VoterSet, *, observers_max: int) -> None:
        self._own_key = own_key
        self._observers_max = observers_max
        self._observers: dict[ReplicaKey, ReplicaProgress] = {}
        self._high_watermarks: dict[int, int] = {}
        self._diverged: dict[ReplicaKey, Divergence] = {}
        self.voters: dict[int, ReplicaProgress] = {}
        self.set_voters(voters)

    def set_voters(self, voters: VoterSet) -> None:
        """Put a new voter set in force; the progress of a replica is kept when it joins or leaves."""
        before = self.voters
        self.voters = {}
        for voter in voters:
            old = before.get(voter.node_id)
            if old is not None and old.key.matches(voter.key):
                del before[voter.node_id]
                replica = old
            else:
                replica = self._observers.pop(voter.key, ReplicaProgress(key=voter.key))
            replica.key = voter.key
            replica.endpoints = voter.endpoints
            self.voters[voter.node_id] = replica
        for replica in before.values():
            replica.endpoints = ()
            self._observers.setdefault(replica.key, replica)

    def voter(self, key: ReplicaKey) -> ReplicaProgress | None:
        """The progress of the voter with that key, or None."""
        replica = self.voters.get(key.node_id)
        return replica if replica is not None and replica.key.matches(key) else None

    def replica(self, key: ReplicaKey) -> ReplicaProgress | None:
        """The leader's progress entry of a replica, voter or not; None if it has none."""
        return self.voter(key) or self._observers.get(key)

    def record_fetch(
        self, key: ReplicaKey, fetch_offset: int, high_watermark: int, leader_end_offset: int, now_ms: int
    ) -> None:
        """Record a Fetch, and the high watermark of its sender (-1: unknown).

        A replica without an entry gets none when there are too many observers.
        """
        replica = self.replica(key)
        if replica is None:
            if (
                len(self._observers) >= self._observers_max
                and len(self.observers(now_ms)) >= self._observers_max
            ):
                return
            replica = self._observers[key] = ReplicaProgress(key=key)
        self._diverged.pop(key, None)
        replica.record_fetch(fetch_offset, leader_end_offset, now_ms)
        self._high_watermarks[key.node_id] = high_watermark

    def record_divergence(self, key: ReplicaKey, fetch_offset: int, last_fetched_epoch: int) -> None:
        """Record a Fetch from the end of a log that is no prefix of ours."""
        known = self._diverged.get(key)
        if known is not None and known.fetch_offset == fetch_offset:
            known.fetches += 1
        elif known is not None or len(self._diverged) < self._observers_max:
            divergence = Divergence(fetch_offset=fetch_offset, last_fetched_epoch=last_fetched_epoch)
            self._diverged[key] = divergence

    def divergence(self, key: ReplicaKey) -> Divergence | None:
        """The divergence of a replica that does not truncate its log; one that does names another end next."""
        divergence = self._diverged.get(key)
        return divergence if divergence is not None and divergence.fetches > 1 else None

    def record_own_end(self, end_offset: int) -> None:
        """The leader's own log is durable up to `end_offset`. A removed leader does not count itself."""
        own = self.replica(self._own_key)
        if own is None:
            own = self._observers[self._own_key] = ReplicaProgress(key=self._own_key)
        own.end_offset = end_offset

    def high_watermark_of(self, node_id: int) -> int:
        """The high watermark of a node, by its latest Fetch; -1 if unknown."""
        return self._high_watermarks.get(node_id, -1)

    @property
    def committed_offset(self) -> int | None:
        """The offset that a majority of the voters has reached; None while the end offsets of too few are known."""
        return majority_offset(replica.end_offset for replica in self.voters.values())

    def successors(self) -> tuple[ReplicaKey, ...]:
        """The other voters, the most caught-up first."""
        others = [replica for replica in self.voters.values() if not replica.key.matches(self._own_key)]
        others.sort(key=lambda replica: (-_known(replica.end_offset), replica.key.node_id))
        return tuple(replica.key for replica in others)

    def is_caught_up(self, key: ReplicaKey, now_ms: int) -> bool:
        """Whether that observer may become a voter without holding up commits."""
        replica = self._observers.get(key)
        return (
            replica is not None
            and replica.last_caught_up_ms > 0
            and replica.last_fetch_ms > now_ms - CAUGHT_UP_FETCH_AGE_MS_MAX
        )

    def observers(self, now_ms: int) -> tuple[ReplicaProgress, ...]:
        """The replicas that are no voters, after dropping those silent for OBSERVER_SESSION_MS."""
        for key, replica in list(self._observers.items()):
            if key != self._own_key and now_ms - replica.last_fetch_ms >= OBSERVER_SESSION_MS:
                del self._observers[key]
                self._high_watermarks.pop(key.node_id, None)
        return tuple(self._observers.values())


def _known(offset: int | None) -> int:
    return -1 if offset is None else offset
