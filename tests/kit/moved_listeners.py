"""A model of a cluster whose listeners are edited, for the planner: which node connects to which, and by what.

`ListeningWorld` has processes with the listeners that they were started with, and what voter set and registrations
have of these. After each step it checks that every node can connect to every other one that runs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from kit.scenarios import CLUSTER_ID, FEATURES
from quorate_operator.models.listeners import Listener
from quorate_operator.models.manifests import Manifests, load_manifests
from quorate_operator.models.started_listeners import (
    StartedListeners,
    StartedNode,
    started_of,
    started_text,
    with_listeners_in_use,
)
from quorate_operator.planning.cluster import (
    Address,
    BrokerLoad,
    DesiredCluster,
    DesiredNode,
    Formation,
    KafkaFacts,
    NodeState,
    ObservedCluster,
    ObservedNode,
    ObservedQuorum,
    ObservedRegistration,
    ObservedVoter,
    Role,
)
from quorate_operator.planning.desired import desired_cluster
from quorate_operator.planning.listeners import relisted, stage, with_listeners_of
from quorate_operator.planning.planner import plan
from quorate_operator.planning.steps import Action, CreateNode, FormCluster, Plan, StartNode, StopNode

QUORUM, POOLS = "quorum", ("brokers", "others")
CONTROLLERS, BROKERS = (3000, 3001, 3002), {"brokers": (0, 1, 2), "others": (1000,)}
ROUNDS_MAX = 400
READY_TICKS_MAX = 3
"""How many ticks a process takes at most until voter set and registration have its addresses."""
Listed = Sequence[Mapping[str, object]]


def manifests_of(
    controllers: Listed, brokers: Listed, others: Listed | None = None, *, authorization: str | None = None
) -> Manifests:
    """Return the manifests of three controllers and two pools with these listeners."""
    allowed = "" if authorization is None else f", authorization: {authorization}"
    lists = {"brokers": brokers, "others": brokers if others is None else others}
    documents = [
        f"""
apiVersion: quorate.dev/v1alpha1
kind: KafkaController
metadata: {{name: {QUORUM}}}
spec: {{listeners: {_text(controllers)}{allowed}}}
"""
    ]
    documents += [
        f"""
apiVersion: quorate.dev/v1alpha1
kind: KafkaBroker
metadata: {{name: {pool}}}
spec:
  controllers: {QUORUM}
  replicas: {len(BROKERS[pool])}
  nodeIds: {{first: {BROKERS[pool][0]}}}
  listeners: {_text(lists[pool])}
