"""examples/production.yaml with certificates of the cluster's own authority, renewed with clients connected.

The tests run in order, each on the state that the previous one left.
"""

import base64
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from kit.local_kubernetes.images import BROKER, QUORATE
from kit.local_kubernetes.images import BROKERS as IMAGE
from kit.local_kubernetes.kind_cluster import ZONE_LABEL, KindCluster
from kit.operators.installation import BROKERS, QUORUM, TIMEOUT_S, TOPIC, Installation
from kit.operators.pod_clients import PRODUCER
from kit.operators.production import production, secrets
from kit.operators.secured_clients import ADMIN, SecuredClients
from kit.pauses import RecordPause
from kit.waiting import eventually

# The first test pays for the cluster and the images, which are built from their sources when nothing is cached.
pytestmark = [pytest.mark.timeout(2_400), pytest.mark.flaky(reruns=0)]

CONTROLLER_IDS = (3000, 3001, 3002)
COPIES = 3
LOGINS = ("controllers-login", "users")
OTHER_DURATION = "30d"
ISSUED = {QUORUM: f"{QUORUM}-controller-tls", BROKERS: f"{BROKERS}-clients-tls"}
AUTHORITY, FOR_CLIENTS = f"{QUORUM}-ca", f"{QUORUM}-ca-cert"
PAUSE_S_MAX = 30.0
"""A pod takes its address along: a connection to it fails only after 10 s."""


@dataclass(slots=True)
class Secured:
    """The installation, and its clients once there is a cluster."""

    installation: Installation
    directory: Path
    clients: SecuredClients = field(init=False)

    def serial(self, pool: str) -> int:
        """The serial number of the certificate that was issued for a pool."""
        data = self.installation.get("secret", ISSUED[pool])["data"]
        return x509.load_pem_x509_certificate(base64.b64decode(data["tls.crt"])).serial_number


@pytest.fixture(scope="module")
def secured(kind_cluster: KindCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """The operator with the right to issue certificates, on nodes of one zone as the example says for kind."""
    kind_cluster.load(QUORATE, BROKER, nodes=kind_cluster.nodes[:1])  # for clients
    kind_cluster.kubectl("label", "nodes", "--all", "--overwrite", f"{ZONE_LABEL}=here")
    installation = Installation(kind_cluster, "own-certificates")
    more = {"kafka.image.repository": IMAGE, "rbac.updateSecrets": "true"}
    with installation.released(installation.values(**more)):
        yield Secured(installation, tmp_path_factory.mktemp("secrets"))
        installation.remove()
    kind_cluster.kubectl("label", "nodes", "--all", f"{ZONE_LABEL}-")


def test_the_example_becomes_ready_without_a_certificate_given(secured: Secured) -> None:
    story = secured.installation
    made = {
        item["metadata"]["name"]: item for item in secrets(secured.directory, story.namespace, os.environ)
    }
    story.apply(*(made[name] for name in LOGINS), *_production())
    story.wait_ready(CONTROLLER_IDS)
    mounted = {
        volume["secret"]["secretName"]
        for pod in story.get("pods")["items"]
        for volume in pod["spec"]["volumes"]
        if "secret" in volume
    }
    assert mounted >= {*ISSUED.values()}
    assert AUTHORITY not in mounted
    trusted = story.get("configmap", FOR_CLIENTS)["data"]["ca.crt"]
    secured.clients = SecuredClients(story, [trusted], made["users"]["stringData"][ADMIN])
    secured.clients.tool(
        *("kafka-topics.sh", "--create", f"--topic={TOPIC}", "--partitions=3"),
        f"--replication-factor={COPIES}",
    )
    secured.clients.start_producing()


def test_certificates_are_issued_again_with_clients_connected(
    secured: Secured, record_pause: RecordPause
) -> None:
    """Brokers restart one by one, controllers follow without a restart, and nothing acknowledged is lost."""
    story, clients = secured.installation, secured.clients
    controllers, brokers = story.uids(QUORUM), story.uids(BROKERS)
    before = {pool: secured.serial(pool) for pool in ISSUED}
    for item in _production(duration=OTHER_DURATION):
        story.patch(item["kind"].lower(), item["metadata"]["name"], listeners=item["spec"]["listeners"])
    for pool in ISSUED:
        eventually(
            lambda pool=pool: secured.serial(pool) != before[pool], TIMEOUT_S, f"a certificate of {pool}"
        )
    eventually(
        lambda: not brokers.items() & story.uids(BROKERS).items(),
        TIMEOUT_S,
        "brokers to restart",
        story.state,
    )
    eventually(
        lambda: all("tls_reloaded" in story.kubectl("logs", pod) for pod in controllers),
        TIMEOUT_S,
        "controllers to read their files again",
        story.state,
    )
    story.wait_ready(CONTROLLER_IDS)
    assert story.uids(QUORUM) == controllers
    clients.stop(PRODUCER)
    produced = clients.produced()
    assert produced.failures == []
    assert produced.names
    assert {*produced.names} <= {*clients.read(TOPIC)}
    record_pause(produced.pauses.longest_s, "records", max_s=PAUSE_S_MAX)


def _production(**tls: str) -> list[dict[str, Any]]:
    """The example's objects, whose listeners name no Secret with a certificate."""
    objects = production()
    for item in objects:
        for listener in item["spec"]["listeners"]:
            listener["tls"] = tls
    return objects
