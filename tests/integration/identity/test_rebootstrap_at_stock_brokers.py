"""KIP-1242 between stock brokers and stock clients of Kafka 4.4, and between these brokers and our client.

A broker's advertised address comes to lead to another broker of the cluster, or to a broker of another cluster.
The controllers of both clusters are ours. The clients start at addresses that always lead to their cluster.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.cluster import Cluster, manifests
from kit.forwarder import Forwarder, Network
from kit.forwarder import network as forwarders
from kit.java.routed_client import RoutedClient
from kit.kafka import jars_of
from kit.names import unused
from kit.waiting import eventually, until
from quorate_admin.client import AdminClient
from quorate_admin.types.configs import ConfigResource
from quorate_admin.types.topics import NewTopic
from quorate_protocol.kafka.enums import ConfigResourceType

pytestmark = pytest.mark.integration

RELEASE = "4.4.0"
START_TIMEOUT_S = 60
NOTICE_TIMEOUT_S = 20
RECOVERY_TIMEOUT_S = 30
OFFSETS = {
    "offsets.topic.num.partitions": 1,
    "offsets.topic.replication.factor": 1,
    "group.initial.rebalance.delay.ms": 0,
}


class Routed(Cluster):
    """One controller of ours and stock brokers, which advertise addresses of `network`."""

    addresses: dict[int, Forwarder]

    @classmethod
    def prepare(cls, directory: Path, network: Network, *, brokers: int) -> "Routed":
        """Format the nodes."""
        manifest = manifests(controllers=1, brokers=brokers, broker_config=OFFSETS)
        cluster = cls.settle(directory, jars_of(RELEASE), manifest)
        cluster.addresses = dict(
            zip(
                cluster.brokers,
                network.addresses([cluster.port(broker) for broker in cluster.brokers]),
                strict=True,
            )
        )
        for node_id, address in cluster.addresses.items():
            cluster.configure(node_id, {"advertised.listeners": f"PLAINTEXT://{address.address}"})
        cluster.format(*cluster.controllers, *cluster.brokers)
        return cluster

    def port(self, node_id: int) -> int:
        """Where a broker listens."""
        return int(self.address(node_id).rpartition(":")[2])


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    """Addresses of this module's brokers."""
    with forwarders() as made:
        yield made


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, network: Network) -> Iterator[Routed]:
    """A cluster of two brokers, running."""
    made = Routed.prepare(tmp_path_factory.mktemp("first") / "cluster", network, brokers=2)
    try:
        yield made.start_all()
    finally:
        made.close()


@pytest.fixture(scope="module")
def other_cluster(tmp_path_factory: pytest.TempPathFactory, network: Network) -> Iterator[Routed]:
    """A cluster of one broker, running."""
    made = Routed.prepare(tmp_path_factory.mktemp("second") / "cluster", network, brokers=1)
    try:
        yield made.start_all()
    finally:
        made.close()


@pytest.fixture(params=["broker", "cluster"])
def wrong_port(request: pytest.FixtureRequest, cluster: Routed) -> int:
    """Where the address of the first broker will lead: to the other broker, or to the other cluster."""
    if request.param == "broker":
        return cluster.port(cluster.brokers[1])
    other: Routed = request.getfixturevalue("other_cluster")
    return other.port(other.brokers[0])


def test_stock_clients_begin_again_and_lose_nothing(
    cluster: Routed, network: Network, wrong_port: int
) -> None:
    """Stock producers and consumers of Kafka 4.4 that are led to a wrong broker find back by themselves."""
    broker = cluster.brokers[0]
    topic = unused("routed")

    async def create(client: AdminClient) -> bool:
        (await client.create_topics([NewTopic(name=topic, assignments={0: [broker]})])).raise_any()
        return True

    assert cluster.ask(create, brokers=[broker])
    with RoutedClient(jars_of(RELEASE), cluster.bootstrap_servers, topic) as client:

        def await_progress(timeout_s: float) -> None:
            count = len(client.acknowledged) + 5
            eventually(lambda: len(client.acknowledged) >= count, timeout_s, "more records", client.describe)
            eventually(
                lambda: set(client.acknowledged[:count]) <= set(client.read),
                timeout_s,
                "these to be read",
                client.describe,
            )

        await_progress(START_TIMEOUT_S)
        assert (client.rebootstraps("producer"), client.rebootstraps("consumer")) == (0, 0)
        network.lead([(cluster.addresses[broker], wrong_port)])
        for who in ("producer", "consumer"):
            eventually(
                lambda: client.rebootstraps(who) > 0,  # noqa: B023 - called before the next round
                NOTICE_TIMEOUT_S,
                f"the {who} to begin again",
                client.describe,
            )
        network.lead([(cluster.addresses[broker], cluster.port(broker))])
        await_progress(RECOVERY_TIMEOUT_S)
        assert client.acknowledged == list(range(len(client.acknowledged)))


def test_our_client_begins_again_at_stock_brokers(cluster: Routed, network: Network, wrong_port: int) -> None:
    broker = cluster.brokers[0]
    resource = ConfigResource(ConfigResourceType.BROKER, str(broker))

    async def follow() -> tuple[int, int]:
        async with AdminClient(bootstrap_servers=cluster.bootstrap_servers.split(",")) as client:
            (await client.describe_configs([resource])).raise_any()
            assert client.misrouted_connections == 0
            network.lead([(cluster.addresses[broker], wrong_port)])
            asked = asyncio.create_task(client.describe_configs([resource]))
            await until(lambda: client.misrouted_connections, "the client to notice", NOTICE_TIMEOUT_S)
            assert not asked.done()
            network.lead([(cluster.addresses[broker], cluster.port(broker))])
            (await asked).raise_any()
            return client.misrouted_connections, client.rebootstraps

    misrouted, rebootstraps = asyncio.run(follow())
    assert misrouted > 0
    assert rebootstraps > 0
