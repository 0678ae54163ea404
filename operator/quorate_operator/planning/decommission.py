"""Decommission of brokers: drained of every replica, stopped, unregistered, volumes kept or deleted, forgotten. Pure.

A broker is decommissioned if it exists and is not desired, or if it is registered and its id is in `decommission`.
Other registered brokers are not managed here. Progress is read from what is observed: a broker that is desired again
does not get back the replicas that were moved, and reassignments under way complete, like an administrator's.

The brokers of a pool that is deleted together with its volumes are decommissioned, too. None of them is stopped while
one of them can't be drained. Brokers of a pool whose volumes stay are only stopped, one by one (`with_pool_removal`):
they stay registered, so that the same pool can return with its data.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from quorate_operator.placement.assignment import Assignment
from quorate_operator.placement.cluster import Broker, ObservedPartition
from quorate_operator.placement.goals import remove_brokers
from quorate_operator.planning.addresses import has_publications
from quorate_operator.planning.cluster import (
    BrokerLoad,
    DesiredCluster,
    KafkaFacts,
    NodeState,
    ObservedCluster,
    ObservedNode,
    Role,
    RolloutPolicy,
    VolumePolicy,
)
from quorate_operator.planning.lifecycle import grace_ms
from quorate_operator.planning.liveness import restart_backoff_ms
from quorate_operator.planning.pods import mate_of, stop_with_mate
from quorate_operator.planning.space import refuse_without_room
from quorate_operator.planning.steps import (
    Action,
    DeleteVolume,
    ForgetNode,
    Part,
    Plan,
    ReassignPartitions,
    Refusal,
    RetireAddress,
    SetThrottles,
    StartNode,
    StopNode,
    UnregisterBroker,
    WaitFor,
    WithdrawAddress,
    format_bytes,
    some_of,
    wait_for,
)
from quorate_operator.planning.throttles import Copy, plan_throttles

_label = Role.BROKER.label


@dataclass(frozen=True, slots=True, kw_only=True)
class DecommissionPlan(Part):
    """The steps from the first reassignment to ForgetNode; none of them stops a broker that holds a replica."""

    node_ids: frozenset[int] = frozenset()
    """The brokers that are decommissioned: only this plan starts, stops or restarts them."""


def plan_decommission(desired: DesiredCluster, observed: ObservedCluster, now_ms: int) -> DecommissionPlan:
    """Plan for the brokers to be decommissioned. The caller has ruled out that the cluster is to be stopped."""
    node_ids = _decommissioned(desired, observed)
    if not node_ids:
        ended = _throttles(desired, observed, (), (), None)
        return DecommissionPlan(due=() if ended is None else (ended,))
    if observed.kafka is None:
        wait = wait_for("a leader of the quorum, to find the replicas on brokers that leave", *node_ids)
        return DecommissionPlan(rest=(wait,), node_ids=frozenset(node_ids))
    held: dict[int, list[ObservedPartition]] = {node_id: [] for node_id in node_ids}
    for partition in observed.kafka.partitions:
        for node_id in partition.replicas:
            if node_id in held:
                held[node_id].append(partition)
    drain = _Drain(desired, observed, observed.kafka, held, now_ms)
    for node_id in node_ids:
        drain.plan_broker(node_id)
    pools = sorted(desired.drained_pools)
    for pool in pools:
        drain.hold(pool)
    drain.reassign()
    for pool in pools:
        drain.keep_whole(pool)
    drain.throttle()
    return DecommissionPlan(
        due=tuple(drain.steps),
        rest=tuple(drain.waits),
        refusals=tuple(refusal for refusals in drain.refusals.values() for refusal in refusals),
        node_ids=frozenset(node_ids),
    )


def _throttles(
    desired: DesiredCluster,
    observed: ObservedCluster,
    leaving: Collection[int],
    copies: Iterable[Copy],
    rate_bytes: int | None,
) -> SetThrottles | None:
    if observed.kafka is None:
        return None
    rates = [policy.drain_bytes_per_second for policy in desired.rollouts.values()]
    return plan_throttles(
        observed.kafka,
        copies,
        leaving=leaving,
        rate_bytes=rate_bytes,
        rates_of_pools=[rate for rate in rates if rate is not None],
    )


def refuse_while_hibernated(desired: DesiredCluster) -> tuple[Refusal, ...]:
    """Return what a hibernated cluster can't do: drain the pools that are deleted together with their volumes."""
    return tuple(
        Refusal(
            code="Hibernated",
            message=f"KafkaBroker {pool} is deleted together with its volumes, and can't be drained while the "
            f"cluster is hibernated: set state of KafkaController {desired.name} to Running; "
            f"{_ways_out(desired, pool)}",
            pool=pool,
        )
        for pool in sorted(desired.drained_pools)
    )


