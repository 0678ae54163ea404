"""An operator for the model cluster that can be killed at every moment, and the faults of the world around it."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random

from kit.operator_model.desired_spec import DesiredSpec
from kit.operator_model.steps import apply
from kit.operator_model.world import REGISTRATION_LEVEL, Node, Partition, World
from quorate_operator.placement.cluster import PartitionId
from quorate_operator.planning.cluster import DesiredCluster, Lifecycle, Role
from quorate_operator.planning.planner import plan
from quorate_operator.planning.steps import Action, Plan, StartNode, StopNode
from quorate_protocol.features import metadata_version_named

ROUNDS_MAX = 1000
IDLE_ROUNDS_MAX = 60
"""The number of rounds of six seconds without anything due: longer than any wait for time."""
PARTITIONS = 7
PLAN_STEP_MS = 1000


@dataclass
class Cluster:
    """A specification, a world, and the operator between them. `history` is printed when a test fails."""

    spec: DesiredSpec
    seed: int
    world: World = field(init=False)
    history: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.world = World(Random(self.seed))

    def desired(self) -> DesiredCluster:
        """The current desired state."""
        formation = self.world.formation
        is_static = not self.spec.dynamic if formation is None else formation.is_static
        return self.spec.desired(is_static=is_static)

    def plan(self) -> Plan:
        """The plan of this moment."""
        desired = self.desired()
        made = plan(desired, self.world.observe(desired), self.world.now_ms)
        self.check_order(made)
        return made

    def check_order(self, made: Plan) -> None:
        """One controller at a time; the active one only when all others are as desired."""
        desired, world = self.desired(), self.world
        if desired.lifecycle is not Lifecycle.RUNNING:
            return
        touched = [
            action.node_id
            for action in made.due
            if isinstance(action, StopNode) and world.is_voter(world.nodes[action.node_id])
        ]
        assert len(touched) <= 1, f"rule 1: voters {touched} are stopped at once"

    def round(self, *, cut: int | None = None, half: bool = False, step_ms: int = PLAN_STEP_MS) -> Plan:
        """Observe, plan, do what is due. `cut`: steps before the operator is killed, with `half` of one more."""
        self.world.point_dns(self.desired())
        made = self.plan()
        due = self._any_order(made.due)
        if cut is not None:
            killed_in = due[cut : cut + 1] if half else ()
            due = due[:cut]
        else:
            killed_in = ()
        for action in due:
            self._apply(action)
        for action in killed_in:
            self._apply(action, half=True)
        self.world.tick(step_ms)
        self.world.check_clients()
        return made

    def _any_order(self, due: tuple[Action, ...]) -> tuple[Action, ...]:
        """Steps of different pods happen at the same time; those of one pod in their order."""
        by_node: dict[int | None, list[Action]] = {}
        pods = {node.pod_mate: node.node_id for node in self.desired().nodes if node.role is Role.BROKER}
        pods |= {step.beside: step.node_id for step in due if isinstance(step, StartNode)}
        for action in due:
            node_id = None if not hasattr(action, "node_id") else action.node_id
            node_id = node_id if node_id is None else pods.get(node_id, node_id)
            by_node.setdefault(node_id, []).append(action)
        queues = list(by_node.values())
        order = []
        while queues:
            queue = self.world.rng.choice(queues)
            order.append(queue.pop(0))
            if not queue:
                queues.remove(queue)
        return tuple(order)

    def _apply(self, action: Action, *, half: bool = False) -> None:
        self.history.append(f"{self.world.now_ms} {'half of ' if half else ''}{action}")
        apply(self.world, action, self.desired(), half=half)

    def settle(self, *, rounds_max: int = ROUNDS_MAX) -> int:
        """Faults have ended: the plan becomes empty, and what is desired holds. Returns how many rounds that took."""
        for node in self.world.nodes.values():
            node.is_lost, node.lag = False, 0
        made, idle = Plan(steps=()), 0
        for rounds in range(rounds_max):
            made = self.round()
            if not made.steps and not self.plan().steps:
                self.check_desired_state()
                return rounds
            if made.due:
                idle = 0
                continue
            # Nothing but time is waited for, or a node that needs a moment.
            self.world.tick(5 * PLAN_STEP_MS)
            idle += 1
            if idle > IDLE_ROUNDS_MAX:
                break
        waits = "\n  ".join(str(step) for step in made.steps)
        raise AssertionError(f"in the end the plan still is\n  {waits}\n  {made.refusals}\n{self.tail()}")

    def tail(self) -> str:
        """The last of what happened."""
        return "\n".join(self.history[-60:])

    def check_desired_state(self) -> None:
        """Check that the observed state is the desired one."""
        desired, world = self.desired(), self.world
        if desired.lifecycle is Lifecycle.PAUSED:
            return
        wanted = {node.node_id: node for node in desired.nodes}
        if desired.lifecycle is Lifecycle.HIBERNATED:
            assert not any(node.process for node in world.nodes.values())
            return
        for node in desired.nodes:
            process = world.nodes[node.node_id].process
            assert process is not None, f"{node.label} does not run"
            assert process.advertised == node.advertised, f"{node.label}: {process.advertised}"
            assert process.revision == node.revision, f"{node.label}: {process.revision}"
            assert process.pod_mate == node.pod_mate, f"{node.label} is in a pod with {process.pod_mate}"
            assert world.serves(node.node_id), f"{node.label} serves nobody"
            for address in node.advertised.values():
                if address in node.controlled:
                    assert world.publications[address].node_id == node.node_id
        controllers = {node.node_id for node in desired.of_role(Role.CONTROLLER)}
        assert set(world.voters) == controllers
        assert world.sound_voters() == controllers
        assert world.features["metadata.version"] == metadata_version_named(self.spec.metadata_version)
        assert (world.kraft_version == 1) == self.spec.dynamic
        assert not [node for node in world.nodes.values() if node.process and node.node_id not in wanted]
        self._check_leftovers(set(wanted))

    def _check_leftovers(self, wanted: set[int]) -> None:
        world = self.world
        ghosts = set(world.registrations) - wanted
        if world.features["metadata.version"] < REGISTRATION_LEVEL:
            ghosts = {ghost for ghost in ghosts if world.registrations[ghost].role is Role.BROKER}
        assert not ghosts, f"{ghosts} are registered still"
        advertised = {address for node in self.desired().nodes for address in node.advertised.values()}
        left = {
            address
            for address, publication in world.publications.items()
            if address not in advertised and publication.node_id not in set(world.registrations) - wanted
        }
        assert not left, f"{left} point at nodes still"
        for name, partition in world.partitions.items():
            assert set(partition.replicas) <= wanted, f"{name}: {partition}"
            assert not partition.adding, f"{name}: {partition}"

    # -- users and faults

    def create_partitions(self) -> None:
        """Topics with two replicas each, three where there are brokers enough."""
        brokers = [
            node.node_id
            for node in self.world.nodes.values()
            if node.role is Role.BROKER and self.world.serves(node.node_id)
        ]
        if len(brokers) < 2 or self.world.partitions or self.world.leader_id is None:
            return
        for number in range(PARTITIONS):
            start = number % len(brokers)
            replicas = tuple((brokers[start:] + brokers[:start])[:2])
            self.world.partitions[PartitionId("orders", number)] = Partition(
                replicas, isr=set(replicas), leader=replicas[0]
            )

    def crash(self, node: Node) -> None:
        """The process ends without a request. In a pod with another one, it is started again at once."""
        self.history.append(f"{self.world.now_ms} node {node.node_id} crashes")
        if node.process is not None and node.process.pod_mate is not None:
            node.process = node.last = replace(
                node.process, started_at_ms=self.world.now_ms, joined=False, registered=False, was_ready=False
            )
            if self.world.leader_id == node.node_id:
                self.world.leader_id = None
            return
        node.process, node.crashed_at_ms = None, self.world.now_ms
        node.exits_in_a_row += 1

    def can_unregister(self, node: Node) -> bool:
        """Whether it is a broker in service that stays, and whose partitions others have."""
        stays = any(node.node_id == wanted.node_id for wanted in self.desired().nodes)
        is_serving = node.role is Role.BROKER and self.world.serves(node.node_id)
        partitions = self.world.partitions.values()
        return stays and is_serving and all(partition.isr - {node.node_id} for partition in partitions)

    def unregister(self, node: Node) -> None:
        """A user removes the registration of a broker that runs."""
        self.history.append(f"{self.world.now_ms} broker {node.node_id} is unregistered")
        del self.world.registrations[node.node_id]

    def lose_disk(self, node: Node) -> None:
        """The disk is empty, and the process with it gone."""
        self.history.append(f"{self.world.now_ms} node {node.node_id} loses its disk")
        if node.process is not None and node.process.pod_mate is not None:
            self.world.nodes[node.process.pod_mate].process = None
        node.process, node.crashed_at_ms, node.disk, node.has_volume = None, None, None, False
        for partition in self.world.partitions.values():
            partition.isr -= {node.node_id}

    def can_lose_disk(self, node: Node) -> bool:
        """Whether nothing is lost for good: what it has, others have too."""
        world = self.world
        if node.disk is None or world.leader_id is None or world.formation is None:
            return False
        if not world.formation.is_formed or node.is_lost:
            return False
        if node.role is Role.BROKER:
            return all(partition.isr - {node.node_id} for partition in world.partitions.values())
        if not world.is_voter(node):
            return True
        return 2 * len(world.sound_voters() - {node.node_id}) > len(world.voters)

    def some(self, choice: int, allowed: Callable[[Node], bool]) -> Node | None:
        """A node for which it is allowed."""
        nodes = [node for node in self.world.nodes.values() if allowed(node)]
        return nodes[choice % len(nodes)] if nodes else None
