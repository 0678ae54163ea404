"""Brokers that leave: drained of every replica, stopped, unregistered, forgotten, volumes kept or deleted. Pure.

A broker leaves if it exists and is not desired, or if it is registered and its id is decommissioned. Other registered
brokers are not managed here. Progress is read from what is observed: a broker that is desired again does not get back
the replicas that were moved, and reassignments under way complete, because they look like an administrator's.

The brokers of a pool that is deleted together with its volumes leave like this, too. None of them is stopped while
one of them can't be drained.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from quorate_operator.planning.addresses import has_publications
from quorate_operator.planning.cluster import (
    DesiredCluster,
    KafkaFacts,
    NodeState,
    ObservedCluster,
    ObservedNode,
    ObservedPartition,
    Role,
    RolloutPolicy,
    VolumePolicy,
)
from quorate_operator.planning.departure import has_pod
from quorate_operator.planning.lifecycle import GRACE_MS
from quorate_operator.planning.liveness import restart_backoff_ms
from quorate_operator.planning.relocation import Relocation, format_bytes
from quorate_operator.planning.steps import (
    Action,
    DeleteVolume,
    ForgetNode,
    ReassignPartitions,
    Refusal,
    StartNode,
    StopNode,
    UnregisterBroker,
    WaitFor,
    wait_for,
)

_TOPICS_NAMED_MAX = 5
_label = Role.BROKER.label


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainPlan:
    """The steps for brokers that leave, from the first reassignment to ForgetNode.

    `steps` are due at once; none of them stops a broker that holds a replica.
    """

    steps: tuple[Action, ...] = ()
    waits: tuple[WaitFor, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    leaving: frozenset[int] = field(default_factory=frozenset)
    """The brokers that leave: only this plan starts, stops or restarts them."""


def plan_drain(desired: DesiredCluster, observed: ObservedCluster, now_ms: int) -> DrainPlan:
    """Plans for the brokers that leave. The caller has ruled out that the cluster is to be stopped."""
    leaving = _leaving(desired, observed)
    if not leaving:
        return DrainPlan()
    if observed.kafka is None:
        wait = wait_for("a leader of the quorum, to find the replicas on brokers that leave", *leaving)
        return DrainPlan(waits=(wait,), leaving=frozenset(leaving))
    held: dict[int, list[ObservedPartition]] = {node_id: [] for node_id in leaving}
    for partition in observed.kafka.partitions:
        for node_id in partition.replicas:
            if node_id in held:
                held[node_id].append(partition)
    drain = _Drain(desired, observed, observed.kafka, held, now_ms)
    for node_id in leaving:
        drain.plan_broker(node_id)
    pools = sorted(desired.drained_pools)
    for pool in pools:
        drain.hold(pool)
    drain.reassign()
    for pool in pools:
        drain.keep_whole(pool)
    return DrainPlan(
        steps=tuple(drain.steps),
        waits=tuple(drain.waits),
        refusals=tuple(refusal for refusals in drain.refusals.values() for refusal in refusals),
        leaving=frozenset(leaving),
    )


def refuse_while_hibernated(desired: DesiredCluster) -> tuple[Refusal, ...]:
    """Returns what a hibernated cluster can't do: drain the pools that are deleted together with their volumes."""
    return tuple(
        Refusal(
            code="Hibernated",
            message=f"KafkaBroker {pool} is deleted together with its volumes, and can't be drained while the "
            f"cluster is hibernated: set hibernated of KafkaController {desired.name} to false; "
            f"{_ways_out(desired, pool)}",
            pool=pool,
        )
        for pool in sorted(desired.drained_pools)
    )


def _leaving(desired: DesiredCluster, observed: ObservedCluster) -> tuple[int, ...]:
    staying = {node.node_id for node in desired.nodes}
    present = {
        node.node_id for node in observed.nodes.values() if node.role is Role.BROKER and not node.is_forgotten
    }
    registrations = observed.kafka.registrations.values() if observed.kafka else ()
    registered = {registration.node_id for registration in registrations if registration.role is Role.BROKER}
    return tuple(sorted((present | (registered & desired.decommission)) - staying))


