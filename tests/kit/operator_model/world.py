"""The model cluster: machines, a quorum, brokers, published addresses and clients that remember them.

It moves only by `tick`, by the steps that `steps.apply` does, and by faults. What it shows to `plan()` is what
gateway and runtimes show of a real one; what it knows beside that is for judging.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from random import Random

from kit.operator_model.desired_spec import OVERLAP_MS
from quorate_operator.gateway.readiness import state_of
from quorate_operator.placement.cluster import ObservedPartition, PartitionId
from quorate_operator.planning.cluster import (
    Address,
    BrokerLoad,
    DesiredCluster,
    Formation,
    KafkaFacts,
    NodeState,
    ObservedCluster,
    ObservedNode,
    ObservedQuorum,
    ObservedRegistration,
    ObservedVoter,
    Publication,
    Reached,
    Role,
    Verification,
)
from quorate_operator.runtime.verifications import NameProbes

CLUSTER_ID = "model-cluster-id-00000"
_OTHER_FEATURES = {
    "kraft.version": (0, 1),
    "eligible.leader.replicas.version": (0, 1),
    "group.version": (0, 1),
    "share.version": (0, 2),
    "streams.version": (0, 1),
    "transaction.version": (0, 3),
}
FEATURES = {
    "4.3.1": {"metadata.version": (7, 30), **_OTHER_FEATURES},
    "4.4.0": {"metadata.version": (7, 33), **_OTHER_FEATURES},
}
"""The lowest and highest levels that a release supports."""
PARTITION_SIZE_BYTES = 4 * 1024**3
REGISTRATION_LEVEL = 33
"""From this metadata.version on, controllers can be unregistered (KIP-1312)."""


@dataclass
class Disk:
    """A formatted disk. `log_end` says how much of the metadata log it has."""

    directory_id: str
    log_end: int = 0


@dataclass
class Process:
    """A running node; `joined` once it has talked with the leader."""

    started_at_ms: int
    advertised: dict[str, Address]
    revision: dict[str, str]
    features: dict[str, tuple[int, int]]
    joined: bool = False
    registered: bool = False
    """Whether it has registered: a broker does so once, a controller whenever its registration differs."""
    was_ready: bool = False
    pod_mate: int | None = None
    """The other node in its pod."""


@dataclass
class Node:
    """A machine and what is on it."""

    node_id: int
    role: Role
    pool: str
    disk: Disk | None = None
    has_volume: bool = False
    process: Process | None = None
    last: Process | None = None
    """The process as it ran the last time."""
    crashed_at_ms: int | None = None
    exits_in_a_row: int = 0
    is_lost: bool = False
    """Its machine does not answer, now."""
    is_forgotten: bool = False
    lag: int = 0
    """For how many ticks more it does not follow the log."""
    written: Process | None = None
    """How a controller is to run from the next start of its broker's pod on."""

    @property
    def is_up(self) -> bool:
        """Whether others can talk with it."""
        return self.process is not None and not self.is_lost


@dataclass
class Voter:
    """A member of the voter set; `directory_id` is None in a static quorum."""

    directory_id: str | None
    endpoints: dict[str, Address] = field(default_factory=dict)


@dataclass
class Partition:
    """A partition, and who has it."""

    replicas: tuple[int, ...]
    isr: set[int]
    leader: int
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()


