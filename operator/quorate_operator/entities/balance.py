"""Plans one KafkaRebalance: a proposal, its approval, slice after slice, the end, or a stop. Pure.

Progress is read from the cluster. The status stores what is not in the cluster: the proposal that was approved, the
moves of the slice under way, and which throttles are the operator's own. It is written before a change.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256

from quorate_operator.entities.balance_facts import (
    DIRECTORY_RATE,
    NOTHING_STORED,
    RATES,
    CancelMoves,
    ElectLeaders,
    MoveReplicas,
    MoveToDirectories,
    ObservedBalance,
    SetRates,
    SetThrottled,
    StoredRebalance,
)
from quorate_operator.entities.plan import Change, EntityPlan
from quorate_operator.models.rebalances import (
    ANNOTATION_APPROVE,
    ANNOTATION_REFRESH,
    LOADS_MAX,
    PARTITIONS_AT_A_TIME_MAX,
    KafkaRebalance,
    LoadStatus,
    ProgressStatus,
    ProposalStatus,
)
from quorate_operator.placement.cluster import Broker, PartitionId
from quorate_operator.placement.directories import DirectoryMove, even_directories, incoming_replicas
from quorate_operator.placement.goals import Goals, Mode, Move, RebalancePlan, is_movable, plan_moves
from quorate_operator.planning.steps import Refusal, format_bytes, some_of
from quorate_operator.planning.throttles import FOLLOWER_RATE, FOLLOWER_REPLICAS, LEADER_RATE, LEADER_REPLICAS

WAITING, READY, REBALANCING = "Waiting", "ProposalReady", "Rebalancing"
STOPPING, STOPPED, BALANCED = "Stopping", "Stopped", "Balanced"
MOVING, DOUBTFUL = "Moving", "Doubtful"
_NEXT_SLICE = "the next slice to be planned"
ID_LENGTH = 8
ELECTIONS_MAX = 1_000
"""The number of partitions in one ElectLeaders request."""


def goals_of(resource: KafkaRebalance) -> Goals:
    """Return what a resource asks for."""
    spec = resource.spec
    return Goals(
        mode=Mode(spec.mode),
        brokers=frozenset(spec.brokers),
        include=spec.topics.include,
        exclude=spec.topics.exclude,
    )


def needs_all(resource: KafkaRebalance, stored: StoredRebalance, brokers: Sequence[Broker]) -> bool:
    """Whether all partitions have to be known: not while a slice is under way, and not when nothing is to be done."""
    if resource.spec.stopped or stored.slice:
        return False
    proposal = stored.proposal
    if proposal is None or _is_void(resource, proposal, brokers):
        return True
    return not proposal.is_done and (proposal.is_approved or _is_approved(resource, proposal))


def plan_rebalancing(
    resource: KafkaRebalance, observed: ObservedBalance, stored: StoredRebalance, *, is_deleted: bool
) -> EntityPlan:
    """Plan the next step of a rebalance."""
    current = _Pass(resource, observed, stored)
    if is_deleted or resource.spec.stopped:
        return current.stop()
    if stored.slice:
        return current.advance()
    return current.begin()


@dataclass(slots=True)
class _Pass:
    resource: KafkaRebalance
    observed: ObservedBalance
    stored: StoredRebalance

    # The slice under way

    def advance(self) -> EntityPlan:
        """Request what was not requested yet, wait, and end the slice."""
        here = [move for move in self.stored.slice if move.partition in self.observed.partitions]
        moving = [move for move in here if self._is_ours(move)]
        lacking = [move for move in here if not self._is_there(move) and not self._is_ours(move)]
        if self.stored.slice_state is None:
            # Partitions that another client is moving are left alone. If another client has moved one, the slice is
            # planned again.
            due = [move for move in lacking if not self.observed.partitions[move.partition].is_moving]
            if any(self.observed.partitions[move.partition].replicas != move.replicas for move in due):
                return self._abandon()
            if due:
                return self._request(due)
        if moving:
            self.stored = replace(self.stored, slice_state=MOVING)
            left = sum(move.moved_bytes for move in moving)
            number = f"{len(moving)} of {len(self.stored.slice)} partition(s) of the slice"
            wait = f"{number} to be moved, {format_bytes(left)}"
            changes, rates = self._rate_changes(self.resource.spec.rate_bytes)
            return self._plan(REBALANCING, changes, waits=(wait,), rates=rates)
        if lacking and self.stored.slice_state == MOVING:
            # The broker's metadata may be older than the end of the moves.
            self.stored = replace(self.stored, slice_state=DOUBTFUL)
            return self._plan(REBALANCING, waits=(f"news of {len(lacking)} partition(s) of the slice",))
        return self._end_slice(here, is_broken=bool(lacking))

    def _end_slice(self, here: Sequence[Move], *, is_broken: bool) -> EntityPlan:
        """Elect leaders, remove throttles, and count the slice. Moves that others cancelled are proposed again."""
        ended: list[Change] = [*self._elections(here), *self._unthrottle()]
        if ended:
            return self._plan(REBALANCING, ended)
        there = [move for move in here if self._is_there(move)]
        done = self.stored.progress
        self.stored = replace(
            self.stored,
            slice=(),
            slice_state=None,
            proposal=_voided(self.stored.proposal) if is_broken else self.stored.proposal,
            progress=ProgressStatus(
                slices=done.slices + 1,
                partitions=done.partitions + len(there),
                size_bytes=done.size_bytes + sum(move.moved_bytes for move in there),
            ),
        )
        return self._plan(REBALANCING, continues=True, waits=(_NEXT_SLICE,))

    def _abandon(self) -> EntityPlan:
        """Give up a slice that was not begun."""
        changes = self._unthrottle()
        if not changes:
            self.stored = replace(self.stored, slice=(), slice_state=None)
        return self._plan(REBALANCING, changes, continues=True, waits=(_NEXT_SLICE,))

    def _request(self, moves: Sequence[Move]) -> EntityPlan:
        rate_changes, rates = self._rate_changes(self.resource.spec.rate_bytes)
        throttled = self._throttled() if self.resource.spec.rate_bytes is not None else {}
        absent = {
            topic: dict(values)
            for topic, values in throttled.items()
            if not self.observed.throttled.get(topic)  # throttles of other clients stay
        }
        changes: list[Change] = list(rate_changes)
        if absent:
            changes.append(SetThrottled(topics=absent))
        size = sum(move.moved_bytes for move in moves)
        changes.append(MoveReplicas(targets={move.partition: move.target for move in moves}, size_bytes=size))
        return self._plan(REBALANCING, changes, rates=rates)

    def _is_there(self, move: Move) -> bool:
        partition = self.observed.partitions[move.partition]
        return not partition.is_moving and partition.replicas == move.target

    def _is_ours(self, move: Move) -> bool:
        partition = self.observed.partitions.get(move.partition)
        return partition is not None and partition.is_moving and {*partition.assigned} == {*move.target}

    def _elections(self, moves: Sequence[Move]) -> list[Change]:
        return _elections(self.observed, [move.partition for move in moves if self._is_there(move)])

    def _throttled(self) -> dict[str, dict[str, str]]:
        """Return the throttled replicas of the slice's topics: sources as leaders, new replicas as followers."""
        found: dict[str, tuple[list[str], list[str]]] = {}
        for move in sorted(self.stored.slice, key=lambda slice_move: slice_move.partition):
            if not move.adding:
                continue
            leaders, followers = found.setdefault(move.partition.topic, ([], []))
            leaders += [f"{move.partition.number}:{broker}" for broker in sorted(move.replicas)]
            followers += [f"{move.partition.number}:{broker}" for broker in sorted(move.adding)]
        return {
            topic: {LEADER_REPLICAS: ",".join(leaders), FOLLOWER_REPLICAS: ",".join(followers)}
            for topic, (leaders, followers) in found.items()
        }

    def _unthrottle(self) -> list[Change]:
        """Remove throttled replicas if they are those of the slice; others belong to other clients."""
        topics: dict[str, dict[str, str | None]] = {}
        for topic, values in self._throttled().items():
            there = self.observed.throttled.get(topic, {})
            own = [name for name, value in values.items() if there.get(name) == value]
            if own:
                topics[topic] = dict.fromkeys(own)
        return [SetThrottled(topics=topics)] if topics else []

    def _rate_changes(
        self, wanted: int | None, names: Sequence[str] = (LEADER_RATE, FOLLOWER_RATE)
    ) -> tuple[list[Change], tuple[int, ...]]:
        """Return the changes that set the operator's own rates to `wanted`, and the rates to store as its own."""
        own = {str(rate) for rate in self.stored.rates}
        there = self.observed.rates
        text = None if wanted is None else str(wanted)
        rates = {
            name: text
            for name in (RATES if wanted is None else names)
            if there.get(name) != text and (there.get(name) is None or there[name] in own)
        }
        kept = {int(value) for value in there.values() if value in own}
        if wanted is not None and (rates or str(wanted) in own):
            kept.add(wanted)
        return ([SetRates(rates=rates)] if rates else []), tuple(sorted(kept))

    # The end

    def stop(self) -> EntityPlan:
        """Cancel the moves of the slice and remove throttles; what has been moved stays."""
        ours = tuple(move.partition for move in self.stored.slice if self._is_ours(move))
        changes: list[Change] = [CancelMoves(partitions=ours)] if ours else []
        rate_changes, rates = self._rate_changes(None)
        changes += [*self._unthrottle(), *rate_changes]
        if changes:
            return self._plan(STOPPING, changes, rates=rates)
        self.stored = replace(NOTHING_STORED, proposal=_voided(self.stored.proposal), rates=rates)
        return self._plan(STOPPED)

    def _finish(self) -> EntityPlan:
        rate_changes, rates = self._rate_changes(None)
        changes = [*rate_changes]
        if goals_of(self.resource).mode is Mode.FULL:
            changes += _elections(self.observed, _covered(self.resource, self.observed))
        if changes:
            return self._plan(REBALANCING, changes, rates=rates)
        assert self.stored.proposal is not None
        self.stored = replace(
            self.stored, proposal=self.stored.proposal.model_copy(update={"is_done": True}), rates=rates
        )
        return self._plan(BALANCED)

    # Proposals

    def begin(self) -> EntityPlan:
        """Propose, wait for approval, or begin the next slice."""
        proposal = self.stored.proposal
        is_void = proposal is None or _is_void(self.resource, proposal, self.observed.brokers)
        if is_void or proposal is None:
            return self._propose()
        if proposal.is_done:
            return self._plan(BALANCED)
        if not (proposal.is_approved or _is_approved(self.resource, proposal)):
            return self._plan(READY, waits=(_approval_text(proposal),))
        return self._carry_out(proposal)

    def _propose(self) -> EntityPlan:
        obstacle = self._obstacle()
        if obstacle is not None:
            return obstacle
        brokers = _members(self.observed.brokers)
        plan = self._moves()
        data = [move for move in plan.moves if move.adding]
        goals = _digest(self.resource)
        between = self._directory_moves()
        proposal = ProposalStatus(
            id=_id(self.stored.proposal, goals, brokers, plan.moves, between),
            goals=goals,
            brokers=brokers,
            partitions=len(data),
            leaders=len(plan.moves) - len(data),
            size_bytes=sum(move.moved_bytes for move in data),
            directory_replicas=len(between),
            directory_bytes=sum(move.size_bytes for move in between),
        )
        proposal = proposal.model_copy(update={"is_approved": _is_approved(self.resource, proposal)})
        self.stored = replace(
            self.stored,
            proposal=proposal,
            progress=ProgressStatus(),
            loads=_loads(plan),
            slice=(),
            slice_state=None,
        )
        refusals = _refusals(plan)
        rate_changes, rates = self._rate_changes(None)
        if not plan.moves and not between and not refusals:
            return self._finish()
        if not proposal.is_approved:
            wait = (_approval_text(proposal),) if plan.moves or between else ()
            return self._plan(READY, rate_changes, waits=wait, refusals=refusals, rates=rates)
        return self._plan(REBALANCING, continues=True, waits=(_NEXT_SLICE,), refusals=refusals)

    def _carry_out(self, proposal: ProposalStatus) -> EntityPlan:
        obstacle = self._obstacle()
        if obstacle is not None:
            return obstacle
        self.stored = replace(self.stored, proposal=proposal.model_copy(update={"is_approved": True}))
        plan = self._moves()
        if not plan.moves:
            refusals = _refusals(plan)
            return self._plan(REBALANCING, refusals=refusals) if refusals else self._even_directories()
        self.stored = replace(
            self.stored,
            slice=next_slice(plan.moves, self.resource.spec.partitions_at_a_time),
            slice_state=None,
        )
        return self._request(self.stored.slice)

    def _even_directories(self) -> EntityPlan:
        """Move some replicas between directories of their brokers, wait for them, and end when all is even.

        Nothing of it is stored: moves under way are in what brokers say of their directories.
        """
        left = incoming_replicas(self.observed.directories)
        moves = self._directory_moves()[: self.resource.spec.partitions_at_a_time]
        if not left and not moves:
            return self._finish()
        rate_changes, rates = self._rate_changes(self.resource.spec.rate_bytes, (DIRECTORY_RATE,))
        if left:
            wait = f"{left} replica(s) to be moved between directories of their brokers"
            return self._plan(REBALANCING, rate_changes, waits=(wait,), rates=rates)
        targets: dict[int, dict[PartitionId, str]] = {}
        for move in moves:
            targets.setdefault(move.broker_id, {})[move.partition] = move.target
        change = MoveToDirectories(
            targets=targets,
            addresses={broker_id: self.observed.addresses[broker_id] for broker_id in targets},
            size_bytes=sum(move.size_bytes for move in moves),
        )
        return self._plan(REBALANCING, (*rate_changes, change), rates=rates)

    def _directory_moves(self) -> tuple[DirectoryMove, ...]:
        return even_directories(goals_of(self.resource), self.observed.directories)

    def _moves(self) -> RebalancePlan:
        return plan_moves(
            goals_of(self.resource), self.observed.brokers, tuple(self.observed.partitions.values())
        )

    def _obstacle(self) -> EntityPlan | None:
        """Return the plan for a cluster that is not complete, or lacks what the goals name; None for others."""
        goals, ids = goals_of(self.resource), {broker.broker_id for broker in self.observed.brokers}
        held = {broker for partition in self.observed.partitions.values() for broker in partition.assigned}
        known = ids | held if goals.mode is Mode.REMOVE_BROKERS else ids
        unknown = sorted(goals.brokers - known)
        if unknown:
            listed = ", ".join(map(str, sorted(known)))
            message = f"spec.brokers: {unknown[0]}: no such broker is registered; there are {listed}"
            return self._plan(WAITING, refusals=(Refusal(code="UnknownBroker", message=message),))
        away = [
            str(broker.broker_id)
            for broker in self.observed.brokers
            if not broker.is_in_service
            and not broker.is_decommissioned
            and broker.broker_id not in goals.removed
        ]
        if away:
            return self._plan(WAITING, waits=(f"broker(s) {', '.join(away)} to be in service",))
        # The drain moves these replicas, and takes the same loads into account.
        drained = [
            str(broker.broker_id)
            for broker in self.observed.brokers
            if broker.is_decommissioned and broker.broker_id in held
        ]
        if drained:
            return self._plan(WAITING, waits=(f"broker(s) {', '.join(drained)} to be drained",))
        return None

    def _plan(
        self,
        phase: str,
        changes: Sequence[Change] = (),
        *,
        waits: Sequence[str] = (),
        refusals: Sequence[Refusal] = (),
        rates: tuple[int, ...] | None = None,
        continues: bool = False,
    ) -> EntityPlan:
        if rates is not None:
            self.stored = replace(self.stored, rates=rates)
        return EntityPlan(
            changes=tuple(changes),
            waits=tuple(waits),
            refusals=tuple(refusals),
            status=self.stored.status(phase),
            state=phase,
            continues=continues,
        )


