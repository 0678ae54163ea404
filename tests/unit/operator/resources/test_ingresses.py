"""Ingresses and Routes: which hosts lead to which broker, and which addresses are advertised."""

import pytest
from kit.desired_cluster import Make
from kit.scenarios import healthy
from quorate_operator.planning.cluster import Address, NodeState, RolloutPolicy
from quorate_operator.resources.certificates import certificates
from quorate_operator.resources.exposures import exposures
from quorate_operator.resources.facts import IngressHosts, ListenerOf
from quorate_operator.resources.ingress_hosts import ingress_hosts, stored_hosts
from quorate_operator.resources.names import node_labels
from quorate_operator.resources.services import ingresses, listener_statuses


def pool(exposure: str, more: str = "", tls: str = "secretName: cert") -> str:
    """Two brokers whose second listener is exposed."""
    return (
        f"replicas: 2, listeners: [{{name: IN}}, {{name: OUT, protocol: SSL, tls: {{{tls}}}, "
        f"advertisedHost: 'b{{nodeId}}.example.com', {more} exposure: {{{exposure}}}}}]"
    )


def test_each_broker_has_an_ingress_that_lets_tls_pass(make: Make) -> None:
    """A client reaches the node whose host it names."""
    cluster = make(
        brokers=pool(
            "type: Ingress, ingressClassName: nginx, bootstrapHost: Kafka.example.com, annotations: {a: b}"
        )
    )
    first, second, bootstrap = ingresses(cluster.context, cluster.desired)
    assert [item["metadata"]["name"] for item in (first, second, bootstrap)] == [
        "brokers-0-out",
        "brokers-1-out",
        "brokers-bootstrap-out",
    ]
    assert second["metadata"]["annotations"] == {
        "a": "b",
        "nginx.ingress.kubernetes.io/ssl-passthrough": "true",
        "nginx.ingress.kubernetes.io/backend-protocol": "HTTPS",
    }
    backend = {"service": {"name": "brokers-1-out", "port": {"name": "out"}}}
    assert second["spec"] == {
        "ingressClassName": "nginx",
        "rules": [
            {
                "host": "b1.example.com",
                "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]},
            }
        ],
        "tls": [{"hosts": ["b1.example.com"]}],
    }
    assert bootstrap["spec"]["tls"] == [{"hosts": ["kafka.example.com"]}]
    (path,) = bootstrap["spec"]["rules"][0]["http"]["paths"]
    assert path["backend"]["service"] == {"name": "brokers-bootstrap", "port": {"name": "out"}}

    node = cluster.node(1)
    (service,) = exposures(cluster.context, node)
    assert (service["metadata"]["name"], service["spec"]["type"]) == ("brokers-1-out", "ClusterIP")
    assert service["spec"]["selector"] == node_labels(cluster.context, "brokers", node.role, 1)
    assert service["spec"]["ports"] == [{"name": "out", "port": 9094, "targetPort": 9094}]
    assert "a" not in service["metadata"]["annotations"]


def test_each_host_has_a_route(make: Make) -> None:
    cluster = make(brokers=pool("type: Route, annotations: {a: b}"))
    first, second = ingresses(cluster.context, cluster.desired)
    assert (first["apiVersion"], first["kind"]) == ("route.openshift.io/v1", "Route")
    assert first["metadata"]["annotations"] == {"a": "b"}
    assert second["metadata"]["name"].startswith("brokers-1-out-")
    assert second["spec"] == {
        "host": "b1.example.com",
        "to": {"kind": "Service", "name": "brokers-1-out"},
        "port": {"targetPort": "out"},
        "tls": {"termination": "passthrough"},
    }


@pytest.mark.parametrize("kind", ["Ingress", "Route"])
def test_a_broker_keeps_its_former_host_until_it_has_another(make: Make, kind: str) -> None:
    running = {0: {"OUT": Address("old.example.com", 443), "IN": Address("10.0.0.1", 9092)}}
    cluster = make(brokers=pool(f"type: {kind}", "interimHost: 'i{nodeId}.example.com',"), configured=running)
    found = [
        ingress
        for ingress in ingresses(cluster.context, cluster.desired)
        if "brokers-0" in str(ingress["metadata"])
    ]
    hosts = {rule["host"] for item in found for rule in item["spec"].get("rules", ())}
    hosts |= {item["spec"]["host"] for item in found if kind == "Route"}
    assert hosts == {"b0.example.com", "i0.example.com", "old.example.com"}


