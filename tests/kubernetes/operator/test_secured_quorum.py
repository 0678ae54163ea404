"""A quorum with TLS, SASL and ACLs under a real operator: it forms, the operator gets in, and nobody is shut out."""

import base64
import json
from pathlib import Path

from kit.java.tls import Certificates
from kit.operators.operated import CONTROLLERS_FIRST, QUORUM, Operated

FIRST, SECOND, THIRD = range(CONTROLLERS_FIRST, CONTROLLERS_FIRST + 3)
PASSWORD, OTHER_PASSWORD, USERS_PASSWORD = "kept-secret-1", "kept-secret-2", "kept-secret-3"
# A Secret that changed is seen within half a minute.
SEEN_TIMEOUT_S = 180


def test_a_secured_quorum_forms_and_does_not_shut_itself_out(operated: Operated, tmp_path: Path) -> None:
    """Goal: controllers log in at each other, the operator at them, and a password is not changed in place.

    Method: a quorum whose certificate has the names of pods, as Kubernetes gives them; another password in the same
    Secret, then another user beside it; look for the passwords in all that is stored, and in the operator's log.
    """
    places = ",".join(f"IP:{operated.network}.{10 + place}" for place in range(3))
    names = f"DNS:*.{QUORUM}.{operated.namespace}.svc,{places}"
    made = Certificates.create(tmp_path / "certificates", names)
    key, _, certificate = made.server.read_text().partition("-----BEGIN CERTIFICATE-----")
    certificate = f"-----BEGIN CERTIFICATE-----{certificate}"
    put_secret(
        operated, "cert", {"tls.crt": certificate, "tls.key": key, "ca.crt": made.authority.read_text()}
    )
    put_secret(operated, "login", {"node": PASSWORD})
    put_secret(operated, "users", {"alice": USERS_PASSWORD})
    sasl = {"username": "node", "secretName": "login"}
    tls = {"secretName": "cert", "clientAuth": "requested"}
    listener = {"name": "CONTROLLER", "port": operated.port, "protocol": "SASL_SSL", "tls": tls, "sasl": sasl}
    operated.create(
        listeners=[listener],
        authorization={"superUsers": ["User:node"]},
        scramUsers={"secretName": "users"},
    )
    operator = operated.start_operator()
    operated.wait_settled(FIRST, SECOND, THIRD)

    pods = uids(operated)
    put_secret(operated, "login", {"node": OTHER_PASSWORD})
    told = "sasl.secretName: the password of 'node' can't be changed or removed while nodes log in as it"
    operated.wait(lambda: operated.events("UnsafeLogin"), "the refusal", SEEN_TIMEOUT_S)
    assert told in operated.events("UnsafeLogin")[-1]
    assert uids(operated) == pods

    put_secret(operated, "login", {"node": PASSWORD, "next": OTHER_PASSWORD})
    operated.wait(
        lambda: not pods & uids(operated) and operated.settled(FIRST, SECOND, THIRD),
        "controllers that let the other user in",
        SEEN_TIMEOUT_S,
    )
    core, namespace = operated.core, operated.namespace
    stored = [
        core.list_namespaced_pod(namespace),
        core.list_namespaced_config_map(namespace),
        core.list_namespaced_event(namespace),
        core.list_namespaced_persistent_volume_claim(namespace),
    ]
    seen = json.dumps([core.api_client.sanitize_for_serialization(one) for one in stored])
    seen += json.dumps(operated.resource()) + operator.log.read_text()
    assert "UnsafeLogin" in seen
    assert not [one for one in (PASSWORD, OTHER_PASSWORD, USERS_PASSWORD) if one in seen]


def put_secret(operated: Operated, name: str, texts: dict[str, str]) -> None:
    """Create or replace a Secret."""
    data = {key: base64.b64encode(text.encode()).decode() for key, text in texts.items()}
    body = {"metadata": {"name": name}, "data": data}
    if name in {one.metadata.name for one in operated.core.list_namespaced_secret(operated.namespace).items}:
        operated.core.replace_namespaced_secret(name, operated.namespace, body)
    else:
        operated.core.create_namespaced_secret(operated.namespace, body)


def uids(operated: Operated) -> set[str]:
    pods = operated.core.list_namespaced_pod(operated.namespace).items
    return {str(pod.metadata.uid) for pod in pods}
