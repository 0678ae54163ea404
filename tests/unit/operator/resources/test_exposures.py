"""Services for clients outside of Kubernetes, as the manifest sets them, and which of their addresses count."""

from typing import Any

import pytest
from kit.desired_cluster import Make, changed_parts, manifest_fault
from quorate_operator.planning.cluster import Address, Role, Unassigned
from quorate_operator.resources.certificates import certificates
from quorate_operator.resources.exposures import (
    balancer_host,
    exposed_bootstraps,
    exposures,
    host_address,
    node_port,
)
from quorate_operator.resources.facts import BootstrapOf, ListenerOf
from quorate_operator.resources.pod_addresses import published_name
from quorate_operator.resources.services import bootstrap_service, headless_service, listener_statuses

NODE_PORTS = (
    "listeners: [{name: IN}, {name: OUT, port: 9094, exposure: {type: NodePort, externalTrafficPolicy: Cluster, "
    "ipFamilyPolicy: PreferDualStack, ipFamilies: [IPv6, IPv4], nodes: [{nodeId: 1, nodePort: 30001, "
    "externalIPs: [198.51.100.1], annotations: {b: c}}], annotations: {a: b}, bootstrap: {nodePort: 30009}}}]"
)
BALANCERS = (
    "listeners: [{name: IN}, {name: OUT, port: 9094, advertisedPort: 443, exposure: {type: LoadBalancer, "
    "nodes: [{nodeId: 1, loadBalancerIP: 203.0.113.1}], bootstrap: {loadBalancerIP: 203.0.113.9}}}]"
)
OUT_OF_1 = ListenerOf(1, "OUT")


def given(*ingress: dict[str, str], families: tuple[str, ...] = ("IPv4",)) -> dict[str, Any]:
    """A Service with what its load balancer was given."""
    return {"spec": {"ipFamilies": list(families)}, "status": {"loadBalancer": {"ingress": list(ingress)}}}


def test_services_of_node_ports_are_as_the_manifest_sets_them(make: Make) -> None:
    cluster = make(brokers=NODE_PORTS)
    (first,) = exposures(cluster.context, cluster.node(0))
    (second,) = exposures(cluster.context, cluster.node(1))
    assert second["spec"] | {"selector": {}} == {
        "type": "NodePort",
        "selector": {},
        "publishNotReadyAddresses": True,
        "ports": [{"name": "out", "port": 9094, "targetPort": 9094, "nodePort": 30001}],
        "externalTrafficPolicy": "Cluster",
        "ipFamilyPolicy": "PreferDualStack",
        "ipFamilies": ["IPv6", "IPv4"],
        "externalIPs": ["198.51.100.1"],
    }
    assert second["metadata"]["annotations"] == {"a": "b", "b": "c", "quorate.dev/listener": "OUT"}
    assert "nodePort" not in first["spec"]["ports"][0]
    assert "externalIPs" not in first["spec"]


def test_a_bootstrap_service_leads_to_any_broker(make: Make) -> None:
    cluster = make(brokers=NODE_PORTS)
    (service,) = exposed_bootstraps(cluster.context, cluster.desired)
    assert service["metadata"]["name"] == "brokers-bootstrap-out"
    assert service["spec"]["ports"] == [{"name": "out", "port": 9094, "targetPort": 9094, "nodePort": 30009}]
    assert "quorate.dev/node-id" not in service["spec"]["selector"]
    assert published_name(cluster.context, "brokers-bootstrap-out.kafka.svc") is None
    local = make(brokers="listeners: [{name: A, exposure: {type: NodePort, bootstrap: {}}}]")
    (service,) = exposed_bootstraps(local.context, local.desired)
    assert "externalTrafficPolicy" not in service["spec"], "each Kubernetes node leads to a broker"
    without = make(brokers="listeners: [{name: A, exposure: {type: NodePort}}]")
    assert exposed_bootstraps(without.context, without.desired) == ()


def bootstrap_servers(make: Make, brokers: str, **facts: Any) -> str | None:
    """What the status names for clients of the last listener."""
    cluster = make(brokers=brokers, **facts)
    registered = {1: {"OUT": Address("203.0.113.1", 443)}}
    return listener_statuses(cluster.context, cluster.desired, "brokers", registered)[-1].bootstrap_servers


