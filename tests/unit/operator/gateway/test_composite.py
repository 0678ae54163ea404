"""A runtime of two halves: who is asked what, who is probed, what is remembered."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, cast

import pytest
from kit.waiting import HANG_S
from quorate_admin.diagnosis import ClientFacts
from quorate_operator.gateway.client_watch import ClientWatch, Urls
from quorate_operator.models.listeners import BrokerListener
from quorate_operator.planning.cluster import (
    Address,
    DesiredCluster,
    DesiredNode,
    Formation,
    Implementation,
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
from quorate_operator.planning.steps import ElectPreferredLeaders, StopNode
from quorate_operator.runtime.composite import (
    SETTLED_PROBE_INTERVAL_MS,
    SETTLED_PROBES_MAX,
    ClusterRuntime,
    addresses_to_probe,
)
from quorate_operator.runtime.verifications import REMEMBERED_MS, RENEWED_MS
from typing_extensions import override

FORMATION = Formation(cluster_id="ours", initial_voters={3000: "disk"}, is_formed=False)
VOTER = ObservedVoter(
    node_id=3000, directory_id="disk", log_end_offset=1, last_fetch_ms=9, last_caught_up_ms=9, caught_up=True
)
QUORUM = ObservedQuorum(
    leader_id=3000, leader_epoch=1, high_watermark=1, kraft_version=1, voters={3000: VOTER}
)


def broker_registration(node_id: int) -> ObservedRegistration:
    """A broker in service."""
    return ObservedRegistration(node_id=node_id, role=Role.BROKER, endpoints={}, features={})


def address(name: str) -> Address:
    """A name of a broker."""
    return Address(name, 9092)


def node(node_id: int, role: Role, advertised: str, interim: str | None = None) -> DesiredNode:
    """A node that shall be called so."""
    return DesiredNode(
        node_id=node_id,
        role=role,
        pool="pool",
        place=0,
        implementation=Implementation.JAVA,
        kafka_version="4.3.1",
        listeners=(),
        config={},
        advertised={"PLAINTEXT": address(advertised)},
        interim={"PLAINTEXT": address(interim)} if interim else {},
    )


def running(node_id: int, role: Role, configured: str, started_at_ms: int = 1) -> ObservedNode:
    """A node with a process that is called so."""
    return ObservedNode(
        node_id=node_id,
        role=role,
        state=NodeState.STARTING,
        started_at_ms=started_at_ms,
        configured={"PLAINTEXT": address(configured)},
    )


CONTROLLER, BROKER = node(3000, Role.CONTROLLER, "c0"), node(0, Role.BROKER, "b0")
DESIRED = DesiredCluster(
    name="c", cluster_id=None, metadata_version=None, dynamic_quorum=True, nodes=(CONTROLLER, BROKER)
)


class Place:
    """An infrastructure that says what the test says."""

    def __init__(self, *nodes: ObservedNode) -> None:
        self.found = {node_.node_id: node_ for node_ in nodes}
        self.formed: Formation | None = FORMATION
        self.published: tuple[Publication, ...] = ()
        self.applied: list[object] = []
        self.leaders_seen: list[int] = []
        self.known: tuple[Verification, ...] = ()
        self.notes: list[tuple[int, int]] = []
        """The node id and the time of each that was written down."""

    async def nodes(self, _: DesiredCluster) -> Mapping[int, ObservedNode]:
        """As found."""
        return dict(self.found)

    async def formation(self) -> Formation | None:
        """As settled."""
        return self.formed

    async def note_leader(self, kraft_version: int, leader_epoch: int) -> None:
        """Remember that it was called."""
        del leader_epoch
        self.leaders_seen.append(kraft_version)

    async def publications(self) -> tuple[Publication, ...]:
        """As published."""
        return self.published

    async def verifications(self) -> tuple[Verification, ...]:
        """As written down."""
        return self.known

    async def note_verifications(self, node_id: int, verified: tuple[Verification, ...]) -> None:
        """Remember it; it outlives every operator."""
        self.known = (
            *(verification for verification in self.known if verification.node_id != node_id),
            *verified,
        )
        self.notes += [(node_id, verification.at_ms) for verification in verified]

    async def apply(self, action: object, _: DesiredCluster) -> None:
        """Remember it."""
        self.applied.append(action)

    def contacts(self, _: DesiredCluster) -> Mapping[int, Address]:
        """Each node by its number."""
        return {node_id: Address("contact", node_id) for node_id in self.found}

    def metrics_urls(self, _: DesiredCluster) -> Mapping[str, tuple[str, ...]]:
        """One page for the pool."""
        return {"pool": ("http://b0:9404/metrics",)}


class Kafka:
    """A gateway that says what the test says."""

    def __init__(self, facts: KafkaFacts | None) -> None:
        self.facts = facts
        self.problem: str | None = None
        self.asked: list[tuple[Any, ...]] = []
        self.probed: list[frozenset[Address]] = []
        self.resolved: list[frozenset[Address]] = []
        self.resolved_at_ms = 0
        self.applied: list[object] = []
        self.reached = Reached(at_ms=0, node_id=0, cluster_id="ours")
        self.reached_at: dict[Address, Reached] = {}

    async def observe(self, *asked: Any) -> KafkaFacts | None:
        """The facts."""
        self.asked.append(asked)
        return self.facts

    async def probe(self, addresses: frozenset[Address], _: frozenset[int]) -> Mapping[Address, Reached]:
        """Everybody answers alike, apart from those in `reached_at`."""
        self.probed.append(addresses)
        return {address_: self.reached_at.get(address_, self.reached) for address_ in addresses}

    async def resolve(self, addresses: frozenset[Address]) -> Mapping[Address, Reached]:
        """Every name resolves."""
        self.resolved.append(addresses)
        return {address_: Reached(at_ms=self.resolved_at_ms, is_resolved=True) for address_ in addresses}

    async def apply(self, action: object) -> None:
        """Remember it."""
        self.applied.append(action)

    async def close(self) -> None:
        """Nothing to close."""


def facts(*registered: int, answering: Iterable[int] = (0,)) -> KafkaFacts:
    """A leader that knows these brokers."""
    return KafkaFacts(
        quorum=QUORUM,
        cluster_id="ours",
        registrations={node_id: broker_registration(node_id) for node_id in registered},
        answering=frozenset(answering),
    )


def made(
    place: Place, kafka: Kafka, now_ms: list[int] | None = None, clients: ClientWatch | None = None
) -> ClusterRuntime:
    """The runtime of both; `now_ms` holds the time."""
    clock = now_ms if now_ms is not None else [0]
    return ClusterRuntime(cast("Any", place), cast("Any", kafka), now_ms=lambda: clock[0], clients=clients)


def observe(runtime: ClusterRuntime, desired: DesiredCluster = DESIRED) -> ObservedCluster:
    """One look."""
    return asyncio.run(runtime.observe(desired))


def test_states_are_judged_and_remembered() -> None:
    place = Place(running(3000, Role.CONTROLLER, "c0"), running(0, Role.BROKER, "b0"))
    kafka = Kafka(facts(0))
    runtime = made(place, kafka)
    assert {node.node_id: node.state for node in observe(runtime).nodes.values()} == {
        3000: NodeState.READY,
        0: NodeState.READY,
    }
    kafka.facts = facts(0, answering=())
    assert observe(runtime).nodes[0].state is NodeState.UNREADY
    place.found[0] = running(0, Role.BROKER, "b0", started_at_ms=2)
    assert observe(runtime).nodes[0].state is NodeState.STARTING


def test_each_is_asked_at_its_contact_and_partitions_of_those_that_leave() -> None:
    place = Place(
        running(3000, Role.CONTROLLER, "c0"), running(0, Role.BROKER, "b0"), running(1, Role.BROKER, "b1")
    )
    kafka = Kafka(facts(0, 1, 7))
    runtime = made(place, kafka)
    observe(runtime)
    controllers, brokers = {3000: Address("contact", 3000)}, {n: Address("contact", n) for n in (0, 1)}
    assert kafka.asked == [
        (controllers, brokers, frozenset({1}), {}, frozenset()),
        (controllers, brokers, frozenset({1, 7}), {}, frozenset()),
    ]
    observe(runtime)
    assert [asked[2] for asked in kafka.asked[2:]] == [{1, 7}], "it is known from the last look"
    kafka.facts = facts(0, 1)
    observe(runtime)
    observe(runtime)
    assert [asked[2] for asked in kafka.asked[3:]] == [{1, 7}, {1}]


def test_the_first_leader_is_written_down_once() -> None:
    """An empty disk never forms a second cluster."""
    place = Place(running(3000, Role.CONTROLLER, "c0"))
    kafka = Kafka(None)
    runtime = made(place, kafka)
    assert observe(runtime).formation == FORMATION
    kafka.facts = facts()
    observed = observe(runtime)
    assert observed.formation is not None
    assert observed.formation.is_formed
    place.formed = observed.formation
    observe(runtime)
    assert place.leaders_seen == [1]


def test_controllers_of_another_cluster_tell_nothing() -> None:
    """No step is applied to another cluster."""
    place = Place(running(3000, Role.CONTROLLER, "c0"))
    observed = observe(made(place, Kafka(replace(facts(0), cluster_id="theirs"))))
    assert (observed.kafka, observed.quorum) == (None, None)
    assert observed.nodes[3000].problem == "it answers as a node of the cluster theirs, not of ours"
    assert place.leaders_seen == []


def test_why_a_log_can_not_be_read_is_told() -> None:
    kafka = Kafka(None)
    kafka.problem = "the metadata log can't be read: CLUSTER_AUTHORIZATION_FAILED"
    place = Place(running(3000, Role.CONTROLLER, "c0"), running(0, Role.BROKER, "b0"))
    nodes = observe(made(place, kafka)).nodes
    assert (nodes[3000].problem, nodes[0].problem) == (kafka.problem, None)


def test_actions_go_to_who_does_them() -> None:
    place, kafka = Place(), Kafka(None)
    runtime = made(place, kafka)
    elect, stop = ElectPreferredLeaders(reason="r"), StopNode(node_id=1, reason="r", grace_ms=1)
    asyncio.run(runtime.apply(elect, DESIRED))
    asyncio.run(runtime.apply(stop, DESIRED))
    assert (kafka.applied, place.applied) == ([elect], [stop])


def test_what_is_about_to_change_is_probed() -> None:
    """Old, new and interim names of renamed nodes, and what is still published."""
    desired = replace(
        DESIRED,
        nodes=(BROKER, node(1, Role.BROKER, "new1", "interim1"), node(2, Role.BROKER, "b2", "interim2")),
    )
    nodes = {
        0: running(0, Role.BROKER, "b0"),
        1: running(1, Role.BROKER, "old1"),
        2: ObservedNode(node_id=2, role=Role.BROKER, state=NodeState.STOPPED),
    }
    published = (
        Publication(address=address("b0"), node_id=0, listener="PLAINTEXT", since_ms=0),
        Publication(address=address("older1"), node_id=1, listener="PLAINTEXT", since_ms=0, retired_at_ms=1),
    )
    changing, settled = addresses_to_probe(desired, nodes, published)
    assert settled == {address("b0")}
    assert changing == {address(name) for name in ("old1", "new1", "interim1", "b2", "interim2", "older1")}


def test_a_name_that_is_settled_is_probed_now_and_then() -> None:
    place = Place(running(0, Role.BROKER, "b0"), running(3000, Role.CONTROLLER, "c0"))
    kafka, now_ms = Kafka(None), [0]
    runtime = made(place, kafka, now_ms)
    both = {address("b0"), address("c0")}
    kafka.reached_at = {address("c0"): Reached(at_ms=0, node_id=3000, cluster_id="ours")}
    assert observe(runtime).probes.keys() == both
    assert observe(runtime).probes.keys() == both
    assert kafka.probed == [both]
    now_ms[0] = SETTLED_PROBE_INTERVAL_MS
    kafka.reached, kafka.reached_at = Reached(at_ms=now_ms[0], error="refused"), {}
    observe(runtime)
    observe(runtime)
    assert kafka.probed == [both, both, both], "one that does not answer is asked again"


def test_an_advertised_name_that_leads_to_another_node_is_probed_each_time() -> None:
    """It is reported as long as it does, and no longer."""
    place, kafka, now_ms = Place(running(0, Role.BROKER, "b0")), Kafka(None), [0]
    desired = replace(DESIRED, nodes=(BROKER,))
    runtime = made(place, kafka, now_ms)
    kafka.reached = Reached(at_ms=0, node_id=7, cluster_id="ours")
    for _ in range(3):
        observe(runtime, desired)
    assert len(kafka.probed) == 3
    kafka.reached = Reached(at_ms=0, node_id=0, cluster_id="ours")
    for _ in range(3):
        observe(runtime, desired)
    assert len(kafka.probed) == 4


def test_one_observation_probes_a_few_of_the_names_that_are_settled() -> None:
    count = SETTLED_PROBES_MAX + 3
    brokers = tuple(node(node_id, Role.BROKER, f"b{node_id}") for node_id in range(count))
    place = Place(*(running(node_id, Role.BROKER, f"b{node_id}") for node_id in range(count)))
    kafka, now_ms = Kafka(None), [0]
    kafka.reached_at = {
        address(f"b{node_id}"): Reached(at_ms=0, node_id=node_id, cluster_id="ours")
        for node_id in range(count)
    }
    runtime, desired = made(place, kafka, now_ms), replace(DESIRED, nodes=brokers)
    observe(runtime, desired)
    now_ms[0] = SETTLED_PROBE_INTERVAL_MS
    kafka.reached_at = {name: replace(found, at_ms=now_ms[0]) for name, found in kafka.reached_at.items()}
    observe(runtime, desired)
    observe(runtime, desired)
    assert [len(addresses) for addresses in kafka.probed] == [count, SETTLED_PROBES_MAX, 3]


def exposed(node_id: int, verification: str) -> DesiredNode:
    """A broker that shall have a new name, which is verified in this way."""
    listener = {"name": "PLAINTEXT", "exposure": {"verification": verification}}
    return replace(
        node(node_id, Role.BROKER, f"new{node_id}"), listeners=(BrokerListener.model_validate(listener),)
    )


def test_names_that_are_verified_in_another_way_are_not_connected_to() -> None:
    place = Place(*(running(node_id, Role.BROKER, f"old{node_id}") for node_id in range(3)))
    kafka = Kafka(None)
    ways = ("Probe", "DNS", "None")
    desired = replace(DESIRED, nodes=tuple(exposed(node_id, way) for node_id, way in enumerate(ways)))
    probes = observe(made(place, kafka), desired).probes
    assert kafka.probed == [frozenset({address("new0"), *(address(f"old{node_id}") for node_id in range(3))})]
    assert kafka.resolved == [frozenset({address("new1")})]
    assert probes[address("new1")].is_resolved
    assert address("new2") not in probes


def test_names_that_are_settled_are_resolved_now_and_then() -> None:
    """As many at once as are probed, and as seldom."""
    count = SETTLED_PROBES_MAX + 3
    ways = ("DNS", "None")
    desired = replace(
        DESIRED, nodes=tuple(exposed(node_id, ways[node_id >= count]) for node_id in range(2 * count))
    )
    place = Place(*(running(node_id, Role.BROKER, f"new{node_id}") for node_id in range(2 * count)))
    kafka, now_ms = Kafka(None), [0]
    runtime = made(place, kafka, now_ms)
    for _ in range(2):
        assert observe(runtime, desired).probes.keys() == {
            address(f"new{node_id}") for node_id in range(count)
        }
    assert [len(addresses) for addresses in kafka.resolved] == [count]
    now_ms[0] = kafka.resolved_at_ms = SETTLED_PROBE_INTERVAL_MS
    for _ in range(3):
        observe(runtime, desired)
    assert [len(addresses) for addresses in kafka.resolved] == [count, SETTLED_PROBES_MAX, 3]
    assert kafka.probed == []


def test_names_are_resolved_while_others_are_probed() -> None:
    class Slow(Kafka):
        is_resolving = asyncio.Event()

        @override
        async def probe(self, addresses: frozenset[Address], _: frozenset[int]) -> Mapping[Address, Reached]:
            """Respond only after names are being resolved."""
            await asyncio.wait_for(self.is_resolving.wait(), HANG_S)
            return await super().probe(addresses, _)

        @override
        async def resolve(self, addresses: frozenset[Address]) -> Mapping[Address, Reached]:
            """Report that it was called."""
            self.is_resolving.set()
            return await super().resolve(addresses)

    place = Place(*(running(node_id, Role.BROKER, f"old{node_id}") for node_id in range(2)))
    desired = replace(DESIRED, nodes=(exposed(0, "Probe"), exposed(1, "DNS")))
    probes = observe(made(place, Slow(None)), desired).probes
    assert {address("new0"), address("new1")} <= probes.keys()


def test_silence_counts_from_when_the_node_is_ready() -> None:
    """A start takes its time, and nothing answers meanwhile."""
    place, kafka, now_ms = Place(running(0, Role.BROKER, "b0")), Kafka(facts()), [0]
    desired = replace(DESIRED, nodes=(BROKER,))
    runtime = made(place, kafka, now_ms)
    since = []
    for at_ms, registered in ((0, ()), (100, ()), (200, (0,)), (300, (0,))):
        kafka.facts = facts(*registered)
        kafka.reached = Reached(at_ms=at_ms, error="refused")
        since.append(observe(runtime, desired).probes[address("b0")].since_ms)
    assert since == [0, 100, 100, 100]


STOPPED = ObservedNode(node_id=0, role=Role.BROKER, state=NodeState.STOPPED)
OURS, SILENT = Reached(at_ms=0, node_id=0, cluster_id="ours"), Reached(at_ms=0, error="refused")
NAME, OLD = address("b0"), address("old0")


def probed(place: Place, kafka: Kafka, at_ms: int = 0) -> Reached:
    """What an operator that has just begun, and then dies, finds at the new name of broker 0."""
    return observe(made(place, kafka, [at_ms])).probes[NAME]


def test_whom_a_name_led_to_is_known_to_the_next_operator() -> None:
    place, kafka = Place(running(0, Role.BROKER, "old0")), Kafka(None)
    assert probed(place, kafka) == OURS
    place.found[0], kafka.reached = STOPPED, SILENT
    assert probed(place, kafka, REMEMBERED_MS - 1) == OURS
    assert probed(place, kafka, REMEMBERED_MS) == SILENT
    assert place.known == ()
    kafka.reached = OURS
    probed(place, kafka)
    place.found[0] = running(0, Role.BROKER, "b0", started_at_ms=2)
    probed(place, kafka)
    assert place.known == (), "it advertises the name, and nothing is to be remembered"


def test_what_is_known_is_written_down_again_now_and_then() -> None:
    """A long roll does not outlast what is known, nor write at each look."""
    place, kafka = Place(running(0, Role.BROKER, "old0")), Kafka(None)
    for at_ms in (0, RENEWED_MS - 1, RENEWED_MS, RENEWED_MS + 1):
        probed(place, kafka, at_ms)
    assert place.notes == [(0, 0), (0, RENEWED_MS)]


@pytest.mark.parametrize("found", [replace(OURS, node_id=1), replace(OURS, cluster_id="theirs")])
def test_a_name_that_leads_elsewhere_is_forgotten(found: Reached) -> None:
    place, kafka = Place(running(0, Role.BROKER, "old0")), Kafka(None)
    probed(place, kafka)
    place.found[0], kafka.reached = STOPPED, found
    assert probed(place, kafka) == found
    kafka.reached = SILENT
    assert probed(place, kafka) == SILENT


def test_silence_is_about_the_name_only_while_the_node_answers() -> None:
    """A process that is ending does not undo what is known; a name that was taken away does."""
    place, kafka = Place(running(0, Role.BROKER, "old0")), Kafka(None)
    probed(place, kafka)
    kafka.reached = SILENT
    assert probed(place, kafka) == SILENT, "a node that runs is asked, not remembered"
    assert len(place.known) == 1
    kafka.reached_at = {OLD: OURS}
    probed(place, kafka)
    assert place.known == ()


def test_names_that_the_runtime_points_at_nodes_are_not_written_down() -> None:
    place, kafka = Place(running(0, Role.BROKER, "old0")), Kafka(None)
    own = replace(BROKER, controlled=frozenset({NAME}))
    observe(made(place, kafka), replace(DESIRED, nodes=(CONTROLLER, own)))
    assert place.notes == []


def test_clients_are_watched_more_closely_while_hosts_change() -> None:
    asked: list[tuple[Urls, bool]] = []

    class Watch:
        """Notes what it is asked."""

        def latest(self, urls: Urls, *, hosts_change: bool) -> Mapping[str, ClientFacts]:
            asked.append((urls, hosts_change))
            return {"pool": ClientFacts()}

    place = Place(running(3000, Role.CONTROLLER, "c0"), running(0, Role.BROKER, "b0"))
    runtime = made(place, Kafka(facts(0)), clients=cast("ClientWatch", Watch()))
    assert observe(runtime).clients == {"pool": ClientFacts()}
    place.found[0] = running(0, Role.BROKER, "former")
    observe(runtime)
    urls = {"pool": ("http://b0:9404/metrics",)}
    assert asked == [(urls, False), (urls, True)]
