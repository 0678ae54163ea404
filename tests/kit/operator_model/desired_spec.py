"""What a user of the model cluster asks for, and its edits."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count

from quorate_operator.models.listeners import Listener
from quorate_operator.planning.cluster import (
    Address,
    DesiredCluster,
    DesiredNode,
    Implementation,
    Lifecycle,
    Role,
    RolloutPolicy,
    VolumePolicy,
)
from quorate_operator.planning.pods import CONTROLLER

PORT = 9092
OVERLAP_MS = 60_000
CONTROLLERS_FIRST = 3000
OTHERS_FIRST = 100
OTHERS = "others"
LISTENERS = {Role.CONTROLLER: ("CONTROLLER",), Role.BROKER: ("INTERNAL", "EXTERNAL")}
RACKS = ("a", "b", "c")


@dataclass
class DesiredSpec:
    """The manifests, as far as planning sees them; each method is an edit that a user makes."""

    controllers: int = 3
    brokers: int = 3
    dynamic: bool = True
    is_external: bool = False
    """Whether the names of controllers, and of EXTERNAL, are pointed at nodes outside the operator."""
    volumes: VolumePolicy = VolumePolicy.DELETE
    version: str = "4.3.1"
    metadata_version: str = "4.2"
    config: int = 0
    lifecycle: Lifecycle = Lifecycle.RUNNING
    generation: int = 0
    decommission: frozenset[int] = frozenset()
    others: int = 0
    """How many brokers another pool has."""
    is_drained: bool = False
    """Whether the other pool is deleted, together with its volumes."""
    has_interim: bool = True
    with_brokers: bool = False
    """Whether each controller runs in the pod of the broker with its offset."""
    names: dict[tuple[int, str], Address] = field(default_factory=dict)
    spare: Iterable[int] = field(default_factory=count)

    def __post_init__(self) -> None:
        self._name_all()

    def ids(self, role: Role) -> tuple[int, ...]:
        """The node ids of the role's pool. In pods of brokers, there are at most as many controllers as brokers."""
        first, replicas = (
            (CONTROLLERS_FIRST, self.controllers) if role is Role.CONTROLLER else (0, self.brokers)
        )
        if self.with_brokers and role is Role.CONTROLLER:
            beside = [first + broker_id for broker_id in self.ids(Role.BROKER)]
            return tuple(node_id for node_id in beside if node_id not in self.decommission)[:replicas]
        usable = (node_id for node_id in count(first) if node_id not in self.decommission)
        return tuple(next(usable) for _ in range(replicas))

    def nodes(self) -> tuple[tuple[int, Role], ...]:
        """Every desired node with its role."""
        own = tuple((node_id, role) for role in Role for node_id in self.ids(role))
        return own if self.is_drained else (*own, *self._others())

    def _others(self) -> tuple[tuple[int, Role], ...]:
        return tuple((OTHERS_FIRST + place, Role.BROKER) for place in range(self.others))

    def drain_others(self) -> None:
        """The other pool is deleted."""
        self.is_drained = True

    def scale(self, role: Role, replicas: int) -> None:
        """Another number of nodes."""
        if role is Role.CONTROLLER:
            self.controllers = replicas
        else:
            self.brokers = replicas
        self._name_all()

    def leave(self, node_id: int) -> None:
        """One id is decommissioned, and the pool is one node smaller."""
        role = Role.CONTROLLER if node_id >= CONTROLLERS_FIRST else Role.BROKER
        replicas = len(self.ids(role)) - 1
        self.decommission |= {node_id}
        self.scale(role, replicas)

    def replace(self, node_id: int) -> None:
        """One id is decommissioned; another takes its place."""
        self.decommission |= {node_id}
        self._name_all()

    def take_back(self) -> None:
        """No node is decommissioned any more."""
        self.decommission = frozenset()
        self._name_all()

    def rename(self) -> None:
        """Every node gets a new name."""
        self.generation += 1
        self.names.clear()
        self._name_all()

    def rotate(self, node_ids: tuple[int, ...], listener: str) -> None:
        """Each of the nodes takes the name of the next one; two nodes exchange theirs."""
        names = [self.names[node_id, listener] for node_id in node_ids]
        for node_id, name in zip(node_ids, names[1:] + names[:1], strict=True):
            self.names[node_id, listener] = name

    def inherit(self, leaving: int, heir: int, listener: str) -> None:
        """A node leaves, and another one takes its name."""
        name = self.names[leaving, listener]
        self.leave(leaving)
        if any(heir == node_id for node_id, _ in self.nodes()):
            self.names[heir, listener] = name

    def _name_all(self) -> None:
        known = dict((*self.nodes(), *self._others()))
        keys = [(node_id, listener) for node_id, role in known.items() for listener in LISTENERS[role]]
        self.names = {key: name for key, name in self.names.items() if key in keys}
        for node_id, listener in keys:
            if (node_id, listener) not in self.names:
                name = Address(f"g{self.generation}-{listener.lower()}-{node_id}", PORT)
                if name in self.names.values():
                    name = Address(f"spare-{next(iter(self.spare))}", PORT)
                self.names[node_id, listener] = name

    def desired(self, *, is_static: bool) -> DesiredCluster:
        """The input of `plan()`. `is_static`: how nodes are configured now, which is part of their revision."""
        leaving = self._others() if self.is_drained else ()
        drained = frozenset({OTHERS} if self.is_drained else ())
        return DesiredCluster(
            name="quorum",
            cluster_id=None,
            metadata_version=self.metadata_version,
            dynamic_quorum=self.dynamic,
            nodes=tuple(self._node(node_id, role, is_static) for node_id, role in self.nodes()),
            lifecycle=self.lifecycle,
            rollouts={
                pool: RolloutPolicy(
                    overlap_ms=OVERLAP_MS, volumes=VolumePolicy.DELETE if pool in drained else self.volumes
                )
                for pool in ("quorum", "pool", OTHERS)
            },
            decommission=self.decommission | {node_id for node_id, _ in leaving},
            drained_pools=drained,
            drained=tuple(self._node(node_id, role, is_static) for node_id, role in leaving),
        )

    def _node(self, node_id: int, role: Role, is_static: bool) -> DesiredNode:
        pool, first = ("pool", 0) if node_id < OTHERS_FIRST else (OTHERS, OTHERS_FIRST)
        if role is Role.CONTROLLER:
            pool, first = "quorum", CONTROLLERS_FIRST
        advertised = {listener: self.names[node_id, listener] for listener in LISTENERS[role]}
        interim = {
            listener: Address(f"interim-{listener.lower()}-{node_id}", PORT)
            for listener in LISTENERS[role]
            if self.has_interim
        }
        mate = self._mate(node_id, role)
        beside = {CONTROLLER: str(mate)} if role is Role.BROKER and mate is not None else {}
        return DesiredNode(
            node_id=node_id,
            role=role,
            pool=pool,
            place=node_id - first,
            implementation=Implementation.PYTHON if role is Role.CONTROLLER else Implementation.JAVA,
            kafka_version=self.version,
            listeners=tuple(Listener(name=listener) for listener in LISTENERS[role]),
            config={},
            advertised=advertised,
            interim=interim,
            controlled=frozenset(self._controlled(advertised)) | frozenset(interim.values()),
            revision={
                "version": self.version,
                "config": f"{self.config} {'static' if is_static else 'dynamic'}",
                **beside,
            },
            rack=RACKS[node_id % len(RACKS)] if role is Role.BROKER else None,
            pod_mate=mate,
        )

    def _mate(self, node_id: int, role: Role) -> int | None:
        """The other node in its pod."""
        if not self.with_brokers:
            return None
        mate = node_id - CONTROLLERS_FIRST if role is Role.CONTROLLER else node_id + CONTROLLERS_FIRST
        other = Role.BROKER if role is Role.CONTROLLER else Role.CONTROLLER
        return mate if mate in self.ids(other) else None

    def _controlled(self, advertised: Mapping[str, Address]) -> Iterable[Address]:
        return (
            address
            for listener, address in advertised.items()
            if not (self.is_external and listener in ("CONTROLLER", "EXTERNAL"))
        )
