"""Starts and stops of a whole cluster: what a start waits for, and the order of a stop."""

from collections.abc import Collection, Iterator, Mapping, Sequence

from quorate_admin.diagnosis import majority

from quorate_operator.planning.cluster import (
    DesiredCluster,
    DesiredNode,
    NodeState,
    ObservedCluster,
    ObservedNode,
    Role,
    RolloutPolicy,
)
from quorate_operator.planning.steps import (
    STARTS_LONG,
    Step,
    StopNode,
    WaitFor,
    listed,
    utc_text,
    wait_for,
)

LATE_AFTER_MS = 15 * 60_000
"""A start that takes longer is reported in a condition."""


def wait_for_ready(
    desired: DesiredCluster, observed: ObservedCluster, waited: Collection[int] = ()
) -> tuple[WaitFor, ...]:
    """Return the waits between the last action and a cluster that serves; empty when it does.

    `waited` are the nodes that other waits already name.
    """
    waits: list[WaitFor] = []
    if observed.quorum is None:
        waits.append(wait_for("a leader of the controller quorum"))
    controllers = _not_ready(desired.of_role(Role.CONTROLLER), observed, waited)
    if controllers:
        waits.append(wait_for(f"controllers to catch up: {_named(controllers, observed)}", *controllers))
    brokers = _not_ready(desired.of_role(Role.BROKER), observed, waited)
    if brokers:
        waits.append(
            wait_for(f"brokers to be registered and unfenced: {_named(brokers, observed)}", *brokers)
        )
    return tuple(waits)


def late_starts(desired: DesiredCluster, observed: ObservedCluster, now_ms: int) -> tuple[WaitFor, ...]:
    """Return a wait for each node that is starting for a long time; nothing interrupts it."""
    waits: list[WaitFor] = []
    for node in desired.nodes:
        seen = observed.nodes[node.node_id]
        since_ms = seen.started_at_ms
        if not seen.is_starting or since_ms is None or now_ms - since_ms < LATE_AFTER_MS:
            continue
        recovers = " A broker recovers its logs before it serves." if node.role is Role.BROKER else ""
        reason = (
            f"{node.label} to be in service: it has been starting since {utc_text(since_ms)}, and is not "
            f"interrupted. Its log has the progress.{recovers}"
        )
        waits.append(wait_for(reason, node.node_id, code=STARTS_LONG))
    return tuple(waits)


def _not_ready(
    nodes: tuple[DesiredNode, ...], observed: ObservedCluster, waited: Collection[int]
) -> tuple[int, ...]:
    return tuple(
        node.node_id
        for node in nodes
        if observed.nodes[node.node_id].state is not NodeState.READY and node.node_id not in waited
    )


def _named(node_ids: tuple[int, ...], observed: ObservedCluster) -> str:
    """Return the ids, each with the known problem of its node."""
    return ", ".join(f"{node_id}{_problem(observed, node_id)}" for node_id in node_ids)


def _problem(observed: ObservedCluster, node_id: int) -> str:
    seen = observed.nodes[node_id]
    if seen.unreachable_host:
        return " (its machine does not answer; decommission the node if the machine is gone for good)"
    return f" ({seen.problem})" if seen.problem else ""


CONTROLLER_GRACE_MS = 30_000
BROKER_GRACE_MS = 120_000
"""A controlled shutdown first moves every leadership away, so that a large broker takes longer than a controller."""
GRACE_WITHOUT_QUORUM_MS = 3_000
"""A broker asks the active controller for its controlled shutdown: without a leader of the quorum, or without its own
registration, it asks in vain until it is killed."""


def grace_ms(role: Role, policy: RolloutPolicy | None = None) -> int:
    """Return the milliseconds that a node may take to stop: those of its pool, or what its role usually takes."""
    usual_ms = CONTROLLER_GRACE_MS if role is Role.CONTROLLER else BROKER_GRACE_MS
    return (policy.grace_ms if policy is not None else None) or usual_ms


def stop_all(
    observed: ObservedCluster, rollouts: Mapping[str, RolloutPolicy], *, reason: str
) -> tuple[Step, ...]:
    """Return the steps that stop every running node: brokers first, the leader last.

    A node has the time of `grace_ms`, except for brokers while there is no leader. Pods with a controller and a
    broker come last, one by one, and together where fewer would be no majority: a broker asks the active controller
    for its controlled shutdown.
    """

    def grace_of(node_id: int) -> int:
        seen = observed.nodes[node_id]
        return grace_ms(seen.role, rollouts.get(seen.pool))

    leader_id = observed.quorum.leader_id if observed.quorum else None
    reachable = [node for node in observed.nodes.values() if node.state.runs and not node.unreachable_host]
    pods = [node for node in reachable if node.role is Role.BROKER and node.pod_mate is not None]
    paired = {node.pod_mate for node in pods}
    running = [node for node in reachable if node not in pods and node.node_id not in paired]
    away = tuple(node.node_id for node in observed.nodes.values() if node.unreachable_host)
    brokers = [node.node_id for node in running if node.role is Role.BROKER]
    controllers = [node.node_id for node in running if node.role is Role.CONTROLLER]
    followers = [node_id for node_id in controllers if node_id != leader_id]
    leader = [node_id for node_id in controllers if node_id == leader_id]
    brokers_ms = None if leader_id in {node.node_id for node in reachable} else GRACE_WITHOUT_QUORUM_MS
    others = (
        ("standby controllers", "before the active one")
        if leader
        else ("controllers", "while there is no leader")
    )
    steps: list[Step] = []
    for node_ids, allowed_ms, group, order in (
        (brokers, brokers_ms, "brokers", "first"),
        (followers, None, *others),
        (leader, None, "the active controller", "last"),
        *_pods_in_turn(pods, observed, brokers_ms),
    ):
        if not node_ids:
            continue
        if steps:
            steps.append(wait_for(f"the turn of {group}"))
        for node_id in node_ids:
            mate_id = observed.nodes[node_id].pod_mate
            in_pod = [own for own in (mate_id, node_id) if own is not None and own in observed.nodes]
            usual_ms = max(grace_of(own) for own in in_pod)
            steps += [
                StopNode(node_id=own, grace_ms=allowed_ms or usual_ms, reason=f"{reason}, {group} {order}")
                for own in in_pod
            ]
    if away:
        what = (
            f"the machines of {listed(away)} to answer or to be decommissioned: the nodes there may still run"
        )
        steps.append(wait_for(what, *away))
    return tuple(steps)


def _pods_in_turn(
    pods: Sequence[ObservedNode], observed: ObservedCluster, allowed_ms: int | None
) -> Iterator[tuple[list[int], int | None, str, str]]:
    """Yield brokers with a controller in their pods, in the order in which they stop: the leader's is among the last.

    Without a leader, all of them stop at once.
    """
    quorum = observed.quorum
    leader_id = quorum.leader_id if quorum else None
    order = [node.node_id for node in sorted(pods, key=lambda node: node.pod_mate == leader_id)]
    together = majority(len(quorum.voters)) if quorum and quorum.voters else len(order)
    first, last = order[: max(0, len(order) - together)], order[max(0, len(order) - together) :]
    for node_id in first:
        yield (
            [node_id],
            allowed_ms,
            f"the pod of {observed.nodes[node_id].label}",
            "while others are a majority",
        )
    yield last, allowed_ms, "the pods with controllers", "last"
