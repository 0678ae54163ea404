"""Names that somebody else points at nodes: what a probe found, written down for the time when nobody answers. Pure.

A node is stopped to start again with a new name by which it was reached. In between nobody answers there, and who
starts it may be another operator than the one that saw it: so it is written down first. Written down is only what
a node is to advertise and does not yet; it is dropped when the name leads elsewhere, or to nobody although the node
answers by the name that it has, and counts for nothing when it is old.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from quorate_operator.planning.cluster import (
    Address,
    DesiredCluster,
    DesiredNode,
    NodeState,
    ObservedNode,
    Reached,
    Verification,
)

REMEMBERED_MS = 600_000
"""For how long it counts whom a name led to while nobody answers there: a restart takes less."""
RENEWED_MS = 300_000
"""When it is written down again although it holds: whoever is stopped after that has half of the time left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamesLook:
    """One look at a cluster's nodes, and at who answers by which name, at `now_ms`."""

    cluster_id: str
    nodes: Mapping[int, ObservedNode]
    probes: Mapping[Address, Reached]
    now_ms: int

    def verified(
        self, desired: DesiredCluster, before: Iterable[Verification]
    ) -> Mapping[int, tuple[Verification, ...]]:
        """By desired node that is there, what is known of names that it is to have, after `before` was known."""
        known = {(one.node_id, one.address): one for one in before}
        verified = {}
        for node in desired.nodes:
            seen = self.nodes.get(node.node_id)
            if seen is None or seen.state is NodeState.ABSENT:
                continue
            found = (
                self._verification(address, seen, known.get((node.node_id, address)))
                for address in _awaited(node, seen)
            )
            verified[node.node_id] = tuple(one for one in found if one is not None)
        return verified

    def told(self, verified: Iterable[Verification]) -> Mapping[Address, Reached]:
        """The probes, where names at which nobody answers lead to nodes that are stopped as they were seen to."""
        told = dict(self.probes)
        for one in verified:
            found = told.get(one.address)
            if not self.nodes[one.node_id].state.runs and (found is None or found.node_id is None):
                told[one.address] = Reached(at_ms=one.at_ms, node_id=one.node_id, cluster_id=self.cluster_id)
        return told

    def _verification(
        self, address: Address, seen: ObservedNode, before: Verification | None
    ) -> Verification | None:
        if self._leads_to(address, seen.node_id):
            if before is not None and self.now_ms - before.at_ms < RENEWED_MS:
                return before
            return Verification(address=address, node_id=seen.node_id, at_ms=self.now_ms)
        if before is None or self.now_ms - before.at_ms >= REMEMBERED_MS:
            return None
        told = self.probes.get(address)
        leads_elsewhere = told is not None and told.node_id is not None
        # A process that ends at this moment answers nowhere: that says nothing about the name.
        answers = seen.state.runs and any(
            self._leads_to(own, seen.node_id) for own in seen.configured.values()
        )
        return None if leads_elsewhere or answers else before

    def _leads_to(self, address: Address, node_id: int) -> bool:
        told = self.probes.get(address)
        return told is not None and told.node_id == node_id and told.cluster_id == self.cluster_id


def _awaited(node: DesiredNode, seen: ObservedNode) -> Iterable[Address]:
    """Names of others that the node is to have, or may pass through, and does not advertise."""
    configured = seen.configured if seen.state.runs else {}
    if all(configured.get(listener) == address for listener, address in node.advertised.items()):
        return ()
    wanted = {*node.advertised.values(), *node.interim.values()}
    return sorted(wanted - node.controlled - set(configured.values()))