OUT_OF_0 = ListenerOf(0, "OUT")
OVERLAP_MS = RolloutPolicy().overlap_ms


def leading(
    make: Make, stored: IngressHosts, *, state: NodeState = NodeState.READY, now_ms: int = 5
) -> list[str]:
    """The hosts that lead to broker 0, which has a new one, with when each was retired."""
    running = {0: {"OUT": Address("b0.example.com", 443), "IN": Address("10.0.0.1", 9092)}}
    cluster = make(brokers=pool("type: Ingress"), configured=running, ingress_hosts=stored)
    observed = healthy(3, brokers=2).node(0, state=state).observed
    hosts = ingress_hosts(cluster.context, cluster.desired, observed, now_ms)
    (service,) = exposures(cluster.context, cluster.node(0), hosts)
    assert stored_hosts(service["metadata"]["annotations"]["quorate.dev/hosts"]) == hosts[OUT_OF_0]
    first, _ = ingresses(cluster.context, cluster.desired, hosts)
    assert {rule["host"] for rule in first["spec"]["rules"]} == set(hosts[OUT_OF_0])
    return [host if at_ms is None else f"{host} {at_ms}" for host, at_ms in hosts[OUT_OF_0].items()]


def test_a_former_host_leads_to_its_broker_for_the_overlap(make: Make) -> None:
    """It begins when the broker is ready with its new host, and does not end while it is not ready."""
    new, old = "b0.example.com", "old.example.com"
    assert leading(make, {}) == [new]
    before = {OUT_OF_0: {old: None}}
    assert leading(make, before, state=NodeState.STARTING) == [new, old]
    assert leading(make, before) == [new, f"{old} 5"]
    retired: IngressHosts = {OUT_OF_0: {old: 5, new: None}}
    assert leading(make, retired, now_ms=4 + OVERLAP_MS) == [new, f"{old} 5"]
    assert leading(make, retired, now_ms=5 + OVERLAP_MS) == [new]
    assert leading(make, retired, state=NodeState.UNREADY, now_ms=5 + OVERLAP_MS) == [new, f"{old} 5"]


def test_a_host_that_another_broker_is_to_have_goes_at_once(make: Make) -> None:
    assert leading(make, {OUT_OF_0: {"b1.example.com": None}}) == ["b0.example.com"]


@pytest.mark.parametrize("text", [None, "", "[]", '{"a": "b"}', "{"])
def test_stored_hosts_that_are_spoilt_are_none(text: str | None) -> None:
    assert stored_hosts(text) == {}


def test_certificates_cover_former_hosts(make: Make) -> None:
    issued = pool("type: Ingress", tls="issuerRef: {name: ca}")
    published = {ListenerOf(1, "OUT"): frozenset({"former.kafka.svc"})}
    cluster = make(brokers=issued, published=published)
    (certificate,) = certificates(cluster.context, cluster.desired, {OUT_OF_0: {"old.example.com": 5}})
    assert {"old.example.com", "former.kafka.svc"} < set(certificate["spec"]["dnsNames"])


@pytest.mark.parametrize(("more", "port"), [("", 443), ("advertisedPort: 8443,", 8443)])
def test_clients_are_told_the_port_of_tls(make: Make, more: str, port: int) -> None:
    exposure = "type: Ingress, bootstrapHost: kafka.example.com"
    cluster = make(brokers=pool(exposure, more, tls="issuerRef: {name: ca}"))
    assert cluster.node(1).advertised["OUT"] == Address("b1.example.com", port)
    _, status = listener_statuses(cluster.context, cluster.desired, "brokers", {})
    assert (status.type, status.bootstrap_servers) == ("Ingress", f"kafka.example.com:{port}")
    (certificate,) = certificates(cluster.context, cluster.desired)
    assert {"kafka.example.com", "b0.example.com", "b1.example.com"} < set(certificate["spec"]["dnsNames"])


def test_other_listeners_have_none(make: Make) -> None:
    cluster = make(brokers="listeners: [{name: IN}, {name: OUT, exposure: {type: NodePort}}]")
    assert ingresses(cluster.context, cluster.desired) == ()
    empty = make(
        brokers=pool("type: Ingress, bootstrapHost: k.example.com").replace("replicas: 2", "replicas: 0")
    )
    assert ingresses(empty.context, empty.desired) == ()