def next_slice(moves: Sequence[Move], partitions_at_a_time: int) -> tuple[Move, ...]:
    """Return the first moves: `partitions_at_a_time` that copy data, or, without data, as many as a status holds."""
    if moves[0].adding:
        return tuple(move for move in moves[:partitions_at_a_time] if move.adding)
    return tuple(moves[:PARTITIONS_AT_A_TIME_MAX])


def _elections(observed: ObservedBalance, partitions: Sequence[PartitionId]) -> list[Change]:
    """Return elections for partitions whose preferred leader is in sync and does not lead."""
    due = []
    for key in partitions:
        partition = observed.partitions[key]
        if (
            not partition.is_moving
            and partition.leader != partition.replicas[0]
            and partition.replicas[0] in partition.isr
        ):
            due.append(key)
    return [ElectLeaders(partitions=tuple(due[:ELECTIONS_MAX]))] if due else []


def _covered(resource: KafkaRebalance, observed: ObservedBalance) -> list[PartitionId]:
    goals = goals_of(resource)
    decommissioned = {broker.broker_id for broker in observed.brokers if broker.is_decommissioned}
    return [
        key
        for key, partition in observed.partitions.items()
        if goals.covers(key.topic) and is_movable(partition, frozenset(), decommissioned)
    ]


