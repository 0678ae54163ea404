"""A quorum with TLS, SASL and ACLs under a real operator: it forms, and the operator and the clients log in."""

import json
import urllib.request
from pathlib import Path

from kit.cluster import free_ports
from kit.java.tls import Certificates
from kit.operators.operated import CONTROLLERS_FIRST, QUORUM, Operated
from kit.secret_search import homes_of
from kit.watched_processes import watching_processes

FIRST, SECOND, THIRD = range(CONTROLLERS_FIRST, CONTROLLERS_FIRST + 3)
PASSWORD, OTHER_PASSWORD, USERS_PASSWORD = "kept-secret-1", "kept-secret-2", "kept-secret-3"
# A Secret that changed is seen within half a minute.
SEEN_TIMEOUT_S = 180
SERVED_TIMEOUT_S = 30
WEB_TOKEN = "kept-token-of-the-page"


def test_a_secured_quorum_forms_and_does_not_shut_itself_out(operated: Operated, tmp_path: Path) -> None:
    """Controllers log in at each other, the operator at them, and a password is not changed in place."""
    places = ",".join(f"IP:{operated.network}.{10 + place}" for place in range(3))
    names = f"DNS:*.{QUORUM}.{operated.namespace}.svc,{places}"
    made = Certificates.create(tmp_path / "certificates", names)
    key, _, certificate = made.server.read_text().partition("-----BEGIN CERTIFICATE-----")
    certificate = f"-----BEGIN CERTIFICATE-----{certificate}"
    operated.put_secret(
        "cert", {"tls.crt": certificate, "tls.key": key, "ca.crt": made.authority.read_text()}
    )
    operated.put_secret("login", {"node": PASSWORD})
    operated.put_secret("users", {"alice": USERS_PASSWORD})
    sasl = {"username": "node", "secretName": "login"}
    tls = {"secretName": "cert", "clientAuth": "requested"}
    listener = {"name": "CONTROLLER", "port": operated.port, "protocol": "SASL_SSL", "tls": tls, "sasl": sasl}
    operated.create(
        listeners=[listener],
        authorization={"superUsers": ["User:node"]},
        scramUsers={"secretName": "users"},
    )
    web = free_ports(1)
    token = tmp_path / "token"
    token.write_text(WEB_TOKEN)
    with watching_processes() as shown:
        operator = operated.start_operator(
            "--no-leader-election",
            f"--web=127.0.0.1:{web}",
            f"--web-token-file={token}",
            PLANTED=operated.namespace,
        )
        operated.wait_settled(FIRST, SECOND, THIRD)

    pods = operated.pod_uids()
    operated.put_secret("login", {"node": OTHER_PASSWORD})
    reported = "sasl.secretName: the password of 'node' can't be changed or removed while nodes log in as it"
    operated.wait(lambda: operated.events("UnsafeLogin"), "the refusal", SEEN_TIMEOUT_S)
    assert reported in operated.events("UnsafeLogin")[-1]
    page = f"http://127.0.0.1:{web}/clusters/{operated.namespace}/{QUORUM}"
    operated.wait(lambda: "while nodes log in as it" in page_of(page), "the refusal on the page")
    served = page_of(page)
    assert operated.pod_uids() == pods

    operated.put_secret("login", {"node": PASSWORD, "next": OTHER_PASSWORD})
    operated.wait(
        lambda: not pods & operated.pod_uids() and operated.settled(FIRST, SECOND, THIRD),
        "controllers that let the other user in",
        SEEN_TIMEOUT_S,
    )
    assert any("Secret login: content changed" in note for note in operated.events("StopNode"))
    core, namespace = operated.core, operated.namespace
    stored = {
        "pods": core.list_namespaced_pod(namespace),
        "config maps": core.list_namespaced_config_map(namespace),
        "events": core.list_namespaced_event(namespace),
        "claims": core.list_namespaced_persistent_volume_claim(namespace),
    }
    places = {
        name: [json.dumps(core.api_client.sanitize_for_serialization(secret))]
        for name, secret in stored.items()
    }
    places |= {
        "resource": [json.dumps(operated.resource())],
        "log": [operator.log.read_text()],
        "metrics": [page_of(f"http://127.0.0.1:{operator.port}/metrics")],
        "page of the cluster": [served, page_of(page)],
        "page": [page_of(f"http://127.0.0.1:{web}/")],
        "arguments": shown.arguments,
        "environments": shown.environments,
    }
    secrets = {
        "password": PASSWORD,
        "other password": OTHER_PASSWORD,
        "user's password": USERS_PASSWORD,
        "token": WEB_TOKEN,
        "key": key.splitlines()[1],
    }
    found = homes_of({"planted": operated.namespace, **secrets}, places)
    assert found.pop("planted") == set(places), "a leak there would not have been found"
    assert found == {name: set() for name in secrets}


def page_of(url: str) -> str:
    """What the operator serves there."""
    with urllib.request.urlopen(url, timeout=SERVED_TIMEOUT_S) as response:
        return str(response.read().decode())
