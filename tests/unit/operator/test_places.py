"""What only this machine knows of desired nodes: addresses, who controls them, and what a restart is for."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from quorate_operator.planning.cluster import Address, DesiredNode
from quorate_operator.runtime.local import play_session
from quorate_operator.runtime.local.errors import PlayError
from quorate_operator.runtime.local.machine_addresses import knows_controllers

pytestmark = pytest.mark.usefixtures("own_ports")

PORT = 23_400


class Places:
    """Settles manifests of one cluster, and shows its nodes."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def settle(self, spec: str) -> dict[int, DesiredNode]:
        """The completed nodes by id; the cluster continues with them."""
        manifest = (
            "apiVersion: quorate.dev/v1alpha1\nkind: KafkaController\nmetadata: {name: quorum}\n"
            f"spec: {{{spec}}}\n"
        )
        layout = play_session.prepare(manifest, "test", self._path, {}, lambda _: None).layout
        layout.directory.release()
        return {node.node_id: node for node in layout.desired.nodes}


@pytest.fixture
def places(tmp_path: Path) -> Iterator[Places]:
    """A cluster that was never played."""
    return Places(tmp_path / "quorum")


def advertised(node: DesiredNode) -> Address:
    """What a controller advertises."""
    return node.advertised["CONTROLLER"]


def test_without_hosts_nodes_advertise_where_they_listen(places: Places) -> None:
    for place, node in enumerate(places.settle(f"listeners: [{{name: CONTROLLER, port: {PORT}}}]").values()):
        assert advertised(node) == Address("127.0.0.1", PORT + place)
        assert node.interim == {}
        assert advertised(node) in node.controlled


def test_hosts_of_their_own_share_the_port(places: Places) -> None:
    listeners = f"listeners: [{{name: CONTROLLER, port: {PORT}}}]"
    own = places.settle(f'{listeners}, advertisedHost: "127.9.0.1{{offset}}"')
    assert [advertised(node) for node in own.values()] == [
        Address(f"127.9.0.1{place}", PORT) for place in range(3)
    ]
    assert own[3001].interim == {"CONTROLLER": Address("127.0.0.1", PORT + 1)}
    assert own[3001].controlled == {advertised(own[3001]), own[3001].interim["CONTROLLER"]}
    hosts = {3000: "127.9.0.11", 3001: "127.9.0.10"}
    nodes = ", ".join(
        f"{{nodeId: {node_id}, advertisedHosts: {{CONTROLLER: {host}}}}}" for node_id, host in hosts.items()
    )
    swapped = places.settle(f'{listeners}, advertisedHost: "127.9.0.1{{offset}}", nodes: [{nodes}]')
    assert advertised(swapped[3000]) == advertised(own[3001])
    assert swapped[3000].interim == own[3000].interim


def test_another_port_is_an_address_that_leads_to_the_old_one(places: Places) -> None:
    places.settle(f"listeners: [{{name: CONTROLLER, port: {PORT}}}]")
    node = places.settle(f"listeners: [{{name: CONTROLLER, port: {PORT + 10}}}]")[3001]
    assert advertised(node) == Address("127.0.0.1", PORT + 11)
    assert node.interim == {"CONTROLLER": Address("127.0.0.1", PORT + 1)}


def test_names_of_somebody_else_are_not_controlled(places: Places) -> None:
    for host in ("c{nodeId}.example.com", "10.0.0.{offset}"):
        node = places.settle(f'advertisedHost: "{host}"')[3000]
        assert node.controlled == frozenset(node.interim.values())


def test_an_address_of_two_nodes_is_refused(places: Places) -> None:
    with pytest.raises(
        PlayError, match=r"controller-3001: listener CONTROLLER: 127\.9\.0\.10:\d+ is the address of"
    ):
        places.settle(
            f'listeners: [{{name: CONTROLLER, port: {PORT}}}], advertisedHost: "127.9.0.1{{offset}}", '
            "nodes: [{nodeId: 3001, advertisedHosts: {CONTROLLER: 127.9.0.10}}]"
        )


def test_a_configuration_restarts_and_an_address_does_not(places: Places) -> None:
    plain = places.settle("replicas: 3")[3000].revision
    assert places.settle("replicas: 5")[3000].revision == plain
    assert places.settle('advertisedHost: "127.9.0.1{offset}"')[3000].revision == plain
    edited = places.settle("config: {metadata.max.idle.interval.ms: 0}")[3000].revision
    assert {key for key in plain if edited[key] != plain[key]} == {"config"}


@pytest.mark.parametrize(
    ("known", "controllers", "enough"),
    [({1, 2, 3}, {1, 2, 3, 4, 5}, True), ({1, 2, 3}, {3, 4, 5}, False), ({1}, {1}, True), ({1}, {2}, False)],
)
def test_a_node_that_knows_too_few_controllers_is_noticed(
    known: set[int], controllers: set[int], enough: bool
) -> None:
    assert knows_controllers(frozenset(known), frozenset(controllers)) is enough
