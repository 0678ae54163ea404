"""Rolling restarts: changes that need a restart are made node by node.

Controllers come before brokers, because brokers of a release use what its controllers brought. Nodes that are not
ready come first, unless another was just started: their restart loses nothing. A healthy controller is restarted when
every other one is ready and the quorum tolerates it, the leader last; a healthy broker when its pool has one to spare
and no partition would suffer. A node that is not ready after its restart stops the roll. No progress is stored: nodes
that run the desired revision are done.

A healthy node of which the image or Secrets alone have changed is restarted in a maintenance window, where its
pool has some.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from quorate_admin.diagnosis import majority

from quorate_operator.models.storage import METADATA_VOLUME
from quorate_operator.planning.addresses import AddressPlan, shows_new_addresses
from quorate_operator.planning.cluster import (
    BrokerLoad,
    DesiredCluster,
    DesiredNode,
    NodeState,
    ObservedCluster,
    ObservedNode,
    Role,
    RolloutPolicy,
    opens_at_ms,
)
from quorate_operator.planning.differences import differences, shortened
from quorate_operator.planning.features import forbids_version
from quorate_operator.planning.lifecycle import grace_ms
from quorate_operator.planning.membership import is_changing
from quorate_operator.planning.safety import view_quorum
from quorate_operator.planning.steps import (
    ElectPreferredLeaders,
    Part,
    Postponed,
    Refusal,
    StartNode,
    Step,
    StopNode,
    listed,
    wait_for,
)
from quorate_operator.planning.volumes import VOLUMES

BROKEN_AFTER_MS = 60_000
"""A node that is not ready this long after its start may be restarted."""
ELECT_WITHIN_MS = 120_000
"""How long after the last start of a broker preferred leaders are elected."""

_PHRASES: Mapping[str, str] = {
    "config": "config changed",
    "resources": "resources changed",
    "restart": "restart requested",
    "secrets": "secrets changed",
}
COPIES = "copies"
"""The part of a revision with how often a broker copies the topics that it creates."""
_SHOWN_AS_VALUES = frozenset({"version", "image", COPIES, VOLUMES})
_WITHOUT: Mapping[str, str] = {VOLUMES: str(METADATA_VOLUME)}
"""What a revision without the part means."""
_NAMED_FIRST = ("version", "image", "restart", VOLUMES, COPIES, "resources", "config", "secrets")
"""The parts of a revision in the order in which reasons name them; the others follow."""
_POSTPONABLE = frozenset({"image", "secrets"})
"""Parts of a revision that change without a request: by a release of the operator, by a renewal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Due:
    node: DesiredNode
    seen: ObservedNode
    reason: str


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
    due, refusals, postponed = split.due, split.refusals, split.postponed
    situation = _Situation(desired=desired, observed=observed, now_ms=now_ms, addresses=addresses, hold=hold)
    controllers = [restart for restart in due if restart.node.role is Role.CONTROLLER]
    brokers = [restart for restart in due if restart.node.role is Role.BROKER]
    if controllers:
        part = _controllers(controllers, situation)
        return Part(
            due=part.due,
            rest=(*part.rest, *_in_turn(brokers, addresses, desired.rollouts)),
            refusals=refusals,
            postponed=postponed,
        )
    if brokers:
        part = _brokers(brokers, situation)
        return Part(due=part.due, rest=part.rest, refusals=refusals, postponed=postponed)
    elections = () if hold else _elections(desired, observed, now_ms)
    return Part(due=elections, refusals=refusals, postponed=postponed)


def due_for_restart(
    desired: DesiredCluster, observed: ObservedCluster, addresses: AddressPlan, now_ms: int
) -> Mapping[int, str]:
    """Return the reason for each running node that needs a restart and may have one now."""
    return {
        restart.node.node_id: restart.reason for restart in _split(desired, observed, addresses, now_ms).due
    }


def spare_brokers(desired: DesiredCluster, observed: ObservedCluster) -> int:
    """Return how many brokers may be evicted now: one, or none while a partition can't spare another replica.

    The only broker may always go: otherwise a node drain would block forever.
    """
    asked = {node.node_id for node in desired.of_role(Role.BROKER)}
    running = {
        seen.node_id for seen in observed.nodes.values() if seen.role is Role.BROKER and seen.state.runs
    }
    if len(asked | running) <= 1:
        return 1
    kafka = observed.kafka
    if kafka is None or not all(_is_back(observed, node_id) for node_id in asked):
        return 0
    return int(
        not any(_why_not_load(kafka.loads.get(broker_id), kafka.offline_partitions) for broker_id in running)
    )


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
        if wanted == has or not seen.revision or (part == "restart" and not wanted):
            continue
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
    """The nodes that are to be restarted now, those that wait for a window, and refusals in place of forbidden
    restarts and of those without a return.
    """

    due: Sequence[_Due]
    refusals: tuple[Refusal, ...]
    postponed: tuple[Postponed, ...]


