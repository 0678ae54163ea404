"""The runtime of one cluster: what the reconcile loop observes, and where it applies steps.

`ClusterRuntime` consists of an `Infrastructure`, of local processes or of Kubernetes' objects, and of the gateway to
Kafka, which is the same for both.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Protocol

from quorate_admin.diagnosis import ClientFacts

from quorate_operator import clock
from quorate_operator.gateway.client_watch import ClientWatch
from quorate_operator.gateway.kafka import KafkaGateway
from quorate_operator.gateway.readiness import state_of
from quorate_operator.models.exposures import AddressVerification
from quorate_operator.models.manifests import Manifests
from quorate_operator.planning.address_slots import verification_of
from quorate_operator.planning.addresses import hosts_change
from quorate_operator.planning.cluster import (
    Address,
    DesiredCluster,
    Formation,
    KafkaFacts,
    NodeState,
    ObservedCluster,
    ObservedNode,
    ObservedQuorum,
    Publication,
    Reached,
    Role,
    Verification,
)
from quorate_operator.planning.steps import Action, KafkaAction, Plan, RuntimeAction
from quorate_operator.planning.volumes import leaving_volumes
from quorate_operator.runtime.verifications import NameProbes

SETTLED_PROBE_INTERVAL_MS = 10_000
"""The least time between two probes of an address that is as desired, or two lookups of its name. Addresses that
change are probed by each observation, and so are those where no node, or another one, was found."""
SETTLED_PROBES_MAX = 8
"""How many addresses that are as desired one observation probes or resolves: those where this was longest ago."""


class Infrastructure(Protocol):
    """The part of a runtime that differs: processes or pods, directories or volumes, names."""

    async def complete(self, desired: DesiredCluster, manifests: Manifests) -> DesiredCluster:
        """Return the desired cluster with addresses and revisions, which only the infrastructure knows.

        Called first in each observation.

        Raises:
            ManifestError: the manifests can't be used here.
        """

    async def restage(self, staged: DesiredCluster) -> DesiredCluster:
        """Return the cluster of the last `complete` with the listeners of this one, and revisions that follow."""

    async def nodes(self, desired: DesiredCluster) -> Mapping[int, ObservedNode]:
        """Return every node that is desired or present.

        A node with a process is STARTING, or READY or UNREADY if this process is known to have been ready before.
        `ClusterRuntime` judges from the gateway's facts what it is now.
        """

    async def formation(self) -> Formation | None:
        """Return the stored identity of the cluster, or None."""

    async def note_leader(self, kraft_version: int, leader_epoch: int) -> None:
        """Store that a leader was seen: `formation()` is formed and, from kraft.version 1 on, not static."""

    async def publications(self) -> tuple[Publication, ...]:
        """Return every address that points at a node here."""

    async def verifications(self) -> tuple[Verification, ...]:
        """Return the stored nodes of externally managed addresses."""

    async def note_verifications(self, node_id: int, verified: tuple[Verification, ...]) -> None:
        """Replace the stored verifications of a node's addresses."""

    def permitted(self, plan: Plan, desired: DesiredCluster) -> Plan:
        """Return the plan without the steps that this infrastructure is not ready for, with waits instead."""

    async def apply(self, action: RuntimeAction, desired: DesiredCluster) -> None:
        """Apply one step; returns when it is done. Applied again, it has the same result.

        Raises:
            StepError: the step failed.
        """

    async def apply_supporting_objects(self, desired: DesiredCluster, observed: ObservedCluster) -> None:
        """Apply what belongs to no single node: Services, budgets, bounded log files, the cluster's history."""

    def contacts(self, desired: DesiredCluster) -> Mapping[int, Address]:
        """Return the operator's own address of each node with a process, independent of what it advertises."""

    def metrics_urls(self, desired: DesiredCluster) -> Mapping[str, tuple[str, ...]]:
        """Return the URLs of the metrics that running brokers expose, by pool."""