def _decommissioned(desired: DesiredCluster, observed: ObservedCluster) -> tuple[int, ...]:
    staying = {node.node_id for node in desired.nodes}
    present = {
        node.node_id for node in observed.nodes.values() if node.role is Role.BROKER and not node.is_forgotten
    }
    registrations = observed.kafka.registrations.values() if observed.kafka else ()
    registered = {registration.node_id for registration in registrations if registration.role is Role.BROKER}
    return tuple(sorted((present | (registered & desired.decommission)) - staying))


@dataclass(slots=True)
class _Drain:
    """Plans one pass over all brokers to be decommissioned."""

    desired: DesiredCluster
    observed: ObservedCluster
    kafka: KafkaFacts
    held: Mapping[int, list[ObservedPartition]]
    """The partitions of which each of them has a replica, by broker."""
    now_ms: int
    steps: list[Action] = field(default_factory=list)
    waits: list[WaitFor] = field(default_factory=list)
    refusals: dict[int, list[Refusal]] = field(default_factory=dict)
    """The refusals by broker that can't be drained."""
    to_drain: list[int] = field(default_factory=list)

    def plan_broker(self, node_id: int) -> None:
        """Plan for one broker, except for moving its partitions."""
        held = self.held[node_id]
        seen = self.observed.nodes.get(node_id)
        if held:
            self._keep_serving(node_id, held, seen)
            return
        if seen is not None and _has_pod(seen):
            if seen.unreachable_host:
                reason = f"the machine of {_label(node_id)} to answer: the broker may still run"
                self.waits.append(wait_for(reason, node_id))
                return
            controller = mate_of(seen, self.observed)
            if controller is not None and controller.node_id in self.kafka.quorum.voters:
                reason = f"{controller.label}, in the pod of {_label(node_id)}, to leave the quorum"
                self.waits.append(wait_for(reason, node_id))
                return
            reason = "it leaves and holds no replica"
            allowed_ms = grace_ms(Role.BROKER, self.desired.rollouts.get(seen.pool))
            stop = StopNode(node_id=node_id, grace_ms=allowed_ms, reason=reason)
            self.steps += stop_with_mate(stop, self.observed, grace_ms(Role.CONTROLLER))
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
        """Plan for a broker with replicas: it is drained unless that is refused, and started if it is needed."""
        is_refused = self._refuse_scale_down(node_id, held) or self._refuse(node_id, held)
        if not is_refused:
            self.to_drain.append(node_id)
        alone = [partition for partition in held if not self._has_another_in_sync(partition, node_id)]
        if seen is None or seen.state.runs or not (alone or is_refused):
            return
        if seen.state is NodeState.ABSENT:
            if alone:
                what = some_of(sorted({partition.partition.topic for partition in alone}))
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

    def _refuse_scale_down(self, node_id: int, held: Collection[ObservedPartition]) -> bool:
        """Refuse to drain a broker that is left over, if its pool says so."""
        pool = self._pool(node_id)
        policy = self.desired.rollouts.get(pool, RolloutPolicy())
        if policy.drains_on_scale_down or node_id in self.desired.decommission:
            return False
        self._refused(
            node_id,
            Refusal(
                code="ScaleDownRefused",
                message=f"{_label(node_id)} stays, as drain.onScaleDown of {pool} asks, because it holds "
                f"{len(held)} replica(s): set replicas back; or have the broker drained, by its id in decommission "
                "or by a KafkaRebalance of mode RemoveBrokers",
                pool=pool,
            ),
        )
        return True

    def _pool(self, node_id: int) -> str:
        """Return the pool of a broker that leaves; an empty name if it is not known any more."""
        known = {node.node_id: node.pool for node in self.desired.drained}
        known |= {node.node_id: node.pool for node in self.observed.nodes.values()}
        return known.get(node_id, "")

    def _refuse(self, node_id: int, held: Iterable[ObservedPartition]) -> bool:
        staying = len(self.desired.of_role(Role.BROKER))
        too_wide = {
            f"{partition.partition.topic} ({len(partition.assigned)})"
            for partition in held
            if len(partition.assigned) > staying
        }
        if not too_wide:
            return False
        self._refused(
            node_id,
            Refusal(
                code="TooFewBrokers",
                message=f"{_label(node_id)} can't leave: {staying} broker(s) stay, and topics have more replicas: "
                f"{some_of(sorted(too_wide))}; keep more brokers, lower their replication factors or delete them",
            ),
        )
        return True

    def _refused(self, node_id: int, refusal: Refusal) -> None:
        self.refusals.setdefault(node_id, []).append(refusal)

    def reassign(self) -> None:
        """Move a batch of partitions from drained brokers, within the limits of `InFlight`."""
        if not self.to_drain:
            return
        partitions = self.kafka.partitions
        assignment = Assignment(self._brokers(), partitions)
        for node_id in self.to_drain:
            own = [index for index, replicas in enumerate(assignment.replicas) if node_id in replicas]
            stuck = remove_brokers(assignment, self.held, own, is_limited=True)
            targets = {
                partitions[index].partition: tuple(assignment.replicas[index])
                for index in own
                if node_id not in assignment.replicas[index]
            }
            if targets:
                reason = f"{_label(node_id)} leaves: {len(targets)} of its partitions move to others"
                self.steps.append(ReassignPartitions(node_id=node_id, targets=targets, reason=reason))
            if stuck:
                self._explain(node_id, stuck[0], assignment)
            self.waits.append(self._progress(node_id))

    def _brokers(self) -> Iterator[Broker]:
        """Yield the registered brokers; replicas go to those that are desired and in service."""
        desired = {node.node_id for node in self.desired.of_role(Role.BROKER)}
        for node_id, registration in self.kafka.registrations.items():
            if registration.role is not Role.BROKER:
                continue
            seen, load = self.observed.nodes.get(node_id), self.kafka.loads.get(node_id, BrokerLoad())
            yield Broker(
                broker_id=node_id,
                rack=registration.rack,
                is_in_service=node_id in desired
                and not registration.fenced
                and not registration.in_controlled_shutdown
                and seen is not None
                and seen.state is NodeState.READY,
                is_decommissioned=node_id in self.held,
                room_bytes=load.room_bytes,
                replicas=load.replicas,
            )

    def _explain(self, node_id: int, index: int, assignment: Assignment) -> None:
        """Refuse, or wait, for a partition that can't move."""
        partition = assignment.partitions[index].partition
        name = f"{partition.topic}-{partition.number}"
        refusal = refuse_without_room(assignment, index, name, f"can't leave {_label(node_id)}")
        if refusal is not None:
            self._refused(node_id, refusal)
            return
        staying = len(self.desired.of_role(Role.BROKER))
        in_service = f"{len(assignment.targets)} of {staying} are"
        reason = f"a broker that can take a replica of {name} to be in service: {in_service}"
        self.waits.append(wait_for(reason, node_id))

    def hold(self, pool: str) -> None:
        """Move nothing from a deleted pool of which a broker can't be drained."""
        members = self._members(pool)
        if not self.refusals.keys().isdisjoint(members):
            self.to_drain = [node_id for node_id in self.to_drain if node_id not in members]

    def keep_whole(self, pool: str) -> None:
        """Stop no broker of a deleted pool while one of them can't be drained.

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
        if moves or any(node_id in partition.removing for node_id, own in held.items() for partition in own):
            return
        holders = some_of(
            [f"{_label(node_id)} holds {len(own)} replica(s)" for node_id, own in held.items() if own]
        )
        message = (
            f"KafkaBroker {pool} is deleted together with its volumes, but can't be drained, and none of its brokers "
            f"is stopped: {holders}. Make room with another pool of brokers; {_ways_out(self.desired, pool)}. "
            f"The reason: {causes[0].message}"
        )
        self.refusals[min(members)] = [Refusal(code=causes[0].code, message=message, pool=pool)]

    def throttle(self) -> None:
        """Set the throttles before replicas move, and remove them before the last broker is forgotten."""
        planned = {
            partition: target
            for step in self.steps
            if isinstance(step, ReassignPartitions)
            for partition, target in step.targets.items()
        }
        copies: list[Copy] = []
        rates: list[int] = []
        for node_id, held in self.held.items():
            policy = self.desired.rollouts.get(self._pool(node_id), RolloutPolicy())
            if policy.drain_bytes_per_second is None:
                continue
            own = [
                Copy(partition, planned.get(partition.partition, partition.assigned))
                for partition in held
                if node_id in partition.removing or partition.partition in planned
            ]
            if own:
                copies += own
                rates.append(policy.drain_bytes_per_second)
        step = _throttles(self.desired, self.observed, self.held, copies, min(rates, default=None))
        if step is None:
            return
        held_back = (ReassignPartitions, ForgetNode)
        self.steps = [step, *(other for other in self.steps if not isinstance(other, held_back))]
        self.waits.insert(0, wait_for("the throttles of replicas to be set", *sorted(self.held)))

    def _members(self, pool: str) -> tuple[int, ...]:
        """Return the brokers of a deleted pool that leave, in order."""
        return tuple(node_id for node_id in sorted(self.held) if self._pool(node_id) == pool)

    def _progress(self, node_id: int) -> WaitFor:
        held = self.held[node_id]
        moving = sum(node_id in partition.removing for partition in held)
        sizes = [partition.size_bytes for partition in held if partition.size_bytes is not None]
        size = f", {format_bytes(sum(sizes))}" if sizes else ""
        return wait_for(
            f"{_label(node_id)} to be drained: {len(held)} partitions left{size}; {moving} are on the move",
            node_id,
        )

    def _clear(self, seen: ObservedNode) -> None:
        """Delete a stopped broker's volume by policy, and forget it once no address points at it."""
        policy = self.desired.rollouts.get(seen.pool, RolloutPolicy()).volumes
        if seen.has_volume and policy is VolumePolicy.DELETE:
            reason = f"{seen.label} has left, and its pool deletes volumes"
            self.steps.append(DeleteVolume(node_id=seen.node_id, reason=reason))
        elif not has_publications(self.observed, seen.node_id):
            self.steps.append(ForgetNode(node_id=seen.node_id, reason="it has left"))


