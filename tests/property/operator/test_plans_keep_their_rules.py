"""Any edits and faults, an operator killed at any moment: no step breaks a rule, and all becomes as desired."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from kit.operator_model.desired_spec import DesiredSpec
from kit.operator_model.driver import Cluster
from kit.operator_model.world import Node
from quorate_operator.planning.cluster import Lifecycle, Role, VolumePolicy
from quorate_operator.planning.pods import NO_POD

CONTROLLERS_MAX = 5
BROKERS_MAX = 5
BROKERS_MIN = 2
"""As many as partitions have replicas: fewer are refused, which `test_drain` shows."""
choices = st.integers(0, 11)


class Operated(RuleBasedStateMachine):
    """A cluster whose user edits, whose machines fail, and whose operator is killed."""

    @initialize(
        seed=st.integers(0, 2**32),
        controllers=st.integers(1, CONTROLLERS_MAX),
        brokers=st.integers(BROKERS_MIN, 4),
        others=st.integers(0, 2),
        dynamic=st.booleans(),
        is_external=st.booleans(),
        volumes=st.sampled_from(VolumePolicy),
        is_up=st.booleans(),
        with_brokers=st.booleans(),
    )
    def begin(
        self,
        *,
        seed: int,
        controllers: int,
        brokers: int,
        others: int,
        dynamic: bool,
        is_external: bool,
        volumes: VolumePolicy,
        is_up: bool,
        with_brokers: bool,
    ) -> None:
        spec = DesiredSpec(
            controllers=controllers,
            brokers=brokers,
            others=others,
            dynamic=dynamic or with_brokers,
            is_external=is_external,
            volumes=volumes,
            with_brokers=with_brokers,
        )
        self.cluster = Cluster(spec, seed)
        if is_up:
            self.cluster.settle()
            self.cluster.create_partitions()

    # -- the operator

    @rule(rounds=st.integers(1, 12))
    def reconcile(self, rounds: int) -> None:
        for _ in range(rounds):
            self.cluster.round()
        self.cluster.create_partitions()

    @rule(cut=st.integers(0, 4), half=st.booleans())
    def reconcile_and_die(self, cut: int, half: bool) -> None:
        self.cluster.round(cut=cut, half=half)

    @rule(seconds=st.sampled_from((5, 20, 70)))
    def time_passes(self, seconds: int) -> None:
        self.cluster.world.tick(seconds * 1000)

    # -- the user

    @property
    def is_formed(self) -> bool:
        formation = self.cluster.world.formation
        return formation is not None and formation.is_formed

    @property
    def can_change_voters(self) -> bool:
        return self.is_formed and self.cluster.world.kraft_version >= 1

    @precondition(lambda self: self.can_change_voters)
    @rule(replicas=st.integers(1, CONTROLLERS_MAX))
    def scale_controllers(self, replicas: int) -> None:
        self.cluster.spec.scale(Role.CONTROLLER, replicas)

    @precondition(lambda self: self.is_formed)
    @rule(replicas=st.integers(BROKERS_MIN, BROKERS_MAX))
    def scale_brokers(self, replicas: int) -> None:
        self.cluster.spec.scale(Role.BROKER, replicas)

    @precondition(lambda self: self.is_formed)
    @rule()
    def delete_a_pool(self) -> None:
        self.cluster.spec.drain_others()

    @precondition(lambda self: self.can_change_voters)
    @rule(choice=choices)
    def replace_one(self, choice: int) -> None:
        spec = self.cluster.spec
        nodes = spec.nodes()
        node_id, role = nodes[choice % len(nodes)]
        if not (spec.with_brokers and role is Role.CONTROLLER and len(spec.ids(role)) == 1):
            spec.replace(node_id)

    @rule()
    def take_back(self) -> None:
        if self.can_change_voters:
            self.cluster.spec.take_back()

    @rule()
    def rename_all(self) -> None:
        self.cluster.spec.rename()

    @rule(role=st.sampled_from(Role), length=st.integers(2, 5), choice=choices)
    def rotate(self, role: Role, length: int, choice: int) -> None:
        ids = self.cluster.spec.ids(role)
        if len(ids) < 2:
            return
        start = choice % len(ids)
        listener = "CONTROLLER" if role is Role.CONTROLLER else ("INTERNAL", "EXTERNAL")[choice % 2]
        self.cluster.spec.rotate((ids[start:] + ids[:start])[:length], listener)

    @precondition(lambda self: self.is_formed)
    @rule(choice=choices)
    def inherit(self, choice: int) -> None:
        ids = self.cluster.spec.ids(Role.BROKER)
        if len(ids) > BROKERS_MIN:
            leaving, heir = ids[choice % len(ids)], ids[(choice + 1) % len(ids)]
            self.cluster.spec.inherit(leaving, heir, "EXTERNAL")

    @rule()
    def change_config(self) -> None:
        self.cluster.spec.config += 1

    @precondition(lambda self: self.is_formed)
    @rule()
    def upgrade(self) -> None:
        """To the first release that can unregister controllers."""
        self.cluster.spec.version, self.cluster.spec.metadata_version = "4.4.0", "4.4-IV2"

    @precondition(lambda self: self.is_formed)
    @rule()
    def become_dynamic(self) -> None:
        self.cluster.spec.dynamic = True

    @precondition(lambda self: self.is_formed)
    @rule(lifecycle=st.sampled_from(Lifecycle))
    def live(self, lifecycle: Lifecycle) -> None:
        self.cluster.spec.lifecycle = lifecycle

    # -- the world

    @rule(choice=choices)
    def crash(self, choice: int) -> None:
        if node := self.cluster.some(choice, lambda node: node.is_up):
            self.cluster.crash(node)

    @rule(choice=choices)
    def unregister_a_broker(self, choice: int) -> None:
        if node := self.cluster.some(choice, self.cluster.can_unregister):
            self.cluster.unregister(node)

    @rule(choice=choices)
    def lose_disk(self, choice: int) -> None:
        if node := self.cluster.some(choice, self.cluster.can_lose_disk):
            self.cluster.lose_disk(node)

    @rule(choice=choices, ticks=st.integers(1, 10))
    def lag_behind(self, choice: int, ticks: int) -> None:
        if node := self.cluster.some(choice, lambda node: node.is_up):
            node.lag = ticks

    @rule()
    def change_leader(self) -> None:
        self.cluster.world.leader_id = None
        self.cluster.world.elect()

    @rule(choice=choices)
    def lose_machine(self, choice: int) -> None:
        def allowed(node: Node) -> bool:
            return node.is_up and not any(node.is_lost for node in self.cluster.world.nodes.values())

        if node := self.cluster.some(choice, allowed):
            node.is_lost = True
            if node.process is not None and node.process.pod_mate is not None:
                self.cluster.world.nodes[node.process.pod_mate].is_lost = True

    @rule()
    def machine_comes_back(self) -> None:
        for node in self.cluster.world.nodes.values():
            node.is_lost = False

    def teardown(self) -> None:
        """Liveness: when faults have ended, and the cluster is not paused, it becomes what is desired."""
        if not hasattr(self, "cluster"):
            return
        if self.cluster.spec.lifecycle is Lifecycle.PAUSED:
            self.cluster.spec.lifecycle = Lifecycle.RUNNING
        if self.cluster.spec.with_brokers:
            self._keep_needed_controllers()
        self.cluster.settle()

    def _keep_needed_controllers(self) -> None:
        """Do what a plan asks for while a quorum without a leader needs a controller whose broker leaves."""
        spec, world = self.cluster.spec, self.cluster.world
        for node in world.nodes.values():
            node.is_lost, node.lag = False, 0
        for _ in range(20):
            made = self.cluster.round()
            if any(wait.code == NO_POD for wait in made.waits):
                spec.take_back()
                spec.scale(Role.BROKER, BROKERS_MAX)


Operated.TestCase.settings = settings(max_examples=100, stateful_step_count=25, print_blob=True)
TestPlansKeepTheirRules = Operated.TestCase
TestPlansKeepTheirRules.__doc__ = """The six rules of planning hold whatever happens, and plans end.

Hypothesis draws edits, faults and deaths of the operator; the model cluster judges each step of the real
`plan()`. A failure prints the rules in their order.
"""


def test_a_voter_that_leaves_on_a_lost_machine_spares_the_other_of_two() -> None:
    cluster = Cluster(DesiredSpec(controllers=2, brokers=2, dynamic=True), seed=1419443)
    cluster.settle()
    cluster.world.nodes[3001].is_lost = True
    cluster.spec.scale(Role.CONTROLLER, 1)
    cluster.spec.config += 1
    cluster.world.tick(80_000)
    assert not cluster.round().due
    cluster.settle()


def test_the_last_in_sync_may_be_restarted_when_it_serves_nobody() -> None:
    cluster = Cluster(DesiredSpec(controllers=1, brokers=3), seed=681029029)
    cluster.settle()
    cluster.create_partitions()
    world = cluster.world
    world.nodes[1].is_lost = True
    for partition in world.partitions.values():
        partition.isr -= {
            replica for replica in partition.replicas if 1 in partition.replicas and replica != 1
        }
    world.tick(80_000)
    cluster.spec.config += 1
    for _ in range(10):
        cluster.round()
    assert any(partition.leader == -1 for partition in world.partitions.values())
    cluster.settle()
