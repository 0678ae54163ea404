"""Certificates of cert-manager: what is requested, and what is reported until they are issued."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from kit.desired_cluster import Make
from quorate_operator.models.secrets import Secret
from quorate_operator.planning.cluster import Address, Role
from quorate_operator.planning.steps import Plan, StartNode, StopNode, WaitFor
from quorate_operator.resources.authority import Names, Validity, issue, new_authorities
from quorate_operator.resources.certificates import certificates, why_not_issued
from quorate_operator.resources.facts import ListenerOf
from quorate_operator.resources.issued_certificates import carrying, certificate_requests
from quorate_operator.resources.secrets import with_secrets

ISSUED = "protocol: SSL, tls: {issuerRef: {name: ca}}"
NAME = "brokers-out-tls"
SECRET = {NAME: Secret(values={"tls.crt": "c", "tls.key": "k"})}
STOP = StopNode(node_id=0, grace_ms=1, reason="config")
START = StartNode(node_id=0, reason="it was stopped for a restart")


def listeners(more: str = "", tls: str = ISSUED) -> str:
    """A pool of one broker whose second listener has an issued certificate."""
    return f"replicas: 1, listeners: [{{name: IN}}, {{name: OUT, {tls}{more}}}]"


def condition(kind: str, status: str, reason: str, message: str = "") -> dict[str, Any]:
    return {"type": kind, "status": status, "reason": reason, "message": message}


def test_a_certificate_is_asked_for_in_the_form_that_kafka_reads(make: Make) -> None:
    tls = "{issuerRef: {name: ca, kind: ClusterIssuer}, duration: 90d, renewBefore: 150m}"
    cluster = make(f"listeners: [{{name: CONTROLLER, protocol: SSL, tls: {tls}}}]")
    (certificate,) = certificates(cluster.context, cluster.desired)
    assert (certificate["apiVersion"], certificate["kind"]) == ("cert-manager.io/v1", "Certificate")
    assert certificate["metadata"]["name"] == "quorum-controller-tls"
    assert certificate["metadata"]["labels"]["quorate.dev/pool"] == "quorum"
    assert certificate["spec"] == {
        "secretName": "quorum-controller-tls",
        "issuerRef": {"name": "ca", "kind": "ClusterIssuer", "group": "cert-manager.io"},
        "commonName": "quorum",
        "dnsNames": ["*.quorum.kafka.svc"],
        "usages": ["digital signature", "key encipherment", "server auth", "client auth"],
        "privateKey": {"encoding": "PKCS8", "rotationPolicy": "Always"},
        "duration": "2160h0m0s",
        "renewBefore": "2h30m0s",
    }


def test_certificates_have_the_names_by_which_clients_connect(make: Make) -> None:
    pool = listeners(", advertisedHost: 'b{nodeId}.example.com', interimHost: 'i{nodeId}.example.com'")
    running = {0: {"OUT": Address("old.example.com", 9094), "IN": Address("10.0.0.1", 9092)}}
    cluster = make(brokers=pool, configured=running)
    (certificate,) = certificates(cluster.context, cluster.desired)
    assert certificate["spec"]["dnsNames"] == [
        "*.brokers.kafka.svc",
        "b0.example.com",
        "brokers-bootstrap.kafka.svc",
        "i0.example.com",
        "old.example.com",
    ]
    assert "ipAddresses" not in certificate["spec"]
    balanced = make(
        brokers=listeners(", exposure: {type: LoadBalancer}"),
        load_balancers={ListenerOf(0, "OUT"): "203.0.113.9"},
    )
    (certificate,) = certificates(balanced.context, balanced.desired)
    assert certificate["spec"]["ipAddresses"] == ["203.0.113.9"]


def test_a_listener_with_a_secret_has_no_certificate(make: Make) -> None:
    cluster = make(brokers=listeners(tls="protocol: SSL, tls: {secretName: own}"))
    assert certificates(cluster.context, cluster.desired) == ()


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ([], "cert-manager has not processed it yet: is it running?"),
        ([condition("Ready", "False", "DoesNotExist", "Issuing certificate")], "Issuing certificate"),
        ([condition("Ready", "False", "DoesNotExist")], "DoesNotExist"),
        (
            [
                condition("Ready", "False", "DoesNotExist", "Issuing certificate"),
                condition("Issuing", "False", "Failed", "the CertificateRequest was denied"),
            ],
            "the CertificateRequest was denied",
        ),
        ([condition("Ready", "True", "Ready"), condition("Issuing", "True", "Renewing", "soon")], None),
    ],
)
def test_why_a_certificate_is_not_issued(conditions: list[dict[str, Any]], expected: str | None) -> None:
    assert why_not_issued({"status": {"conditions": conditions}}) == expected
    assert why_not_issued({}) == "cert-manager has not processed it yet: is it running?"


@pytest.mark.parametrize(
    ("secrets", "state", "kept", "expected"),
    [
        ({}, {}, [WaitFor], "cert-manager does not know it yet"),
        ({}, {NAME: "the issuer ca does not exist"}, [WaitFor], "the issuer ca does not exist"),
        (SECRET, {NAME: "it expired"}, [StartNode, WaitFor], "it expired"),
    ],
)
def test_a_node_waits_for_its_certificate(
    make: Make, secrets: dict[str, Secret], state: dict[str, str | None], kept: list[type], expected: str
) -> None:
    """No start without a certificate; with a former one a node that died comes back, and none is stopped."""
    cluster = make(brokers=listeners(), secrets=secrets, certificates=state)
    plan = with_secrets(Plan(steps=(STOP, START)), cluster.context, cluster.desired)
    assert [type(step) for step in plan.steps] == kept
    (refusal,) = plan.refusals
    assert (refusal.code, refusal.pool) == ("CertificateNotIssued", "brokers")
    where = "KafkaBroker brokers: spec.listeners[1].tls.issuerRef: the Certificate brokers-out-tls is not issued: "
    assert refusal.message == f"{where}{expected}"


def test_an_issued_certificate_holds_nobody(make: Make) -> None:
    whole = make(brokers=listeners(), secrets=SECRET, certificates={NAME: None})
    plan = Plan(steps=(STOP, START))
    assert with_secrets(plan, whole.context, whole.desired) == plan
    lacks = {NAME: Secret(values={"tls.crt": "c"})}
    broken = make(brokers=listeners(), secrets=lacks, certificates={NAME: None})
    (refusal,) = with_secrets(plan, broken.context, broken.desired).refusals
    assert (refusal.code, "the Secret has no tls.key" in refusal.message) == ("SecretMissing", True)


OWN = "protocol: SSL"


def test_a_certificate_of_the_cluster_is_waited_for_without_a_refusal(make: Make) -> None:
    """The operator is about to write it; a reason why it can't is reported."""
    plan = Plan(steps=(STOP, START))
    cluster = make(brokers=listeners(tls=OWN))
    early = with_secrets(plan, cluster.context, cluster.desired)
    assert ([type(step) for step in early.steps], early.refusals) == ([WaitFor], ())
    refused = make(brokers=listeners(tls=OWN), unissued={NAME: "the reason"})
    (refusal,) = with_secrets(plan, refused.context, refused.desired).refusals
    assert (refusal.code, refusal.pool) == ("CertificateNotIssued", "brokers")
    where = "KafkaBroker brokers: spec.listeners[1].tls: the certificate brokers-out-tls is not issued: "
    assert refusal.message == f"{where}the reason"
    issued = make(brokers=listeners(tls=OWN), secrets=SECRET)
    assert with_secrets(plan, issued.context, issued.desired) == plan