def _ways_out(desired: DesiredCluster, pool: str) -> str:
    """Return how a deleted pool that can't be drained can still be removed."""
    return (
        f"or set storage.onDeletion of {pool} to Retain, which stops its brokers and keeps their volumes and "
        f"registrations; or delete KafkaController {desired.name} as well, and with it the whole cluster"
    )


def with_pool_removal(plan: Plan, removed: Mapping[int, ObservedNode]) -> Plan:
    """Return the cluster's plan together with the steps for brokers of deleted pools.

    `removed` has the brokers of which anything exists, by node id.
    """
    if not removed:
        return plan
    # Their names go with their Services; the plan does not know these brokers.
    own = tuple(
        step
        for step in plan.steps
        if not (isinstance(step, RetireAddress | WithdrawAddress) and step.node_id in removed)
    )
    plan = replace(plan, steps=own)
    is_busy = any(isinstance(step, StopNode) for step in plan.due)
    part = _pool_removal(removed, is_busy=is_busy)
    return replace(plan, steps=(*part.due, *plan.steps, *part.rest))


def _pool_removal(removed: Mapping[int, ObservedNode], *, is_busy: bool) -> Part:
    present = [node for _, node in sorted(removed.items()) if _has_pod(node)]
    away = [node for node in present if node.unreachable_host]
    waits = tuple(
        wait_for(f"the machine of {node.label}, whose pool is deleted, to answer", node.node_id)
        for node in away
    )
    there = [node for node in present if not node.unreachable_host]
    if there and is_busy:
        reason = f"the turn of {there[0].label}, whose pool is deleted: another node is being stopped"
        return Part(rest=(*waits, wait_for(reason, there[0].node_id)))
    if there:
        reason = f"KafkaBroker {there[0].pool} is deleted; its volumes stay"
        allowed_ms = grace_ms(there[0].role)
        return Part(due=(StopNode(node_id=there[0].node_id, reason=reason, grace_ms=allowed_ms),), rest=waits)
    return Part(rest=waits)


def remaining_pools(
    removed: Mapping[int, ObservedNode],
    drained: Collection[str],
    desired: DesiredCluster | None = None,
    kafka: KafkaFacts | None = None,
) -> frozenset[str]:
    """Return the deleted pools of which something is left that has to go before them.

    That is a pod; of the `drained` ones, also a volume, and a registration in `kafka`. `removed` has the
    nodes of all deleted pools.
    """
    present = {
        node.pool for node in removed.values() if _has_pod(node) or (node.has_volume and node.pool in drained)
    }
    registered = kafka.registrations if kafka is not None else {}
    brokers = desired.drained if desired is not None else ()
    return frozenset(present | {node.pool for node in brokers if node.node_id in registered})


def _has_pod(node: ObservedNode) -> bool:
    """Whether a pod exists, also one whose process has ended."""
    return node.state.runs or node.state is NodeState.CRASHED
