"""The desired and the observed cluster, which planning compares.

Both are plain data. A runtime fills in what it knows of nodes, volumes and published addresses; the gateway fills in
`KafkaFacts` from the quorum. Times are Unix milliseconds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple

from quorate_admin.diagnosis import ClientFacts

from quorate_operator.models.listeners import Listener
from quorate_operator.models.started_listeners import StartedListeners
from quorate_operator.placement.cluster import ObservedDirectory, ObservedPartition, PartitionId
from quorate_operator.planning.differences import Rendering
from quorate_operator.planning.losses import LostVolumes, RecoveryRequest
from quorate_operator.planning.windows import Window

FORCE = "force-restart"
"""The part of a revision with the request to restart a node even if its partitions or others suffer."""


class Role(StrEnum):
    CONTROLLER = "controller"
    BROKER = "broker"

    def label(self, node_id: int) -> str:
        """The name of a node with this role, for people and directories: `controller-3000`."""
        return f"{self}-{node_id}"


class Implementation(StrEnum):
    PYTHON = "python"
    JAVA = "java"


class NodeState(StrEnum):
    """Where a node is in its life.

    ABSENT    it has no formatted directory yet
    STOPPED   formatted, and it was not started or was asked to stop
    STARTING  its process runs, and it has not been ready since it was started
    READY     a controller: a voter, or an observer that may become one, that is caught up with the leader and
              has fetched since its process began; a broker: registered, unfenced and answering
    UNREADY   it was ready, runs, and is not ready now
    CRASHED   its process ended without a request
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


