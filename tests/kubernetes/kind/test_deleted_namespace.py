"""A namespace that is deleted with running clusters, topics and users in it, beside one whose clients continue."""

import json
import logging
import time
from collections.abc import Iterator

import pytest
from kit.local_kubernetes.errors import LocalKubernetesError
from kit.local_kubernetes.kind_cluster import KindCluster
from kit.operators.installation import (
    BROKERS,
    CONTROLLERS,
    GRACE_S,
    POOL,
    QUORUM,
    TIMEOUT_S,
    Installation,
    resource,
)
from kit.operators.pod_clients import PodClients
from kit.pauses import RecordPause
from kit.waiting import eventually

# The first test pays for the cluster and the images, which are built from their sources when nothing is cached.
pytestmark = [pytest.mark.timeout(2_400), pytest.mark.flaky(reruns=0)]

_LOG = logging.getLogger(__name__)
CONTROLLER_IDS = (3000, 3001, 3002)
GONE_S = 240
"""Brokers may take 60 s to stop, and the volumes of each node are removed by a pod."""
SECOND = "second"
SECRET = "elsewhere"
SERVERS = "kafka.example.com:9093"
TOPICS_AND_USERS = (
    resource("KafkaTopic", "orders", {"cluster": QUORUM, "partitions": 1, "deletionPolicy": "Delete"}),
    resource("KafkaUser", "orders-service", {"cluster": QUORUM, "authentication": {"type": "scram-sha-512"}}),
)
NEVER_READY = resource(
    "KafkaTopic",
    "audit",
    {
        "bootstrapServers": [SERVERS],
        "partitions": 1,
        "deletionPolicy": "Delete",
        "security": {"protocol": "SASL_SSL", "mechanism": "SCRAM-SHA-512", "secretName": SECRET},
    },
)
LOGIN = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {"name": SECRET, "labels": {"quorate.dev/for-bootstrap-servers": "true"}},
    "stringData": {"username": "audit", "password": "audit-secret"},
}


@pytest.fixture(scope="module")
def doomed(kind_cluster: KindCluster) -> Iterator[Installation]:
    """The operator, and a namespace that the test deletes."""
    installation = Installation(kind_cluster, "doomed")
    with installation.released(installation.values(**{"policy.servers": f"{{{SERVERS}}}"})):
        yield installation
        installation.remove()


@pytest.fixture(scope="module")
def neighbour(kind_cluster: KindCluster, doomed: Installation) -> Iterator[Installation]:
    """Another namespace of the same operator."""
    assert doomed.cluster is kind_cluster
    installation = Installation(kind_cluster, "neighbour")
    yield installation
    installation.remove()


def test_a_namespace_is_gone_with_its_clusters_topics_and_users(
    doomed: Installation, neighbour: Installation, record_pause: RecordPause
) -> None:
    """Nothing holds it, also not a topic whose servers never answered, and neighbours do not notice."""
    single = {**CONTROLLERS, "replicas": 1}
    doomed.apply(
        LOGIN,
        resource("KafkaController", QUORUM, CONTROLLERS),
        resource("KafkaBroker", BROKERS, {**POOL, "replicas": 1}),
        resource("KafkaController", SECOND, single),
        *TOPICS_AND_USERS,
        NEVER_READY,
    )
    neighbour.create()
    doomed.wait_ready(CONTROLLER_IDS, (0,))
    neighbour.wait_ready(CONTROLLER_IDS)
    ready = ("kafkatopic/orders", "kafkauser/orders-service", f"kafkacontroller/{SECOND}")
    wait = ("wait", *ready, "--for=condition=Ready", f"--timeout={TIMEOUT_S}s")
    doomed.cluster.kubectl(f"--namespace={doomed.namespace}", *wait, timeout_s=TIMEOUT_S + GRACE_S)
    neighbour.create_topic()
    clients = PodClients(neighbour, copies=len(CONTROLLER_IDS))
    clients.start()
    before = neighbour.uids(QUORUM) | neighbour.uids(BROKERS)

    started = time.monotonic()
    doomed.cluster.kubectl("delete", "namespace", doomed.namespace, "--wait=false")
    eventually(lambda: not _is_there(doomed), GONE_S, "the namespace to be gone", lambda: _left(doomed))
    _LOG.info("the namespace was gone after %.0f s", time.monotonic() - started)

    eventually(lambda: not _volumes(doomed), TIMEOUT_S, "its volumes to be gone", lambda: _volumes(doomed))
    neighbour.write()
    assert neighbour.uids(QUORUM) | neighbour.uids(BROKERS) == before
    records, topics = clients.stop_without_loss()
    record_pause(records.pauses.longest_s, "records")
    record_pause(topics.pauses.longest_s)


def _is_there(doomed: Installation) -> bool:
    return bool(doomed.cluster.kubectl("get", "namespace", doomed.namespace, "--ignore-not-found", "-o=name"))


def _volumes(doomed: Installation) -> list[str]:
    """The volumes that were claimed in the namespace."""
    volumes = json.loads(doomed.cluster.kubectl("get", "pv", "-o=json"))["items"]
    return [
        volume["metadata"]["name"]
        for volume in volumes
        if volume["spec"].get("claimRef", {}).get("namespace") == doomed.namespace
    ]


def _left(doomed: Installation) -> str:
    try:
        return "\n".join(
            [
                doomed.cluster.kubectl("get", "namespace", doomed.namespace, "-o=yaml"),
                doomed.kubectl("get", "kafkacontrollers,kafkabrokers,kafkatopics,kafkausers,pods,pvc"),
                doomed.cluster.kubectl(
                    "logs",
                    f"-n={doomed.system}",
                    "-lapp.kubernetes.io/component=operator",
                    "--tail=30",
                ),
            ]
        )
    except LocalKubernetesError as error:
        return f"{error}"
