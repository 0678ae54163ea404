"""A Kubernetes cluster whose nodes, pods and Services have addresses of IPv6 alone."""

import ipaddress
from collections.abc import Iterator

import pytest
from kit.local_kubernetes.kind_cluster import KindCluster
from kit.operators.installation import BROKERS, QUORUM, Installation
from kit.operators.pod_clients import PodClients
from kit.waiting import eventually
from quorate_operator.resources.names import LABEL_CLUSTER

# The test pays for the cluster and the images, which are built from their sources when nothing is cached.
pytestmark = [pytest.mark.timeout(2_400), pytest.mark.flaky(reruns=0)]

CONTROLLER_IDS = (3000, 3001, 3002)
COPIES = 3
RESTART_TIMEOUT_S = 600


@pytest.fixture(scope="module")
def installation(ipv6_cluster: KindCluster) -> Iterator[Installation]:
    """The operator, on a cluster that goes with the file."""
    story = Installation(ipv6_cluster)
    with story.released(story.values()):
        yield story


def test_a_cluster_serves_and_is_restarted_without_ipv4(installation: Installation) -> None:
    """Probes, Services, names and the operator's clients do without IPv4, and a roll loses no record."""
    installation.create()
    installation.wait_ready(CONTROLLER_IDS)
    services = installation.get("services")["items"]
    families = {item["metadata"]["name"]: item["spec"]["ipFamilies"] for item in services}
    assert {QUORUM, BROKERS} <= families.keys()
    assert set(map(tuple, families.values())) == {("IPv6",)}
    pods = installation.kubectl(
        "get", "pods", f"--selector={LABEL_CLUSTER}={QUORUM}", "--output=jsonpath={..podIPs[*].ip}"
    )
    versions = {ipaddress.ip_address(address).version for address in pods.split()}
    assert versions == {6}
    installation.create_topic(COPIES)
    clients = PodClients(installation, COPIES)
    clients.start()
    before = installation.uids(QUORUM) | installation.uids(BROKERS)
    for kind, name in (("kafkacontroller", QUORUM), ("kafkabroker", BROKERS)):
        installation.kubectl("annotate", kind, name, "quorate.dev/restart=once")
    eventually(
        lambda: not before.items() & (installation.uids(QUORUM) | installation.uids(BROKERS)).items(),
        RESTART_TIMEOUT_S,
        "every node to be restarted",
        installation.state,
    )
    installation.wait_ready(CONTROLLER_IDS)
    clients.stop_without_loss()
