"""Nodes that share a pod: a controller in the pod of a broker. Pure.

A pod is started and stopped as a whole, though either process may crash and come back by itself. So both nodes

    start      when both may start; a controller that is new waits for the restart of its broker's pod
    restart    if one of them needs it, and nothing holds up either of them, see `restart_obstacles.pod_obstacle`
    leave      with the broker's pod, or by its restart, but only once the controller is no voter any more; a pod that
               has to start before that starts with the controller

`DesiredNode.pod_mate` says which nodes are to share a pod, `ObservedNode.pod_mate` which do now. A runtime that
starts each process by itself sets neither.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from quorate_operator.planning.cluster import (
    DesiredCluster,
    DesiredNode,
    NodeState,
    ObservedCluster,
    ObservedNode,
    Role,
)
from quorate_operator.planning.steps import Part, StartNode, StopNode, WaitFor, labels, wait_for

NO_POD = "ControllerHasNoPod"
"""The code of a wait for a controller that the quorum needs, and whose broker leaves."""
CONTROLLER = "controller"
"""The part of a broker's revision with the id of the controller in its pod; missing without one."""


def lacks_its_pod(node: DesiredNode, observed: ObservedCluster) -> bool:
    """Whether a node is to run in a pod that runs without it, and so waits for the restart of that pod."""
    mate = None if node.pod_mate is None else observed.nodes.get(node.pod_mate)
    return mate is not None and mate.state.runs and not observed.nodes[node.node_id].state.runs


def start_together(starts: Sequence[StartNode], desired: DesiredCluster, observed: ObservedCluster) -> Part:
    """Return the starts of nodes whose pods can start, a controller before its broker, and waits for the others."""
    mates = {node.node_id: node.pod_mate for node in desired.nodes if node.pod_mate is not None}
    leaving = _leaving_controllers(desired, observed)
    mates |= {broker_id: seen.node_id for broker_id, seen in leaving.items()}
    mates |= {seen.node_id: broker_id for broker_id, seen in leaving.items()}
    given = {step.node_id: step for step in starts}
    for broker_id, seen in leaving.items():
        if broker_id in given and seen.node_id not in given:
            reason = f"it may be a voter still, and is in the pod of {observed.nodes[broker_id].label}"
            given[seen.node_id] = StartNode(node_id=seen.node_id, reason=reason)
    due: list[StartNode] = []
    rest = [_no_pod(step, observed) for step in starts if _has_no_pod(step, desired, observed)]
    for wait in rest:
        given.pop(wait.node_ids[0])
    for step in sorted(given.values(), key=lambda step: observed.nodes[step.node_id].role is Role.BROKER):
        mate_id = mates.get(step.node_id)
        if mate_id is None:
            due.append(step)
            continue
        label, mate = observed.nodes[step.node_id].label, observed.nodes[mate_id]
        if mate_id in given:
            due.append(replace(step, beside=mate_id) if mate.role is Role.CONTROLLER else step)
        elif mate.state.runs:
            rest.append(
                wait_for(f"the restart of {mate.label}, in whose pod {label} is to run", step.node_id)
            )
        else:
            reason = f"{mate.label} to be able to start: {label} runs in the same pod"
            rest.append(wait_for(reason, step.node_id))
    return Part(due=tuple(due), rest=tuple(rest))


def _has_no_pod(step: StartNode, desired: DesiredCluster, observed: ObservedCluster) -> bool:
    """Whether a controller that leaves can't start, because the broker of its pod leaves or runs without it."""
    is_leaving = all(node.node_id != step.node_id for node in desired.nodes)
    is_controller = observed.nodes[step.node_id].role is Role.CONTROLLER
    if not (is_leaving and is_controller and desired.has_shared_pods):
        return False
    return step.node_id not in {seen.node_id for seen in _leaving_controllers(desired, observed).values()}


def _no_pod(step: StartNode, observed: ObservedCluster) -> WaitFor:
    label = observed.nodes[step.node_id].label
    reason = (
        f"{label} to leave the quorum, which has no leader without it: it can only run in the pod of its broker, "
        f"which leaves: take that one and {label} back, until the quorum has a leader"
    )
    return WaitFor(reason=reason, node_ids=(step.node_id,), code=NO_POD, is_stalled=True)


def _leaving_controllers(desired: DesiredCluster, observed: ObservedCluster) -> Mapping[int, ObservedNode]:
    """Return the controllers that leave, do not run and may be voters still, by the staying broker of their pod."""
    difference = next(
        (
            node.pod_mate - node.node_id
            for node in desired.of_role(Role.CONTROLLER)
            if node.pod_mate is not None
        ),
        None,
    )
    if difference is None:
        return {}
    asked = {node.node_id: node for node in desired.nodes}
    voters = observed.quorum.voters if observed.quorum is not None else None
    return {
        broker_id: seen
        for node_id, seen in observed.nodes.items()
        if seen.role is Role.CONTROLLER
        and node_id not in asked
        and seen.state in (NodeState.STOPPED, NodeState.CRASHED)
        and not (seen.is_forgotten or seen.unreachable_host)
        and (voters is None or node_id in voters)
        and (broker_id := node_id + difference) in asked
    }


def stop_with_mate(stop: StopNode, observed: ObservedCluster, mate_grace_ms: int) -> tuple[StopNode, ...]:
    """Return the stops of a node and of the other one in its pod: both have the time that either may take."""
    seen = observed.nodes.get(stop.node_id)
    mate = mate_of(seen, observed)
    if seen is None or mate is None:
        return (stop,)
    grace_ms = max(stop.grace_ms, mate_grace_ms)
    reason = f"it is in the pod of {seen.label}: {stop.reason}"
    return (
        StopNode(node_id=mate.node_id, grace_ms=grace_ms, reason=reason),
        replace(stop, grace_ms=grace_ms),
    )


def mate_of(seen: ObservedNode | None, observed: ObservedCluster) -> ObservedNode | None:
    """Return the other node in the pod that a node has now, or None."""
    if seen is None or seen.pod_mate is None or not seen.state.runs:
        return None
    return observed.nodes.get(seen.pod_mate)


def moved_controllers(desired: DesiredCluster, observed: ObservedCluster) -> str | None:
    """Return which controllers run in other pods than they are to run in, which no step changes; or None."""
    moved = [
        observed.nodes[node.node_id]
        for node in desired.of_role(Role.CONTROLLER)
        if observed.nodes[node.node_id].state.runs and observed.nodes[node.node_id].pod_mate != node.pod_mate
    ]
    if not moved:
        return None
    where = "pods of their own" if moved[0].pod_mate is None else "the pods of brokers"
    return (
        f"{labels(Role.CONTROLLER, (seen.node_id for seen in moved))} run in {where}, and voters are known by the "
        "addresses of their pods: nothing is changed until spec.placement is as before, and its KafkaBroker is there"
    )
