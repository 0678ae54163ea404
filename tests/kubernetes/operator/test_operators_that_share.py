"""Two operators with different selectors in one namespace: each has its own clusters, and a label hands one over."""

from typing import Any

import kubernetes.client
import pytest
from kit.operators.operated import (
    CONTROLLERS_FIRST,
    GROUP,
    QUORUM,
    VERSION,
    Operated,
    OperatorProcess,
    condition_of,
)
from quorate_operator.handlers.selection import SPLIT_CLUSTER
from quorate_operator.resources.names import FINALIZER
from quorate_protocol.kafka.releases import DEFAULT_RELEASE

NODES = range(CONTROLLERS_FIRST, CONTROLLERS_FIRST + 3)
LABEL = f"{GROUP}/operator"
BLUE, GREEN = {LABEL: "blue"}, {LABEL: "green"}
ASLEEP, TOPIC = "asleep", "orders"


@pytest.mark.timeout(400)
def test_a_label_hands_a_cluster_over(operated: Operated) -> None:
    """An operator manages what its selector matches, and nothing is restarted or deleted when that changes."""
    blue, green = start(operated, "blue"), start(operated, "green")
    operated.create(labels=BLUE)
    operated.create_brokers(labels=BLUE, replicas=0)
    create(
        operated, "KafkaController", ASLEEP, GREEN, version=DEFAULT_RELEASE, replicas=1, state="Hibernated"
    )
    create(operated, "KafkaTopic", TOPIC, GREEN, cluster=QUORUM, partitions=1)
    create(operated, "KafkaTopic", "nobodys", {}, cluster=QUORUM, partitions=1)
    operated.wait_settled(*NODES)
    operated.wait(lambda: reason(operated, "kafkacontrollers", ASLEEP) == "Hibernated", "green's cluster")
    operated.wait(lambda: reason(operated, "kafkatopics", TOPIC) == SPLIT_CLUSTER, "green's topic to wait")
    assert holders(operated) >= {"blue": "blue", "green": "green"}.items()
    assert not steps(green)
    assert not any(f"/{ASLEEP}: " in event for event in blue.events())

    before = operated.pod_uids(), operated.claims(), lasting(operated)
    done = len(steps(blue))
    operated.label("kafkacontrollers", QUORUM, operator="green")
    for plural, name in (("kafkacontrollers", QUORUM), ("kafkabrokers", "brokers")):
        operated.wait(lambda p=plural, n=name: reason(operated, p, n) == SPLIT_CLUSTER, f"{plural} to wait")
    assert "those of KafkaBroker brokers do not match" in operated.condition("Stalled")["message"]
    assert f"those of KafkaController {QUORUM}" in operated.brokers_condition("Stalled")["message"]
    operated.label("kafkabrokers", "brokers", operator="green")
    operated.wait_settled(*NODES)
    operated.wait(lambda: reason(operated, "kafkatopics", TOPIC) == "NoBroker", "the topic to be looked at")
    assert (operated.pod_uids(), operated.claims(), lasting(operated)) == before

    operated.patch(state="Hibernated")
    operated.wait(lambda: not operated.pods(), "green to stop all controllers")
    operated.delete_brokers()
    operated.delete()
    operated.wait(lambda: operated.resource() is None, "green to let the cluster go")
    assert any("done: StopNode" in event for event in steps(green))
    assert len(steps(blue)) == done
    assert "status" not in read(operated, "kafkatopics", "nobodys")
    assert [operator.errors() for operator in (blue, green)] == [[], []]


def start(operated: Operated, color: str) -> OperatorProcess:
    """An operator that selects resources of a color."""
    election = (f"--identity={color}", f"--lease-name={color}", "--drift-interval=2")
    return operated.start_operator(f"--selector={LABEL}={color}", *election)


def create(operated: Operated, kind: str, name: str, labels: dict[str, str], **spec: Any) -> None:
    """A resource with labels."""
    metadata = {"name": name, "labels": labels}
    body = {"apiVersion": f"{GROUP}/{VERSION}", "kind": kind, "metadata": metadata, "spec": spec}
    plural = f"{kind.lower()}s"
    operated.custom.create_namespaced_custom_object(GROUP, VERSION, operated.namespace, plural, body)


def read(operated: Operated, plural: str, name: str) -> dict[str, Any]:
    """A resource."""
    found = operated.custom.get_namespaced_custom_object(GROUP, VERSION, operated.namespace, plural, name)
    return dict(found)


def reason(operated: Operated, plural: str, name: str) -> str | None:
    """Why a resource is ready or not."""
    reasons = condition_of(read(operated, plural, name), "Ready").get("reason")
    return None if reasons is None else str(reasons)


def lasting(operated: Operated) -> list[tuple[str, list[str]]]:
    """By kind, the uids and finalizers of the cluster's resources."""
    bodies = [read(operated, "kafkacontrollers", QUORUM), read(operated, "kafkabrokers", "brokers")]
    found = [(str(body["metadata"]["uid"]), list(body["metadata"]["finalizers"])) for body in bodies]
    assert [finalizers for _, finalizers in found] == [[FINALIZER]] * 2
    return found


def holders(operated: Operated) -> Any:
    """By name, the holders of the Leases of the namespace."""
    leases = kubernetes.client.CoordinationV1Api(operated.core.api_client)
    found = leases.list_namespaced_lease(operated.namespace).items
    return {lease.metadata.name: lease.spec.holder_identity for lease in found}.items()


def steps(operator: OperatorProcess) -> list[str]:
    """What it logged of steps for the cluster."""
    return [event for event in operator.events() if f"/{QUORUM}: " in event and "Node " in event]
