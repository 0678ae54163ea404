"""Certificates and authorities of three controllers of ours are exchanged while a client asks without pause."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.cluster import UNHURRIED, Cluster, manifests
from kit.java.cluster import PLAIN
from kit.java.tls import Certificates, signed
from kit.rotation import (
    ControllerRequests,
    NodeStores,
    certificate_in,
    lets_in,
    retries_counted,
    served_at,
)
from kit.waiting import HANG_S, eventually
from quorate_admin.security.config import SecurityConfig

pytestmark = pytest.mark.integration

LOGIN = 'username="node" password="node-secret"'


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    """Two authorities."""
    return Certificates.create(tmp_path / "certificates")


@pytest.fixture
def stores() -> dict[int, NodeStores]:
    """The stores of each controller, by its id."""
    return {}


@pytest.fixture
def cluster(tmp_path: Path, certificates: Certificates, stores: dict[int, NodeStores]) -> Iterator[Cluster]:
    """Three controllers that check each other's certificates and log in with PLAIN."""
    made = Cluster.settle(tmp_path / "cluster", None, manifests(brokers=0, config=UNHURRIED))
    listener = "listener.name.controller"
    both = tmp_path / "both.pem"
    both.write_text(certificates.authority.read_text() + certificates.other_authority.read_text())
    try:
        for node_id in made.controllers:
            stores[node_id] = NodeStores.create(tmp_path / "stores" / str(node_id), certificates)
            made.configure(
                node_id,
                {
                    "listener.security.protocol.map": "CONTROLLER:SASL_SSL",
                    "sasl.enabled.mechanisms": "PLAIN",
                    "sasl.mechanism.controller.protocol": "PLAIN",
                    f"{listener}.plain.sasl.jaas.config": f'{PLAIN} required {LOGIN} user_node="node-secret";',
                    f"{listener}.ssl.client.auth": "requested",
                    "ssl.keystore.type": "PEM",
                    "ssl.keystore.location": str(stores[node_id].keystore),
                    "ssl.truststore.type": "PEM",
                    "ssl.truststore.location": str(stores[node_id].truststore),
                },
            )
        made.controller_security = SecurityConfig.from_properties(
            {
                "security.protocol": "SASL_SSL",
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(both),
                "sasl.mechanism": "PLAIN",
                "sasl.jaas.config": f"{PLAIN} required {LOGIN};",
            }
        )
        made.format(*made.controllers)
        yield made.start_all()
    finally:
        made.close()


def await_shown(cluster: Cluster, stores: dict[int, NodeStores]) -> None:
    """Wait until controllers show the certificates of their files."""
    for node_id, files in stores.items():
        wanted = certificate_in(files.keystore)
        address = cluster.address(node_id)
        eventually(
            lambda wanted=wanted, address=address: served_at(address) == wanted,
            HANG_S,
            f"the certificate {wanted.serial_number} of {node_id}",
            lambda: cluster.describe("not shown"),
        )


def await_let_in(cluster: Cluster, authority: Path, shown: Path, *, is_let_in: bool) -> None:
    """Wait until all controllers let a client with a certificate in, or until none does."""
    for node_id in cluster.controllers:
        eventually(
            lambda node_id=node_id: lets_in(cluster.address(node_id), authority, shown) is is_let_in,
            HANG_S,
            f"{node_id} to {'trust' if is_let_in else 'refuse'} {shown.name}",
            lambda: cluster.describe("as before"),
        )


def test_no_request_is_lost_and_nobody_is_elected(
    cluster: Cluster, certificates: Certificates, stores: dict[int, NodeStores]
) -> None:
    """Files of certificates and authorities change below running controllers, and no client notices."""
    directory = certificates.authority.parent
    quorum, pids = cluster.await_quorum(), [cluster.pid(controller) for controller in cluster.controllers]
    assert cluster.controller_security is not None
    client = ControllerRequests(cluster.bootstrap_controllers, cluster.controller_security)
    with retries_counted(), client:
        for node_id, files in stores.items():
            files.show(certificates, f"renewed-{node_id}", "ca")
        await_shown(cluster, stores)

        before = {node_id: served_at(cluster.address(node_id)) for node_id in stores}
        for node_id, files in stores.items():
            files.show(certificates, f"early-{node_id}", "other-ca")
        eventually(
            lambda: all("would not trust each other" in cluster.log_of(store) for store in stores),
            HANG_S,
            "the refusal of all",
        )
        assert {node_id: served_at(cluster.address(node_id)) for node_id in stores} == before
        for node_id, files in stores.items():
            files.show(certificates, f"again-{node_id}", "ca")
        await_shown(cluster, stores)

        for files in stores.values():
            files.trust(certificates.authority, certificates.other_authority)
        other = signed(directory, "other-client", authority="other-ca")
        await_let_in(cluster, certificates.authority, other, is_let_in=True)

        for node_id, files in stores.items():
            files.show(certificates, f"other-{node_id}", "other-ca")
        await_shown(cluster, stores)

        for files in stores.values():
            files.trust(certificates.other_authority)
        await_let_in(cluster, certificates.other_authority, certificates.client, is_let_in=False)
        await_let_in(cluster, certificates.other_authority, other, is_let_in=True)
        for node_id in stores:
            assert served_at(cluster.address(node_id)).issuer == "CN=other-ca"
            assert not lets_in(cluster.address(node_id), certificates.authority)
        responses = client.tally.succeeded
        eventually(lambda: client.tally.succeeded > responses + 4, HANG_S, "answers after all")
    after = cluster.await_quorum()
    sys.stdout.write(f"\n{client.tally}; elections {after.leader_epoch - quorum.leader_epoch}\n")
    assert client.tally.failed == []
    assert after.leader_epoch == quorum.leader_epoch
    assert [cluster.pid(controller) for controller in cluster.controllers] == pids