def _split(desired: DesiredCluster, observed: ObservedCluster, addresses: AddressPlan, now_ms: int) -> _Split:
    due: list[_Due] = []
    postponed: list[Postponed] = []
    refusals: list[Refusal] = []
    unstartable: dict[tuple[str, str], list[int]] = {}
    for node in desired.nodes:
        seen = observed.nodes[node.node_id]
        if not seen.state.runs:
            continue
        parts = _changed_parts(node, seen)
        reasons = list(_in_words(parts))
        if node.node_id in addresses.restarts:
            reasons.append(addresses.restarts[node.node_id].reason)
        refusal = forbids_version(node, observed) if reasons else None
        if refusal is not None:
            refusals.append(refusal)
        elif reasons and seen.restart_refusal is not None:
            unstartable.setdefault((node.pool, seen.restart_refusal), []).append(node.node_id)
        elif reasons:
            restart = _Due(node=node, seen=seen, reason="; ".join(reasons))
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
    return _Split(due=due, refusals=tuple(refusals), postponed=tuple(postponed))


def _controllers(due: Sequence[_Due], situation: _Situation) -> Part:
    view = view_quorum(situation.observed)
    leader_id = view.leader_id if view else None
    order = sorted(
        due,
        key=lambda restart: (
            restart.seen.unreachable_host,
            restart.seen.state is NodeState.READY,
            restart.node.node_id == leader_id,
        ),
    )
    blocked = situation.hold or _why_not_controller(order[0], situation)
    return _roll(order[0], order[1:], blocked, situation)


def _why_not_controller(restart: _Due, situation: _Situation) -> str | None:
    """Return why a controller may not be restarted now, or None."""
    desired, observed, now_ms = situation.desired, situation.observed, situation.now_ms
    view = view_quorum(observed)
    if restart.seen.unreachable_host:
        return "its machine does not answer"
    if restart.seen.state is not NodeState.READY:
        # It is of no use now, so it may restart. But without a leader, perhaps only the operator's view is wrong.
        peers = [observed.nodes[node.node_id] for node in desired.of_role(Role.CONTROLLER)]
        down = [peer.node_id for peer in peers if _is_down(peer)] or _needed_for_majority(desired, observed)
        if view is None and down:
            return f"no leader of the quorum answers, and these have to be started first: {listed(down)}"
        return _may_become_ready(peers, now_ms)
    if view is None:
        return "no leader of the quorum answers"
    if is_changing(desired, observed):
        return "the quorum's voters change, and are restarted afterwards"
    stopped = _not_back(desired, observed, Role.CONTROLLER, except_for=restart.node.node_id)
    return stopped or view.forbids_stop(restart.node.node_id)


def _needed_for_majority(desired: DesiredCluster, observed: ObservedCluster) -> list[int]:
    """The controllers that leave and are down, if those that stay may be no majority of the voters without them."""
    staying = {node.node_id for node in desired.of_role(Role.CONTROLLER)}
    down = [
        seen.node_id
        for seen in observed.nodes.values()
        if seen.role is Role.CONTROLLER
        and seen.node_id not in staying
        and seen.state is not NodeState.ABSENT
        and not seen.is_forgotten
        and _is_down(seen)
    ]
    return down if len(staying) < majority(len(staying) + len(down)) else []


def _is_down(seen: ObservedNode) -> bool:
    return seen.unreachable_host or not seen.state.runs


def _brokers(due: Sequence[_Due], situation: _Situation) -> Part:
    """Restart the first broker that may be; a pool that has to wait does not delay the others."""
    order = sorted(due, key=lambda restart: (restart.seen.state is NodeState.READY, restart.node.node_id))
    blocked = [situation.hold or _why_not_broker(restart, situation) for restart in order]
    chosen = blocked.index(None) if None in blocked else 0
    others = [*order[:chosen], *order[chosen + 1 :]]
    return _roll(order[chosen], others, blocked[chosen], situation)


def _why_not_broker(restart: _Due, situation: _Situation) -> str | None:
    """Return why a broker may not be restarted now, or None."""
    desired, observed, now_ms = situation.desired, situation.observed, situation.now_ms
    if restart.seen.unreachable_host:
        return "its machine does not answer"
    if observed.kafka is None:
        return "no leader of the quorum answers"
    if is_changing(desired, observed):
        return "the quorum's voters change"
    policy = desired.rollouts.get(restart.node.pool, RolloutPolicy())
    pool = [node.node_id for node in desired.of_role(Role.BROKER) if node.pool == restart.node.pool]
    if restart.seen.state is not NodeState.READY:
        others = [observed.nodes[node_id] for node_id in pool if node_id != restart.node.node_id]
        return _may_become_ready([restart.seen], now_ms) or _may_become_ready(
            others, now_ms, allowed=policy.max_unavailable - 1
        )
    stopped = _not_back(desired, observed, Role.CONTROLLER, except_for=None)
    if stopped:
        return stopped
    down = [node_id for node_id in pool if not _is_back(observed, node_id)]
    if len(down) >= policy.max_unavailable:
        return _stops_the_roll(observed, down[0])
    return _why_not_load(observed.kafka.loads.get(restart.node.node_id), observed.kafka.offline_partitions)


