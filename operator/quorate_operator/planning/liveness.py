"""Nodes that should run and don't are started; those that keep dying, after a pause that doubles."""

from quorate_operator.planning.cluster import (
    DesiredCluster,
    DesiredNode,
    NodeState,
    ObservedCluster,
    ObservedNode,
)
from quorate_operator.planning.steps import StartNode, WaitFor

RESTART_BACKOFF_MS_MIN = 500
RESTART_BACKOFF_MS_MAX = 30_000


def start_stopped(
    desired: DesiredCluster, observed: ObservedCluster, now_ms: int
) -> tuple[tuple[StartNode, ...], tuple[WaitFor, ...]]:
    """The nodes to start now, and what to wait for before starting the others."""
    starts: list[StartNode] = []
    waits: list[WaitFor] = []
    for node in desired.nodes:
        seen = observed.nodes[node.node_id]
        if seen.state in (NodeState.ABSENT, NodeState.STOPPED):
            starts.append(StartNode(node_id=node.node_id, reason="it does not run"))
        elif seen.state is NodeState.CRASHED:
            step = _restart(node, seen, now_ms)
            if isinstance(step, StartNode):
                starts.append(step)
            else:
                waits.append(step)
    return tuple(starts), tuple(waits)


def restart_backoff_ms(exits_in_a_row: int) -> int:
    """The pause before a restart, in milliseconds: 500 after the first crash, then double, 30,000 at most."""
    doublings = min(max(exits_in_a_row - 1, 0), 16)  # beyond, the bound holds anyway
    return min(RESTART_BACKOFF_MS_MIN << doublings, RESTART_BACKOFF_MS_MAX)


def _restart(node: DesiredNode, seen: ObservedNode, now_ms: int) -> StartNode | WaitFor:
    assert seen.exited_at_ms is not None, "a crashed node has a time of its crash"
    due_ms = seen.exited_at_ms + restart_backoff_ms(seen.exits_in_a_row)
    how = seen.exit_reason or "for an unknown reason"
    times = "" if seen.exits_in_a_row <= 1 else f", {seen.exits_in_a_row} times in a row"
    if now_ms >= due_ms:
        return StartNode(node_id=node.node_id, reason=f"it died ({how}{times})")
    return WaitFor(
        reason=f"{node.label} died ({how}{times}) and is started again after a pause",
        node_ids=(node.node_id,),
        until_ms=due_ms,
    )