def test_clients_begin_at_the_bootstrap_service(make: Make) -> None:
    key = BootstrapOf("brokers", "OUT")
    assert bootstrap_servers(make, BALANCERS) == "203.0.113.1:443", "as long as it has no address"
    balancers = {key: "203.0.113.9"}
    assert bootstrap_servers(make, BALANCERS, bootstrap_balancers=balancers) == "203.0.113.9:443"
    named = BALANCERS.replace("bootstrap: {", "bootstrapHost: k.example.com, bootstrap: {")
    assert bootstrap_servers(make, named, bootstrap_balancers=balancers) == "k.example.com:443"
    on_nodes = {
        "bootstrap_node_ports": {key: 30009},
        "host_ips": {0: "10.0.0.8", 1: "10.0.0.7", 2: "10.0.0.8"},
    }
    assert bootstrap_servers(make, NODE_PORTS, **on_nodes) == "10.0.0.7:30009,10.0.0.8:30009"


def test_a_certificate_covers_the_address_of_the_bootstrap_service(make: Make) -> None:
    secured = BALANCERS.replace("port: 9094,", "port: 9094, protocol: SSL, tls: {issuerRef: {name: ca}},")
    cluster = make(brokers=secured, bootstrap_balancers={BootstrapOf("brokers", "OUT"): "203.0.113.9"})
    (certificate,) = certificates(cluster.context, cluster.desired)
    assert certificate["spec"]["ipAddresses"] == ["203.0.113.9"]


@pytest.mark.parametrize(
    "exposure",
    [
        "externalTrafficPolicy: Local",
        "ipFamilies: [IPv6]",
        "ipFamilyPolicy: RequireDualStack",
        "annotations: {a: b}",
        "sourceRanges: [10.0.0.0/8]",
        "verification: None",
        "bootstrap: {annotations: {a: b}}",
        "bootstrapHost: k.example.com",
        "nodes: [{nodeId: 1, nodePort: 30001, loadBalancerIP: 203.0.113.7, externalIPs: [198.51.100.1]}]",
    ],
)
def test_settings_of_services_restart_no_broker(make: Make, exposure: str) -> None:
    spec = "services: {{}}, listeners: [{{name: IN}}, {{name: OUT, exposure: {{type: LoadBalancer, {}}}}}]"
    facts = {"load_balancers": {OUT_OF_1: "203.0.113.1"}}
    before = make(brokers=spec.format(""), **facts).node(1)
    after = make(brokers=spec.format(exposure), **facts).node(1)
    assert changed_parts(before, after) == set()
    assert before.advertised == after.advertised


def test_all_services_of_a_pool_have_its_ip_families(make: Make) -> None:
    families = "services: {ipFamilyPolicy: RequireDualStack, ipFamilies: [IPv6, IPv4]}"
    exposed = "listeners: [{name: A, exposure: {type: NodePort}}]"
    cluster = make(controllers=families, brokers=f"{families}, {exposed}")
    context, desired = cluster.context, cluster.desired
    found = [
        headless_service(context, desired, "quorum", Role.CONTROLLER),
        headless_service(context, desired, "brokers", Role.BROKER),
        bootstrap_service(context, desired, "brokers"),
        *exposures(context, cluster.node(0)),
    ]
    for service in found:
        assert service is not None
        assert service["spec"]["ipFamilyPolicy"] == "RequireDualStack"
        assert service["spec"]["ipFamilies"] == ["IPv6", "IPv4"]
    single = exposed.replace("NodePort", "NodePort, ipFamilyPolicy: SingleStack")
    own = make(brokers=f"{families}, {single}")
    (service,) = exposures(own.context, own.node(0))
    assert (service["spec"]["ipFamilyPolicy"], "ipFamilies" in service["spec"]) == ("SingleStack", False)


def test_the_order_of_a_balancers_entries_does_not_matter() -> None:
    """Each order would be another address, and another restart."""
    four, six = {"ip": "203.0.113.7"}, {"ip": "2001:db8::7", "ipMode": "VIP"}
    for families, expected in ((("IPv4", "IPv6"), "203.0.113.7"), (("IPv6", "IPv4"), "2001:db8::7")):
        assert balancer_host(given(four, six, families=families)) == expected
        assert balancer_host(given(six, four, families=families)) == expected
    assert balancer_host(given({"ip": "203.0.113.8"}, four)) == balancer_host(
        given(four, {"ip": "203.0.113.8"})
    )
    assert balancer_host(given(four, {"hostname": "lb.example.com"})) == "lb.example.com"


