"""By which addresses clients begin: the Service of a pool, and its listeners in the status."""

import pytest
from kit.desired_cluster import Make
from quorate_operator.models.secrets import Secret
from quorate_operator.models.status import AUTHORITIES_LENGTH_MAX, ListenerStatus
from quorate_operator.planning.cluster import Address
from quorate_operator.resources.exposures import exposures
from quorate_operator.resources.services import bootstrap_service, listener_statuses

LISTENERS = (
    "listeners: [{name: IN}, {name: LB, protocol: SSL, tls: {secretName: cert}, exposure: {type: LoadBalancer, "
    "loadBalancerClass: example.com/internal, sourceRanges: [10.0.0.0/8]}}]"
)
REGISTERED = {
    2: {"IN": Address("b2", 9092), "LB": Address("203.0.113.2", 9094)},
    1: {"IN": Address("b1", 9092), "LB": Address("203.0.113.1", 9094)},
}


def test_a_pool_has_a_service_for_clients_that_begin(make: Make) -> None:
    cluster = make(brokers=LISTENERS)
    service = bootstrap_service(cluster.context, cluster.desired, "brokers")
    assert service is not None
    assert service["metadata"]["name"] == "brokers-bootstrap"
    assert [(port["name"], port["port"]) for port in service["spec"]["ports"]] == [("in", 9092), ("lb", 9094)]
    assert service["spec"]["selector"]["quorate.dev/pool"] == "brokers"
    assert "quorate.dev/node-id" not in service["spec"]["selector"]


def test_a_pool_without_brokers_has_none(make: Make) -> None:
    cluster = make(brokers="replicas: 0")
    assert bootstrap_service(cluster.context, cluster.desired, "brokers") is None
    for pool in ("brokers", "refused"):
        assert listener_statuses(cluster.context, cluster.desired, pool, {}) == ()


def test_the_status_tells_where_clients_begin(make: Make) -> None:
    cluster = make(
        brokers=LISTENERS, secrets={"cert": Secret(values={"ca.crt": "the CA", "tls.key": "hidden"})}
    )
    assert listener_statuses(cluster.context, cluster.desired, "brokers", REGISTERED) == (
        ListenerStatus(
            name="IN",
            protocol="PLAINTEXT",
            type="Internal",
            bootstrap_servers="brokers-bootstrap.kafka.svc:9092",
            addresses=("b1:9092", "b2:9092"),
        ),
        ListenerStatus(
            name="LB",
            protocol="SSL",
            type="LoadBalancer",
            bootstrap_servers="203.0.113.1:9094,203.0.113.2:9094",
            addresses=("203.0.113.1:9094", "203.0.113.2:9094"),
            authorities="the CA",
        ),
    )


@pytest.mark.parametrize("values", [{}, {"ca.crt": "x" * (AUTHORITIES_LENGTH_MAX + 1)}])
def test_authorities_that_are_missing_or_too_long_are_left_out(make: Make, values: dict[str, str]) -> None:
    cluster = make(brokers=LISTENERS, secrets={"cert": Secret(values=values)})
    statuses = listener_statuses(cluster.context, cluster.desired, "brokers", {})
    assert [(status.bootstrap_servers, status.authorities) for status in statuses] == [
        ("brokers-bootstrap.kafka.svc:9092", None),
        (None, None),
    ]


def test_balancers_have_their_class_and_ranges(make: Make) -> None:
    cluster = make(brokers=LISTENERS)
    (balancer,) = exposures(cluster.context, cluster.node(1))
    assert balancer["spec"]["loadBalancerClass"] == "example.com/internal"
    assert balancer["spec"]["loadBalancerSourceRanges"] == ["10.0.0.0/8"]
