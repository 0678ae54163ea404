"""Configurations, objects and records of nodes that move from one listener to another."""

from dataclasses import replace

from kit.desired_cluster import Cluster, Make, changed_parts
from quorate_operator.models.started_listeners import StartedListeners, StartedNode, with_listeners_in_use
from quorate_operator.planning.cluster import Role
from quorate_operator.planning.listeners import relisted
from quorate_operator.resources.completion import complete
from quorate_operator.resources.configs import config_map
from quorate_operator.resources.facts import Context
from quorate_operator.resources.issued_certificates import carrying, certificate_requests
from quorate_operator.resources.names import ANNOTATION_LISTENERS
from quorate_operator.resources.pod_addresses import with_ports
from quorate_operator.resources.protection import controllers_policy
from quorate_operator.resources.services import headless_service
from quorate_operator.runtime.kubernetes.observation import NodeObjects, listeners_of, observed_node
from quorate_protocol.properties import parse_properties

OLD, NEW = "{name: CONTROLLER}", "{name: SECURED, protocol: SSL, tls: {clientAuth: requested}}"
PLAIN, TLS = "{name: PLAINTEXT}", "{name: TLS, protocol: SSL}"


def properties(cluster: Cluster, node_id: int) -> dict[str, str]:
    config = config_map(cluster.context, cluster.desired, cluster.node(node_id), {})
    return dict(parse_properties(config["data"]["server.properties"]))


def started(cluster: Cluster, node_id: int, *, has_record: bool = True) -> StartedListeners:
    """What is observed of a node that was started with the configuration of a cluster."""
    node = cluster.node(node_id)
    config = config_map(cluster.context, cluster.desired, node, {})
    if not has_record:
        del config["metadata"]["annotations"][ANNOTATION_LISTENERS]
    found = listeners_of(NodeObjects(node_id=node_id, role=node.role, pool=node.pool, config=config))
    assert found is not None
    return found


def moving(make: Make, before: Cluster, controllers: str, brokers: str, *, is_staged: bool) -> Cluster:
    """The cluster of edited manifests, while nodes run as before; if staged, they connect by the former listeners."""
    made = make(f"listeners: [{controllers}]", f"listeners: [{brokers}]")
    nodes = [
        StartedNode(pool=node.pool, listeners=started(before, node.node_id), is_running=True)
        for node in before.desired.nodes
    ]
    manifests = with_ports(with_listeners_in_use(made.context.manifests, nodes, "m.yaml"))
    facts = replace(
        made.context.facts,
        listeners={node.node_id: started(before, node.node_id) for node in before.desired.nodes},
    )
    desired = relisted(made.desired, manifests)
    if is_staged:
        staged = [
            replace(
                node,
                listeners=tuple(sorted(node.listeners, key=lambda own: own.protocol != "PLAINTEXT")),
                controllers_listener="CONTROLLER",
            )
            for node in desired.nodes
        ]
        desired = replace(desired, nodes=tuple(staged))
    return Cluster(Context(manifests=manifests, facts=facts), complete(desired, manifests, facts))


def test_a_controller_serves_both_listeners_and_connects_by_the_first(make: Make) -> None:
    before = make()
    cluster = moving(make, before, f"{NEW}, {OLD}", f"{TLS}, {PLAIN}", is_staged=True)
    found = properties(cluster, 3000)
    assert found["controller.listener.names"] == "CONTROLLER,SECURED"
    assert found["listeners"] == "CONTROLLER://:9093,SECURED://:9094"
    assert found["listener.security.protocol.map"] == "CONTROLLER:PLAINTEXT,SECURED:SSL"
    assert ":9093" in found["controller.quorum.bootstrap.servers"]
    assert "listener.name.secured.ssl.keystore.key" in found
    moved = properties(moving(make, before, f"{NEW}, {OLD}", f"{TLS}, {PLAIN}", is_staged=False), 3000)
    assert moved["controller.listener.names"] == "SECURED,CONTROLLER"
    assert moved["listeners"] == "SECURED://:9094,CONTROLLER://:9093"
    assert ":9093" not in moved["controller.quorum.bootstrap.servers"]
    assert changed_parts(before.node(3000), cluster.node(3000)) >= {"config"}


