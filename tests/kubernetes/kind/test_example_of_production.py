"""examples/production.yaml and topics-and-users.yaml on nodes in three zones; the tests run in order.

The namespace takes restricted pods and no others. The volumes of kind stay on their machine: what is drained waits
until its machine is back. They can't grow; `test_growing_volumes` has others.
"""

import base64
import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from kit.local_kubernetes.images import BROKER, QUORATE
from kit.local_kubernetes.images import BROKERS as IMAGE
from kit.local_kubernetes.kind_cluster import ZONE_LABEL, ZONES, KindCluster
from kit.operators.installation import (
    BROKERS,
    CHART,
    GRACE_S,
    POOL,
    QUORUM,
    RELEASE,
    TIMEOUT_S,
    TOPIC,
    Installation,
    resource,
)
from kit.operators.pod_clients import PRODUCER
from kit.operators.production import EXAMPLES, production, secrets
from kit.operators.secured_clients import ADMIN, SAMPLER, SecuredClients, jaas
from kit.waiting import eventually
from quorate_operator.models.rebalances import ANNOTATION_APPROVE
from quorate_operator.resources.pod_addresses import HTTP_PORT

# The first test pays for the images, which are built from their sources when nothing is cached, and for the cluster.
pytestmark = [pytest.mark.timeout(2_400), pytest.mark.flaky(reruns=0)]

CONTROLLERS, BROKER_IDS = (3000, 3001, 3002), (0, 1, 2)
IN_SYNC_MIN = 2
COPIES = 3
PARTITIONS = 6
ORDERS, PAYMENTS, SERVICE = "orders", "payments.Events", "orders-service"
KEPT = ("orders", "payments-events", "orders-service", "reports")  # resources that become ready
AUDIT = "audit"  # in a Kafka that is not there
CERTIFICATES = ("controllers-tls", "brokers-tls")
REBALANCE = "even"
SLOW = "60k"  # bytes a second
VALUE_BYTES = 100_000


@dataclass(slots=True)
class Story:
    """The installation, and what each test hands to the next."""

    installation: Installation
    directory: Path
    secrets: dict[str, dict[str, Any]] = field(default_factory=dict)
    clients: SecuredClients = field(init=False)

    def authority_of(self, name: str) -> str:
        """The certificate of the authority in a directory of the example's script."""
        return (self.directory / name / "ca.crt").read_text()


@pytest.fixture(scope="module")
def production_story(cluster_in_zones: KindCluster, tmp_path_factory: pytest.TempPathFactory) -> Story:
    """The installation on a cluster of its own, which goes with the file."""
    cluster_in_zones.load(
        QUORATE, BROKER, nodes=cluster_in_zones.nodes[:1]
    )  # for clients that are not drained
    return Story(Installation(cluster_in_zones), tmp_path_factory.mktemp("secrets"))


def test_the_example_becomes_ready_in_three_zones(production_story: Story) -> None:
    story = production_story.installation
    values = story.values(**{"kafka.image.repository": IMAGE})
    story.helm("install", RELEASE, f"{CHART}", "--create-namespace", "--wait", *values)
    made = secrets(production_story.directory / "first", story.namespace, os.environ)
    secrets(production_story.directory / "second", story.namespace, os.environ)
    production_story.secrets = {secret["metadata"]["name"]: secret for secret in made}
    story.apply(*made, *production())
    story.wait_ready(CONTROLLERS, BROKER_IDS)

    zones = _zones(story)
    for prefix in (QUORUM, BROKERS):
        assert sorted(zones[pod] for pod in story.uids(prefix)) == [*ZONES]
    reported = {
        each["nodeId"]: each["rack"] for each in story.get("kafkabroker", BROKERS)["status"]["brokers"]
    }
    assert reported == {each: zones[f"{BROKERS}-{each}"] for each in BROKER_IDS}


