"""What planning compares: the cluster that is desired and the cluster that is observed.

Both are plain data that a runtime fills in. Times are Unix milliseconds.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from quorate_operator.models.manifests import Manifests
from quorate_operator.models.v1alpha1 import KafkaControllerSpec, Listener


class Role(StrEnum):
    """What a node is for."""

    CONTROLLER = "controller"
    BROKER = "broker"


class Implementation(StrEnum):
    """What runs a node: Quorate's controller, or stock Apache Kafka."""

    PYTHON = "python"
    JAVA = "java"


class NodeState(StrEnum):
    """Where a node is in its life.

    ABSENT    it has no formatted directory yet
    STOPPED   formatted, and it was not started or was asked to stop
    STARTING  its process runs, and it has not been ready since it was started
    READY     a controller: a voter that is caught up with the leader; a broker: registered and unfenced
    UNREADY   it was ready, runs, and is not ready now
    CRASHED   its process ended although nobody asked for it
    """

    ABSENT = "absent"
    STOPPED = "stopped"
    STARTING = "starting"
    READY = "ready"
    UNREADY = "unready"
    CRASHED = "crashed"

    @property
    def runs(self) -> bool:
        """Whether the node has a process."""
        return self in (NodeState.STARTING, NodeState.READY, NodeState.UNREADY)


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredNode:
    """A node that the manifests ask for."""

    node_id: int
    role: Role
    pool: str
    place: int
    """The node's place in its pool, from 0."""
    implementation: Implementation
    kafka_version: str
    """The release of stock Kafka that runs it, or that its Python implementation matches."""
    listeners: tuple[Listener, ...]
    config: Mapping[str, str]

    @property
    def label(self) -> str:
        """The node's name for people and directories: `controller-3000`."""
        return f"{self.role}-{self.node_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredCluster:
    """The cluster that the manifests ask for; `running` is off when all of it should be down."""

    name: str
    cluster_id: str | None
    metadata_version: str | None
    dynamic_quorum: bool
    nodes: tuple[DesiredNode, ...]
    running: bool = True

    def of_role(self, role: Role) -> tuple[DesiredNode, ...]:
        """The nodes of one role, in the order of the manifests."""
        return tuple(node for node in self.nodes if node.role is role)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedNode:
    """A node as a runtime found it."""

    node_id: int
    role: Role
    state: NodeState
    directory_id: str | None = None
    started_at_ms: int | None = None
    exited_at_ms: int | None = None
    exit_reason: str | None = None
    """How its last process ended when nobody had asked for it: `exit status 1`, `killed by SIGKILL`."""
    exits_in_a_row: int = 0
    """How often it crashed without having been up for long in between."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedQuorum:
    """The quorum as its leader describes it."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    kraft_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedCluster:
    """The cluster as a runtime found it; `quorum` is None while no leader answers."""

    nodes: Mapping[int, ObservedNode]
    quorum: ObservedQuorum | None


def desired_cluster(manifests: Manifests) -> DesiredCluster:
    """What the manifests ask for, node by node."""
    quorum = manifests.controllers
    nodes = list(_controllers(quorum.metadata.name, quorum.spec))
    for pool in manifests.brokers:
        nodes += [
            DesiredNode(
                node_id=node_id,
                role=Role.BROKER,
                pool=pool.metadata.name,
                place=place,
                implementation=Implementation.JAVA,
                kafka_version=pool.spec.version,
                listeners=pool.spec.listeners,
                config=pool.spec.config,
            )
            for place, node_id in enumerate(pool.spec.all_node_ids())
        ]
    return DesiredCluster(
        name=quorum.metadata.name,
        cluster_id=quorum.spec.cluster_id,
        metadata_version=quorum.spec.metadata_version,
        dynamic_quorum=quorum.spec.quorum == "dynamic",
        nodes=tuple(nodes),
    )


def _controllers(pool: str, spec: KafkaControllerSpec) -> tuple[DesiredNode, ...]:
    return tuple(
        DesiredNode(
            node_id=node_id,
            role=Role.CONTROLLER,
            pool=pool,
            place=place,
            implementation=Implementation(spec.implementation_of(node_id)),
            kafka_version=spec.version,
            listeners=spec.listeners,
            config=spec.config,
        )
        for place, node_id in enumerate(spec.all_node_ids())
    )
