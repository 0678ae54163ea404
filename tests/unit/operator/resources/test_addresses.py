"""Listening and advertised addresses in Kubernetes, and the names that Quorate can publish."""

import pytest
from kit.desired_cluster import Make
from quorate_operator.models.hosts import TemplateError
from quorate_operator.planning.cluster import Address
from quorate_operator.resources.facts import ListenerOf
from quorate_operator.resources.pod_addresses import listener_port, published_name

OWN = Address("brokers-1.brokers.kafka.svc", 9092)


def test_without_a_template_a_pod_is_known_by_its_own_name(make: Make) -> None:
    cluster = make()
    assert cluster.node(3001).advertised == {"CONTROLLER": Address("quorum-3001.quorum.kafka.svc", 9093)}
    assert cluster.node(1).advertised == {"PLAINTEXT": OWN}
    assert (cluster.node(1).controlled, cluster.node(1).interim) == (frozenset(), {})


def test_a_name_of_the_namespace_is_a_service_of_ours(make: Make) -> None:
    for host, is_ours in (
        ("b{nodeId}.kafka.svc", True),
        ("B{nodeId}.kafka.svc.cluster.local", True),
        ("b{nodeId}.other.svc", False),
        ("b{nodeId}.kafka.example.com", False),
        ("b.{nodeId}.kafka.svc", False),
        ("{nodeId}b.kafka.svc", False),
    ):
        node = make(brokers=f"listeners: [{{name: A, advertisedHost: '{host}'}}]").node(1)
        assert node.advertised["A"].host == host.replace("{nodeId}", "1").lower()
        assert (node.advertised["A"] in node.controlled) == is_ours, host


def test_names_of_other_services_are_not_taken(make: Make) -> None:
    context = make(brokers="listeners: [{name: A}, {name: OUT_SIDE, exposure: {type: LoadBalancer}}]").context
    assert published_name(context, "brokers.kafka.svc") is None
    assert published_name(context, "quorum.kafka.svc") is None
    assert published_name(context, "brokers-0-out-side.kafka.svc") is None
    assert published_name(context, "brokers-0-out.kafka.svc.") == "brokers-0-out"


def test_the_way_aside_is_the_pods_own_name(make: Make) -> None:
    inside = make(controllers="advertisedHost: 'c{offset}.kafka.svc'").node(3001)
    assert inside.interim == {"CONTROLLER": Address("quorum-3001.quorum.kafka.svc", 9093)}
    outside = make(brokers="listeners: [{name: A, advertisedHost: 'b{nodeId}.example.com'}]").node(1)
    assert outside.interim == {}
    written = make(
        brokers="listeners: [{name: A, advertisedHost: 'b{nodeId}.x', interimHost: 'i{nodeId}.kafka.svc'}]"
    ).node(1)
    assert written.interim == {"A": Address("i1.kafka.svc", 9092)}
    assert written.controlled == frozenset(written.interim.values())


def test_a_load_balancer_is_waited_for_and_missed_without_a_restart(make: Make) -> None:
    spec = "listeners: [{name: A, advertisedPort: 443, exposure: {type: LoadBalancer}}]"
    key, found = ListenerOf(1, "A"), Address("lb.example.com", 443)
    assert make(brokers=spec).node(1).advertised == {"A": OWN}
    there = make(brokers=spec, load_balancers={key: "lb.example.com"}).node(1)
    assert there.advertised == {"A": found}
    assert there.controlled == frozenset()
    assert make(brokers=spec, configured={1: {"A": found}}).node(1).advertised == {"A": found}


def test_a_node_port_leads_to_the_pods_machine(make: Make) -> None:
    spec = "listeners: [{name: A, exposure: {type: NodePort}}]"
    known = {"host_ips": {1: "10.0.0.7"}, "node_ports": {ListenerOf(1, "A"): 30123}}
    assert make(brokers=spec, **known).node(1).advertised == {"A": Address("10.0.0.7", 30123)}
    assert make(brokers=spec, host_ips={1: "10.0.0.7"}).node(1).advertised == {"A": OWN}
    named = spec.replace("name: A,", "name: A, advertisedHost: gate.example.com,")
    assert make(brokers=named, **known).node(1).advertised == {"A": Address("gate.example.com", 30123)}


def test_ports_are_distinct_and_stay(make: Make) -> None:
    node = make(
        brokers="listeners: [{name: A}, {name: B, port: 9094}, {name: C}, {name: D, port: 9092}]"
    ).node(0)
    assert [listener_port(node, listener) for listener in node.listeners] == [9095, 9094, 9096, 9092]


def test_a_host_that_is_none_is_told_with_its_field(make: Make) -> None:
    label = "x" * 63
    with pytest.raises(
        TemplateError, match=r"^KafkaBroker brokers: spec.listeners\[A\].advertisedHost: 'x{63}\{nodeId\}"
    ):
        make(brokers=f"listeners: [{{name: A, advertisedHost: '{label}{{nodeId}}.example.com'}}]")