def _members(brokers: Sequence[Broker]) -> tuple[int, ...]:
    """The brokers that a proposal is made for: those that stay."""
    return tuple(sorted(broker.broker_id for broker in brokers if not broker.is_decommissioned))


def _is_void(resource: KafkaRebalance, proposal: ProposalStatus, brokers: Sequence[Broker]) -> bool:
    return proposal.goals != _digest(resource) or proposal.brokers != _members(brokers)


def _is_approved(resource: KafkaRebalance, proposal: ProposalStatus) -> bool:
    is_named = resource.metadata.annotations.get(ANNOTATION_APPROVE) == proposal.id
    return is_named or resource.spec.approval == "Auto"


def _digest(resource: KafkaRebalance) -> str:
    goals = goals_of(resource)
    refresh = resource.metadata.annotations.get(ANNOTATION_REFRESH, "")
    parts = (str(goals.mode), sorted(goals.brokers), sorted(goals.include), sorted(goals.exclude), refresh)
    return _hashed(repr(parts))


def _voided(proposal: ProposalStatus | None) -> ProposalStatus | None:
    return None if proposal is None else proposal.model_copy(update={"goals": "", "is_approved": False})


def _id(
    before: ProposalStatus | None,
    goals: str,
    brokers: Sequence[int],
    moves: Sequence[Move],
    between: Sequence[DirectoryMove],
) -> str:
    """Return an id that no earlier proposal had, because an approval is for one proposal only."""
    earlier = before.id if before is not None else ""
    return _hashed(
        repr((earlier, goals, list(brokers), [(move.partition, move.target) for move in moves], between))
    )