def _why_not_load(load: BrokerLoad | None, offline_partitions: int) -> str | None:
    if offline_partitions:
        return f"{offline_partitions} partitions have no leader"
    if load is None:
        return "its replicas are not known yet"
    if load.fragile:
        return f"{load.fragile} partitions would fall below min.insync.replicas without it"
    return None


def _is_back(observed: ObservedCluster, node_id: int) -> bool:
    return observed.nodes[node_id].state is NodeState.READY and shows_new_addresses(observed, node_id)


def _not_back(
    desired: DesiredCluster, observed: ObservedCluster, role: Role, except_for: int | None
) -> str | None:
    """Return the first node of the role that is not ready, or lacks its new addresses, as a reason to wait.

    Nodes on unreachable machines do not block the rollout; quorum safety is checked separately.
    """
    for node in desired.of_role(role):
        is_away = observed.nodes[node.node_id].unreachable_host
        if node.node_id != except_for and not is_away and not _is_back(observed, node.node_id):
            return _stops_the_roll(observed, node.node_id)
    return None


def _stops_the_roll(observed: ObservedCluster, node_id: int) -> str:
    seen = observed.nodes[node_id]
    if seen.state is NodeState.READY:
        return f"{seen.label} has not registered its new addresses yet"
    problem = seen.problem or (seen.exit_reason if seen.state is NodeState.CRASHED else None)
    return f"{seen.label} is not ready ({problem or seen.state}), and the roll stops until it is"


def _may_become_ready(nodes: Sequence[ObservedNode], now_ms: int, *, allowed: int = 0) -> str | None:
    """Return a reason to wait if more than `allowed` of the nodes were just started and are not ready yet.

    What is not ready at this moment, because it is fenced or behind, may be ready at the next one. Together with
    what was just started it may be more than the cluster can spare.
    """
    young = [
        seen
        for seen in nodes
        if seen.state is not NodeState.READY and _started_within(seen, now_ms, BROKEN_AFTER_MS)
    ]
    return "what was just started may still become ready" if len(young) > allowed else None


def _started_within(seen: ObservedNode, now_ms: int, age_ms: int) -> bool:
    since_ms = seen.waiting_since_ms if seen.started_at_ms is None else seen.started_at_ms
    return since_ms is not None and now_ms - since_ms < age_ms


def _roll(first: _Due, others: Sequence[_Due], blocked: str | None, situation: _Situation) -> Part:
    addresses, rollouts = situation.addresses, situation.desired.rollouts
    node, after = first.node, _in_turn(others, addresses, rollouts)
    stop = _stop(first, rollouts)
    if blocked is not None:
        reason = f"the restart of {node.label} ({first.reason}): {blocked}"
        wait = wait_for(reason, node.node_id)
        return Part(rest=(wait, stop, *_back(node, addresses), *after))
    stopped = wait_for(f"{node.label} to have stopped", node.node_id)
    return Part(due=(stop,), rest=(stopped, *_back(node, addresses), *after))


def _stop(restart: _Due, rollouts: Mapping[str, RolloutPolicy]) -> StopNode:
    node = restart.node
    allowed_ms = grace_ms(node.role, rollouts.get(node.pool))
    return StopNode(node_id=node.node_id, grace_ms=allowed_ms, reason=restart.reason)


def _in_turn(
    others: Sequence[_Due], addresses: AddressPlan, rollouts: Mapping[str, RolloutPolicy]
) -> tuple[Step, ...]:
    """Return the restarts that follow, as far as they are known now."""
    steps: list[Step] = []
    for other in others:
        wait = wait_for(
            f"the turn of {other.node.label} to be restarted ({other.reason})", other.node.node_id
        )
        steps += [wait, _stop(other, rollouts), *_back(other.node, addresses)]
    return tuple(steps)


def _back(node: DesiredNode, addresses: AddressPlan) -> tuple[Step, ...]:
    return (
        StartNode(
            node_id=node.node_id,
            advertised=addresses.start_with.get(node.node_id, {}),
            reason="it was stopped for a restart",
        ),
        wait_for(f"{node.label} to be ready again", node.node_id),
    )


def _elections(
    desired: DesiredCluster, observed: ObservedCluster, now_ms: int
) -> tuple[ElectPreferredLeaders, ...]:
    """Elect preferred leaders after a roll: a broker that restarts last leads nothing by itself."""
    brokers = [observed.nodes[node.node_id] for node in desired.of_role(Role.BROKER)]
    if observed.kafka is None or not all(seen.state is NodeState.READY for seen in brokers):
        return ()
    unpreferred = sum(load.unpreferred for load in observed.kafka.loads.values())
    if not unpreferred or not any(_started_within(seen, now_ms, ELECT_WITHIN_MS) for seen in brokers):
        return ()
    reason = f"brokers were restarted, and {unpreferred} partitions are not led by their preferred replica"
    return (ElectPreferredLeaders(reason=reason),)