def test_a_broker_connects_to_each_role_by_one_listener(make: Make) -> None:
    before = make()
    found = properties(moving(make, before, f"{NEW}, {OLD}", f"{TLS}, {PLAIN}", is_staged=True), 0)
    assert found["inter.broker.listener.name"] == "PLAINTEXT"
    assert found["controller.listener.names"] == "CONTROLLER"
    assert found["listener.security.protocol.map"] == "PLAINTEXT:PLAINTEXT,TLS:SSL,CONTROLLER:PLAINTEXT"
    assert found["listeners"] == "PLAINTEXT://:9092,TLS://:9094"
    moved = properties(moving(make, before, f"{NEW}, {OLD}", f"{TLS}, {PLAIN}", is_staged=False), 0)
    assert moved["inter.broker.listener.name"] == "TLS"
    assert moved["controller.listener.names"] == "SECURED"
    assert moved["listeners"] == "TLS://:9094,PLAINTEXT://:9092"
    assert "listener.name.secured.ssl.keystore.key" in moved, "controllers may ask for it"


def test_a_removed_listener_in_use_keeps_its_port_its_policy_and_its_service(make: Make) -> None:
    cluster = moving(make, make(), NEW, TLS, is_staged=True)
    assert [listener.name for listener in cluster.node(3000).listeners] == ["CONTROLLER", "SECURED"]
    assert properties(cluster, 0)["listeners"] == "PLAINTEXT://:9092,TLS://:9094"
    *members, _ = controllers_policy(cluster.context, cluster.desired)["spec"]["ingress"]
    assert [port["port"] for rule in members for port in rule["ports"]] == [9094, 9093]
    service = headless_service(cluster.context, cluster.desired, "quorum", Role.CONTROLLER)
    assert {port["name"]: port["port"] for port in service["spec"]["ports"]} == {
        "controller": 9093,
        "secured": 9094,
        "http": 9404,
    }


def test_a_listener_keeps_its_port_when_the_former_one_is_gone(make: Make) -> None:
    both = moving(make, make(), f"{NEW}, {OLD}", f"{TLS}, {PLAIN}", is_staged=False)
    after = moving(make, both, NEW, TLS, is_staged=False)
    assert properties(after, 3000)["listeners"] == "SECURED://:9094"
    assert properties(after, 0)["listeners"] == "TLS://:9094"


def test_what_a_node_was_started_with_is_read_back(make: Make) -> None:
    both = moving(make, make(), f"{NEW}, {OLD}", f"{TLS}, {PLAIN}", is_staged=False)
    for has_record in (True, False):
        controller = started(both, 3000, has_record=has_record)
        assert [(own.name, own.protocol, own.port) for own in controller.own] == [
            ("SECURED", "SSL", 9094),
            ("CONTROLLER", "PLAINTEXT", 9093),
        ]
        broker = started(both, 0, has_record=has_record)
        assert [own.name for own in broker.own] == ["TLS", "PLAINTEXT"]
        assert broker.controllers == "SECURED"
    for text in ("", "[]", "{}", "{", "controller.listener.names=A"):
        config = {
            "metadata": {"annotations": {ANNOTATION_LISTENERS: text}},
            "data": {"server.properties": text},
        }
        node = NodeObjects(node_id=0, role=Role.BROKER, pool="brokers", config=config)
        assert observed_node(node).listeners is None


def test_a_node_restarts_for_no_listener_that_stays(make: Make) -> None:
    before = make()
    same = moving(make, before, OLD, PLAIN, is_staged=False)
    for node_id in (3000, 0):
        assert changed_parts(before.node(node_id), same.node(node_id)) == set()


def test_certificates_of_a_listener_that_no_node_uses_need_no_trust(make: Make) -> None:
    """ADR 54: a node trusts them when it begins to connect by the listener."""
    pods = {3000: ("quorum", Role.CONTROLLER, {}), 0: ("brokers", Role.BROKER, {})}
    staged = moving(make, make(), f"{NEW}, {OLD}", f"{TLS}, {PLAIN}", is_staged=True)
    secrets = {request.secret for request in certificate_requests(staged.context, staged.desired)}
    assert secrets == {"quorum-secured-tls", "brokers-tls-tls"}
    for carried in carrying(staged.context, staged.desired, pods):
        assert carried.unused == secrets
    moved = moving(make, moving(make, make(), NEW, TLS, is_staged=False), NEW, TLS, is_staged=False)
    unused = {carried.label: carried.unused for carried in carrying(moved.context, moved.desired, pods)}
    assert unused == {"quorum-3000": {"brokers-tls-tls"}, "brokers-0": frozenset()}


def test_a_listener_between_brokers_needs_their_trust_at_any_place(make: Make) -> None:
    before = make(brokers=f"listeners: [{TLS}]")
    cluster = moving(make, before, OLD, f"{PLAIN}, {TLS}", is_staged=False)
    (request,) = certificate_requests(cluster.context, cluster.desired)
    assert request.clients == {Role.BROKER}
