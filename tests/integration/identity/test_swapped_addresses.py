"""Addresses that come to lead to another cluster or node, under clients that hold on to them (KIP-1242).

A client notices with the first connection that it makes at such an address, before any request of its own leaves.
Connections from before still lead to the same nodes, so that nothing has to be noticed on them. The bootstrap
addresses of a client have to lead to its cluster: here these are addresses that never change, as a Service of
Kubernetes or a load balancer has them.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.addressed import MISROUTED, MISROUTED_PEERS, AddressedQuorum, ContinuousWriter
from kit.forwarder import Network
from kit.forwarder import network as forwarders
from kit.waiting import eventually

pytestmark = pytest.mark.integration

NOTICE_TIMEOUT_S = 20
RECOVERY_TIMEOUT_S = 20
CLIENT = {"default_api_timeout_ms": 2_000, "request_timeout_ms": 1_000, "retry_backoff_max_ms": 100}

Pair = tuple[AddressedQuorum, AddressedQuorum]


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    """Addresses of this module's clusters."""
    with forwarders() as made:
        yield made


@pytest.fixture(scope="module")
def running_pair(tmp_path_factory: pytest.TempPathFactory, network: Network) -> Iterator[Pair]:
    """Two quorums that run."""
    scratch = tmp_path_factory.mktemp("pair")
    first = AddressedQuorum.prepare(scratch / "first", network=network)
    second = AddressedQuorum.prepare(scratch / "second", network=network)
    try:
        yield first.start_all(), second.start_all()
    finally:
        first.close()
        second.close()


@pytest.fixture
def pair(running_pair: Pair, network: Network) -> Pair:
    """Both of them, with all nodes up, and addresses of their own that lead to them."""
    first, second = running_pair
    if set(first.client_addresses) & set(second.client_addresses):
        second.move(network)
    for quorum in running_pair:
        quorum.start_all()
        network.lead(list(zip(quorum.client_addresses, quorum.client_ports.values(), strict=True)))
    return running_pair


def await_writes(*writers: ContinuousWriter) -> None:
    """Wait until each has two more acknowledgements: of one that was sent from now on among them."""
    counts = [len(writer.acknowledged) + 2 for writer in writers]
    for writer, count in zip(writers, counts, strict=True):
        eventually(
            lambda: len(writer.acknowledged) >= count,  # noqa: B023 - called before the next round
            RECOVERY_TIMEOUT_S,
            "another write",
            lambda: writer.failures[-3:],  # noqa: B023
        )


def exchange_addresses(network: Network, pair: Pair, *, cut: bool) -> None:
    """Lead the addresses of each quorum to the other one, all at the same time."""
    first, second = pair
    network.lead(
        [
            *zip(first.client_addresses, second.client_ports.values(), strict=True),
            *zip(second.client_addresses, first.client_ports.values(), strict=True),
        ],
        cut=cut,
    )


def assert_kept_apart(quorum: AddressedQuorum, prefix: str, writer: ContinuousWriter) -> None:
    """Assert that a quorum has all that was acknowledged to its client, and nothing of the other one's."""
    written = {name for name in quorum.written() if name.startswith(("first", "second"))}
    assert set(writer.acknowledged) <= written, "acknowledged and lost"
    assert [name for name in written if not name.startswith(prefix)] == []


@pytest.mark.parametrize("cut", [True, False], ids=["connections cut", "connections kept"])
def test_clients_of_swapped_clusters_stay_with_their_own(pair: Pair, network: Network, cut: bool) -> None:
    """Two clusters exchange their addresses; each client continues at its own, and none writes to the other."""
    first, second = pair
    before = [quorum.counted(MISROUTED) for quorum in pair]
    with (
        ContinuousWriter(first.bootstrap, "first", **CLIENT) as writer_of_first,
        ContinuousWriter(second.bootstrap, "second", **CLIENT) as other,
    ):
        await_writes(writer_of_first, other)
        exchange_addresses(network, pair, cut=cut)
        if cut:
            for quorum, count in zip(pair, before, strict=True):
                eventually(
                    lambda: quorum.counted(MISROUTED) > count,  # noqa: B023
                    NOTICE_TIMEOUT_S,
                    "a misrouted client",
                )
        else:
            await_writes(writer_of_first, other)
        first_addresses, second_addresses = first.client_addresses, second.client_addresses
        first.advertise(second_addresses)
        second.advertise(first_addresses)
        first.restart_all()
        second.restart_all()
        await_writes(writer_of_first, other)
    assert_kept_apart(first, "first", writer_of_first)
    assert_kept_apart(second, "second", other)


