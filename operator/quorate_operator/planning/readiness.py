"""What a cluster that is being started still waits for."""

from quorate_operator.planning.cluster import DesiredCluster, DesiredNode, NodeState, ObservedCluster, Role
from quorate_operator.planning.steps import WaitFor


def wait_for_ready(desired: DesiredCluster, observed: ObservedCluster) -> tuple[WaitFor, ...]:
    """The waits between the last action and a cluster that serves; empty when it does."""
    waits: list[WaitFor] = []
    if observed.quorum is None:
        waits.append(WaitFor(reason="a leader of the controller quorum"))
    controllers = _not_ready(desired.of_role(Role.CONTROLLER), observed)
    if controllers:
        waits.append(WaitFor(reason=f"controllers to catch up: {_ids(controllers)}", node_ids=controllers))
    brokers = _not_ready(desired.of_role(Role.BROKER), observed)
    if brokers:
        waits.append(
            WaitFor(reason=f"brokers to be registered and unfenced: {_ids(brokers)}", node_ids=brokers)
        )
    return tuple(waits)


def _not_ready(nodes: tuple[DesiredNode, ...], observed: ObservedCluster) -> tuple[int, ...]:
    return tuple(node.node_id for node in nodes if observed.nodes[node.node_id].state is not NodeState.READY)


def _ids(node_ids: tuple[int, ...]) -> str:
    return ", ".join(str(node_id) for node_id in node_ids)
