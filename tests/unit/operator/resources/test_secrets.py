"""Missing Secrets: reported by field; nodes that need them are neither started nor stopped."""

import hashlib
from typing import Any

import pytest
from kit.desired_cluster import Make
from quorate_operator.models.secrets import Secret
from quorate_operator.planning.cluster import Lifecycle
from quorate_operator.planning.steps import Plan, StartNode, StopNode, WaitFor
from quorate_operator.resources.secrets import described_secret, with_secrets

TLS = "replicas: 1, listeners: [{name: IN}, {name: A, protocol: SSL, tls: {secretName: cert}}]"
STEPS = (
    StartNode(node_id=3000, reason="it does not run"),
    StopNode(node_id=0, grace_ms=1, reason="config"),
    StartNode(node_id=0, reason="it was stopped for a restart"),
)


def secret(*keys: str) -> dict[str, Secret]:
    """A Secret with these keys."""
    return {"cert": Secret(values=dict.fromkeys(keys, "x"))}


def described(uid: str, **data: str) -> dict[str, Any]:
    """A Secret as the API server describes it; `data` has underscores for dots."""
    return {
        "metadata": {
            "name": "cert",
            "uid": uid,
        },
        "data": {key.replace("_", "."): value for key, value in data.items()},
    }


def test_a_password_can_not_be_guessed_from_what_pods_are_annotated_with() -> None:
    first, other = (described(uid, node="aHVudGVyMg==", p12="/w==") for uid in ("1", "2"))
    fingerprints = {described_secret(secret).fingerprint("node") for secret in (first, first, other)}
    assert len(fingerprints) == 2
    assert described_secret(first).values == {"node": "hunter2"}
    assert "hunter2" not in repr(described_secret(first))
    rounds = hashlib.pbkdf2_hmac("sha256", b"hunter2", b"1 node", 10_000)[:12].hex()
    assert rounds in fingerprints
    assert described_secret({"metadata": {"uid": "7"}}).values == {}


@pytest.mark.parametrize(
    ("secrets", "expected"),
    [
        ({}, "KafkaBroker brokers: spec.listeners[1].tls.secretName: 'cert': no such Secret in kafka"),
        (secret("tls.crt"), "the Secret has no tls.key"),
        (secret("ca.crt"), "the Secret has no tls.crt and no tls.key"),
    ],
)
def test_a_node_waits_for_its_secret(make: Make, secrets: dict[str, Secret], expected: str) -> None:
    """No start without a certificate, no restart that would not come back."""
    cluster = make(brokers=TLS, secrets=secrets)
    plan = with_secrets(Plan(steps=STEPS), cluster.context, cluster.desired)
    assert [type(step) for step in plan.steps] == [StartNode, WaitFor]
    assert expected in plan.refusals[0].message


def test_a_secret_that_may_not_be_read_is_told_as_that(make: Make) -> None:
    cluster = make(brokers=TLS, unreadable_secrets=frozenset({"cert"}))
    (refusal,) = with_secrets(Plan(steps=STEPS), cluster.context, cluster.desired).refusals
    assert refusal.code == "SecretMissing"
    assert (
        "'cert': the operator may not read Secrets in kafka: its chart needs this namespace"
        in refusal.message
    )


def test_who_has_its_secret_or_sleeps_is_not_held(make: Make) -> None:
    whole = make(brokers=TLS, secrets=secret("tls.crt", "tls.key"))
    assert with_secrets(Plan(steps=STEPS), whole.context, whole.desired) == Plan(steps=STEPS)
    asleep = make("state: Hibernated", TLS)
    assert asleep.desired.lifecycle is Lifecycle.HIBERNATED
    assert with_secrets(Plan(steps=STEPS), asleep.context, asleep.desired).steps == STEPS