def _hashed(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:ID_LENGTH]


def _loads(plan: RebalancePlan) -> tuple[LoadStatus, ...]:
    ids = sorted(plan.before.keys() & plan.after.keys())[:LOADS_MAX]
    return tuple(
        LoadStatus(
            broker_id=id_,
            replicas=plan.before[id_].replicas,
            replicas_after=plan.after[id_].replicas,
            leaders=plan.before[id_].leaders,
            leaders_after=plan.after[id_].leaders,
            size_bytes=plan.before[id_].size_bytes,
            size_bytes_after=plan.after[id_].size_bytes,
        )
        for id_ in ids
    )


def _refusals(plan: RebalancePlan) -> tuple[Refusal, ...]:
    if not plan.obstacles:
        return ()
    message = (
        f"spec.brokers: no other broker in service has room for {some_of(plan.obstacles)}; add brokers or space, or "
        "delete data"
    )
    return (Refusal(code="NoPlace", message=message),)


def _approval_text(proposal: ProposalStatus) -> str:
    return (
        f"approval of proposal {proposal.id}: {proposal.partitions} partition(s) move, which copies "
        f"{format_bytes(proposal.size_bytes)}, and {proposal.leaders} other(s) get another preferred leader"
        + (
            f"; {proposal.directory_replicas} replica(s) move between directories, which copies "
            f"{format_bytes(proposal.directory_bytes)}"
            if proposal.directory_replicas
            else ""
        )
    )
