"""Quorums behind forwarders, so that tests can redirect their addresses."""

import asyncio
import urllib.request
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Self

from kit.cluster import Cluster, free_ports, manifests
from kit.forwarder import HOST, Forwarder, Network
from kit.ledger import Worker
from kit.metadata import assert_same_images
from quorate_admin.client import AdminClient
from quorate_admin.errors import AdminError
from quorate_admin.types.configs import AlterConfigOp, ConfigResource
from quorate_protocol.kafka.enums import ConfigResourceType

NODES = 3
SCRAPE_TIMEOUT_S = 5
MISROUTED = "kafka_network_socketserver_misroutedconnectioncount"
MISROUTED_PEERS = "kafka_server_raftchannelmetrics_misrouted_connection_count"


class AddressedQuorum(Cluster):
    """Controllers with a listener for clients and another one for controllers. Close it.

    A node listens for clients on a port that always leads to it, for bootstrapping, and advertises another
    address. `peer_addresses` do the same for the other controllers.
    """

    client_ports: dict[int, int]
    http_ports: dict[int, int]
    peer_addresses: list[Forwarder]

    @classmethod
    def prepare(
        cls,
        directory: Path,
        *,
        network: Network,
        peers_forwarded: bool = False,
        nodes: int = NODES,
        jars: Path | None = None,
        java: Collection[int] = (),
        brokers: int = 0,
    ) -> Self:
        """Settle addresses, and format every node. Clients get addresses that lead to the nodes.

        `java` lists the ids of the controllers that stock Kafka runs, out of `jars`, which brokers need, too.
        """
        # An election that needs another try should not take a second of a test.
        config = {"controller.quorum.election.timeout.ms": 500, "controller.quorum.fetch.timeout.ms": 1000}
        manifest = manifests(controllers=nodes, java=java, brokers=brokers, config=config)
        cluster = cls.settle(directory, jars, manifest)
        first = free_ports(2 * nodes)
        cluster.client_ports = {node_id: first + place for place, node_id in enumerate(cluster.controllers)}
        cluster.http_ports = {
            node_id: first + nodes + place for place, node_id in enumerate(cluster.controllers_in("python"))
        }
        peers = [cluster.peer_port(controller) for controller in cluster.controllers]
        cluster.peer_addresses = network.addresses(peers) if peers_forwarded else []
        cluster.advertise(network.addresses(list(cluster.client_ports.values())))
        cluster.format(*cluster.controllers, *cluster.brokers)
        return cluster

    def advertise(self, addresses: Sequence[Forwarder]) -> None:
        """From the next start on, advertise these addresses, one for each node."""
        self.client_addresses = list(addresses)
        for place, node_id in enumerate(self.controllers):
            peer = f"{HOST}:{self.peer_port(node_id)}"
            peer_address = self.peer_addresses[place].address if self.peer_addresses else peer
            config = {
                "controller.listener.names": "CONTROLLER,CLIENT",
                "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,CLIENT:PLAINTEXT",
                "listeners": f"CONTROLLER://{peer},CLIENT://{self.address(node_id)}",
                "advertised.listeners": f"CONTROLLER://{peer_address},CLIENT://{addresses[place].address}",
            }
            if node_id in self.http_ports:
                config["quorate.http.listener"] = f"{HOST}:{self.http_ports[node_id]}"
            self.configure(node_id, config)

    def peer_port(self, node_id: int) -> int:
        """The port on which a node listens for other controllers."""
        return int(super().address(node_id).rpartition(":")[2])

    def address(self, node_id: int) -> str:
        """Where a client always reaches this node."""
        port = self.client_ports.get(node_id)
        return super().address(node_id) if port is None else f"{HOST}:{port}"

    @property
    def bootstrap(self) -> list[str]:
        """Where clients always reach this quorum."""
        return [self.address(controller) for controller in self.controllers]

    def move(self, network: Network) -> None:
        """Restart all nodes with new addresses."""
        self.advertise(network.addresses(list(self.client_ports.values())))
        self.restart_all()

    def restart_all(self) -> None:
        """End all nodes at once and start them again; clients lose their connections."""
        self.kill(*self.controllers)
        self.start_all()

    def counted(self, metric: str) -> float:
        """The sum of a metric over all Python nodes and labels."""
        total = 0.0
        for port in self.http_ports.values():
            url = f"http://{HOST}:{port}/metrics"
            with urllib.request.urlopen(url, timeout=SCRAPE_TIMEOUT_S) as response:
                for line in response.read().decode().splitlines():
                    if line.startswith((f"{metric} ", f"{metric}{{")):
                        total += float(line.rpartition(" ")[2])
        return total

    def written(self) -> set[str]:
        """The names of all subscriptions, which have to be the same on every node."""
        self.await_quorum()
        with self.frozen():
            image = assert_same_images([self.metadata(controller) for controller in self.controllers])
        return {
            name for (kind, name), _ in image.configs.items() if kind == ConfigResourceType.CLIENT_METRICS
        }


class ContinuousWriter(Worker):
    """Writes client metrics subscriptions one by one with our client, which talks to controllers directly.

    In a cluster without brokers, a client can create any number of these, with names that it chooses.
    """

    def __init__(self, bootstrap: Sequence[str], prefix: str, **config: object) -> None:
        super().__init__(f"writer of {prefix}")
        self.acknowledged: list[str] = []
        self.failures: list[str] = []
        self._prefix = prefix
        self._count = 0
        self._runner = asyncio.Runner()
        self._bootstrap = bootstrap
        self._config = config
        self._client: AdminClient | None = None

    def _work(self) -> None:
        self._runner.run(self._write())

    async def _write(self) -> None:
        if self._client is None:
            self._client = AdminClient(bootstrap_controllers=self._bootstrap, **self._config)
        name = f"{self._prefix}-{self._count}"
        self._count += 1
        subscription = ConfigResource(ConfigResourceType.CLIENT_METRICS, name)
        change = AlterConfigOp(name="interval.ms", value="1000")
        try:
            results = await self._client.incremental_alter_configs({subscription: [change]})
            results.raise_any()
        except AdminError as error:
            self.failures.append(f"{name}: {error}")
        else:
            self.acknowledged.append(name)

    def _close(self) -> None:
        if self._client is not None:
            self._runner.run(self._client.close())
        self._runner.close()
