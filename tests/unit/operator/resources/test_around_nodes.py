"""What a cluster has beside its nodes: Services, PodDisruptionBudgets, the NetworkPolicy."""

from dataclasses import replace
from pathlib import Path

import pytest
from kit.desired_cluster import Make, changed_parts, completed
from quorate_operator.models.manifests import load_object
from quorate_operator.models.v1alpha1 import KafkaController
from quorate_operator.planning.cluster import Address, Publication, Role
from quorate_operator.planning.desired import desired_cluster
from quorate_operator.resources.certificates import certificates
from quorate_operator.resources.completion import complete
from quorate_operator.resources.exposures import exposures
from quorate_operator.resources.names import node_labels, owner_references
from quorate_operator.resources.protection import (
    brokers_budget,
    brokers_policies,
    controllers_budget,
    controllers_policy,
)
from quorate_operator.resources.services import (
    bootstrap_service,
    headless_service,
    ingresses,
    listener_statuses,
    publications_of,
    published_service,
)

EXAMPLES = Path(__file__).parents[4] / "examples"
EXPOSED = (
    "listeners: [{name: IN}, {name: LB, advertisedPort: 443, exposure: {type: LoadBalancer, annotations: {a: b}}}, "
    "{name: NP, port: 9999, exposure: {type: NodePort}}]"
)


@pytest.mark.parametrize(
    ("replicas", "voters", "pods", "available"),
    [
        (3, 3, 3, 2),
        (3, 2, 3, 3),
        (3, 3, 4, 3),
        (5, 5, 5, 4),
        (5, 3, 3, 2),
        (1, 1, 1, 0),
        (2, 2, 2, 1),
        (3, 0, 0, 0),
    ],
)
def test_a_drain_never_takes_the_quorum(
    make: Make, replicas: int, voters: int, pods: int, available: int
) -> None:
    budget = controllers_budget(make(f"replicas: {replicas}").context, voters=voters, pods=pods)
    assert budget["spec"]["minAvailable"] == available
    assert budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
    assert budget["spec"]["selector"]["matchLabels"]["app.kubernetes.io/component"] == "controller"


@pytest.mark.parametrize(("pods", "spare", "available"), [(3, 1, 2), (3, 0, 3), (1, 1, 0)])
def test_one_budget_covers_the_brokers_of_all_pools(
    make: Make, pods: int, spare: int, available: int
) -> None:
    budget = brokers_budget(make().context, pods=pods, spare=spare, may_unready_go=True)
    assert budget["spec"]["minAvailable"] == available
    assert budget["metadata"]["name"] == "quorum-brokers"
    assert budget["spec"]["selector"]["matchLabels"] == {
        "quorate.dev/cluster": "quorum",
        "app.kubernetes.io/component": "broker",
    }


@pytest.mark.parametrize(("may_go", "policy"), [(True, "AlwaysAllow"), (False, "IfHealthyBudget")])
def test_a_broker_that_is_not_ready_stays_while_it_is_needed(make: Make, may_go: bool, policy: str) -> None:
    budget = brokers_budget(make().context, pods=3, spare=0, may_unready_go=may_go)
    assert budget["spec"]["unhealthyPodEvictionPolicy"] == policy


def test_the_headless_service_names_pods_that_are_not_ready(make: Make) -> None:
    cluster = make(brokers=EXPOSED)
    service = headless_service(cluster.context, cluster.desired, "brokers", Role.BROKER)
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"] is True
    assert [port["port"] for port in service["spec"]["ports"]] == [9092, 9094, 9999]
    quorum = headless_service(cluster.context, cluster.desired, "quorum", Role.CONTROLLER)
    assert [port["name"] for port in quorum["spec"]["ports"]] == ["controller", "http"]


def test_each_exposed_listener_of_a_node_has_a_service(make: Make) -> None:
    cluster = make(brokers=EXPOSED)
    balancer, node_port = exposures(cluster.context, cluster.node(1))
    assert balancer["metadata"]["name"] == "brokers-1-lb"
    assert balancer["metadata"]["annotations"]["a"] == "b"
    assert balancer["spec"]["ports"] == [{"name": "lb", "port": 443, "targetPort": 9094}]
    assert node_port["spec"]["type"] == "NodePort"
    assert node_port["spec"]["externalTrafficPolicy"] == "Local"
    for service in (balancer, node_port):
        assert service["spec"]["selector"] == node_labels(cluster.context, "brokers", Role.BROKER, 1)
    assert exposures(cluster.context, cluster.node(3000)) == ()