def test_brokers_serve_metrics(production_story: Story) -> None:
    story = production_story.installation
    for pod in (*story.uids(BROKERS), *story.uids(QUORUM)):
        name = "kafka_server_" if pod.startswith(BROKERS) else "quorate_"
        assert any(line.startswith(name) for line in _scraped(story, pod))


def test_controllers_run_the_compiled_codec(production_story: Story) -> None:
    story = production_story.installation
    codec = "python" if shutil.which("cargo") is None else "native"
    for pod in story.uids(QUORUM):
        (reported,) = (line for line in _scraped(story, pod) if line.startswith("quorate_build_info{"))
        assert f'codec="{codec}"' in reported
        assert reported.endswith("} 1.0")


def test_clients_log_in_with_the_passwords_of_the_script(production_story: Story) -> None:
    """Clients use SASL_SSL by the bootstrap Service."""
    story = production_story.installation
    password = production_story.secrets["users"]["stringData"][ADMIN]
    authorities = [production_story.authority_of(name) for name in ("first", "second")]
    clients = production_story.clients = SecuredClients(story, authorities, password)
    clients.tool(
        *("kafka-topics.sh", "--create", f"--topic={TOPIC}", f"--partitions={PARTITIONS}"),
        f"--replication-factor={COPIES}",
    )
    assert clients.produce(TOPIC, "-1", user=ADMIN) == ""
    clients.log_in("stranger", jaas("admin", "wrong"))
    assert "SaslAuthenticationException" in clients.produce(TOPIC, "-2", user="stranger")


def test_topics_and_users_from_apply_to_use(production_story: Story) -> None:
    story, clients = production_story.installation, production_story.clients
    documents = list(yaml.safe_load_all((EXAMPLES / "topics-and-users.yaml").read_text()))
    story.apply(*documents)
    for document in documents:
        if document["metadata"]["name"] in KEPT:
            _wait(story, f"{document['kind'].lower()}/{document['metadata']['name']}", "condition=Ready")
    assert story.conditions("kafkatopic", AUDIT)["Ready"] == "False"

    secret = story.get("secret", SERVICE)["data"]
    clients.log_in(SERVICE, base64.b64decode(secret["sasl.jaas.config"]).decode())
    assert clients.produce(ORDERS, "one", "two", user=SERVICE) == ""
    assert clients.read(ORDERS) == ["one", "two"]
    assert "TopicAuthorizationException" in clients.produce(PAYMENTS, "three", user=SERVICE)


def test_a_bad_pool_leaves_the_healthy_one_alone(production_story: Story) -> None:
    story = production_story.installation
    story.apply(resource("KafkaBroker", "bad", {**POOL, "nodeIds": {"first": 1}}))
    _wait(story, "kafkabroker/bad", "condition=Stalled")
    (before,) = (uid for pod, uid in story.uids(BROKERS).items() if pod == f"{BROKERS}-1")
    story.kubectl("delete", "pod", f"{BROKERS}-1")
    eventually(
        lambda: story.uids(BROKERS).get(f"{BROKERS}-1", before) != before,
        TIMEOUT_S,
        "another pod of the broker",
        story.state,
    )
    story.wait_ready(CONTROLLERS, BROKER_IDS)
    assert not story.uids("bad")
    story.kubectl("delete", "kafkabroker", "bad", f"--timeout={TIMEOUT_S}s")


def test_machines_are_drained_one_after_the_other(production_story: Story) -> None:
    """Maintenance of machines costs retries and nothing else: no error, no partition below its minimum."""
    story, clients = production_story.installation, production_story.clients
    clients.start_producing()
    clients.start_sampling(IN_SYNC_MIN)
    for worker in story.cluster.workers:
        story.cluster.kubectl(
            *("drain", worker, "--ignore-daemonsets", "--delete-emptydir-data"),
            f"--timeout={TIMEOUT_S}s",
            timeout_s=TIMEOUT_S + GRACE_S,
        )
        assert not story.pods_on(worker, BROKERS)
        assert not story.pods_on(worker, QUORUM)
        story.cluster.kubectl("uncordon", worker)
    story.wait_ready(CONTROLLERS, BROKER_IDS)
    clients.stop(SAMPLER)
    samples = clients.samples()
    assert not [sample.under for sample in samples if sample.under]
    assert any(sample.thin for sample in samples)  # it saw that replicas were away
    produced = clients.produced()
    assert produced.failures == []
    assert len(samples) > 100


