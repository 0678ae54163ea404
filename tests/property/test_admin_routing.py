"""The client's routing among nodes that come, go, move and lie: what it may never do, and that it gets there."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from quorate_admin.config import Address, AdminConfig, MetadataRecoveryStrategy
from quorate_admin.network.routing import (
    Discover,
    Refuse,
    Routing,
    Send,
    Target,
    To,
    Wait,
    backoff_ms,
)

CLUSTERS = ("cluster-a", "cluster-b")
NODE_IDS = (1, 2, 3)
HOSTS = tuple(Address(f"host-{number}", 9092) for number in range(5))
BOOTSTRAP = HOSTS[:2]
ROLES = (To.ANY, To.CONTROLLER, To.LEADER_OF_QUORUM, To.node(1), To.node(3))
WAIT_MS_MAX = 1_200  # the longest backoff and its jitter


class RoutingMachine(RuleBasedStateMachine):
    """The routing in a world in which anything may happen between two of its steps.

    The world has a node or nothing at each address; the client learns only what it asks.
    """

    is_rebootstrapping = True
    is_checking = True

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 1_000
        self.routing = Routing(
            AdminConfig(
                bootstrap_controllers=BOOTSTRAP,
                metadata_recovery_strategy=MetadataRecoveryStrategy.REBOOTSTRAP
                if self.is_rebootstrapping
                else MetadataRecoveryStrategy.NONE,
                metadata_cluster_check_enable=self.is_checking,
                metadata_recovery_rebootstrap_trigger_ms=5_000,
                metadata_max_age_ms=20_000,
            ),
            Random(7),
        )
        self.world: dict[Address, tuple[str, int]] = {
            HOSTS[number]: (CLUSTERS[0], node_id) for number, node_id in enumerate(NODE_IDS)
        }
        self.controller_id = 1
        self.learned: set[Address] = set()

    @rule(
        address=st.sampled_from(HOSTS),
        cluster_id=st.sampled_from(CLUSTERS),
        node_id=st.sampled_from(NODE_IDS),
    )
    def a_node_comes_up(self, address: Address, cluster_id: str, node_id: int) -> None:
        """At an address that may have been another's."""
        self.world[address] = (cluster_id, node_id)

    @rule(address=st.sampled_from(HOSTS))
    def a_node_goes_down(self, address: Address) -> None:
        """No node listens there any more."""
        self.world.pop(address, None)

    @rule(node_id=st.sampled_from((-1, *NODE_IDS)))
    def a_controller_is_elected(self, node_id: int) -> None:
        """Or none."""
        self.controller_id = node_id

    @rule(time_ms=st.integers(1, 30_000))
    def time_passes(self, time_ms: int) -> None:
        """Between requests."""
        self.now_ms += time_ms

    @rule(to=st.sampled_from(ROLES))
    def a_request_is_made(self, to: To) -> None:
        """One try: steps until the request was sent once, or no node can be asked now."""
        for _ in range(20):
            step = self.routing.next_step(to, self.now_ms, lambda _: None)
            assert not isinstance(step, Refuse)
            if isinstance(step, Wait):
                assert self.now_ms < step.until_ms <= self.now_ms + WAIT_MS_MAX
                return
            self.check_target(step.target)
            if self.connect(step.target) and isinstance(step, Discover):
                self.discover(step.target)
            elif isinstance(step, Send):
                return
        raise AssertionError("20 steps without a wait: it would spin")

    def check_target(self, target: Target) -> None:
        """What may be sent where."""
        known = self.routing.nodes
        assert target.address in (set(known.values()) if known else set(BOOTSTRAP))
        assert (target.node_id is None) == (target.cluster_id is None) == (not known)
        assert target.is_checked == (bool(known) and self.is_rebootstrapping and self.is_checking)
        if not self.is_rebootstrapping and self.learned:
            assert target.address in self.learned

    def connect(self, target: Target) -> bool:
        """Whether a node listens, and whether it is the one that was meant."""
        found = self.world.get(target.address)
        if found is None:
            self.routing.failed(target, self.now_ms)
            return False
        if target.is_checked and found != (target.cluster_id, target.node_id):
            before = self.routing.misrouted_connections
            assert self.routing.rebootstrap_required(target, self.now_ms, is_misrouted=True) is not None
            assert self.routing.misrouted_connections == before + 1
            assert self.routing.nodes == {}
            return False
        self.routing.succeeded(target)
        return True

    def discover(self, target: Target) -> None:
        """The node reports the nodes of its cluster that are up."""
        cluster_id, _ = self.world[target.address]
        nodes = {node_id: address for address, (its, node_id) in self.world.items() if its == cluster_id}
        expected = self.routing.cluster_id
        found = self.routing.discovered(
            target,
            cluster_id=cluster_id,
            nodes=nodes,
            controller_id=self.controller_id,
            now_ms=self.now_ms,
        )
        if expected not in {None, cluster_id}:
            assert found
            assert found[0].found_cluster_id == cluster_id
            assert found[0].expected_cluster_id == expected
            if self.is_rebootstrapping and self.is_checking:
                assert self.routing.nodes == {}
                return
        assert self.routing.nodes == nodes
        self.learned = set(nodes.values())

    @invariant()
    def a_cluster_is_known_with_its_id_or_not_at_all(self) -> None:
        """No id without nodes: it would be sent to a bootstrap address after a rebootstrap."""
        assert (self.routing.cluster_id is None) == (not self.routing.nodes)

    @invariant()
    def what_is_remembered_is_bounded(self) -> None:
        """Addresses that are gone are forgotten."""
        assert self.routing.addresses <= set(HOSTS)
        assert set(self.routing._failures) <= self.routing.addresses
        assert set(self.routing._unresolved) <= set(HOSTS)

    @precondition(lambda self: self.is_rebootstrapping)
    @rule(to=st.sampled_from((To.ANY, To.CONTROLLER, To.LEADER_OF_QUORUM, To.node(1))))
    def when_the_world_is_well_the_request_arrives(self, to: To) -> None:
        """Whatever happened before: with a whole cluster behind the bootstrap addresses, it gets there in time."""
        self.world = {HOSTS[number]: (CLUSTERS[1], node_id) for number, node_id in enumerate(NODE_IDS)}
        self.controller_id = 2
        limit_ms = self.now_ms + 30_000
        while self.now_ms < limit_ms:
            step = self.routing.next_step(to, self.now_ms, lambda _: None)
            if isinstance(step, Wait):
                self.now_ms = step.until_ms
                continue
            assert not isinstance(step, Refuse)
            self.now_ms += 1
            if not self.connect(step.target):
                continue
            if isinstance(step, Discover):
                self.discover(step.target)
                continue
            cluster_id, node_id = self.world[step.target.address]
            if to in {To.CONTROLLER, To.LEADER_OF_QUORUM} and node_id != self.controller_id:
                self.routing.not_in_charge(step.target)
                continue
            if self.is_checking:
                assert cluster_id == CLUSTERS[1]
                assert to != To.node(1) or node_id == 1
            self.routing.confirmed()
            return
        raise AssertionError("the request did not arrive in 30 s")


