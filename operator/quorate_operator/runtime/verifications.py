"""Verifications: which node an externally managed name led to, stored while nothing answers there. Pure.

A node is restarted with a new name only after a probe has reached it by that name. During the restart nothing answers
there, and another operator may have to start the node, so the verification is stored first. Only names that a node is
to advertise and does not advertise yet are stored. A verification is dropped when the name leads to another node, or
does not answer although the node answers by its present name; it expires after `REMEMBERED_MS`.
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
"""How long a verification is valid while nothing answers at the name: a restart takes less."""
RENEWED_MS = 300_000
"""The age at which a verification is renewed: a node that is stopped later has half of the time left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NameProbes:
    """A cluster's nodes and the probes of their names, observed at `now_ms`."""

    cluster_id: str
    nodes: Mapping[int, ObservedNode]
    probes: Mapping[Address, Reached]
    now_ms: int

    def verified(
        self, desired: DesiredCluster, before: Iterable[Verification]
    ) -> Mapping[int, tuple[Verification, ...]]:
        """Return the verifications to store for each desired node that is present; `before` are the stored ones."""
        known = {(verification.node_id, verification.address): verification for verification in before}
        verified = {}
        for node in desired.nodes:
            seen = self.nodes.get(node.node_id)
            if seen is None or seen.state is NodeState.ABSENT:
                continue
            found = (
                self._verification(address, seen, known.get((node.node_id, address)))
                for address in _awaited(node, seen)
            )
            verified[node.node_id] = tuple(verification for verification in found if verification is not None)
        return verified

    def with_verified(self, verified: Iterable[Verification]) -> Mapping[Address, Reached]:
        """Return the probes; where nothing answers, a verified name leads to its node while that is stopped."""
        probes = dict(self.probes)
        for verification in verified:
            found = probes.get(verification.address)
            if not self.nodes[verification.node_id].state.runs and (found is None or found.node_id is None):
                probes[verification.address] = Reached(
                    at_ms=verification.at_ms, node_id=verification.node_id, cluster_id=self.cluster_id
                )
        return probes

    def _verification(
        self, address: Address, seen: ObservedNode, before: Verification | None
    ) -> Verification | None:
        if self._leads_to(address, seen.node_id):
            if before is not None and self.now_ms - before.at_ms < RENEWED_MS:
                return before
            return Verification(address=address, node_id=seen.node_id, at_ms=self.now_ms)
        if before is None or self.now_ms - before.at_ms >= REMEMBERED_MS:
            return None
        probe = self.probes.get(address)
        leads_elsewhere = probe is not None and probe.node_id is not None
        # A process that is ending answers nowhere: that is no evidence about the name.
        responses = seen.state.runs and any(
            self._leads_to(own, seen.node_id) for own in seen.configured.values()
        )
        return None if leads_elsewhere or responses else before

    def _leads_to(self, address: Address, node_id: int) -> bool:
        probe = self.probes.get(address)
        return probe is not None and (probe.node_id, probe.cluster_id) == (node_id, self.cluster_id)


def _awaited(node: DesiredNode, seen: ObservedNode) -> Iterable[Address]:
    """Return the externally managed names that the node is to advertise, now or in between, and does not yet."""
    configured = seen.configured if seen.state.runs else {}
    if all(configured.get(listener) == address for listener, address in node.advertised.items()):
        return ()
    wanted = {*node.advertised.values(), *node.interim.values()}
    return sorted(wanted - node.controlled - set(configured.values()))