@dataclass(slots=True)
class _Drain:
    """Plans one look at all brokers that leave."""

    desired: DesiredCluster
    observed: ObservedCluster
    kafka: KafkaFacts
    held: Mapping[int, list[ObservedPartition]]
    """The partitions of which each leaving broker has a replica, by broker."""
    now_ms: int
    steps: list[Action] = field(default_factory=list)
    waits: list[WaitFor] = field(default_factory=list)
    refusals: dict[int, list[Refusal]] = field(default_factory=dict)
    """The refusals by broker that can't be drained."""
    to_drain: list[int] = field(default_factory=list)

    def plan_broker(self, node_id: int) -> None:
        """Plans for one broker, except for moving its partitions."""
        held = self.held[node_id]
        seen = self.observed.nodes.get(node_id)
        if held:
            self._keep_serving(node_id, held, seen)
            return
        if seen is not None and has_pod(seen):
            if seen.unreachable_host:
                reason = f"the machine of {_label(node_id)} to answer: the broker may still run"
                self.waits.append(wait_for(reason, node_id))
                return
            reason = "it leaves and holds no replica"
            self.steps.append(StopNode(node_id=node_id, grace_ms=GRACE_MS, reason=reason))
            return
        registration = self.kafka.registrations.get(node_id)
        if registration is not None:
            if registration.fenced:
                self.steps.append(
                    UnregisterBroker(node_id=node_id, reason="it has left and holds no replica")
                )
            else:
                reason = f"{_label(node_id)}, which was stopped, to be fenced"
                self.waits.append(wait_for(reason, node_id))
            return
        if seen is not None:
            self._clear(seen)

    def _keep_serving(self, node_id: int, held: list[ObservedPartition], seen: ObservedNode | None) -> None:
        """Plans for a broker with replicas: it is drained unless that is refused, and started if it is needed."""
        is_refused = self._refuse(node_id, held)
        if not is_refused:
            self.to_drain.append(node_id)
        alone = [one for one in held if not self._has_another_in_sync(one, node_id)]
        if seen is None or seen.state.runs or not (alone or is_refused):
            return
        if seen.state is NodeState.ABSENT:
            if alone:
                what = _some(sorted({one.partition.topic for one in alone}))
                self._refused(
                    node_id,
                    Refusal(
                        code="PartitionsLost",
                        message=f"{_label(node_id)} has lost its disk, and no other broker has a replica in "
                        f"sync of {what}: delete these topics, or elect leaders uncleanly, before it can leave",
                    ),
                )
            return
        due_ms = (seen.exited_at_ms or 0) + restart_backoff_ms(seen.exits_in_a_row)
        if seen.state is NodeState.CRASHED and self.now_ms < due_ms:
            reason = f"{_label(node_id)} died and is started again after a pause"
            self.waits.append(wait_for(reason, node_id, until_ms=due_ms))
            return
        reason = (
            f"{len(alone)} partitions have no other replica in sync"
            if alone
            else "it can't leave, and does not run"
        )
        self.steps.append(StartNode(node_id=node_id, reason=reason))

    def _has_another_in_sync(self, partition: ObservedPartition, node_id: int) -> bool:
        """Whether another broker in service has the whole partition."""
        return any(
            other != node_id
            and other in self.kafka.registrations
            and not self.kafka.registrations[other].fenced
            for other in partition.isr
        )

    def _refuse(self, node_id: int, held: Iterable[ObservedPartition]) -> bool:
        staying = len(self.desired.of_role(Role.BROKER))
        too_wide = {f"{one.partition.topic} ({_factor(one)})" for one in held if _factor(one) > staying}
        if not too_wide:
            return False
        self._refused(
            node_id,
            Refusal(
                code="TooFewBrokers",
                message=f"{_label(node_id)} can't leave: {staying} broker(s) stay, and topics have more replicas: "
                f"{_some(sorted(too_wide))}; keep more brokers, lower their replication factors or delete them",
            ),
        )
        return True

    def _refused(self, node_id: int, refusal: Refusal) -> None:
        self.refusals.setdefault(node_id, []).append(refusal)

    def reassign(self) -> None:
        """Moves a batch of partitions from drained brokers, within the limits of `Relocation`."""
        if not self.to_drain:
            return
        relocation = Relocation(self.desired, self.observed, self.kafka, frozenset(self.held))
        for node_id in self.to_drain:
            targets, obstacle = relocation.batch(node_id)
            if targets:
                reason = f"{_label(node_id)} leaves: {len(targets)} of its partitions move to others"
                self.steps.append(ReassignPartitions(node_id=node_id, targets=targets, reason=reason))
            if isinstance(obstacle, Refusal):
                self._refused(node_id, obstacle)
            elif obstacle is not None:
                self.waits.append(obstacle)
            self.waits.append(self._progress(node_id))

    def hold(self, pool: str) -> None:
        """Moves nothing from a deleted pool of which a broker can't be drained."""
        members = self._members(pool)
        if not self.refusals.keys().isdisjoint(members):
            self.to_drain = [node_id for node_id in self.to_drain if node_id not in members]

    def keep_whole(self, pool: str) -> None:
        """Stops no broker of a deleted pool while one of them can't be drained.

        Once nothing moves any more, it says why, and what can be done: the figures in the message change no more.
        """
        members = self._members(pool)
        causes = [refusal for node_id in members for refusal in self.refusals.pop(node_id, ())]
        if not causes:
            return
        self.steps = [
            step for step in self.steps if not (isinstance(step, StopNode) and step.node_id in members)
        ]
        self.waits.append(wait_for(f"KafkaBroker {pool}, which is deleted, to be drained", *members))
        held = {node_id: self.held[node_id] for node_id in members}
        moves = any(isinstance(step, ReassignPartitions) and step.node_id in held for step in self.steps)
        if moves or any(node_id in one.removing for node_id, own in held.items() for one in own):
            return
        holders = _some(
            [f"{_label(node_id)} holds {len(own)} replica(s)" for node_id, own in held.items() if own]
        )
        message = (
            f"KafkaBroker {pool} is deleted together with its volumes, but can't be drained, and none of its brokers "
            f"is stopped: {holders}. Make room with another pool of brokers; {_ways_out(self.desired, pool)}. "
            f"The reason: {causes[0].message}"
        )
        self.refusals[min(members)] = [Refusal(code=causes[0].code, message=message, pool=pool)]

    def _members(self, pool: str) -> tuple[int, ...]:
        """Returns the brokers of a deleted pool that leave, in order."""
        known = {node.node_id: node.pool for node in self.desired.drained}
        known |= {node.node_id: node.pool for node in self.observed.nodes.values()}
        return tuple(node_id for node_id in sorted(self.held) if known.get(node_id) == pool)

    def _progress(self, node_id: int) -> WaitFor:
        held = self.held[node_id]
        moving = sum(node_id in one.removing for one in held)
        sizes = [one.size_bytes for one in held if one.size_bytes is not None]
        size = f", {format_bytes(sum(sizes))}" if sizes else ""
        return wait_for(
            f"{_label(node_id)} to be drained: {len(held)} partitions left{size}; {moving} are on the move",
            node_id,
        )

    def _clear(self, seen: ObservedNode) -> None:
        """Deletes a stopped broker's volume by policy, and forgets it once no address points at it."""
        policy = self.desired.rollouts.get(seen.pool, RolloutPolicy()).volumes
        if seen.has_volume and policy is VolumePolicy.DELETE:
            reason = f"{seen.label} has left, and its pool deletes volumes"
            self.steps.append(DeleteVolume(node_id=seen.node_id, reason=reason))
        elif not has_publications(self.observed, seen.node_id):
            self.steps.append(ForgetNode(node_id=seen.node_id, reason="it has left"))


def _ways_out(desired: DesiredCluster, pool: str) -> str:
    """Returns how a deleted pool that can't be drained can be removed nevertheless."""
    return (
        f"or set storage.onDeletion of {pool} to Retain, which stops its brokers and keeps their volumes and "
        f"registrations; or delete KafkaController {desired.name} as well, and with it the whole cluster"
    )


def _factor(partition: ObservedPartition) -> int:
    """Returns how many replicas the partition has after the present reassignment."""
    return sum(replica not in partition.removing for replica in partition.replicas)


def _some(names: list[str]) -> str:
    """Returns some of the names, and the number of the others."""
    more = len(names) - _TOPICS_NAMED_MAX
    return ", ".join(names[:_TOPICS_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
