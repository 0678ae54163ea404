"""Addresses that come to lead a Java controller to us, or us to a Java controller, that is not the one that is meant.

Java controllers neither name the intended node nor check it (KIP-1242 leaves connections between nodes out), so our
node detects it by their requests and responses. Only new connections are led elsewhere where one node alone is to be
misled.
"""

import json
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from kit.addressed import MISROUTED, MISROUTED_PEERS, AddressedQuorum
from kit.forwarder import HOST, Forwarder, Network
from kit.forwarder import network as forwarders
from kit.membership import lead_with, quorate
from kit.waiting import eventually
from quorate_admin.client import AdminClient
from quorate_admin.errors import ServerError
from quorate_admin.types.cluster import RaftVoterEndpoint

pytestmark = pytest.mark.integration

PYTHON = 3002
NOTICE_TIMEOUT_S = 20


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    """Addresses of this module's clusters."""
    with forwarders() as made:
        yield made


@pytest.fixture(scope="module")
def mixed(
    tmp_path_factory: pytest.TempPathFactory, kafka_jars: Path, network: Network
) -> Iterator[AddressedQuorum]:
    """Two Java controllers and one of ours, known to each other by addresses that can be led elsewhere."""
    quorum = AddressedQuorum.prepare(
        tmp_path_factory.mktemp("mixed") / "cluster",
        network=network,
        peers_forwarded=True,
        jars=kafka_jars,
        java=(3000, 3001),
    )
    try:
        yield quorum.start_all()
    finally:
        quorum.close()


def address_of(quorum: AddressedQuorum, node_id: int) -> Forwarder:
    """The address by which the other controllers know a node."""
    return quorum.peer_addresses[quorum.controllers.index(node_id)]


def lines_of(quorum: AddressedQuorum, node_id: int, event: str) -> list[str]:
    """What a node of ours has logged of an event."""
    return [line for line in quorum.log_of(node_id).splitlines() if f" {event} " in line]


def java_pair(quorum: AddressedQuorum) -> tuple[int, int]:
    """The leader and the follower that are Java's."""
    leader = lead_with(quorum, "java")
    (follower,) = (controller for controller in quorum.controllers_in("java") if controller != leader)
    return leader, follower


def await_finding(quorum: AddressedQuorum, meant: str, before: float) -> None:
    """Wait until a controller of ours counts one more misrouted connection of a kind."""
    metric = f'{MISROUTED}{{meant="{meant}"}}'
    eventually(lambda: quorum.counted(metric) > before, NOTICE_TIMEOUT_S, f"a finding: {meant}")


def test_a_stock_broker_that_takes_a_follower_for_the_leader_is_named(
    network: Network, tmp_path: Path, kafka_jars: Path
) -> None:
    quorum = AddressedQuorum.prepare(
        tmp_path / "cluster", network=network, peers_forwarded=True, jars=kafka_jars, brokers=1
    )
    try:
        quorum.start(*quorum.controllers)
        leader = quorum.await_quorum().leader_id
        follower = next(controller for controller in quorum.controllers if controller != leader)
        (broker,) = quorum.brokers
        network.lead([(address_of(quorum, leader), quorum.peer_port(follower))], cut=False)
        quorum.start(broker)
        await_finding(quorum, "leader", 0)
        named = lines_of(quorum, follower, "misrouted_connection")
        assert any(f"sender={broker}-" in line and f"meant_leader_id={leader}" in line for line in named), (
            named
        )
        network.lead([(address_of(quorum, leader), quorum.peer_port(leader))])
        quorum.await_unfenced(broker)
    finally:
        quorum.close()


def test_a_java_follower_that_takes_us_for_the_leader_is_named(
    mixed: AddressedQuorum, network: Network
) -> None:
    """A misrouted Java controller is found by its Fetch requests, and by its votes."""
    leader, follower = java_pair(mixed)
    before = {meant: mixed.counted(f'{MISROUTED}{{meant="{meant}"}}') for meant in ("leader", "node")}
    mixed.kill(follower)
    network.lead([(address_of(mixed, leader), mixed.peer_port(PYTHON))], cut=False)
    mixed.start(follower)
    for meant, count in before.items():
        await_finding(mixed, meant, count)
    named = lines_of(mixed, PYTHON, "misrouted_connection")
    assert any(f"sender={follower}-" in line and f"meant_leader_id={leader}" in line for line in named), named
    assert any(f"sender={follower}-" in line and f"meant_voter={leader}-" in line for line in named), named
    network.lead([(address_of(mixed, leader), mixed.peer_port(leader))])
    mixed.await_quorum()