class Address(NamedTuple):
    """A name or address that clients connect to, and the port."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


class Lifecycle(StrEnum):
    """What the cluster as a whole does.

    RUNNING     every desired node runs
    PAUSED      nothing is changed; the status is still kept up to date
    HIBERNATED  every node is stopped in order; volumes and registrations stay
    """

    RUNNING = "running"
    PAUSED = "paused"
    HIBERNATED = "hibernated"


class VolumePolicy(StrEnum):
    """What happens to the volume of a node that was decommissioned."""

    RETAIN = "retain"
    DELETE = "delete"


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutPolicy:
    """How a pool's nodes are restarted and renamed.

    `overlap_ms` is how long an address that was left keeps pointing at its node.
    """

    overlap_ms: int = 600_000
    max_unavailable: int = 1
    volumes: VolumePolicy = VolumePolicy.RETAIN
    grace_ms: int | None = None
    """How long a node of the pool may take to stop; None for what its role usually takes."""
    windows: tuple[Window, ...] = ()
    """When restarts may begin that were not requested; empty for at any time."""
    unbind_after_ms: int | None = None
    """After which time volumes on a machine that is gone are replaced; None for never."""
    drain_bytes_per_second: int | None = None
    """The rate at which replicas leave its brokers; None for any."""
    drains_on_scale_down: bool = True
    """Whether brokers are drained that are left over, and not named in `decommission`."""


class Unassigned(NamedTuple):
    """What Kubernetes has not assigned to a listener yet, and clients need in its address."""

    what: str
    """`an address of the load balancer brokers-0-external`."""
    since_ms: int | None
    """When it was requested; None if that is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredNode:
    """A node that the manifests ask for."""

    node_id: int
    role: Role
    pool: str
    place: int
    """The node's offset in its pool: its id less the pool's first. It stays when others come and go."""
    implementation: Implementation
    kafka_version: str
    """The release of stock Kafka that runs it, or that its Python implementation matches."""
    listeners: tuple[Listener, ...]
    """Those that it serves from its next start on. It connects to its peers by the first, see `listeners.stage`."""
    config: Mapping[str, str]
    advertised: Mapping[str, Address] = field(default_factory=dict)
    """By listener name, the addresses for clients: the templates of the manifest, filled in by the runtime."""
    interim: Mapping[str, Address] = field(default_factory=dict)
    """By listener name, an address that always belongs to this node, for swaps; a listener may have none."""
    controlled: frozenset[Address] = frozenset()
    """Those of `advertised` and `interim` that the runtime can point at nodes; the others are only probed."""
    unassigned: Mapping[str, Unassigned] = field(default_factory=dict)
    """By listener name, what its address still lacks; `advertised` then has what the node advertises meanwhile."""
    revision: Mapping[str, str] = field(default_factory=dict)
    """What a running node can't change, except for addresses, as hashes or values by name:
    `config`, `version`, `image`, `resources`, `secrets`, `copies`, and requests by annotation: `restart`, `FORCE`."""
    skips_rollout: bool = False
    """Whether a user asked, by annotation, that no roll restarts the node or waits for it."""
    pod_mate: int | None = None
    """The node whose process starts and stops with this one, in one pod: a controller and its broker, see `pods`."""
    replacement: str | None = None
    """The text of a request, by annotation, for new volumes; None without one."""
    rendering: Rendering = field(default_factory=dict)
    """What the hashes of `revision` were made of, for the reasons of restarts. It decides nothing."""
    rack: str | None = None
    volumes: Mapping[int, int] = field(default_factory=dict)
    """The sizes that its volumes shall have, in bytes by volume id; empty where none is requested."""
    log_levels: Mapping[str, str] = field(default_factory=dict)
    """Kafka's levels by the name of the logger: those that the manifest asks for."""
    controllers_listener: str | None = None
    """The controllers' listener by which it connects to them from its next start on; None for the first one."""
    wanted_listener: str | None = None
    """The one of `listeners` that is the first of its manifest; None for the first of them."""
    withdrawn: frozenset[str] = frozenset()
    """Those of `listeners` that its manifest has no more, and by which nodes still connect to each other."""

    @property
    def label(self) -> str:
        """The node's name for people and directories: `controller-3000`."""
        return self.role.label(self.node_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredCluster:
    """The cluster that the manifests ask for; without `running`, all of it is to be stopped."""

    name: str
    cluster_id: str | None
    metadata_version: str | None
    dynamic_quorum: bool
    nodes: tuple[DesiredNode, ...]
    running: bool = True
    keeps_history: bool = False
    """Whether the logs of controllers are shipped to where their history is kept."""
    lifecycle: Lifecycle = Lifecycle.RUNNING
    rollouts: Mapping[str, RolloutPolicy] = field(default_factory=dict)
    """By pool. A pool that is not named has the defaults."""
    decommission: frozenset[int] = frozenset()
    """Node ids that were asked to leave by name. No desired node has one of these."""
    drained_pools: frozenset[str] = frozenset()
    """Pools that are deleted together with their volumes: their brokers are decommissioned."""
    drained: tuple[DesiredNode, ...] = ()
    """The brokers of `drained_pools` with their settings, by which they run until they hold nothing."""
    recovery: RecoveryRequest | None = None
    """Which loss of the quorum is to be mended, and from whose disk."""
    features: Mapping[str, int] = field(default_factory=dict)
    """Levels to finalize besides metadata.version, which is `metadata_version`; empty for what comes with it."""
    fixed_protocols: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """`Manifests.fixed_protocols`."""

    def of_role(self, role: Role) -> tuple[DesiredNode, ...]:
        return tuple(node for node in self.nodes if node.role is role)

    @property
    def has_shared_pods(self) -> bool:
        """Whether controllers run in the pods of brokers."""
        return any(node.pod_mate is not None for node in self.nodes)

    @property
    def nodes_with_settings(self) -> tuple[DesiredNode, ...]:
        """The nodes that are asked for, then those of `drained`."""
        return (*self.nodes, *self.drained)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedVolume:
    """A volume of a node. Its sizes are None where volumes have none."""

    directory: str = ""
    """The log directory in it, as Kafka names it."""
    is_in_use: bool = True
    """Whether the node's next start uses it: one that was removed from the manifest is used until it is empty."""
    requested_bytes: int | None = None
    capacity_bytes: int | None = None
    """What it has by now; None before it is provisioned."""
    progress: str | None = None
    """What a resize waits for or fails with, in the runtime's words: `FileSystemResizePending: ...`."""
    refusal: str | None = None
    """Why the desired size can't be requested."""

    @property
    def is_growing(self) -> bool:
        return (
            self.capacity_bytes is not None
            and self.requested_bytes is not None
            and self.capacity_bytes < self.requested_bytes
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedNode:
    """A node as a runtime found it.

    Every desired node is observed, and every other one with a process or a volume.
    """

    node_id: int
    role: Role
    state: NodeState
    pool: str = ""
    pod_mate: int | None = None
    """The other node in the pod that it has now; None without a pod, and if it has the pod for itself."""
    directory_id: str | None = None
    """The directory id on its volume; None without a formatted volume, or if that is unknown."""
    has_volume: bool = False
    """Whether it has a directory or volume, formatted or not."""
    volumes: Mapping[int, ObservedVolume] = field(default_factory=dict)
    """Its volumes by volume id."""
    replacement: str | None = None
    """`DesiredNode.replacement` as it was when its volumes were created."""
    started_at_ms: int | None = None
    """When its process began; None without one, also while its pod waits for an image or formats its volume."""
    waiting_since_ms: int | None = None
    """When its pod was created; None if its process has begun, and without a pod."""
    exited_at_ms: int | None = None
    exit_reason: str | None = None
    """How its last process ended without a request: `exit status 1`, `killed by SIGKILL`."""
    exits_in_a_row: int = 0
    """How often it crashed without having been up for long in between."""
    revision: Mapping[str, str] = field(default_factory=dict)
    """`DesiredNode.revision` as it was when its process was started; empty when it has none."""
    rendering: Rendering = field(default_factory=dict)
    """`DesiredNode.rendering` as it was then; without the parts that were not kept."""
    configured: Mapping[str, Address] = field(default_factory=dict)
    """By listener name, the advertised addresses that its process was started with; without a process, those that
    the last one was started with, as the runtime wrote them down. Empty if unknown."""
    listeners: StartedListeners | None = None
    """The same for its listeners; None if unknown."""
    problem: str | None = None
    """What keeps it from starting, in the runtime's words: an image that can't be pulled, no node to schedule on."""
    restart_refusal: str | None = None
    """Why it could not be started again with what is desired; None if it could, or if this is not known."""
    unreachable_host: bool = False
    """Whether its machine does not answer, so that its process may still run."""
    lost_volumes: LostVolumes | None = None
    """Why its pod waits for its volumes in vain; None if it does not, or where volumes can't be lost so."""
    has_opened: bool | None = None
    """Whether its process has opened its ports since it began; None without one, or if that is not reported."""
    opened_at_ms: int | None = None
    """Since when its ports answer; None if they do not, or if that is not reported."""
    is_forgotten: bool = False
    """Whether ForgetNode was done and only its volume is kept: nothing is left to do. A runtime may omit such a node,
    unless it is desired again."""

    @property
    def label(self) -> str:
        """As `DesiredNode.label`."""
        return self.role.label(self.node_id)

    @property
    def is_starting(self) -> bool:
        """Whether its process runs and has not opened its ports yet.

        A broker opens them once it has recovered its logs, which may take hours; it ends if it can't register. Where
        that is not reported, a controller that is not ready counts as open: it may wait for its peers forever.
        """
        has_process = self.state is NodeState.STARTING and self.started_at_ms is not None
        has_opened = self.role is Role.CONTROLLER if self.has_opened is None else self.has_opened
        return has_process and not has_opened


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedVoter:
    """A replica of the metadata log, as the leader sees it."""

    node_id: int
    directory_id: str | None
    log_end_offset: int
    last_fetch_ms: int | None
    last_caught_up_ms: int | None
    follows: bool = False
    """Whether it fetches, by `quorate_admin.diagnosis.LeaderView`."""
    caught_up: bool = False
    """Whether it follows and has all that is committed, or had everything a moment ago, by the same."""
    endpoints: Mapping[str, Address] = field(default_factory=dict)
    """By listener name, as the voter set has them; empty for observers, and in static quorums."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedQuorum:
    """The quorum as its leader describes it."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    kraft_version: int
    is_leader_new: bool = False
    """Whether the leader may lack fetches of live replicas yet, by `quorate_admin.diagnosis.LeaderView`."""
    voters: Mapping[int, ObservedVoter] = field(default_factory=dict)
    observers: tuple[ObservedVoter, ...] = ()
    """A node that came back with a new disk is an observer with its new directory id, and may be a voter with
    the old one at the same time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedRegistration:
    """A registration in the metadata log. `features` has the lowest and the highest level by name."""

    node_id: int
    role: Role
    endpoints: Mapping[str, Address]
    features: Mapping[str, tuple[int, int]]
    fenced: bool = False
    in_controlled_shutdown: bool = False
    rack: str | None = None
    epoch: int = -1
    """The broker epoch; -1 for controllers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerLoad:
    """The load of a broker. Sizes are None if they are unknown."""

    replicas: int = 0
    leaders: int = 0
    used_bytes: int | None = None
    free_bytes: int | None = None
    room_bytes: int | None = None
    """How many bytes of new replicas it may get, by `broker_room_bytes`; None also for no limit."""
    fragile: int = 0
    """Partitions with a leader and several replicas that would fall below min.insync.replicas, or lose their only
    leader, if this broker stopped now."""
    fragile_first: tuple[PartitionId, ...] = ()
    """Some of the `fragile` ones."""
    sole: int = 0
    """Partitions of which no other broker has a replica with all acknowledged records."""
    sole_first: tuple[PartitionId, ...] = ()
    """Some of the `sole` ones."""
    awaited: int = 0
    """Partitions without a leader that this broker can lead as soon as it is in service."""
    unpreferred: int = 0
    """Partitions whose preferred leader this broker is and does not lead, though it is in sync."""
    lagging: int = 0
    """Replicas that are not in sync, without those that a reassignment adds or removes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaFacts:
    """What quorum and brokers report. Nothing of it is known while no leader answers."""

    quorum: ObservedQuorum
    cluster_id: str
    registrations: Mapping[int, ObservedRegistration] = field(default_factory=dict)
    """Of controllers and brokers; their node ids are one space."""
    features: Mapping[str, int] = field(default_factory=dict)
    """Finalized levels by name."""
    partitions: tuple[ObservedPartition, ...] = ()
    """Those that have a replica on a broker to be decommissioned, or are being reassigned."""
    loads: Mapping[int, BrokerLoad] = field(default_factory=dict)
    offline_partitions: int = 0
    log_levels: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    """The levels of loggers that the manifest names and the node has, by node and logger. Nodes that did not answer
    are missing."""
    answering: frozenset[int] = frozenset()
    """The brokers that answered for themselves in this pass, and know themselves unfenced."""
    directories: Mapping[int, Mapping[str, ObservedDirectory]] = field(default_factory=dict)
    """Log directories by path, of those brokers of which they were asked for and that answered."""
    cordoned: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    """The dynamic `cordoned.log.dirs` of each broker that has it."""
    replication_rates: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    """The throttles of replication that single brokers have, by name; only brokers with one."""
    throttled: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """The lists of throttled replicas by topic and name; only topics with one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """An address that the runtime points at a node: a Service, or a forwarding listener."""

    address: Address
    node_id: int
    listener: str
    since_ms: int
    retired_at_ms: int | None = None
    """Since when no node advertises it; None while one does, or is about to."""
    connections: int | None = None
    """How many clients use it now; None where that can't be seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """An externally managed name led to a node of this cluster when it was probed at `at_ms`.

    A runtime stores it, so that it outlives the operator that probed.
    """

    address: Address
    node_id: int
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """What a probe of an address found. Without a response, everything but `error` is None.

    Kafka does not report the listener: a probe reaches a node.
    """

    at_ms: int
    node_id: int | None = None
    cluster_id: str | None = None
    error: str | None = None
    is_resolved: bool = False
    """Whether the name was resolved and nothing else: no node was asked."""
    since_ms: int | None = field(default=None, compare=False)
    """When the first probe in a row began to find the same; None if this is the first one."""

    @property
    def is_anonymous(self) -> bool:
        """Whether a node with a trusted certificate answers at which the operator can't log in."""
        return (
            self.node_id is None and self.cluster_id is None and self.error is None and not self.is_resolved
        )

    def finds_as(self, other: "Reached") -> bool:
        """Whether both found the same node, or none."""
        mine = (self.node_id, self.cluster_id, self.error is None)
        return mine == (other.node_id, other.cluster_id, other.error is None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Formation:
    """The identity of the cluster, decided and stored before the first node was created.

    `initial_voters` has the directory ids of the first disks by node id. `is_formed`: a leader was seen; from then
    on, an empty disk joins and never forms. RebuildQuorum stores a new one: the survivor as the only initial voter,
    not formed until it leads.
    """

    cluster_id: str
    initial_voters: Mapping[int, str]
    is_formed: bool
    is_static: bool = False
    """It was formed with static voters, and no leader was seen yet that has kraft.version 1. As long as this holds,
    nodes are configured with controller.quorum.voters, also when a dynamic quorum is desired by now."""
    is_rebuilt: bool = False
    """It is that of RebuildQuorum: the only initial voter has the cluster's metadata, and is never formatted."""
    leader_epoch: int = 0
    """The highest leader epoch that was seen; 0 before the first one."""

    def with_leader(self, kraft_version: int, leader_epoch: int) -> "Formation":
        """Return the identity after a leader was seen."""
        is_static = self.is_static and kraft_version == 0
        epoch = max(self.leader_epoch, leader_epoch)
        return replace(self, is_formed=True, is_static=is_static, leader_epoch=epoch)

    def rebuilt_from(self, node_id: int, directory_id: str) -> "Formation":
        """Return the identity after RebuildQuorum."""
        voters = {node_id: directory_id}
        return replace(self, initial_voters=voters, is_formed=False, is_static=False, is_rebuilt=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedCluster:
    """The cluster as it was found; `quorum` and `kafka` are None while no leader answers."""

    nodes: Mapping[int, ObservedNode]
    quorum: ObservedQuorum | None
    kafka: KafkaFacts | None = None
    formation: Formation | None = None
    publications: tuple[Publication, ...] = ()
    probes: Mapping[Address, Reached] = field(default_factory=dict)
    clients: Mapping[str, ClientFacts] = field(default_factory=dict)
    """The connected clients by pool, where brokers expose metrics and these were read. No step depends on them."""