def test_a_certificate_of_the_cluster_has_the_names_of_one_of_cert_manager(make: Make) -> None:
    more = ", advertisedHost: 'b{nodeId}.example.com', exposure: {type: Ingress, bootstrapHost: kafka.example.com}"
    asked = make(brokers=listeners(more, tls=ISSUED))
    own = make(brokers=listeners(more, tls="protocol: SSL, tls: {duration: 48h, renewBefore: 1h}"))
    (certificate,) = certificates(asked.context, asked.desired)
    (request,) = certificate_requests(own.context, own.desired)
    assert request.secret == certificate["spec"]["secretName"]
    assert request.names.common_name == certificate["spec"]["commonName"]
    assert list(request.names.hosts) == certificate["spec"]["dnsNames"]
    assert request.validity == Validity(duration=timedelta(hours=48), renew_before=timedelta(hours=1))
    assert certificates(own.context, own.desired) == ()
    assert certificate_requests(asked.context, asked.desired) == ()


def test_nodes_must_trust_the_certificates_of_the_listeners_by_which_they_connect(make: Make) -> None:
    pool = "replicas: 1, listeners: [{name: IN, protocol: SSL}, {name: OUT, protocol: SSL}]"
    cluster = make("listeners: [{name: CONTROLLER, protocol: SSL}]", pool)
    requests = certificate_requests(cluster.context, cluster.desired)
    assert {request.secret: set(request.clients) for request in requests} == {
        "quorum-controller-tls": {Role.CONTROLLER, Role.BROKER},
        "brokers-in-tls": {Role.BROKER},
        "brokers-out-tls": set(),
    }


def test_what_a_pod_carries_is_part_of_its_revision(make: Make) -> None:
    """Of nodes that use no such certificate, nothing changes."""
    authorities = new_authorities("quorum", datetime.now(UTC))
    pair = issue(authorities, Names(common_name="brokers", hosts=("a",)), datetime.now(UTC))
    values = {"tls.crt": pair.certificate, "tls.key": pair.key, "ca.crt": authorities.trusted}
    cluster = make(brokers=listeners(tls=OWN), secrets={NAME: Secret(values=values)})
    fingerprint = authorities.signing.fingerprint
    record = cluster.node(0).revision["authorities"]
    assert record == f"trusts {fingerprint}; shows {fingerprint}"
    assert "authorities" not in cluster.node(3000).revision
    pods = {0: ("brokers", Role.BROKER, {"authorities": record}), 3000: ("quorum", Role.CONTROLLER, {})}
    (carried,) = carrying(cluster.context, cluster.desired, pods)
    assert (carried.label, carried.trusted, carried.shown) == ("brokers-0", {fingerprint}, {fingerprint})
    gone = make(brokers=listeners(tls=OWN), revisions={0: {"authorities": record}})
    assert gone.node(0).revision["authorities"] == record, "a running node keeps what it carries"
