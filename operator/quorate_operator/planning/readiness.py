"""What a cluster that is being started still waits for."""

from collections.abc import Collection

from quorate_operator.planning.cluster import (
    DesiredCluster,
    DesiredNode,
    NodeState,
    ObservedCluster,
    Role,
)
from quorate_operator.planning.steps import WaitFor


def wait_for_ready(
    desired: DesiredCluster, observed: ObservedCluster, told: Collection[int] = ()
) -> tuple[WaitFor, ...]:
    """The waits between the last action and a cluster that serves; empty when it does.

    `told` are the nodes of which other waits tell already.
    """
    waits: list[WaitFor] = []
    if observed.quorum is None:
        waits.append(WaitFor(reason="a leader of the controller quorum"))
    controllers = _not_ready(desired.of_role(Role.CONTROLLER), observed, told)
    if controllers:
        waits.append(
            WaitFor(
                reason=f"controllers to catch up: {_named(controllers, observed)}",
                node_ids=controllers,
            )
        )
    brokers = _not_ready(desired.of_role(Role.BROKER), observed, told)
    if brokers:
        waits.append(
            WaitFor(
                reason=f"brokers to be registered and unfenced: {_named(brokers, observed)}",
                node_ids=brokers,
            )
        )
    return tuple(waits)


def _not_ready(
    nodes: tuple[DesiredNode, ...], observed: ObservedCluster, told: Collection[int]
) -> tuple[int, ...]:
    return tuple(
        node.node_id
        for node in nodes
        if observed.nodes[node.node_id].state is not NodeState.READY and node.node_id not in told
    )


def _named(node_ids: tuple[int, ...], observed: ObservedCluster) -> str:
    """The ids, each with what keeps it, where somebody knows."""
    return ", ".join(f"{node_id}{_problem(observed, node_id)}" for node_id in node_ids)


def _problem(observed: ObservedCluster, node_id: int) -> str:
    seen = observed.nodes[node_id]
    if seen.unreachable_host:
        return " (its machine does not answer; decommission it if it is gone for ever)"
    return f" ({seen.problem})" if seen.problem else ""
