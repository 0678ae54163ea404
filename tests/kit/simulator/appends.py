"""Records of clients in the partitions of a run, and which of them were acknowledged: clean elections keep those.

Leaders append to their logs and followers fetch, each by what its broker has applied of the metadata. A record is
acknowledged once all members of the ISR have it, those that the leader has only asked for included, and the ISR is
not below `min.insync.replicas` (KIP-966). A broker that restarts without its controlled shutdown loses what it has
not flushed.

    invariant            of each leader, when it leads for the first time in its epoch
    -------------------  ---------------------------------------------------------------------------------------------
    AcknowledgedAppends  it has all acknowledged records, unless its partition was elected uncleanly since
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kit.simulator.coverage import Happening
from kit.simulator.invariants import InvariantViolation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kit.simulator.clients import SimulatedBroker
    from kit.simulator.partitions import Key
    from kit.simulator.world import World
    from quorate_protocol.image.partitions import PartitionRegistration

STEP_MS: Final = (5, 25)
POWER_FAILURE_MS: Final = (6_000, 30_000)
HOT_PARTITIONS: Final = 12
"""How many partitions clients write to at a time: many appends of a few show more than a few of many."""
COOLS_DOWN: Final = 0.01
FETCHES: Final = 0.7
FLUSHES: Final = 0.02
FETCHED_MAX: Final = 4
TOPIC_RESOURCE: Final = 2


@dataclass(slots=True)
class _Copies:
    """The copies of one partition: the numbers of the records that each broker has, in the order of its log."""

    logs: dict[int, list[int]] = field(default_factory=dict)
    flushed: dict[int, int] = field(default_factory=dict)
    fetched: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    """Leader epoch and follower -> its broker epoch and the end of its log, as the leader knows them."""
    asked_for: dict[int, list[tuple[int, frozenset[int]]]] = field(default_factory=dict)
    """Leader epoch -> partition epoch and members of each ISR that its leader has asked for."""
    acknowledged: set[int] = field(default_factory=set)
    led_epoch: int = -1
    """The last leader epoch with a leader."""
    unclean_epoch: int = -1
    """The leader epoch of the last unclean election."""
    next_number: int = 0

    def log(self, broker_id: int) -> list[int]:
        return self.logs.setdefault(broker_id, [])


class Appends:
    """The clients that write to partitions, and the brokers that keep what they write."""

    def __init__(self, world: World, brokers: Sequence[SimulatedBroker]) -> None:
        self._world = world
        self._rng = world.rng
        self._brokers = {broker.broker_id: broker for broker in brokers}
        self._copies: dict[Key, _Copies] = {}
        self._hot: list[Key] = []
        self._stopped = False
        self._had_elr = False
        for broker in brokers:
            broker.on_start = self._restarted
        self._elected: dict[Key, None] = {}
        """Partitions with new leaders that have not led yet."""
        world.partitions.on_leader = self._has_leader
        world.partitions.on_unclean_election = self._elected_uncleanly
        world.schedule(1000, self._work)
        world.schedule(self._rng.randint(*POWER_FAILURE_MS), self._lose_power)

    def stop(self) -> None:
        """Append nothing more."""
        self._stopped = True

    def view(self, broker: SimulatedBroker, key: Key) -> PartitionRegistration | None:
        """A partition as a broker knows it; None if it does not know of it, or is not registered."""
        partitions = self._world.partitions
        applied_offset = broker.metadata.applied_offset
        states = partitions.history.get(key)
        if states is None or broker.epoch is None or applied_offset <= broker.epoch:
            return None
        place = bisect_left(partitions.offsets[key], applied_offset)
        return states[place - 1] if place else None

    def catches_up(self, key: Key, known: PartitionRegistration, follower_id: int, broker_epoch: int) -> bool:
        """Let a follower fetch. Returns whether its leader knows then that this incarnation has its whole log."""
        leader, follower = self._brokers.get(known.leader), self._brokers[follower_id]
        view = None if leader is None else self.view(leader, key)
        if view is None or (view.leader, view.leader_epoch) != (known.leader, known.leader_epoch):
            return False
        copies = self._copies.setdefault(key, _Copies())
        self._fetch(key, copies, follower, view, records_max=len(copies.log(known.leader)))
        whole = (broker_epoch, len(copies.log(known.leader)))
        return copies.fetched.get((known.leader_epoch, follower_id)) == whole

    def isr_asked_for(self, key: Key, known: PartitionRegistration, members: frozenset[int]) -> None:
        """A leader asks for an ISR: from now on, what all of it has is acknowledged, and nothing else."""
        copies = self._copies.setdefault(key, _Copies())
        copies.asked_for.setdefault(known.leader_epoch, []).append((known.partition_epoch, members))

    # ------------------------------------------------------------------------------------------- events

    def _restarted(self, broker_id: int, is_clean: bool) -> None:
        """A broker has a new process: without a controlled shutdown, what was not flushed may be lost."""
        for copies in self._copies.values():
            log = copies.log(broker_id)
            if is_clean:
                copies.flushed[broker_id] = len(log)
            else:
                flushed = min(copies.flushed.get(broker_id, 0), len(log))
                del log[self._rng.randint(flushed, len(log)) :]

    def _has_leader(self, key: Key) -> None:
        if key in self._copies:
            self._elected[key] = None

    def _elected_uncleanly(self, key: Key, leader_epoch: int) -> None:
        self._copies.setdefault(key, _Copies()).unclean_epoch = leader_epoch

    # -------------------------------------------------------------------------------------------- steps

    def _work(self) -> None:
        if self._stopped:
            return
        self._note_elr()
        history = self._world.partitions.history
        self._hot = [key for key in self._hot if key in history and self._rng.random() >= COOLS_DOWN]
        if len(self._hot) < HOT_PARTITIONS and history:
            self._hot.append(self._rng.choice(tuple(history)))
        for key in list(self._elected):
            self._begin_to_lead(key)
        if self._hot:
            self._step(self._rng.choice(self._hot))
        self._world.schedule(self._rng.randint(*STEP_MS), self._work)

    def _note_elr(self) -> None:
        """Without eligible leader replicas, clean elections may lose what was acknowledged. So what the first leaders
        acknowledge after the feature was switched on is the first that counts.
        """
        has_elr = self._world.committed.fold.has_elr
        if has_elr and not self._had_elr:
            for key, states in self._world.partitions.history.items():
                self._elected_uncleanly(key, states[-1].leader_epoch + 1)
        self._had_elr = has_elr

    def _lose_power(self) -> None:
        """Several brokers lose their power at the same time, as those in one rack do."""
        if self._stopped:
            return
        brokers = list(self._brokers.values())
        for broker in self._rng.sample(brokers, self._rng.randint(2, len(brokers))):
            broker.lose_power()
        self._world.schedule(self._rng.randint(*POWER_FAILURE_MS), self._lose_power)

    def _begin_to_lead(self, key: Key) -> None:
        """The elected leader leads as soon as its broker knows."""
        states = self._world.partitions.history.get(key)
        leader = None if states is None else self._brokers.get(states[-1].leader)
        if states is None or leader is None:
            del self._elected[key]
            return
        view = self.view(leader, key)
        if view is not None and view.leader_epoch == states[-1].leader_epoch:
            del self._elected[key]
            self._lead(key, self._copies[key], leader.broker_id, view)

    def _step(self, key: Key) -> None:
        """Each broker that takes itself for the leader appends; those that follow it fetch; it acknowledges."""
        copies = self._copies.setdefault(key, _Copies())
        for broker in self._brokers.values():
            view = self.view(broker, key)
            if view is None or view.leader != broker.broker_id or not broker.can_read(view):
                continue
            self._lead(key, copies, broker.broker_id, view)
            log = copies.log(broker.broker_id)
            log.append(copies.next_number)
            copies.next_number += 1
            for follower in self._brokers.values():
                if follower is not broker and self._rng.random() < FETCHES:
                    records_max = self._rng.randint(1, FETCHED_MAX)
                    self._fetch(key, copies, follower, view, records_max=records_max)
            if self._rng.random() < FLUSHES:
                copies.flushed[broker.broker_id] = len(log)
            self._acknowledge(key, copies, view)

    def _lead(self, key: Key, copies: _Copies, leader_id: int, view: PartitionRegistration) -> None:
        if view.leader_epoch <= copies.led_epoch:
            return
        lost = copies.acknowledged - set(copies.log(leader_id))
        if copies.led_epoch < copies.unclean_epoch <= view.leader_epoch:
            self._world.coverage.count(Happening.APPENDS_LOST_UNCLEANLY, len(lost))
            copies.acknowledged -= lost
        elif lost and self._world.committed.fold.has_elr:
            raise InvariantViolation(
                "AcknowledgedAppends",
                f"{self._world.partitions.names.get(key[0])}-{key[1]}: {leader_id} leads without {len(lost)} of "
                f"{len(copies.acknowledged)} acknowledged records: {view}",
            )
        else:
            self._world.coverage.count(Happening.APPENDS_KEPT, int(bool(copies.acknowledged)))
        copies.led_epoch = view.leader_epoch

    def _fetch(
        self,
        key: Key,
        copies: _Copies,
        follower: SimulatedBroker,
        leaders: PartitionRegistration,
        *,
        records_max: int,
    ) -> None:
        """A follower in the leader's epoch truncates what the leader does not have, and fetches some of the rest."""
        view, broker_id = self.view(follower, key), follower.broker_id
        if view is None or view.leader_epoch != leaders.leader_epoch or broker_id not in view.replicas:
            return
        if not follower.can_read(view):
            return
        assert follower.epoch is not None
        source, log = copies.log(leaders.leader), copies.log(broker_id)
        same = next(
            (place for place, pair in enumerate(zip(source, log, strict=False)) if pair[0] != pair[1]),
            min(len(source), len(log)),
        )
        del log[same:]
        copies.flushed[broker_id] = min(copies.flushed.get(broker_id, 0), same)
        log += source[same : same + records_max]
        if self._rng.random() < FLUSHES:
            copies.flushed[broker_id] = len(log)
        copies.fetched[leaders.leader_epoch, broker_id] = (follower.epoch, len(log))

    def _acknowledge(self, key: Key, copies: _Copies, view: PartitionRegistration) -> None:
        if len(view.isr) < self._min_insync_replicas(key) or view.leader_epoch < copies.unclean_epoch:
            return
        members = set(view.isr)
        for partition_epoch, isr in copies.asked_for.get(view.leader_epoch, ()):
            if partition_epoch >= view.partition_epoch:
                members |= isr
        members.discard(view.leader)
        log = copies.log(view.leader)
        ends = [copies.fetched.get((view.leader_epoch, member), (0, 0))[1] for member in members]
        acknowledged = set(log[: min(ends, default=len(log))]) - copies.acknowledged
        self._world.coverage.count(Happening.APPEND_ACKNOWLEDGED, len(acknowledged))
        copies.acknowledged |= acknowledged

    def _min_insync_replicas(self, key: Key) -> int:
        name = self._world.partitions.names[key[0]]
        return int(
            self._world.committed.fold.row(("config", TOPIC_RESOURCE, name, "min.insync.replicas")) or 1
        )
