"""A KafkaUser whose certificate an issuer of cert-manager signs, under a real operator and on a stock broker."""

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message, Producer
from kit.api_requests import CERT_MANAGER
from kit.kubernetes_parts import install_definitions
from kit.operators.cert_manager import Issuer
from kit.operators.operated import SMALL_FILES, Operated
from kit.operators.resources import InClusters
from kit.waiting import eventually

CLIENTS_PORT = 9094
BROKERS_TIMEOUT_S = 240
RESPONSE_TIMEOUT_S = 30
USER, TOPIC, OTHER_TOPIC = "orders-service", "orders", "payments"
WRITE = {"resource": {"type": "Topic", "name": TOPIC}, "operations": ["Write", "Create"]}
FAULT = "the CertificateRequest was denied: no such issuer"


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("without_cert_manager")
def test_a_user_logs_in_with_the_certificate_that_is_issued(brokered: Operated, tmp_path: Path) -> None:
    """A user with an issuer is ready when its certificate can be used, and says what it waits for until then."""
    operated = brokered
    issuer = Issuer(operated, USER, tmp_path / "issuer", f"IP:{operated.network}.110")
    with_clients_of(operated, issuer)
    users = InClusters(operated, "KafkaUser")
    authentication: dict[str, Any] = {"type": "tls", "issuerRef": {"name": "ca"}, "duration": "48h"}
    users.create(USER, authentication=authentication, acls=[WRITE])
    operated.start_operator("--no-leader-election", "--drift-interval=2")

    def wait_ready(*words: str) -> None:
        operated.wait(
            lambda: all(word in f"{users.condition(USER, 'Ready')}" for word in words),
            f"Ready of the user to have {words}",
            BROKERS_TIMEOUT_S,
        )

    wait_ready(
        "CertManagerMissing",
        "'ca': this Kubernetes has no cert-manager.io/v1 Certificate: install cert-manager",
    )
    install_definitions(operated.core.api_client, [CERT_MANAGER])
    wait_ready("Waiting", f"the certificate of CN={USER}: cert-manager has not processed it yet")
    issuer.set_conditions(
        ("Ready", "False", "DoesNotExist", "Issuing"), ("Issuing", "False", "Failed", FAULT)
    )
    wait_ready("Waiting", FAULT)
    certificate = issuer.certificate() or {}
    (owner,) = certificate["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"]) == ("KafkaUser", USER)
    assert certificate["spec"]["usages"] == ["digital signature", "key encipherment", "client auth"]
    pem = issuer.issue(certificate["spec"])
    wait_ready("AsDesired", "True")
    assert users.status(USER)["secretName"] == USER

    clients = Clients(f"{operated.network}.110:{CLIENTS_PORT}", issuer.made.authority, pem)
    clients.await_error_code(KafkaError.NO_ERROR, TOPIC)
    clients.await_error_code(KafkaError.TOPIC_AUTHORIZATION_FAILED, OTHER_TOPIC)

    users.patch(USER, authentication={"duration": "24h"})
    operated.wait(lambda: (issuer.certificate() or {})["spec"]["duration"] == "24h0m0s", "the other duration")
    wait_ready("AsDesired", "True")
    users.delete(USER)
    operated.wait(lambda: users.read(USER) is None, "the resource to go")
    clients.await_error_code(KafkaError.TOPIC_AUTHORIZATION_FAILED, TOPIC)
    assert not operated.operators[-1].errors()


class Clients:
    """Clients that show a certificate."""

    def __init__(self, servers: str, authority: Path, pem: Path) -> None:
        self._settings = {
            "bootstrap.servers": servers,
            "security.protocol": "SSL",
            "ssl.ca.location": f"{authority}",
            "ssl.certificate.location": f"{pem}",
            "ssl.key.location": f"{pem}",
            "log_level": 0,
        }

    def await_error_code(self, expected: int, topic: str) -> None:
        """Brokers learn of changes a moment after the controllers."""
        seen: list[int] = []

        def is_so() -> bool:
            seen.append(self._produce(topic))
            return seen[-1] == expected

        eventually(is_so, RESPONSE_TIMEOUT_S, f"the error code {expected} for {topic}", lambda: f"{seen}")

    def _produce(self, topic: str) -> int:
        """The error code of one record."""
        codes: list[int] = []

        def delivered(error: KafkaError | None, _: Message) -> None:
            codes.append(KafkaError.NO_ERROR if error is None else error.code())

        producer = Producer(self._settings)
        producer.produce(topic, b"1", on_delivery=delivered)

        def is_delivered() -> bool:
            producer.poll(0.1)
            return bool(codes)

        eventually(is_delivered, RESPONSE_TIMEOUT_S, "a response")
        return codes[0]


def with_clients_of(operated: Operated, issuer: Issuer) -> None:
    """A cluster with an authorizer, whose broker has a listener that requires the issuer's certificates."""
    key, mark, chain = issuer.made.server.read_text().partition("-----BEGIN CERTIFICATE-----")
    texts = {"tls.crt": mark + chain, "tls.key": key, "ca.crt": issuer.made.authority.read_text()}
    operated.put_secret("cert", texts)
    operated.create(replicas=1, authorization={"superUsers": ["User:ANONYMOUS"]})
    clients = {
        **operated.internal_listener(),
        "name": "CLIENTS",
        "port": CLIENTS_PORT,
        "protocol": "SSL",
        "tls": {"secretName": "cert", "clientAuth": "required"},
    }
    operated.create_brokers(
        listeners=[operated.internal_listener(), clients],
        config={**SMALL_FILES, "auto.create.topics.enable": "true"},
    )