class ClusterRuntime:
    """Completes, observes and changes one cluster, on any infrastructure. Enters `observing` while it observes.

    The infrastructure reports whether each node has a process: STARTING if it runs, or UNREADY or READY if the
    process is known to have been ready before. Kafka's facts then decide its present state, see `gateway.readiness`.
    State kept between observations saves work and is observed again after a restart, with one difference: a node that
    was READY before the restart and is not READY now is reported as STARTING.
    """

    def __init__(
        self,
        infrastructure: Infrastructure,
        gateway: KafkaGateway,
        *,
        now_ms: Callable[[], int] = clock.now_ms,
        observing: Callable[[], AbstractContextManager[object]] = nullcontext,
        clients: ClientWatch | None = None,
    ) -> None:
        self._clients = clients
        self._infrastructure = infrastructure
        self._gateway = gateway
        self._now_ms = now_ms
        self._observing = observing
        self._ready_since_start: dict[int, int | None] = {}
        """The start times, by node id, of processes that have been ready."""
        self._probes: dict[Address, Reached] = {}
        self._leaving: frozenset[int] = frozenset()

    async def complete(self, desired: DesiredCluster, manifests: Manifests) -> DesiredCluster:
        """See `Infrastructure.complete`."""
        return await self._infrastructure.complete(desired, manifests)

    async def restage(self, staged: DesiredCluster) -> DesiredCluster:
        """See `Infrastructure.restage`."""
        return await self._infrastructure.restage(staged)

    async def observe(self, desired: DesiredCluster) -> ObservedCluster:
        with self._observing():
            return await self._observe(desired)

    async def _observe(self, desired: DesiredCluster) -> ObservedCluster:
        nodes, formation, publications = await asyncio.gather(
            self._infrastructure.nodes(desired),
            self._infrastructure.formation(),
            self._infrastructure.publications(),
        )
        kafka, probes = await asyncio.gather(
            self._observe_kafka(desired, nodes),
            self._probe(desired, nodes, publications),
        )
        if kafka is not None and formation is not None and kafka.cluster_id != formation.cluster_id:
            nodes = _with_problem(
                nodes,
                f"it answers as a node of the cluster {kafka.cluster_id}, not of {formation.cluster_id}",
            )
            kafka = None
        elif kafka is None and self._gateway.problem is not None:
            nodes = _with_problem(nodes, self._gateway.problem)
        if kafka is not None and formation is not None:
            formation = await self._note_leader(formation, kafka.quorum)
        if formation is not None:
            probes = await self._remember(desired, nodes, formation.cluster_id, probes)
        nodes = {node_id: self._with_state(node, kafka) for node_id, node in nodes.items()}
        probes = self._without_starts(desired, nodes, probes)
        return ObservedCluster(
            nodes=nodes,
            quorum=kafka.quorum if kafka else None,
            kafka=kafka,
            formation=formation,
            publications=publications,
            probes=probes,
            clients=self._connected_clients(desired, nodes),
        )

    def _connected_clients(
        self, desired: DesiredCluster, nodes: Mapping[int, ObservedNode]
    ) -> Mapping[str, ClientFacts]:
        if self._clients is None:
            return {}
        urls = self._infrastructure.metrics_urls(desired)
        return self._clients.latest(urls, hosts_change=hosts_change(desired, nodes))

    def permitted(self, plan: Plan, desired: DesiredCluster) -> Plan:
        return self._infrastructure.permitted(plan, desired)

    async def apply_supporting_objects(self, desired: DesiredCluster, observed: ObservedCluster) -> None:
        await self._infrastructure.apply_supporting_objects(desired, observed)

    async def apply(self, action: Action, desired: DesiredCluster) -> None:
        if isinstance(action, KafkaAction):
            await self._gateway.apply(action)
        else:
            await self._infrastructure.apply(action, desired)

    async def close(self) -> None:
        """Close the gateway's connections. The infrastructure belongs to its creator."""
        if self._clients is not None:
            await self._clients.close()
        await self._gateway.close()

    async def _observe_kafka(
        self, desired: DesiredCluster, nodes: Mapping[int, ObservedNode]
    ) -> KafkaFacts | None:
        contacts = self._infrastructure.contacts(desired)
        by_role: dict[Role, dict[int, Address]] = {Role.CONTROLLER: {}, Role.BROKER: {}}
        for node_id, address in contacts.items():
            if node_id in nodes:
                by_role[nodes[node_id].role][node_id] = address
        staying = {node.node_id for node in desired.of_role(Role.BROKER)} - desired.decommission
        present = {node.node_id for node in nodes.values() if node.role is Role.BROKER}
        known = (self._leaving | present) - staying
        loggers = {node.node_id: frozenset(node.log_levels) for node in desired.nodes if node.log_levels}
        emptying = frozenset(
            node.node_id
            for node in desired.of_role(Role.BROKER)
            if node.node_id in nodes and leaving_volumes(node, nodes[node.node_id])
        )
        while True:
            kafka = await self._gateway.observe(
                by_role[Role.CONTROLLER], by_role[Role.BROKER], known, loggers, emptying
            )
            if kafka is None:
                return None
            registered = {
                registration.node_id
                for registration in kafka.registrations.values()
                if registration.role is Role.BROKER
            }
            leaving = frozenset((present | registered) - staying)
            self._leaving = leaving
            # Observe again if a registered broker without a process was found, so that its partitions are known.
            if leaving <= known:
                return kafka
            known |= leaving

    async def _note_leader(self, formation: Formation, quorum: ObservedQuorum) -> Formation:
        seen = formation.with_leader(quorum.kraft_version, quorum.leader_epoch)
        if seen != formation:
            await self._infrastructure.note_leader(quorum.kraft_version, quorum.leader_epoch)
        return seen

    def _with_state(self, node: ObservedNode, kafka: KafkaFacts | None) -> ObservedNode:
        if not node.state.runs:
            self._ready_since_start.pop(node.node_id, None)
            return node
        was_ready = node.state is not NodeState.STARTING or (
            node.node_id in self._ready_since_start
            and self._ready_since_start[node.node_id] == node.started_at_ms
        )
        state = state_of(node, kafka, was_ready=was_ready)
        if state is NodeState.READY:
            self._ready_since_start[node.node_id] = node.started_at_ms
        return replace(node, state=state)

    async def _probe(
        self,
        desired: DesiredCluster,
        nodes: Mapping[int, ObservedNode],
        publications: Iterable[Publication],
    ) -> Mapping[Address, Reached]:
        changing, settled = addresses_to_probe(desired, nodes, publications)
        unprobed = unprobed_addresses(desired)
        by_dns = frozenset(address for address, verification in unprobed.items() if verification == "DNS")
        verified = settled - (unprobed.keys() - by_dns)
        due = changing | self._due(desired, verified)
        node_ids = frozenset((*nodes, *(node.node_id for node in desired.nodes)))
        requests: list[Awaitable[Mapping[Address, Reached]]] = []
        if probed := due - unprobed.keys():
            requests.append(self._gateway.probe(probed, node_ids))
        if resolved := due & by_dns:
            requests.append(self._gateway.resolve(resolved))
        reached = {
            address: probe for found in await asyncio.gather(*requests) for address, probe in found.items()
        }
        kept = {address: probe for address, probe in self._probes.items() if address in verified}
        found = {address: self._with_since(address, probe) for address, probe in reached.items()}
        self._probes = kept | found
        return dict(self._probes)

    def _due(self, desired: DesiredCluster, settled: frozenset[Address]) -> frozenset[Address]:
        """Return the addresses that are as desired and are probed or resolved now."""
        owners = {address: node.node_id for node in desired.nodes for address in node.advertised.values()}
        long_ago_ms = self._now_ms() - SETTLED_PROBE_INTERVAL_MS
        known = {address: self._probes[address] for address in settled if address in self._probes}
        faulty = {
            address
            for address, probe in known.items()
            if probe.error is not None or probe.node_id not in (None, owners.get(address))
        }
        old = sorted(
            (probe.at_ms, address)
            for address, probe in known.items()
            if probe.at_ms <= long_ago_ms and address not in faulty
        )
        return frozenset(
            {*(settled - known.keys()), *faulty, *(found for _, found in old[:SETTLED_PROBES_MAX])}
        )

    def _with_since(self, address: Address, probe: Reached) -> Reached:
        before = self._probes.get(address)
        is_same = before is not None and before.finds_as(probe)
        since_ms = before.since_ms if before is not None and is_same else None
        return replace(probe, since_ms=probe.at_ms if since_ms is None else since_ms)

    def _without_starts(
        self, desired: DesiredCluster, nodes: Mapping[int, ObservedNode], probes: Mapping[Address, Reached]
    ) -> Mapping[Address, Reached]:
        """Return the probes; that nothing answers counts from when the node is ready, not from its start."""
        starting = {
            address
            for node in desired.nodes
            if (seen := nodes.get(node.node_id)) and seen.state.runs and seen.state is not NodeState.READY
            for address in node.advertised.values()
        }
        for address in starting & self._probes.keys():
            self._probes[address] = replace(self._probes[address], since_ms=self._probes[address].at_ms)
        return {
            address: replace(probe, since_ms=probe.at_ms) if address in starting else probe
            for address, probe in probes.items()
        }

    async def _remember(
        self,
        desired: DesiredCluster,
        nodes: Mapping[int, ObservedNode],
        cluster_id: str,
        probes: Mapping[Address, Reached],
    ) -> Mapping[Address, Reached]:
        """Store where externally managed names lead to, before a node is stopped; returns the completed probes."""
        names = NameProbes(cluster_id=cluster_id, nodes=nodes, probes=probes, now_ms=self._now_ms())
        before = await self._infrastructure.verifications()
        after = names.verified(desired, before)
        for node_id, verified in after.items():
            if set(verified) != {stored for stored in before if stored.node_id == node_id}:
                await self._infrastructure.note_verifications(node_id, verified)
        return names.with_verified(known for verified in after.values() for known in verified)