def test_a_java_follower_that_answers_us_for_the_leader_is_named(
    mixed: AddressedQuorum, network: Network
) -> None:
    """A connection of ours that ends at the wrong Java controller is found by its answers."""
    leader, follower = java_pair(mixed)
    before = mixed.counted(MISROUTED_PEERS)
    network.lead([(address_of(mixed, leader), mixed.peer_port(follower))])
    eventually(lambda: mixed.counted(MISROUTED_PEERS) > before, NOTICE_TIMEOUT_S, "a misrouted peer")
    address = address_of(mixed, leader).address
    named = lines_of(mixed, PYTHON, "peer_misrouted")
    assert any(f"{leader} ({address})" in line and f"found_node_id={follower}" in line for line in named), (
        named
    )
    network.lead([(address_of(mixed, leader), mixed.peer_port(leader))])
    mixed.await_quorum()


def test_the_doctor_finds_an_address_that_leads_to_another_java_controller(
    mixed: AddressedQuorum, network: Network
) -> None:
    leader, follower = java_pair(mixed)
    address = mixed.client_addresses[mixed.controllers.index(leader)]

    def wrong() -> list[int]:
        ran = quorate("doctor", "--bootstrap-controller", ",".join(mixed.bootstrap), "-o", "json")
        findings = json.loads(ran.stdout)["findings"]
        return [finding["nodeId"] for finding in findings if finding["code"] == "address-leads-elsewhere"]

    network.lead([(address, mixed.client_ports[follower])])
    assert wrong() == [leader]
    network.lead([(address, mixed.client_ports[leader])])
    assert wrong() == []


def test_a_java_voter_is_not_added_with_the_address_of_another(mixed: AddressedQuorum) -> None:
    leader = lead_with(mixed, "python")
    voter, other = mixed.controllers_in("java")
    quorum = mixed.await_quorum()
    (directory_id,) = (entry.directory_id for entry in quorum.voters if entry.node_id == voter)

    def at_leader(change: Callable[[AdminClient], Awaitable[None]]) -> ServerError | None:
        refusals: list[ServerError] = []

        async def attempt(client: AdminClient) -> bool:
            try:
                await change(client)
            except ServerError as error:
                refusals.append(error)
            return True

        assert mixed.ask(attempt, controllers=[leader])
        return refusals[0] if refusals else None

    def add_at(node_id: int) -> ServerError | None:
        endpoint = RaftVoterEndpoint(name="CONTROLLER", host=HOST, port=address_of(mixed, node_id).port)
        return at_leader(lambda client: client.add_raft_voter(voter, directory_id, [endpoint]))

    assert at_leader(lambda client: client.remove_raft_voter(voter, directory_id)) is None
    refusal = add_at(other)
    assert refusal is not None
    assert "another node, or a node of another cluster, answers at" in str(refusal)
    eventually(lambda: add_at(voter) is None, NOTICE_TIMEOUT_S, "the voter to be added")
    mixed.await_quorum()


def test_a_java_follower_that_reaches_another_cluster_is_named_there(
    mixed: AddressedQuorum, network: Network, tmp_path: Path
) -> None:
    other = AddressedQuorum.prepare(tmp_path / "other", network=network, nodes=1)
    try:
        other.start_all()
        leader, follower = java_pair(mixed)
        mixed.kill(follower)
        network.lead([(address_of(mixed, leader), other.peer_port(3000))], cut=False)
        mixed.start(follower)
        await_finding(other, "cluster", 0)
        (named, *_) = lines_of(other, 3000, "misrouted_connection")
        assert f"sender={follower}-" in named
        network.lead([(address_of(mixed, leader), mixed.peer_port(leader))])
        mixed.await_quorum()
    finally:
        other.close()
