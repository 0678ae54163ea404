"""The condition of the clients that a change of hosts would lose, and where it is shown."""

from dataclasses import replace

import pytest
from quorate_admin.diagnosis import ClientFacts, ConnectedClient
from quorate_operator.handlers.statuses import broker_status
from quorate_operator.models.manifests import load_manifests
from quorate_operator.planning.cluster import Address, NodeState, ObservedCluster, ObservedNode, Role
from quorate_operator.planning.desired import desired_cluster
from quorate_operator.planning.steps import Plan
from quorate_operator.view.cluster import ClusterView, view_of
from quorate_operator.web.controls import Access
from quorate_operator.web.sections import broker_section
from quorate_operator.web.snapshots import ClusterKey

TEXT = """\
{apiVersion: quorate.dev/v1alpha1, kind: KafkaController, metadata: {name: quorum}}
---
{apiVersion: quorate.dev/v1alpha1, kind: KafkaBroker, metadata: {name: pool},
 spec: {controllers: quorum, replicas: 1, nodeIds: {first: 0}}}
"""
FORMER, NEXT = Address("former", 9092), Address("next", 9092)


def client(name: str, version: str) -> ConnectedClient:
    return ConnectedClient(name=name, version=version, listener="CLIENTS", connections=2)


LOST, KEPT = client("kafka-python", "3.0.12"), client("apache-kafka-java", "4.4.0")
FOREIGN, UNNAMED = client("mine", "1.0"), client("unknown", "unknown")


def view(*clients: ConnectedClient, host: Address = FORMER, problem: str | None = None) -> ClusterView:
    """A pool with these clients, whose broker is to advertise a host; a problem is of its metrics."""
    desired = desired_cluster(load_manifests(TEXT, "test"))
    nodes = tuple(
        replace(node, advertised={"PLAINTEXT": host}) if node.role is Role.BROKER else node
        for node in desired.nodes
    )
    seen = ObservedNode(
        node_id=0, role=Role.BROKER, state=NodeState.READY, pool="pool", configured={"PLAINTEXT": FORMER}
    )
    facts = ClientFacts(clients=clients, problems={} if problem is None else {"http://b0": problem})
    observed = ObservedCluster(nodes={0: seen}, quorum=None, clients={"pool": facts})
    return view_of("quorum", replace(desired, nodes=nodes), observed, Plan(steps=()))


def condition_of(found: ClusterView) -> tuple[str, str, str]:
    (condition,) = (
        condition
        for condition in broker_status(found, pool="pool", generation=1)["conditions"]
        if condition["type"] == "ClientsRebootstrap"
    )
    return condition["status"], condition["reason"], condition["message"]


@pytest.mark.parametrize(
    ("found", "status", "reason"),
    [
        (view(KEPT, UNNAMED), "True", "AllRebootstrap"),
        (view(KEPT, LOST, FOREIGN, problem="refused"), "False", "ClientsWouldBeLost"),
        (view(LOST, host=NEXT), "False", "HostsChange"),
        (view(KEPT, host=NEXT), "True", "AllRebootstrap"),
        (view(KEPT, FOREIGN, problem="refused"), "Unknown", "NotAllRead"),
        (view(KEPT, FOREIGN), "Unknown", "ClientsUnknown"),
        (replace(view(LOST), clients={}), "Unknown", "NotRead"),
    ],
)
def test_clients_have_a_condition(found: ClusterView, status: str, reason: str) -> None:
    assert condition_of(found)[:2] == (status, reason)


def test_the_message_names_clients_without_their_number() -> None:
    """Numbers of connections change with every reading, and each write of a status is sent to all watchers."""
    more = replace(LOST, connections=7)
    message = condition_of(view(LOST, FOREIGN))[2]
    assert message == condition_of(view(more, FOREIGN))[2]
    assert message.startswith(
        "these clients do not start again when all hosts change: kafka-python 3.0.12 on CLIENTS."
    )
    assert condition_of(view(LOST, host=NEXT))[2].startswith("hosts change now, and these clients do not")


def test_the_status_page_shows_them() -> None:
    key = ClusterKey("kafka", "quorum")
    shown = str(broker_section(key, view(LOST, host=NEXT), Access()))
    assert (
        "do not start again when all hosts of pool are about to change: kafka-python 3.0.12 on CLIENTS"
        in shown
    )
    assert "do not start again" not in str(broker_section(key, view(KEPT), Access()))
