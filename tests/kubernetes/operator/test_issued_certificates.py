"""Certificates of cert-manager under a real operator: the test plays cert-manager and its issuer."""

from pathlib import Path
from typing import Any

import pytest
from kit.api_requests import CERT_MANAGER
from kit.kubernetes_parts import install_definitions
from kit.operators.cert_manager import Issuer
from kit.operators.operated import CONTROLLERS_FIRST, QUORUM, Operated

NAME = f"{QUORUM}-controller-tls"
# The operator looks for cert-manager every half a minute.
FOUND_TIMEOUT_S = 120
FAULT = "the CertificateRequest was denied: no such issuer"


def not_issued(operated: Operated) -> str:
    """The status while Certificates are not issued."""
    refusals = operated.status().get("refusals") or ()
    return "".join(refusal["message"] for refusal in refusals if refusal["code"] == "CertificateNotIssued")


@pytest.mark.usefixtures("without_cert_manager")
def test_a_quorum_gets_its_certificates_from_an_issuer(operated: Operated, tmp_path: Path) -> None:
    """A quorum that names an issuer forms with the certificate that it asks for, and says what it waits for."""
    tls: dict[str, Any] = {"issuerRef": {"name": "ca"}, "duration": "48h"}
    listener = {"name": "CONTROLLER", "port": operated.port, "protocol": "SSL"}
    operated.create(replicas=1, listeners=[{**listener, "tls": tls}])
    operator = operated.start_operator()
    operated.wait(
        lambda: "install cert-manager" in operated.condition("Stalled").get("message", ""),
        "the way on without cert-manager",
    )
    assert not operated.pods()

    install_definitions(operated.core.api_client, [CERT_MANAGER])
    issuer = Issuer(operated, NAME, tmp_path / "issuer")
    operated.wait(issuer.certificate, "the Certificate", FOUND_TIMEOUT_S)
    operated.wait(lambda: "has not processed it yet" in not_issued(operated), "it to be waited for")
    assert operated.condition("Ready")["status"] == "False"
    issuer.set_conditions(
        ("Ready", "False", "DoesNotExist", "Issuing"), ("Issuing", "False", "Failed", FAULT)
    )
    operated.wait(lambda: FAULT in operated.condition("Stalled").get("message", ""), "the issuer's reason")
    operated.wait(lambda: FAULT in "".join(operated.events("CertificateNotIssued")), "the Event")
    assert not operated.pods()

    certificate = issuer.certificate() or {}
    (owner,) = certificate["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("KafkaController", QUORUM, True)
    assert certificate["spec"]["privateKey"] == {"encoding": "PKCS8", "rotationPolicy": "Always"}
    assert certificate["spec"]["duration"] == "48h0m0s"
    issuer.issue(certificate["spec"])
    operated.wait_settled(CONTROLLERS_FIRST)
    assert not operated.status().get("refusals")

    before = operated.pod_uids()
    operated.patch(listeners=[{**listener, "tls": {**tls, "duration": "24h"}}])
    operated.wait(lambda: (issuer.certificate() or {})["spec"]["duration"] == "24h0m0s", "the other duration")
    operated.wait_settled(CONTROLLERS_FIRST)
    issuer.set_conditions(("Ready", "False", "Expired", "Certificate expired"))
    operated.wait(lambda: "Certificate expired" in not_issued(operated), "it to be reported")
    assert operated.pod_uids() == before
    issuer.issue((issuer.certificate() or {})["spec"])
    operated.wait_settled(CONTROLLERS_FIRST)
    assert operated.pod_uids() == before

    operated.patch(listeners=[{**listener, "tls": {"secretName": NAME}}])
    operated.wait(lambda: issuer.certificate() is None, "the Certificate to go with its listener's issuer")
    operated.wait_settled(CONTROLLERS_FIRST)
    assert not operator.errors()
