"""Nodes that have no storage yet are created."""

from quorate_operator.planning.cluster import DesiredCluster, NodeState, ObservedCluster
from quorate_operator.planning.steps import CreateNode


def create_missing(desired: DesiredCluster, observed: ObservedCluster) -> tuple[CreateNode, ...]:
    """A step for each desired node without formatted storage."""
    return tuple(
        CreateNode(node_id=node.node_id, reason="it has no formatted directory")
        for node in desired.nodes
        if observed.nodes[node.node_id].state is NodeState.ABSENT
    )
