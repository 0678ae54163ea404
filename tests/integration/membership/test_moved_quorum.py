"""All controllers of a dynamic quorum get new addresses at once (KIP-1347): where Kafka never has a leader again."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

import pytest
from kit.cluster import Cluster, free_ports, manifests
from kit.forwarder import HOST
from kit.waiting import eventually
from quorate_admin.types.cluster import QuorumDescription

pytestmark = pytest.mark.integration

THREE = (3000, 3001, 3002)
RECORDED_TIMEOUT_S = 60
CONFIG = {"controller.quorum.election.timeout.ms": 500, "controller.quorum.fetch.timeout.ms": 1000}


class MovingCluster(Cluster):
    """A cluster whose controllers can change their ports while they are down."""

    _ports: dict[int, int]

    @classmethod
    def found(cls, directory: Path, jars: Path | None, *java: int) -> Self:
        """Three formatted controllers at their first addresses."""
        cluster = cls.settle(directory, jars, manifests(java=java, brokers=0, config=CONFIG))
        cluster._ports = {}
        cluster.format(*cluster.controllers)
        return cluster

    def address(self, node_id: int) -> str:
        port = getattr(self, "_ports", {}).get(node_id)
        return super().address(node_id) if port is None else f"{HOST}:{port}"

    def move(self, first_port: int, *, bootstrap: tuple[str, ...] = ()) -> None:
        """From the next start on, controllers use consecutive ports. `bootstrap`: servers before their own."""
        self._ports = {node_id: first_port + place for place, node_id in enumerate(self.controllers)}
        servers = ",".join((*bootstrap, *(self.address(node_id) for node_id in self.controllers)))
        for node_id in self.controllers:
            listener = f"CONTROLLER://{self.address(node_id)}"
            properties = {"listeners": listener, "advertised.listeners": listener}
            self.configure(node_id, properties | {"controller.quorum.bootstrap.servers": servers})

    def await_recorded(self) -> QuorumDescription:
        """Wait until the voter set has the present address of each controller."""

        def recorded() -> QuorumDescription | None:
            quorum = self.await_quorum()
            known = {
                node_id: {f"{endpoint.host}:{endpoint.port}" for endpoint in endpoints}
                for node_id, endpoints in quorum.nodes.items()
            }
            wanted = {node_id: {self.address(node_id)} for node_id in self.controllers}
            return quorum if known == wanted else None

        return eventually(recorded, RECORDED_TIMEOUT_S, "new addresses of all voters", self.quorum)


Founded = Callable[..., MovingCluster]


@pytest.fixture
def found(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Founded]:
    """Make clusters, and close them."""
    clusters: list[MovingCluster] = []

    def make(*java: int) -> MovingCluster:
        jars = request.getfixturevalue("kafka_jars") if java else None
        clusters.append(MovingCluster.found(tmp_path / f"cluster-{len(clusters)}" / "cluster", jars, *java))
        return clusters[-1]

    yield make
    for cluster in clusters:
        cluster.close()


def test_a_quorum_whose_ports_all_changed_elects_a_leader(found: Founded) -> None:
    """Voters find each other at the bootstrap servers and record their addresses; another cluster at their
    old addresses, which their bootstrap servers still name, is not taken for them and is not disturbed.
    """
    cluster, stranger = found(), found()
    cluster.start_all()
    old = tuple(cluster.address(node_id) for node_id in cluster.controllers)
    directories = {voter.node_id: voter.directory_id for voter in cluster.await_quorum().voters}
    cluster.terminate(*cluster.controllers)
    stranger.start_all()
    stranger.terminate(*stranger.controllers)
    stranger.move(int(old[0].rpartition(":")[2]))
    assert tuple(stranger.address(node_id) for node_id in stranger.controllers) == old
    stranger.start_all()
    epoch = stranger.await_recorded().leader_epoch

    cluster.move(free_ports(len(THREE)), bootstrap=old)
    cluster.start_all()
    quorum = cluster.await_recorded()
    assert {voter.node_id: voter.directory_id for voter in quorum.voters} == directories
    assert "voter_found_at_other_address" in "".join(cluster.log_of(node_id) for node_id in THREE)
    assert stranger.await_quorum().leader_epoch == epoch
    for node_id in THREE:
        looked_up = [line for line in cluster.log_of(node_id).splitlines() if "misrouted_connection" in line]
        assert looked_up == [], "a lookup at a controller of the own cluster is no wrong address"

    stranger.terminate(*stranger.controllers)
    cluster.terminate(*cluster.controllers)
    cluster.start_all()


def test_one_of_our_controllers_finds_those_of_java(found: Founded) -> None:
    """A mixed quorum recovers, too: Java's controllers look for no node, and are found."""
    cluster = found(*THREE[1:])
    cluster.start_all()
    cluster.await_quorum()
    cluster.terminate(*cluster.controllers)
    cluster.move(free_ports(len(THREE)))
    cluster.start_all()
    cluster.await_recorded()
    assert "voter_found_at_other_address" in cluster.log_of(THREE[0])