def test_the_authority_is_exchanged_with_clients_connected(production_story: Story) -> None:
    story, clients = production_story.installation, production_story.clients
    first, second = (production_story.authority_of(name) for name in ("first", "second"))
    following = {
        document["metadata"]["name"]: document
        for document in yaml.safe_load_all(
            (production_story.directory / "second" / "secrets.yaml").read_text()
        )
    }
    _exchange(story, [production_story.secrets[name] for name in CERTIFICATES], first + second)
    _exchange(story, [following[name] for name in CERTIFICATES], first + second)
    _exchange(story, [following[name] for name in CERTIFICATES], second)
    password = production_story.secrets["users"]["stringData"][ADMIN]
    clients.trust("modern", password, second)
    assert clients.produce(TOPIC, "-3", user="modern") == ""
    clients.trust("former", password, first)
    assert "PKIXValidator" in clients.produce(TOPIC, "-4", user="former")  # the end of the stack trace
    assert clients.produced().failures == []


def test_a_new_broker_gets_its_share_while_the_operator_dies(production_story: Story) -> None:
    story, clients = production_story.installation, production_story.clients
    for number in range(PARTITIONS):
        clients.produce(TOPIC, *[f"-{number}" + "0" * VALUE_BYTES] * 5, user=ADMIN)
    story.patch("kafkabroker", BROKERS, replicas=4)
    story.wait_ready(CONTROLLERS, (*BROKER_IDS, 3))
    spec = {"cluster": QUORUM, "partitionsAtATime": 5, "throttleBytesPerSecond": SLOW}
    story.apply(resource("KafkaRebalance", REBALANCE, spec))
    _wait_phase(story, "ProposalReady")
    proposal = story.get("kafkarebalance", REBALANCE)["status"]["proposal"]["id"]
    story.kubectl("annotate", "kafkarebalance", REBALANCE, f"{ANNOTATION_APPROVE}={proposal}")
    _wait_phase(story, "Rebalancing")
    story.cluster.kubectl("delete", "--namespace=quorate-system", "--force", *story.operators())
    story.patch("kafkarebalance", REBALANCE, throttleBytesPerSecond="50Mi")
    _wait_phase(story, "Balanced")
    zones = _zones(story)
    described = clients.tool("kafka-topics.sh", "--describe", f"--topic={TOPIC}").splitlines()
    replicas = [_replicas(line) for line in described if "Replicas:" in line]
    assert len(replicas) == PARTITIONS
    assert all({zones[f"{BROKERS}-{each}"] for each in copies} == {*ZONES} for copies in replicas)
    assert any(3 in copies for copies in replicas)
    assert clients.produced().failures == []


def test_nothing_acknowledged_was_lost(production_story: Story) -> None:
    clients = production_story.clients
    clients.stop(PRODUCER)
    produced = clients.produced()
    assert produced.failures == []
    assert produced.names
    assert {*produced.names} <= {*clients.read(TOPIC)}


def test_topics_and_users_and_back(production_story: Story) -> None:
    story, clients = production_story.installation, production_story.clients
    story.kubectl("delete", "kafkauser,kafkatopic", "--all", f"--timeout={TIMEOUT_S}s")
    eventually(
        lambda: "SaslAuthenticationException" in clients.produce(ORDERS, "four", user=SERVICE),
        TIMEOUT_S,
        "the user to be refused",
    )
    assert SERVICE not in {item["metadata"]["name"] for item in story.get("secret")["items"]}
    topics = set(clients.tool("kafka-topics.sh", "--list").split())
    assert ORDERS in topics
    assert PAYMENTS not in topics