def test_a_client_that_does_not_check_writes_to_the_wrong_cluster(pair: Pair, network: Network) -> None:
    """The harm that the check prevents, with metadata.cluster.check.enable=false."""
    first, second = pair
    config = {**CLIENT, "metadata_cluster_check_enable": False}
    with ContinuousWriter(first.bootstrap, "unchecked", **config) as writer:
        await_writes(writer)
        second.advertise(first.client_addresses)
        second.restart_all()
        network.lead(list(zip(first.client_addresses, second.client_ports.values(), strict=True)))
        await_writes(writer)
    # One write may be in both: its response was cut off, so that the client sent it again.
    strayed = set(writer.acknowledged) & (second.written() - first.written())
    assert strayed, "nothing was written to the other cluster alone"


def test_a_node_behind_the_address_of_another_is_noticed(pair: Pair, network: Network) -> None:
    """The right cluster is not enough, it has to be the right node; and a client waits for it."""
    quorum, _ = pair
    before = quorum.counted(f'{MISROUTED}{{meant="node"}}')
    leader = quorum.controllers.index(quorum.await_leader())
    swapped = quorum.client_addresses[leader], quorum.client_addresses[leader - 1]
    with ContinuousWriter(quorum.bootstrap, "node", **CLIENT) as writer:
        await_writes(writer)
        network.swap(*swapped)
        eventually(
            lambda: quorum.counted(f'{MISROUTED}{{meant="node"}}') > before,
            NOTICE_TIMEOUT_S,
            "a misrouted client",
        )
        network.swap(*swapped)
        await_writes(writer)
    assert set(writer.acknowledged) <= quorum.written()


@pytest.mark.parametrize("silent", [False, True], ids=["refused", "silent"])
def test_a_client_that_loses_all_nodes_starts_anew(pair: Pair, network: Network, silent: bool) -> None:
    """When all nodes that a client knows are gone, it asks its bootstrap addresses (KIP-899, KIP-1102)."""
    quorum, _ = pair
    trigger_ms = 2_000 if silent else 600_000
    config = {**CLIENT, "metadata_recovery_rebootstrap_trigger_ms": trigger_ms}
    with ContinuousWriter(quorum.bootstrap, f"lost-{silent}", **config) as writer:
        await_writes(writer)
        lost = quorum.client_addresses
        if silent:
            network.lead([(address, None) for address in lost])
        else:
            network.refuse(*lost)
        quorum.move(network)
        await_writes(writer)
    assert set(writer.acknowledged) <= quorum.written()


def test_controllers_whose_addresses_are_swapped_recover(tmp_path: Path, network: Network) -> None:
    quorum = AddressedQuorum.prepare(tmp_path / "cluster", network=network, peers_forwarded=True)
    try:
        quorum.start_all()
        leader = quorum.controllers.index(quorum.await_leader())
        swapped = quorum.peer_addresses[leader], quorum.peer_addresses[leader - 1]
        with ContinuousWriter(quorum.bootstrap, "peers", **CLIENT) as writer:
            await_writes(writer)
            assert quorum.counted(MISROUTED_PEERS) == 0
            network.swap(*swapped)
            eventually(lambda: quorum.counted(MISROUTED_PEERS) > 0, NOTICE_TIMEOUT_S, "a misrouted peer")
            network.swap(*swapped)
            quorum.await_quorum()
            await_writes(writer)
        assert set(writer.acknowledged) <= quorum.written()
    finally:
        quorum.close()