def test_an_advertised_address_stays_while_the_balancer_has_it() -> None:
    four, six = {"ip": "203.0.113.7"}, {"ip": "2001:db8::7"}
    assert balancer_host(given(four, six), ["2001:db8::7"]) == "2001:db8::7"
    assert balancer_host(given(four), ["2001:db8::7"]) == "203.0.113.7"


@pytest.mark.parametrize(
    "service", [{}, given(), given({"ipMode": "Proxy"}), given({"hostname": "", "ip": ""}), {"status": {}}]
)
def test_a_balancer_may_have_no_address(service: dict[str, Any]) -> None:
    assert balancer_host(service) is None
    assert node_port(service, "OUT") is None


def test_a_node_port_is_that_of_its_listener() -> None:
    ports = [{"name": "health", "nodePort": 30001}, {"name": "out-side", "nodePort": 30002}]
    assert node_port({"spec": {"ports": ports}}, "OUT_SIDE") == 30002


def test_a_machine_is_reached_by_the_family_of_the_service() -> None:
    both = ("10.0.0.7", "2001:db8::7")
    assert host_address(both, given(families=("IPv6",))) == "2001:db8::7"
    assert host_address(both, given()) == "10.0.0.7"
    assert host_address(both, {}) == "10.0.0.7"
    assert host_address((), given()) is None


def test_what_kubernetes_has_not_assigned_is_known(make: Make) -> None:
    cluster = make(brokers=BALANCERS, requested_ms={OUT_OF_1: 5})
    assert cluster.node(1).unassigned == {
        "OUT": Unassigned("an address of the load balancer brokers-1-out", 5)
    }
    assert make(brokers=BALANCERS, load_balancers={OUT_OF_1: "203.0.113.1"}).node(1).unassigned == {}
    named = BALANCERS.replace("port: 9094,", "port: 9094, advertisedHost: 'b{nodeId}.example.com',")
    assert make(brokers=named).node(1).unassigned == {}
    missing = make(brokers=NODE_PORTS, host_ips={1: "10.0.0.7"}).node(1).unassigned
    assert missing == {"OUT": Unassigned("a node port of the Service brokers-1-out", None)}
    new = make(brokers=NODE_PORTS, node_ports={OUT_OF_1: 30001}).node(1)
    assert new.unassigned == {}, "the machine of a pod is known once the pod is there"


@pytest.mark.parametrize(
    ("exposure", "expected"),
    [
        (
            "type: Internal, externalTrafficPolicy: Local",
            "is allowed with type LoadBalancer and NodePort only",
        ),
        ("type: NodePort, ipFamilyPolicy: SingleStack, ipFamilies: [IPv4, IPv6]", "has one entry with"),
        ("type: NodePort, ipFamilies: [IPv4, IPv4]", "each value may appear once"),
        ("type: NodePort, nodes: [{nodeId: 0, loadBalancerIP: 10.0.0.1}]", "type LoadBalancer only"),
        ("type: NodePort, nodes: [{nodeId: 0, externalIPs: [10.0.0]}]", "must be an IPv4 or IPv6 address"),
        ("type: NodePort, nodes: [{nodeId: 0}, {nodeId: 0}]", "each nodeId may appear once, got 0, 0"),
        (
            "type: NodePort, bootstrap: {nodePort: 30000}, nodes: [{nodeId: 0, nodePort: 30000}]",
            "nodePort 30000 is set more than once",
        ),
        ("type: Ingress, bootstrap: {}", "bootstrap: is allowed with type LoadBalancer and NodePort only"),
        ("type: NodePort, verification: Maybe", "must be 'Probe', 'DNS' or 'None'"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(exposure: str, expected: str) -> None:
    listener = f"{{name: A, exposure: {{{exposure}}}}}"
    text = (
        "apiVersion: quorate.dev/v1alpha1\nkind: KafkaController\nmetadata: {name: q}\nspec: {}\n---\n"
        "apiVersion: quorate.dev/v1alpha1\nkind: KafkaBroker\nmetadata: {name: b}\n"
        f"spec: {{controllers: q, listeners: [{listener}]}}\n"
    )
    assert expected in manifest_fault(text)