def test_deletion_leaves_nothing(production_story: Story) -> None:
    story = production_story.installation
    for kind, name in (("kafkacontroller", QUORUM), ("kafkabroker", BROKERS)):
        story.patch(kind, name, storage={"onDeletion": "Delete"})
    eventually(
        lambda: all(
            story.conditions(kind, name).get("Reconciling") == "False"
            for kind, name in (("kafkacontroller", QUORUM), ("kafkabroker", BROKERS))
        ),
        TIMEOUT_S,
        "the operator to know that volumes go",
        story.state,
    )
    # Together: the only pool of a cluster that stays can't be drained, and so would not go.
    together = ("delete", "kafkarebalance,kafkabroker,kafkacontroller", "--all", f"--timeout={TIMEOUT_S}s")
    story.cluster.kubectl(f"--namespace={story.namespace}", *together, timeout_s=TIMEOUT_S + GRACE_S)
    kinds = (
        "pods,services,configmaps,secrets,persistentvolumeclaims,poddisruptionbudgets,networkpolicies,jobs"
    )
    ours = {"kube-root-ca.crt", "client-files", *production_story.secrets, PRODUCER, SAMPLER, "tools"}

    def left() -> set[str]:
        listed = story.kubectl("get", kinds, "--output=name").split()
        return {item for item in listed if item.split("/")[1] not in ours}

    eventually(lambda: not left(), TIMEOUT_S, "everything to go", left)


def _scraped(story: Installation, pod: str) -> list[str]:
    """The lines of a pod's metrics."""
    path = f"/api/v1/namespaces/{story.namespace}/pods/{pod}:{HTTP_PORT}/proxy/metrics"
    return story.kubectl("get", f"--raw={path}").splitlines()


def _zones(story: Installation) -> dict[str, str]:
    """By pod, the zone of its machine."""
    listed = json.loads(story.cluster.kubectl("get", "nodes", "--output=json"))["items"]
    zone = {item["metadata"]["name"]: item["metadata"]["labels"].get(ZONE_LABEL) for item in listed}
    return {item["metadata"]["name"]: zone[item["spec"]["nodeName"]] for item in story.get("pods")["items"]}


def _exchange(story: Installation, certificates: Sequence[dict[str, Any]], authorities: str) -> None:
    """Give nodes certificates and authorities, and wait until they have them: brokers restart, controllers reload."""
    pods, reloads = story.uids(BROKERS), _reloads(story)
    for certificate in certificates:
        story.apply({**certificate, "stringData": {**certificate["stringData"], "ca.crt": authorities}})
    eventually(
        lambda: not pods.items() & story.uids(BROKERS).items(), TIMEOUT_S, "brokers to restart", story.state
    )
    eventually(
        lambda: all(count > reloads[pod] for pod, count in _reloads(story).items()),
        TIMEOUT_S,
        "controllers to read the files again",
        lambda: _reloads(story),
    )
    story.wait_ready(CONTROLLERS, BROKER_IDS)


def _reloads(story: Installation) -> dict[str, int]:
    """By controller, how often it took other files for its listener."""
    return {pod: story.kubectl("logs", pod).count("tls_reloaded") for pod in story.uids(QUORUM)}


def _replicas(line: str) -> list[int]:
    """The replicas in a line of `kafka-topics --describe`."""
    return [int(each) for each in line.split("Replicas: ")[1].split(maxsplit=1)[0].split(",")]


def _wait(story: Installation, what: str, condition: str) -> None:
    wait = (f"--namespace={story.namespace}", "wait", what, f"--for={condition}", f"--timeout={TIMEOUT_S}s")
    story.cluster.kubectl(*wait, timeout_s=TIMEOUT_S + GRACE_S)


def _wait_phase(story: Installation, phase: str) -> None:
    """Until the rebalance is in this phase."""
    _wait(story, f"kafkarebalance/{REBALANCE}", f"jsonpath={{.status.phase}}={phase}")