def test_a_published_name_remembers_what_it_is_for(make: Make) -> None:
    cluster = make(brokers="listeners: [{name: IN}, {name: OUT}]")
    node = cluster.node(1)
    publication = Publication(address=Address("b1.kafka.svc", 9092), node_id=1, listener="IN", since_ms=5)
    two = replace(publication, address=Address("b1.kafka.svc", 443), listener="OUT", retired_at_ms=7)
    same = replace(publication, address=Address("b1.kafka.svc.cluster.local", 9092))
    service = published_service(cluster.context, node, [publication, two, same])
    assert service["metadata"]["name"] == "b1"
    assert [(port["port"], port["targetPort"]) for port in service["spec"]["ports"]] == [
        (443, 9094),
        (9092, 9092),
    ]
    assert service["spec"]["selector"]["quorate.dev/node-id"] == "1"
    assert set(publications_of(service)) == {publication, two, same}
    assert publications_of(headless_service(cluster.context, cluster.desired, "brokers", Role.BROKER)) == ()


_WRONG_TYPES = '[{"host": 1, "port": "9092", "listener": "A", "sinceMs": 1}]'


@pytest.mark.parametrize("text", ["{", "[{}]", "[1]", '[{"host": "a"}]', _WRONG_TYPES, "[" * 50_000])
def test_a_spoilt_publication_is_told(make: Make, text: str) -> None:
    """A hand-edited Service does not become a traceback."""
    cluster = make()
    publication = Publication(
        address=Address("b1.kafka.svc", 9092), node_id=1, listener="PLAINTEXT", since_ms=5
    )
    service = published_service(cluster.context, cluster.node(1), [publication])
    service["metadata"]["annotations"]["quorate.dev/published"] = text
    with pytest.raises(ValueError, match=r"^Service b1: quorate.dev/published: can't be read: "):
        publications_of(service)


