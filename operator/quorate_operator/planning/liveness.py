"""Starts desired nodes that do not run. Nodes that keep crashing are started after a pause that doubles.

A restart is a stop, and a start by the next plan. Not started are a controller whose disk is not the voter's any
more, one that can't join yet, and a node that would advertise another node's address.
"""

from quorate_operator.planning.addresses import AddressPlan
from quorate_operator.planning.cluster import (
    DesiredCluster,
    DesiredNode,
    NodeState,
    ObservedCluster,
    ObservedNode,
    Role,
)
from quorate_operator.planning.formation import Phase, brokers_to_start, founders_to_start, phase_of
from quorate_operator.planning.pods import start_together
from quorate_operator.planning.safety import has_other_disk, view_quorum
from quorate_operator.planning.steps import CreateNode, Part, StartNode, WaitFor, merge, wait_for
from quorate_operator.planning.volumes import loses_volumes

RESTART_BACKOFF_MS_MIN = 500
RESTART_BACKOFF_MS_MAX = 30_000


def plan_starts(
    desired: DesiredCluster, observed: ObservedCluster, now_ms: int, created: Part, addresses: AddressPlan
) -> Part:
    """Plan the starts that are due now, and waits for the others. `created` has the CreateNode steps of this plan."""
    formatted = {
        step.node_id for step in created.due if isinstance(step, CreateNode) and not _waits_for_all(step)
    }
    founders = _may_start(desired, observed)
    due: list[StartNode] = []
    rest: list[WaitFor] = []
    for node in desired.nodes:
        seen = observed.nodes[node.node_id]
        is_down = seen.state in (NodeState.STOPPED, NodeState.CRASHED) or node.node_id in formatted
        if not is_down or seen.unreachable_host or _is_held(node, observed, founders):
            continue
        if seen.state is NodeState.STOPPED and loses_volumes(seen):
            what = f"the old volumes of {node.label} to be deleted, before it starts with new ones"
            rest.append(wait_for(what, node.node_id))
            continue
        if node.node_id in addresses.held_back:
            rest.append(addresses.held_back[node.node_id])
            continue
        pause = _pause(seen, now_ms)
        if pause is not None:
            rest.append(pause)
            continue
        due.append(
            StartNode(
                node_id=node.node_id,
                reason=f"it died ({_death(seen)})" if seen.state is NodeState.CRASHED else "it does not run",
                advertised=addresses.start_with.get(node.node_id, {}),
            )
        )
    due += (
        StartNode(node_id=seen.node_id, reason="it leaves the quorum, which may have no leader without it")
        for seen in _needed_to_elect(desired, observed)
        if _pause(seen, now_ms) is None
    )
    return merge((start_together(due, desired, observed), Part(rest=tuple(rest))))


def restart_backoff_ms(exits_in_a_row: int) -> int:
    """Return the pause before a restart in milliseconds: 500 after the first crash, then double, at most 30,000."""
    doublings = min(max(exits_in_a_row - 1, 0), 16)  # beyond, the bound holds anyway
    return min(RESTART_BACKOFF_MS_MIN << doublings, RESTART_BACKOFF_MS_MAX)


def _waits_for_all(step: CreateNode) -> bool:
    """Whether the node starts only after all first voters have their disks."""
    return step.is_initial


def _may_start(desired: DesiredCluster, observed: ObservedCluster) -> frozenset[int] | None:
    """Return the nodes that may start while the cluster forms; None for all."""
    if phase_of(observed) is not Phase.FORMING:
        return None
    assert observed.formation is not None
    return frozenset((*founders_to_start(desired, observed), *brokers_to_start(desired, observed)))


def _is_held(node: DesiredNode, observed: ObservedCluster, founders: frozenset[int] | None) -> bool:
    """Whether another part of the plan decides when the node may start, and reports the wait."""
    if founders is not None and node.node_id not in founders:
        return True
    view = view_quorum(observed)
    if view is None or node.role is not Role.CONTROLLER or not view.is_dynamic:
        return False
    voter = view.voters.get(node.node_id)
    # Rule 5: what comes back with another disk is another voter; the old one leaves first.
    return voter is not None and has_other_disk(observed, voter)


def _needed_to_elect(desired: DesiredCluster, observed: ObservedCluster) -> tuple[ObservedNode, ...]:
    """Return the controllers that leave and do not run, while those that stay run and have no leader.

    The voters are unknown then, and a voter can only be removed while a majority of them runs.
    """
    asked = {node.node_id for node in desired.nodes}
    staying = [observed.nodes[node.node_id] for node in desired.of_role(Role.CONTROLLER)]
    if observed.kafka is not None or phase_of(observed) is not Phase.FORMED:
        return ()
    if any(seen.state in (NodeState.STOPPED, NodeState.CRASHED) for seen in staying):
        return ()
    return tuple(
        seen
        for seen in observed.nodes.values()
        if seen.role is Role.CONTROLLER
        and seen.node_id not in asked
        and seen.state in (NodeState.STOPPED, NodeState.CRASHED)
        and not (seen.is_forgotten or seen.unreachable_host)
    )


def _pause(seen: ObservedNode, now_ms: int) -> WaitFor | None:
    """Return the wait for the rest of the pause after a crash, or None."""
    if seen.state is not NodeState.CRASHED:
        return None
    assert seen.exited_at_ms is not None, "a crashed node has a time of its crash"
    due_ms = seen.exited_at_ms + restart_backoff_ms(seen.exits_in_a_row)
    if now_ms >= due_ms:
        return None
    return wait_for(
        f"{seen.label} died ({_death(seen)}) and is started again after a pause",
        seen.node_id,
        until_ms=due_ms,
    )


def _death(seen: ObservedNode) -> str:
    times = "" if seen.exits_in_a_row <= 1 else f", {seen.exits_in_a_row} times in a row"
    return f"{seen.exit_reason or 'for an unknown reason'}{times}"