"""
        for pool in POOLS
    ]
    return load_manifests("---".join(documents), "edited.yaml")


def _text(listeners: Listed) -> str:
    entries = (", ".join(f"{key}: {value}" for key, value in listener.items()) for listener in listeners)
    return f"[{', '.join(f'{{{entry}}}' for entry in entries)}]"


@dataclass
class Process:
    """A node and, while it runs, its process. `record` outlives the process."""

    role: Role
    pool: str
    record: str | None = None
    revision: Mapping[str, str] = field(default_factory=dict)
    runs: bool = False
    ready_in: int = 0
    """Ticks until it is ready, and Kafka has its addresses."""

    @property
    def listeners(self) -> StartedListeners:
        """What its process was started with."""
        started = started_of(self.record)
        assert started is not None
        return started

    def protocol_of(self, name: str) -> str | None:
        """The protocol of one of its own listeners; None without it."""
        return next((own.protocol for own in self.listeners.own if own.name == name), None)


class ListeningWorld:
    """Processes, voter set and registrations. `observe_and_plan` observes and plans, `apply` does a step."""

    def __init__(self, manifests: Manifests, seed: int = 0) -> None:
        """Start with a cluster that runs as these manifests ask."""
        self.random = Random(seed)
        self.manifests = manifests
        self.now_ms = 10_000_000
        self.log: list[str] = []
        self.nodes = {node_id: Process(Role.CONTROLLER, QUORUM) for node_id in CONTROLLERS}
        for pool, node_ids in BROKERS.items():
            self.nodes |= {node_id: Process(Role.BROKER, pool) for node_id in node_ids}
        self.voters: dict[int, frozenset[str]] = dict.fromkeys(CONTROLLERS, frozenset())
        self.registered: dict[int, frozenset[str]] = {}
        self.is_led = True
        for node in self._completed(relisted(desired_cluster(manifests), manifests)).nodes:
            self._start(node)
        self.settle_processes()

    # -- what the planner sees

    def desired(self) -> DesiredCluster:
        """The cluster that the manifests ask for, with the listeners in use."""
        started = (
            StartedNode(pool=node.pool, listeners=node.listeners, is_running=node.runs)
            for node in self.nodes.values()
            if node.record is not None
        )
        merged = with_listeners_in_use(self.manifests, started, "edited.yaml")
        return relisted(desired_cluster(self.manifests), merged)

    def observe_and_plan(self) -> tuple[DesiredCluster, ObservedCluster, Plan]:
        """Observe, stage and plan."""
        raw = self.desired()
        observed = self.observe()
        desired = self._completed(with_listeners_of(raw, stage(self._completed(raw), observed)))
        again = self._completed(with_listeners_of(raw, stage(desired, observed)))
        assert desired == again, "what is staged stays so"
        return desired, observed, plan(desired, observed, self.now_ms)

    def observe(self) -> ObservedCluster:
        """What is observed of the processes and, while a majority is well, of Kafka."""
        kafka = self._kafka() if self.has_leader else None
        return ObservedCluster(
            nodes={node_id: self._observed(node_id, node) for node_id, node in self.nodes.items()},
            quorum=kafka.quorum if kafka else None,
            kafka=kafka,
            formation=Formation(
                cluster_id=CLUSTER_ID,
                initial_voters={node_id: f"disk-{node_id}" for node_id in CONTROLLERS},
                is_formed=True,
            ),
        )

    @property
    def has_leader(self) -> bool:
        """Whether a majority of controllers serves."""
        well = [node for node in self._of(Role.CONTROLLER) if node.runs and not node.ready_in]
        return self.is_led and 2 * len(well) > len(CONTROLLERS)

    # -- what happens

    def apply(self, action: Action, desired: DesiredCluster) -> None:
        """Do a step."""
        self.log.append(f"{action}")
        match action:
            case StopNode():
                self.nodes[action.node_id].runs = False
            case StartNode():
                node = next(node for node in desired.nodes if node.node_id == action.node_id)
                if not self.nodes[action.node_id].runs:
                    self._start(node)
            case CreateNode() | FormCluster():
                raise AssertionError(f"{action}: each node has a disk")
        self.check()

    def tick(self) -> None:
        """Time passes: processes become ready."""
        self.now_ms += 30_000
        for node_id, node in self.nodes.items():
            if node.runs and node.ready_in:
                node.ready_in -= 1
            if node.runs and not node.ready_in:
                self._report(node_id, node)
        self.check()

    def crash(self, node_id: int) -> None:
        """A process ends by itself."""
        self.log.append(f"{node_id} crashes")
        self.nodes[node_id].runs = False

    def round(self) -> Plan:
        """One pass of the operator, which may be killed in the middle."""
        desired, _, made = self.observe_and_plan()
        for action in made.due[: self.random.choice((None, None, None, 0, 1))]:
            self.apply(action, desired)
        self.tick()
        return made

    def settle(self) -> Plan:
        """Let the operator work until nothing is left to do."""
        for _ in range(ROUNDS_MAX):
            made = self.round()
            if not made.steps and all(node.runs and not node.ready_in for node in self.nodes.values()):
                return made
        steps = "\n  ".join(map(str, self.observe_and_plan()[2].steps))
        raise AssertionError("\n".join((*self.log[-30:], "in the end the plan still is", steps)))

    def settle_processes(self) -> None:
        """Let all processes become ready."""
        for _ in range(READY_TICKS_MAX + 1):
            self.tick()

    def check(self) -> None:
        """Every node that runs can connect to every other one that runs, and knows where."""
        running = {node_id: node for node_id, node in self.nodes.items() if node.runs}
        for user_id, user in running.items():
            for server_id, server in running.items():
                if server_id == user_id:
                    continue
                if server.role is Role.CONTROLLER:
                    self._check(user_id, user.listeners.controllers, server_id)
                elif user.role is Role.BROKER:
                    self._check(user_id, user.listeners.own[0].name, server_id)

    def _check(self, user_id: int, name: str, server_id: int) -> None:
        user, server = self.nodes[user_id], self.nodes[server_id]
        where = f"{user_id} connects to {server_id} by {name}"
        tail = "\n".join(self.log[-20:])
        assert name in server.listeners.names, f"{where}, which it does not serve\n{tail}"
        if user.role is server.role:
            assert user.protocol_of(name) == server.protocol_of(name), f"{where}, by another protocol\n{tail}"
        known = self.voters if server.role is Role.CONTROLLER else self.registered
        if not server.ready_in and known.get(server_id):
            assert name in known[server_id], f"{where}, of which Kafka has no address\n{tail}"

    def first_of(self, node_id: int) -> str:
        """The listener by which a node connects to those of its role."""
        return self.nodes[node_id].listeners.own[0].name

    # -- inside

    def _of(self, role: Role) -> list[Process]:
        return [node for node in self.nodes.values() if node.role is role]

    def _start(self, node: DesiredNode) -> None:
        process = self.nodes[node.node_id]
        of_controllers = self.manifests.controllers_listener(node.controllers_listener).name
        of_controllers = node.controllers_listener or of_controllers
        process.record = started_text(node.listeners, of_controllers)
        process.revision, process.runs = node.revision, True
        process.ready_in = self.random.randint(1, READY_TICKS_MAX)

    def _report(self, node_id: int, node: Process) -> None:
        """Voter set and registration get the addresses of a process that serves."""
        if node.role is Role.CONTROLLER:
            self.voters[node_id] = node.listeners.names
        self.registered[node_id] = node.listeners.names

    def _completed(self, desired: DesiredCluster) -> DesiredCluster:
        """Add addresses and revisions, as a runtime does."""
        return replace(
            desired, nodes=tuple(self._with_revision(node) for node in desired.nodes), dynamic_quorum=True
        )

    def _with_revision(self, node: DesiredNode) -> DesiredNode:
        listeners = [(listener.name, listener.protocol) for listener in node.listeners]
        first = self.manifests.controllers_listener(None).name
        of_controllers = node.controllers_listener or first
        return replace(
            node,
            advertised={listener.name: self._address(node.node_id, listener) for listener in node.listeners},
            revision={**node.revision, "config": f"{listeners} {of_controllers}"},
        )

    def _address(self, node_id: int, listener: Listener) -> Address:
        return Address(f"{listener.name.lower()}-{node_id}", 9092)

    def _endpoints(self, node_id: int, names: frozenset[str]) -> dict[str, Address]:
        return {name: Address(f"{name.lower()}-{node_id}", 9092) for name in names}

    def _observed(self, node_id: int, node: Process) -> ObservedNode:
        state = NodeState.STOPPED
        if node.runs:
            state = NodeState.STARTING if node.ready_in else NodeState.READY
            if not self.has_leader and node.role is Role.CONTROLLER:
                state = NodeState.UNREADY
        return ObservedNode(
            node_id=node_id,
            role=node.role,
            state=state,
            pool=node.pool,
            directory_id=f"disk-{node_id}",
            has_volume=True,
            started_at_ms=self.now_ms - 600_000 if node.runs else None,
            revision=node.revision if node.runs else {},
            configured=self._endpoints(node_id, node.listeners.names),
            listeners=node.listeners,
        )

    def _kafka(self) -> KafkaFacts:
        well = {node_id: node.runs and not node.ready_in for node_id, node in self.nodes.items()}
        return KafkaFacts(
            quorum=ObservedQuorum(
                leader_id=next(node_id for node_id in CONTROLLERS if well[node_id]),
                leader_epoch=4,
                high_watermark=100,
                kraft_version=1,
                voters={
                    node_id: ObservedVoter(
                        node_id=node_id,
                        directory_id=f"disk-{node_id}",
                        log_end_offset=100,
                        last_fetch_ms=self.now_ms,
                        last_caught_up_ms=self.now_ms,
                        follows=well[node_id],
                        caught_up=well[node_id],
                        endpoints=self._endpoints(node_id, names),
                    )
                    for node_id, names in self.voters.items()
                },
            ),
            cluster_id=CLUSTER_ID,
            registrations={
                node_id: ObservedRegistration(
                    node_id=node_id,
                    role=self.nodes[node_id].role,
                    endpoints=self._endpoints(node_id, names),
                    features=FEATURES,
                    fenced=not well[node_id],
                )
                for node_id, names in self.registered.items()
            },
            features={"metadata.version": 30, "kraft.version": 1},
            loads={node_id: BrokerLoad() for node_ids in BROKERS.values() for node_id in node_ids},
            answering=frozenset(node_id for node_id in well if well[node_id]),
        )