def test_clients_are_kept_off_the_controllers(make: Make) -> None:
    cluster = make(operator_namespace="quorate-system")
    policy = controllers_policy(cluster.context, cluster.desired)
    members, pages = policy["spec"]["ingress"]
    assert [port["port"] for port in members["ports"]] == [9093]
    inside, operator = members["from"]
    assert "namespaceSelector" not in inside
    assert inside["podSelector"]["matchLabels"] == {"quorate.dev/cluster": "quorum"}
    assert operator["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "quorate-system"}
    assert operator["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "operator"
    assert pages == {"from": [{"namespaceSelector": {}}], "ports": [{"protocol": "TCP", "port": 9404}]}


def test_controllers_let_in_whom_their_listener_names(make: Make) -> None:
    peers = "networkPolicyPeers: [{ipBlock: {cidr: 198.51.100.0/24}}]"
    cluster = make(f"listeners: [{{name: CONTROLLER, {peers}}}]")
    members, _ = controllers_policy(cluster.context, cluster.desired)["spec"]["ingress"]
    *inside, named = members["from"]
    assert len(inside) == 2
    assert named == {"ipBlock": {"cidr": "198.51.100.0/24"}}
    assert changed_parts(make().node(3000), cluster.node(3000)) == set()


def test_metrics_are_for_whom_the_manifest_names(make: Make) -> None:
    peers = "metricsFrom: [{namespaceSelector: {matchLabels: {name: monitoring}}}]"
    rule = {
        "from": [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}],
        "ports": [{"protocol": "TCP", "port": 9404}],
    }
    cluster = make(
        f"networkPolicy: {{{peers}}}",
        brokers=f"networkPolicy: {{enabled: true, {peers}}}, metrics: {{enabled: true}}",
    )
    policies = controllers_policy(cluster.context, cluster.desired), *brokers_policies(cluster.context)
    of_controllers, of_brokers = (policy["spec"]["ingress"][-1] for policy in policies)
    assert of_controllers == rule
    *others, operator = of_brokers["from"]
    assert {**of_brokers, "from": others} == rule
    assert operator["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "operator"


def test_the_example_of_policies_admits_whom_it_names() -> None:
    cluster = completed((EXAMPLES / "network-policies.yaml").read_text())
    scrapers = [
        {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}},
            "podSelector": {"matchLabels": {"app.kubernetes.io/name": "prometheus"}},
        },
        {"ipBlock": {"cidr": "203.0.113.10/32"}},
    ]
    metrics = {"from": scrapers, "ports": [{"protocol": "TCP", "port": 9404}]}
    controllers = controllers_policy(cluster.context, cluster.desired)
    (brokers,) = brokers_policies(cluster.context)
    assert controllers["spec"]["ingress"][-1] == metrics
    *others, operator = brokers["spec"]["ingress"][-1]["from"]
    assert others == scrapers
    assert operator["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "operator"
    _, *clients, _ = brokers["spec"]["ingress"]
    assert clients == [
        {
            "from": [{"namespaceSelector": {"matchLabels": {"team": "orders"}}}],
            "ports": [{"protocol": "TCP", "port": 9092}],
        },
        {"from": [{"ipBlock": {"cidr": "198.51.100.0/24"}}], "ports": [{"protocol": "TCP", "port": 9094}]},
    ]


def test_brokers_let_in_whom_their_listeners_name(make: Make) -> None:
    peers = "networkPolicyPeers: [{podSelector: {matchLabels: {app: orders}}}, {ipBlock: {cidr: 10.0.0.0/8}}]"
    pool = f"networkPolicy: {{enabled: true}}, listeners: [{{name: IN, {peers}}}, {{name: OUT, port: 9999}}]"
    cluster = make(brokers=pool, operator_namespace="quorate-system")
    (policy,) = brokers_policies(cluster.context)
    assert policy["metadata"]["name"] == "brokers-brokers"
    assert policy["spec"]["podSelector"]["matchLabels"] == {
        "quorate.dev/cluster": "quorum",
        "app.kubernetes.io/component": "broker",
        "quorate.dev/pool": "brokers",
    }
    inside, named, everybody = policy["spec"]["ingress"]
    assert [port["port"] for port in inside["ports"]] == [9092, 9999]
    members, operator = inside["from"]
    assert members["podSelector"]["matchLabels"] == {"quorate.dev/cluster": "quorum"}
    assert members["podSelector"]["matchExpressions"][0]["values"] == ["broker"]
    assert operator["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "quorate-system"}
    assert named == {
        "from": [{"podSelector": {"matchLabels": {"app": "orders"}}}, {"ipBlock": {"cidr": "10.0.0.0/8"}}],
        "ports": [{"protocol": "TCP", "port": 9092}],
    }
    assert everybody == {"ports": [{"protocol": "TCP", "port": 9999}]}
    measured = make(brokers=f"{pool}, metrics: {{enabled: true}}")
    (policy,) = brokers_policies(measured.context)
    pods = [{"namespaceSelector": {}}]
    assert policy["spec"]["ingress"][-1] == {"from": pods, "ports": [{"protocol": "TCP", "port": 9404}]}


def test_pools_have_no_policy_unless_they_ask_for_it(make: Make) -> None:
    assert brokers_policies(make().context) == ()


def test_the_policy_stays_while_the_last_brokers_are_drained(make: Make) -> None:
    """A pool without replicas still has its NetworkPolicy."""
    pool = "networkPolicy: {enabled: true}, listeners: [{name: IN, networkPolicyPeers: [{podSelector: {}}]}]"
    before, after = (make(brokers=f"replicas: {replicas}, {pool}") for replicas in (2, 0))
    assert brokers_policies(after.context) == brokers_policies(before.context)
    assert brokers_policies(after.context)


def test_objects_belong_to_their_resource_once_it_has_a_uid(make: Make) -> None:
    quorum = make().context.manifests.controllers
    assert owner_references(quorum) == []
    body = quorum.model_dump(by_alias=True, exclude_none=True, mode="json")
    body["metadata"]["uid"] = "u-1"
    loaded = load_object(body, "kafka/quorum")
    assert isinstance(loaded, KafkaController)
    (reference,) = owner_references(loaded)
    assert (reference["kind"], reference["name"], reference["uid"]) == ("KafkaController", "quorum", "u-1")
    assert reference["controller"] is True


def test_what_is_around_a_pool_stays_while_it_is_drained(make: Make) -> None:
    """Clients of a deleted pool are served until its brokers hold nothing."""
    exposure = "{type: Ingress, bootstrapHost: kafka.example.com}"
    tls = "{issuerRef: {name: ca}}"
    listeners = (
        f"[{{name: IN}}, {{name: OUT, protocol: SSL, tls: {tls}, advertisedHost: 'b{{nodeId}}.example.com', "
        f"exposure: {exposure}}}]"
    )
    before = make(
        brokers=f"replicas: 2, nodeIds: {{first: 0}}, networkPolicy: {{enabled: true}}, listeners: {listeners}"
    )
    manifests = replace(before.context.manifests, drained_pools=frozenset({"brokers"}))
    context = replace(before.context, manifests=manifests)
    desired = complete(desired_cluster(manifests), manifests, context.facts)
    assert desired.of_role(Role.BROKER) == ()
    for around in (
        lambda context, desired: headless_service(context, desired, "brokers", Role.BROKER),
        lambda context, desired: bootstrap_service(context, desired, "brokers"),
        lambda context, desired: listener_statuses(context, desired, "brokers", {}),
        lambda context, _desired: brokers_policies(context),
        certificates,
        ingresses,
    ):
        found = around(context, desired)
        assert found
        assert found == around(before.context, before.desired)
