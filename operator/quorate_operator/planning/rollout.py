"""Rolling restarts: changes that need a restart are made node by node.

Controllers come before brokers, because brokers of a release use what its controllers brought. Nodes that are not
ready come first, unless another was just started. A healthy controller is restarted when every other one is ready,
the quorum tolerates it and no broker is on its way back, the leader last; a healthy broker when its pool has one to
spare and no partition would suffer: see `restart_obstacles`. A node that is not ready after its restart stops the
roll. No progress is stored: nodes that run the desired revision are done.

A broker whose pod has a controller, or is to have one, is restarted in the turn of the controllers, with both nodes.

A healthy node of which the image or Secrets alone have changed is restarted in a maintenance window, where its
pool has some.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from quorate_operator.models.base import ANNOTATION_SKIP_ROLLOUT
from quorate_operator.models.storage import METADATA_VOLUME
from quorate_operator.planning.addresses import AddressPlan
from quorate_operator.planning.cluster import (
    FORCE,
    DesiredCluster,
    DesiredNode,
    NodeState,
    ObservedCluster,
    ObservedNode,
    Role,
    RolloutPolicy,
)
from quorate_operator.planning.differences import differences, shortened
from quorate_operator.planning.features import forbids_version
from quorate_operator.planning.lifecycle import GRACE_WITHOUT_QUORUM_MS, grace_ms
from quorate_operator.planning.logins import BROKER_LOGIN
from quorate_operator.planning.pods import CONTROLLER, mate_of, stop_with_mate
from quorate_operator.planning.registrations import lacks_registration
from quorate_operator.planning.restart_obstacles import (
    Obstacle,
    controller_obstacle,
    is_forced,
    pod_obstacle,
    started_within,
)
from quorate_operator.planning.safety import view_quorum
from quorate_operator.planning.steps import (
    ROLLOUT_BLOCKED,
    ElectPreferredLeaders,
    Part,
    Postponed,
    Refusal,
    StartNode,
    Step,
    StopNode,
    WaitFor,
    listed,
    merge,
    wait_for,
)
from quorate_operator.planning.volumes import VOLUMES
from quorate_operator.planning.windows import opens_at_ms

UNREGISTERED = "its registration was removed while it ran, and a start registers it again"
"""The reason to restart a broker that was in service, or that starts for longer than it tries to register."""
RESTART_SKIPPED = "RestartSkipped"
"""The code of the refusal for a node that a user has left out."""
ELECT_WITHIN_MS = 120_000
"""How long after the last start of a broker preferred leaders are elected."""

AUTHORITIES = "authorities"
"""The part of a revision with the certificate authorities that a node trusts, and those of its certificates."""
_PHRASES: Mapping[str, str] = {
    "config": "config changed",
    "resources": "resources changed",
    "restart": "restart requested",
    FORCE: "restart forced",
    "secrets": "secrets changed",
    AUTHORITIES: "authorities changed",
}
_REQUESTS = frozenset({"restart", FORCE})
"""Parts of a revision that a user sets by annotation: if one is withdrawn, nothing is left to do."""
COPIES = "copies"
"""The part of a revision with how often a broker copies the topics that it creates."""
_SHOWN_AS_VALUES = frozenset({"version", "image", COPIES, VOLUMES, CONTROLLER})
_WITHOUT: Mapping[str, str] = {VOLUMES: str(METADATA_VOLUME), CONTROLLER: "none"}
"""What a revision without the part means."""
_NAMED_FIRST = (
    "version",
    "image",
    "restart",
    FORCE,
    CONTROLLER,
    VOLUMES,
    COPIES,
    "resources",
    "config",
    "secrets",
)
"""The parts of a revision in the order in which reasons name them; the others follow."""
_POSTPONABLE = frozenset({"image", "secrets", AUTHORITIES})
"""Parts of a revision that change without a request: by a release of the operator, by a renewal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Due:
    node: DesiredNode
    seen: ObservedNode
    reason: str
    is_unregistered: bool = False
    mate: ObservedNode | None = None
    """The other node in its pod, which stops with it."""
    is_pod_forced: bool = False
    """Whether the restart of that one is forced."""

    @property
    def is_forced(self) -> bool:
        return self.is_pod_forced or is_forced(self.node, self.seen)

    @property
    def with_controller(self) -> bool:
        """Whether it is a broker whose pod has a controller, or is to have one."""
        return self.node.role is Role.BROKER and (self.mate is not None or self.node.pod_mate is not None)

    @property
    def is_ready(self) -> bool:
        return all(seen.state is NodeState.READY for seen in (self.seen, self.mate) if seen is not None)

    @property
    def label(self) -> str:
        return self.node.label if self.mate is None else f"{self.node.label} and {self.mate.label}"

    @property
    def node_ids(self) -> tuple[int, ...]:
        return (self.node.node_id,) if self.mate is None else (self.node.node_id, self.mate.node_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Situation:
    """The input of every decision about a restart."""

    desired: DesiredCluster
    observed: ObservedCluster
    now_ms: int
    addresses: AddressPlan
    hold: str | None


def plan_rollout(
    desired: DesiredCluster,
    observed: ObservedCluster,
    now_ms: int,
    addresses: AddressPlan,
    *,
    hold: str | None = None,
) -> Part:
    """Plan at most one stop now, and the order of the others; no stop while `hold` gives a reason against it."""
    split = _split(desired, observed, addresses, now_ms)
    refusals, postponed = split.refusals, split.postponed
    due = _by_pod(split.due, desired, observed)
    situation = _Situation(desired=desired, observed=observed, now_ms=now_ms, addresses=addresses, hold=hold)
    alone = [restart for restart in due if restart.node.role is Role.CONTROLLER]
    pods = [restart for restart in due if restart.with_controller]
    # A broker that is not ready may be what the pods of its pool wait for.
    unready = [restart for restart in due if pods and restart not in pods and not restart.is_ready]
    controllers = alone or [*pods, *unready]
    brokers = [restart for restart in due if restart not in controllers]
    others: Sequence[_Due] = ()
    if not all(restart.seen.unreachable_host for restart in controllers):
        part, others = (_controllers if alone else _brokers)(controllers, situation), brokers
        forced = [restart for restart in brokers if restart.is_forced]
        if forced and not part.due:
            part = merge((_brokers(forced, situation), part))
            others = [restart for restart in brokers if not restart.is_forced]
    elif brokers:
        part, others = _brokers(brokers, situation), controllers
    else:
        elections = () if hold else _elections(desired, observed, now_ms)
        roll = _controllers if alone else _brokers
        part = merge((Part(due=elections), roll(controllers, situation) if controllers else Part()))
    return Part(
        due=part.due,
        rest=(*part.rest, *_in_turn(others, situation)),
        refusals=refusals,
        postponed=postponed,
    )


def due_for_restart(
    desired: DesiredCluster, observed: ObservedCluster, addresses: AddressPlan, now_ms: int
) -> Mapping[int, str]:
    """Return the reason for each running node that needs a restart and waits for no maintenance window."""
    split = _split(desired, observed, addresses, now_ms)
    return {restart.node.node_id: restart.reason for restart in (*split.due, *split.skipped)}


def _by_pod(due: Sequence[_Due], desired: DesiredCluster, observed: ObservedCluster) -> list[_Due]:
    """Return one restart for both nodes of a pod, which is that of the broker."""
    brokers = {node.node_id: node for node in desired.of_role(Role.BROKER)}
    found: dict[int, _Due] = {}
    for restart in sorted(due, key=lambda restart: restart.node.role is Role.CONTROLLER):
        mate = mate_of(restart.seen, observed)
        if restart.node.role is Role.BROKER or mate is None:
            found[restart.node.node_id] = replace(restart, mate=mate)
        elif mate.node_id in brokers:
            own = found.get(mate.node_id)
            reason = f"{restart.node.label}: {restart.reason}"
            found[mate.node_id] = _Due(
                node=brokers[mate.node_id],
                seen=mate,
                reason=reason if own is None else f"{own.reason}; {reason}",
                is_unregistered=own is not None and own.is_unregistered,
                mate=restart.seen,
                is_pod_forced=restart.is_forced,
            )
    return list(found.values())


def changes(node: DesiredNode, seen: ObservedNode) -> tuple[str, ...]:
    """Return how a running node differs from the desired one: `version: 4.3.0 -> 4.3.1`, `log.retention.ms: 1 -> 2`.

    They are a few: the last one may say how many more there are.
    """
    return _in_words(_changed_parts(node, seen))


def _in_words(parts: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    first = [part for part in _NAMED_FIRST if part in parts]
    order = [*first, *(part for part in parts if part not in first)]
    return shortened([change for part in order for change in parts[part]])


def _changed_parts(node: DesiredNode, seen: ObservedNode) -> Mapping[str, Sequence[str]]:
    """Return how a running node differs from the desired one, by the part of the revision.

    Addresses are left out. A part that was never recorded is no difference, except for a requested restart, and
    neither is a withdrawn request. Fewer copies of new topics are a reason, more are not: a broker can't create
    topics with more copies than there are brokers.
    """
    found: dict[str, Sequence[str]] = {}
    for part in sorted(node.revision.keys() | seen.revision.keys()):
        absent = _WITHOUT.get(part, "")
        wanted, has = node.revision.get(part, absent), seen.revision.get(part, absent)
        if wanted == has or not seen.revision or (part in _REQUESTS and not wanted):
            continue
        if part == BROKER_LOGIN:
            continue  # secrets or config change together with it
        if part == COPIES and not _is_less(wanted, has):
            continue
        if part in _SHOWN_AS_VALUES and wanted and has:
            found[part] = (f"{part}: {has} -> {wanted}",)
        else:
            named = differences(seen.rendering.get(part, {}), node.rendering.get(part, {}))
            is_kept = part in seen.rendering and part in node.rendering
            found[part] = named if is_kept and named else (_PHRASES.get(part, f"{part} changed"),)
    return found


def _is_less(wanted: str, has: str) -> bool:
    return wanted.isdecimal() and has.isdecimal() and int(wanted) < int(has)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Split:
    """The nodes that are to be restarted now, those that are left out, those that wait for a window, and refusals in
    place of forbidden restarts and of those without a return.
    """

    due: Sequence[_Due]
    skipped: Sequence[_Due]
    refusals: tuple[Refusal, ...]
    postponed: tuple[Postponed, ...]


def _split(desired: DesiredCluster, observed: ObservedCluster, addresses: AddressPlan, now_ms: int) -> _Split:
    due: list[_Due] = []
    skipped: list[_Due] = []
    postponed: list[Postponed] = []
    refusals: list[Refusal] = []
    unstartable: dict[tuple[str, str], list[int]] = {}
    left: set[int] = {node.node_id for node in desired.nodes if node.skips_rollout}
    """The nodes that are not to be restarted now, and neither are the others in their pods."""
    for node in desired.nodes:
        seen = observed.nodes[node.node_id]
        if not seen.state.runs:
            continue
        parts = _changed_parts(node, seen)
        reasons = list(_in_words(parts))
        if node.node_id in addresses.restarts:
            reasons.append(addresses.restarts[node.node_id].reason)
        is_unregistered = lacks_registration(desired, observed, seen, now_ms)
        if is_unregistered:
            reasons.append(UNREGISTERED)
        refusal = forbids_version(node, observed) if reasons else None
        if refusal is not None:
            refusals.append(refusal)
            left.add(node.node_id)
        elif reasons and seen.restart_refusal is not None:
            left.add(node.node_id)
            unstartable.setdefault((node.pool, seen.restart_refusal), []).append(node.node_id)
        elif reasons:
            restart = _Due(node=node, seen=seen, reason="; ".join(reasons), is_unregistered=is_unregistered)
            if node.skips_rollout:
                skipped.append(restart)
                continue
            can_wait = seen.state is NodeState.READY and node.node_id not in addresses.restarts
            windows = desired.rollouts.get(node.pool, RolloutPolicy()).windows
            if (
                can_wait
                and parts.keys() <= _POSTPONABLE
                and (opens_ms := opens_at_ms(windows, now_ms)) > now_ms
            ):
                postponed.append(Postponed(node_id=node.node_id, reason=restart.reason, until_ms=opens_ms))
            else:
                due.append(restart)
    refusals += (
        Refusal(
            "RestartRefused",
            f"{pool}: {listed(node_ids)} run on as they are, because they could not be started again: {reason}",
            pool=pool,
        )
        for (pool, reason), node_ids in unstartable.items()
    )
    refusals += (
        Refusal(
            RESTART_SKIPPED,
            f"{restart.node.label} is not restarted ({restart.reason}), as the annotation "
            f"{ANNOTATION_SKIP_ROLLOUT}-{restart.node.node_id} of {restart.node.pool} asks",
            pool=restart.node.pool,
        )
        for restart in skipped
    )
    due = [restart for restart in due if restart.seen.pod_mate not in left]
    return _Split(due=due, skipped=skipped, refusals=tuple(refusals), postponed=tuple(postponed))


def _controllers(due: Sequence[_Due], situation: _Situation) -> Part:
    view = view_quorum(situation.observed)
    leader_id = view.leader_id if view else None
    order = sorted(
        due,
        key=lambda restart: (
            restart.seen.unreachable_host,
            not restart.is_forced,
            restart.seen.state is NodeState.READY,
            restart.node.node_id == leader_id,
        ),
    )
    first = order[0]
    obstacle = controller_obstacle(first.node, situation.desired, situation.observed, situation.now_ms)
    return _roll(first, order[1:], _held(situation) or obstacle, situation)


def _held(situation: _Situation) -> Obstacle | None:
    return None if situation.hold is None else Obstacle(situation.hold)


def _brokers(due: Sequence[_Due], situation: _Situation) -> Part:
    """Restart the first broker that may be; a pool that has to wait does not delay the others."""
    view = view_quorum(situation.observed)
    order = sorted(
        due,
        key=lambda restart: (
            not restart.is_forced,
            restart.is_ready,
            view is not None and view.leader_id in restart.node_ids,
            restart.node.node_id,
        ),
    )
    obstacles = (
        pod_obstacle(restart.node, situation.desired, situation.observed, situation.now_ms)
        for restart in order
    )
    before = list(takewhile(lambda obstacle: obstacle is not None, obstacles))
    chosen, obstacle = (len(before), None) if len(before) < len(order) else (0, before[0])
    others = [*order[:chosen], *order[chosen + 1 :]]
    return _roll(order[chosen], others, _held(situation) or obstacle, situation)


def _roll(first: _Due, others: Sequence[_Due], obstacle: Obstacle | None, situation: _Situation) -> Part:
    after = _in_turn(others, situation)
    stops = _stops(first, situation)
    if obstacle is not None:
        reason = f"the restart of {first.label} ({first.reason}): {obstacle.reason}"
        wait = WaitFor(
            reason=reason if obstacle.way_out is None else f"{reason}; {obstacle.way_out}",
            node_ids=first.node_ids,
            code="" if obstacle.way_out is None else ROLLOUT_BLOCKED,
            is_stalled=obstacle.way_out is not None,
        )
        return Part(rest=(wait, *stops, *_back(first, situation), *after))
    stopped = wait_for(f"{first.label} to have stopped", *first.node_ids)
    return Part(due=stops, rest=(stopped, *_back(first, situation), *after))


def _stops(restart: _Due, situation: _Situation) -> tuple[StopNode, ...]:
    node, rollouts = restart.node, situation.desired.rollouts
    usual_ms = grace_ms(node.role, rollouts.get(node.pool))
    allowed_ms = GRACE_WITHOUT_QUORUM_MS if restart.is_unregistered else usual_ms
    stop = StopNode(node_id=node.node_id, grace_ms=allowed_ms, reason=restart.reason)
    mate = restart.mate
    if mate is None:
        return (stop,)
    mate_ms = 0 if restart.is_unregistered else grace_ms(mate.role, rollouts.get(mate.pool))
    return stop_with_mate(stop, situation.observed, mate_ms)


def _in_turn(others: Sequence[_Due], situation: _Situation) -> tuple[Step, ...]:
    """Return the restarts that follow, as far as they are known now."""
    steps: list[Step] = []
    for other in others:
        wait = wait_for(f"the turn of {other.label} to be restarted ({other.reason})", *other.node_ids)
        steps += [wait, *_stops(other, situation), *_back(other, situation)]
    return tuple(steps)


def _back(restart: _Due, situation: _Situation) -> tuple[Step, ...]:
    """Return the starts after a restart: of the node, and of the one that is to share its pod."""
    node, start_with = restart.node, situation.addresses.start_with
    node_ids = [node_id for node_id in (node.pod_mate, node.node_id) if node_id is not None]
    starts = [
        StartNode(
            node_id=node_id,
            advertised=start_with.get(node_id, {}),
            beside=node.pod_mate if node.role is Role.BROKER and node_id == node.node_id else None,
            reason="it was stopped for a restart",
        )
        for node_id in node_ids
    ]
    labels = " and ".join(situation.observed.nodes[node_id].label for node_id in node_ids)
    return (*starts, wait_for(f"{labels} to be ready again", *node_ids))


def _elections(
    desired: DesiredCluster, observed: ObservedCluster, now_ms: int
) -> tuple[ElectPreferredLeaders, ...]:
    """Elect preferred leaders after a roll: a broker that restarts last leads nothing by itself."""
    brokers = [observed.nodes[node.node_id] for node in desired.of_role(Role.BROKER)]
    if observed.kafka is None or not all(seen.state is NodeState.READY for seen in brokers):
        return ()
    unpreferred = sum(load.unpreferred for load in observed.kafka.loads.values())
    if not unpreferred or not any(started_within(seen, now_ms, ELECT_WITHIN_MS) for seen in brokers):
        return ()
    reason = f"brokers were restarted, and {unpreferred} partitions are not led by their preferred replica"
    return (ElectPreferredLeaders(reason=reason),)