@dataclass
class World:
    """All of it. `rng` chooses between what may happen either way: who is elected, whose turn is first."""

    rng: Random
    now_ms: int = 1_000_000
    nodes: dict[int, Node] = field(default_factory=dict)
    formation: Formation | None = None
    publications: dict[Address, Publication] = field(default_factory=dict)
    dns: dict[Address, int] = field(default_factory=dict)
    """Names that the operator does not control, and the nodes that they lead to."""
    voters: dict[int, Voter] = field(default_factory=dict)
    kraft_version: int = 0
    leader_id: int | None = None
    epoch: int = 0
    committed: int = 0
    registrations: dict[int, ObservedRegistration] = field(default_factory=dict)
    features: dict[str, int] = field(default_factory=dict)
    partitions: dict[PartitionId, Partition] = field(default_factory=dict)
    received_ms: dict[tuple[Address, int], int] = field(default_factory=dict)
    """When a client last received an address for a node."""
    verifications: tuple[Verification, ...] = ()
    """The stored verifications of names that the operator does not control."""
    seen_level: int = 0
    """The metadata.version when the operator last looked."""
    seen_committed: int = 0
    """The committed end of the log when the operator last looked."""
    disks: int = 0
    """How many disks were ever formatted; names them."""

    # -- the quorum

    def is_voter(self, node: Node) -> bool:
        """Whether the node, with the disk that it has, is a voter."""
        voter = self.voters.get(node.node_id)
        return (
            voter is not None
            and node.disk is not None
            and voter.directory_id in (None, node.disk.directory_id)
        )

    def live_voters(self) -> set[int]:
        """The voters that others can talk with."""
        return {node.node_id for node in self.nodes.values() if node.is_up and self.is_voter(node)}

    def sound_voters(self) -> set[int]:
        """The live voters that had all that was committed when the operator looked last, and follow."""
        return {
            node_id
            for node_id in self.live_voters()
            if self._log_end(node_id) >= self.seen_committed and self._process(node_id).joined
        }

    def _log_end(self, node_id: int) -> int:
        disk = self.nodes[node_id].disk
        return disk.log_end if disk is not None else -1

    def _process(self, node_id: int) -> Process:
        process = self.nodes[node_id].process
        assert process is not None
        return process

    def elect(self) -> None:
        """The leader stays while it has a majority; else one with all that is committed follows it."""
        live = self.live_voters()
        if 2 * len(live) <= len(self.voters):
            self.leader_id = None
            return
        if self.leader_id in live:
            return
        candidates = sorted(node_id for node_id in live if self._log_end(node_id) >= self.committed)
        assert candidates, (
            f"what was committed up to {self.committed} is on no disk of the live voters {sorted(live)}, "
            f"who are a majority of {sorted(self.voters)}"
        )
        self.leader_id = self.rng.choice(candidates)
        self.epoch += 1
        if "metadata.version" not in self.features:
            self.features = {"metadata.version": 29, "kraft.version": self.kraft_version}
        self.write()

    def write(self) -> None:
        """Commit a record: a majority has it from now on."""
        assert self.leader_id is not None
        self.committed += 1
        live = sorted(
            self.live_voters(), key=lambda node_id: (node_id != self.leader_id, self.nodes[node_id].lag)
        )
        for place, node_id in enumerate(live):
            disk = self.nodes[node_id].disk
            assert disk is not None
            if 2 * place <= len(self.voters):
                disk.log_end = self.committed
        for node in self.nodes.values():
            if node.is_up and node.disk is not None and node.lag == 0 and self._process(node.node_id).joined:
                node.disk.log_end = self.committed

    # -- time

    def tick(self, step_ms: int = 1000) -> None:
        """Time passes, and everybody does what they do by themselves."""
        self.now_ms += step_ms
        self.elect()
        if self.leader_id is not None:
            self._follow()
            self._register()
            self._update_endpoints()
            self._replicate()
            self._tell_clients()
        for node in self.nodes.values():
            if node.process is not None and node.process.started_at_ms + 20_000 < self.now_ms:
                node.exits_in_a_row = 0

    def _follow(self) -> None:
        for node in self.nodes.values():
            if not node.is_up or node.disk is None:
                continue
            if node.lag > 0 and node.node_id != self.leader_id:
                node.lag -= 1
                continue
            self._process(node.node_id).joined = True
            node.disk.log_end = self.committed

    def _register(self) -> None:
        for node in self.nodes.values():
            process = node.process
            if process is not None and node.is_up and process.joined:
                is_removed = process.registered and node.node_id not in self.registrations
                if node.role is Role.BROKER and is_removed:
                    continue
                process.registered = True
                registration = ObservedRegistration(
                    node_id=node.node_id,
                    role=node.role,
                    endpoints=process.advertised,
                    features=process.features,
                )
                if self.registrations.get(node.node_id) != registration:
                    self.registrations[node.node_id] = registration
                    self.write()
        for node_id, registration in self.registrations.items():
            node_or_none = self.nodes.get(node_id)
            is_up = node_or_none is not None and node_or_none.is_up
            if registration.role is Role.BROKER and not registration.fenced and not is_up:
                self.fence(node_id)

    def fence(self, broker_id: int) -> None:
        """The broker has no clients any more."""
        if broker_id in self.registrations:
            self.registrations[broker_id] = replace(self.registrations[broker_id], fenced=True)

    def _update_endpoints(self) -> None:
        if self.kraft_version == 0:
            return
        for node_id in sorted(self.live_voters()):
            process = self._process(node_id)
            if process.joined and self.voters[node_id].endpoints != process.advertised:
                self.voters[node_id].endpoints = dict(process.advertised)
                self.write()
                return  # one change of the voter set at a time

    def serves(self, node_id: int) -> bool:
        """Whether clients get answers from the node."""
        node = self.nodes.get(node_id)
        if node is None or not node.is_up or not self._process(node_id).joined:
            return False
        if node.role is Role.CONTROLLER:
            return True
        registration = self.registrations.get(node_id)
        return registration is not None and not registration.fenced

    def _replicate(self) -> None:
        for partition in self.partitions.values():
            live = {
                replica
                for replica in partition.replicas
                if replica in self.registrations and self.serves(replica)
            }
            if partition.isr & live:
                partition.isr &= live
                caught_up = {node_id for node_id in live if self.nodes[node_id].lag == 0}
                partition.isr |= caught_up
                if partition.leader not in partition.isr:
                    partition.leader = next(
                        replica for replica in partition.replicas if replica in partition.isr
                    )
            else:
                partition.leader = -1
            if partition.removing and set(partition.adding) <= partition.isr:
                keep = tuple(replica for replica in partition.replicas if replica not in partition.removing)
                if partition.isr & set(keep):
                    partition.replicas, partition.adding, partition.removing = keep, (), ()
                    partition.isr &= set(keep)
                    if partition.leader not in partition.isr:
                        partition.leader = next(broker_id for broker_id in keep if broker_id in partition.isr)

    # -- clients

    def _tell_clients(self) -> None:
        """A client asks for metadata at every moment, of all nodes."""
        for registration in self.registrations.values():
            if registration.fenced:
                continue
            for address in registration.endpoints.values():
                self.received_ms[address, registration.node_id] = self.now_ms

    def node_at(self, address: Address) -> int | None:
        """The node that answers a connection to the address; None if none does."""
        publication = self.publications.get(address)
        node_id = publication.node_id if publication is not None else self.dns.get(address)
        return node_id if node_id is not None and self.serves(node_id) else None

    def check_clients(self) -> None:
        """No client that received an address for a node is served by another one inside the window."""
        for (address, node_id), received_ms in self.received_ms.items():
            if self.now_ms - received_ms >= OVERLAP_MS:
                continue
            publication = self.publications.get(address)
            leads_to = publication.node_id if publication is not None else self.node_at(address)
            assert leads_to in (None, node_id), (
                f"a client was told {address} for node {node_id} {self.now_ms - received_ms} ms ago, "
                f"and it leads to node {leads_to}"
            )

    def point_dns(self, desired: DesiredCluster) -> None:
        """Point names that the operator does not control at the nodes that are to have them, as their owner does.

        The owner follows the plan: it waits until no client receives the name for another node, and for the window.
        """
        held = {
            (address, registration.node_id)
            for registration in self.registrations.values()
            for address in registration.endpoints.values()
        }
        for own in self.nodes.values():
            if own.process is not None:
                held |= {(address, own.node_id) for address in own.process.advertised.values()}
        held |= {key for key, at_ms in self.received_ms.items() if self.now_ms - at_ms < OVERLAP_MS}
        for node in desired.nodes:
            for address in node.advertised.values():
                if address in node.controlled or self.dns.get(address) == node.node_id:
                    continue
                is_held = any(name == address and holder != node.node_id for name, holder in held)
                if not is_held:
                    self.dns[address] = node.node_id

    # -- what the operator sees

    def observe(self, desired: DesiredCluster) -> ObservedCluster:
        """The cluster as the runtime and the gateway observe it."""
        self.elect()
        self.seen_level = self.features.get("metadata.version", 0)
        self.seen_committed = self.committed
        kafka = self._facts()
        if kafka is not None and self.formation is not None:
            self.formation = replace(
                self.formation,
                is_formed=True,
                is_static=self.formation.is_static and self.kraft_version == 0,
            )
        wanted = {node.node_id: node for node in desired.nodes}
        seen = {
            node.node_id: self._seen(node, kafka)
            for node in self.nodes.values()
            if node.node_id in wanted or not node.is_forgotten
        }
        for node_id, node in wanted.items():
            if node_id not in seen:
                seen[node_id] = ObservedNode(
                    node_id=node_id, role=node.role, state=NodeState.ABSENT, pool=node.pool
                )
        return ObservedCluster(
            nodes=seen,
            quorum=kafka.quorum if kafka else None,
            kafka=kafka,
            formation=self.formation,
            publications=tuple(self.publications.values()),
            probes=self._probes(desired, seen),
        )

    def _seen(self, node: Node, kafka: KafkaFacts | None) -> ObservedNode:
        if node.process is not None:
            state = NodeState.STARTING
        elif node.disk is None:
            state = NodeState.ABSENT
        else:
            state = NodeState.CRASHED if node.crashed_at_ms is not None else NodeState.STOPPED
        process = node.process
        started_with = process or node.last
        seen = ObservedNode(
            node_id=node.node_id,
            role=node.role,
            state=state,
            pool=node.pool,
            pod_mate=process.pod_mate if process else None,
            directory_id=node.disk.directory_id if node.disk else None,
            has_volume=node.has_volume,
            started_at_ms=process.started_at_ms if process else None,
            exited_at_ms=node.crashed_at_ms,
            exit_reason="killed by the model" if node.crashed_at_ms is not None else None,
            exits_in_a_row=node.exits_in_a_row,
            revision=process.revision if process else {},
            configured=started_with.advertised if started_with else {},
            unreachable_host=node.is_lost,
        )
        if process is None:
            return seen
        state = state_of(seen, kafka, was_ready=process.was_ready)
        process.was_ready = process.was_ready or state is NodeState.READY
        return replace(seen, state=state)

    def _facts(self) -> KafkaFacts | None:
        if self.leader_id is None:
            return None
        brokers = [
            registration for registration in self.registrations.values() if registration.role is Role.BROKER
        ]
        return KafkaFacts(
            quorum=ObservedQuorum(
                leader_id=self.leader_id,
                leader_epoch=self.epoch,
                high_watermark=self.committed,
                kraft_version=self.kraft_version,
                voters={node_id: self._voter(node_id) for node_id in self.voters},
                observers=tuple(
                    self._replica(node, node.disk.directory_id)
                    for node in self.nodes.values()
                    if node.role is Role.CONTROLLER
                    and node.is_up
                    and node.disk is not None
                    and self._process(node.node_id).joined
                    and not self.is_voter(node)
                ),
            ),
            cluster_id=CLUSTER_ID,
            registrations=dict(self.registrations),
            features={**self.features, "kraft.version": self.kraft_version},
            partitions=tuple(
                ObservedPartition(
                    partition=name,
                    replicas=partition.replicas,
                    isr=tuple(sorted(partition.isr)),
                    leader=partition.leader,
                    adding=partition.adding,
                    removing=partition.removing,
                    size_bytes=PARTITION_SIZE_BYTES,
                )
                for name, partition in self.partitions.items()
            ),
            loads={broker.node_id: self._load(broker.node_id) for broker in brokers},
            offline_partitions=sum(partition.leader == -1 for partition in self.partitions.values()),
            answering=frozenset(broker.node_id for broker in brokers if self.serves(broker.node_id)),
        )

    def _voter(self, node_id: int) -> ObservedVoter:
        voter, node = self.voters[node_id], self.nodes.get(node_id)
        if node is not None and node.is_up and self.is_voter(node):
            return replace(self._replica(node, voter.directory_id), endpoints=dict(voter.endpoints))
        return ObservedVoter(
            node_id=node_id,
            directory_id=voter.directory_id,
            log_end_offset=0,
            last_fetch_ms=None,
            last_caught_up_ms=None,
            endpoints=dict(voter.endpoints),
        )

    def _replica(self, node: Node, directory_id: str | None) -> ObservedVoter:
        assert node.disk is not None
        joined = self._process(node.node_id).joined
        return ObservedVoter(
            node_id=node.node_id,
            directory_id=directory_id,
            log_end_offset=node.disk.log_end,
            last_fetch_ms=self.now_ms if joined else None,
            last_caught_up_ms=self.now_ms if joined else None,
            follows=joined,
            caught_up=joined and node.disk.log_end >= self.committed,
        )

    def _load(self, broker_id: int) -> BrokerLoad:
        own = [partition for partition in self.partitions.values() if broker_id in partition.replicas]
        return BrokerLoad(
            replicas=len(own),
            leaders=sum(partition.leader == broker_id for partition in own),
            room_bytes=500 * 1024**3,
            fragile=sum(
                partition.leader != -1 and self.is_fragile(partition, broker_id) for partition in own
            ),
            awaited=sum(partition.leader == -1 and broker_id in partition.isr for partition in own),
            unpreferred=sum(
                partition.replicas[0] == broker_id
                and partition.leader != broker_id
                and broker_id in partition.isr
                for partition in own
            ),
        )

    def is_fragile(self, partition: Partition, broker_id: int) -> bool:
        """Whether the partition would have no replica in sync without the broker, though it has several replicas."""
        return len(partition.replicas) > 1 and partition.isr <= {broker_id}

    def _probes(self, desired: DesiredCluster, seen: Mapping[int, ObservedNode]) -> Mapping[Address, Reached]:
        asked = {*self.publications, *self.dns}
        for node in desired.nodes:
            asked |= {*node.advertised.values(), *node.interim.values()}
        reached = {}
        for address in asked:
            node_id = self.node_at(address)
            if node_id is None:
                reached[address] = Reached(at_ms=self.now_ms, error="connection refused")
            else:
                reached[address] = Reached(at_ms=self.now_ms, node_id=node_id, cluster_id=CLUSTER_ID)
        look = NameProbes(cluster_id=CLUSTER_ID, nodes=seen, probes=reached, now_ms=self.now_ms)
        verified = look.verified(desired, self.verifications)
        self.verifications = tuple(verification for known in verified.values() for verification in known)
        return look.with_verified(self.verifications)