class UncheckedMachine(RoutingMachine):
    """With `metadata.cluster.check.enable=false`."""

    is_checking = False


class StayingMachine(RoutingMachine):
    """With `metadata.recovery.strategy=none`."""

    is_rebootstrapping = False

    def teardown(self) -> None:
        """It never began again."""
        assert self.routing.rebootstraps == 0


TestRouting = RoutingMachine.TestCase
TestRoutingWithoutCheck = UncheckedMachine.TestCase
TestRoutingWithoutRebootstrap = StayingMachine.TestCase
for case in (TestRouting, TestRoutingWithoutCheck, TestRoutingWithoutRebootstrap):
    case.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


@given(
    failures=st.integers(0, 10_000),
    first_ms=st.integers(0, 10_000),
    max_ms=st.integers(0, 100_000),
    seed=st.integers(),
)
def test_backoff_is_bounded_and_doubles(failures: int, first_ms: int, max_ms: int, seed: int) -> None:
    wait_ms = backoff_ms(failures, first_ms, max_ms, Random(seed))
    if failures == 0 or first_ms == 0:
        assert wait_ms == 0
        return
    exact = min(first_ms * 2 ** min(failures - 1, 31), max(max_ms, first_ms))
    assert exact * 0.8 - 1 <= wait_ms <= exact * 1.2 + 1