def addresses_to_probe(
    desired: DesiredCluster, nodes: Mapping[int, ObservedNode], publications: Iterable[Publication]
) -> tuple[frozenset[Address], frozenset[Address]]:
    """Return the addresses that are changing, and those that are as desired.

    Changing are the present, desired and interim addresses of each node that does not advertise the desired ones, and
    addresses that are published without being advertised.
    """
    changing: set[Address] = set()
    settled: set[Address] = set()
    for node in desired.nodes:
        observed = nodes.get(node.node_id)
        if observed is not None and observed.state.runs:
            if all(observed.configured.get(name) == address for name, address in node.advertised.items()):
                settled.update(node.advertised.values())
                continue
            changing.update(observed.configured.values())
        changing.update(node.advertised.values())
        changing.update(node.interim.values())
    changing.update(publication.address for publication in publications if publication.address not in settled)
    return frozenset(changing), frozenset(settled - changing)


def unprobed_addresses(desired: DesiredCluster) -> Mapping[Address, AddressVerification]:
    """Return the addresses of listeners that are not verified by a probe, and how they are verified."""
    return {
        address: verification
        for node in desired.nodes
        for addresses in (node.advertised, node.interim)
        for listener, address in addresses.items()
        if (verification := verification_of(node, listener)) != "Probe"
    }


def _with_problem(nodes: Mapping[int, ObservedNode], problem: str) -> Mapping[int, ObservedNode]:
    return {
        node_id: replace(node, problem=problem) if node.role is Role.CONTROLLER and node.state.runs else node
        for node_id, node in nodes.items()
    }
