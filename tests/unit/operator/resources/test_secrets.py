"""Secrets that are missing: told by field, and nodes that need them are neither started nor stopped."""

import pytest
from kit.desired_cluster import Make
from quorate_operator.planning.cluster import Lifecycle
from quorate_operator.planning.steps import Plan, StartNode, StopNode, WaitFor
from quorate_operator.resources.facts import SecretFacts
from quorate_operator.resources.secrets import with_secrets

TLS = "replicas: 1, listeners: [{name: IN}, {name: A, protocol: SSL, tls: {secretName: cert}}]"
STEPS = (
    StartNode(node_id=3000, reason="it does not run"),
    StopNode(node_id=0, grace_ms=1, reason="config"),
    StartNode(node_id=0, reason="it was stopped for a restart"),
)


def secret(*keys: str) -> dict[str, SecretFacts]:
    """A Secret with these keys."""
    return {"cert": SecretFacts(version="1", keys=frozenset(keys))}


@pytest.mark.parametrize(
    ("secrets", "told"),
    [
        ({}, "KafkaBroker brokers: spec.listeners[1].tls.secretName: 'cert': no such Secret in kafka"),
        (secret("tls.crt"), "the Secret has no tls.key"),
        (secret("ca.crt"), "the Secret has no tls.crt and no tls.key"),
    ],
)
def test_a_node_waits_for_its_secret(make: Make, secrets: dict[str, SecretFacts], told: str) -> None:
    """Goal: no start without a certificate, no restart that would not come back. Method: a Secret that lacks keys."""
    cluster = make(brokers=TLS, secrets=secrets)
    plan = with_secrets(Plan(steps=STEPS), cluster.context, cluster.desired)
    assert [type(step) for step in plan.steps] == [StartNode, WaitFor]
    assert told in plan.refusals[0].message


def test_who_has_its_secret_or_sleeps_is_not_held(make: Make) -> None:
    """Goal: nothing else is held. Method: a whole Secret; a cluster that hibernates without it."""
    whole = make(brokers=TLS, secrets=secret("tls.crt", "tls.key"))
    assert with_secrets(Plan(steps=STEPS), whole.context, whole.desired) == Plan(steps=STEPS)
    asleep = make("hibernated: true", TLS)
    assert asleep.desired.lifecycle is Lifecycle.HIBERNATED
    assert with_secrets(Plan(steps=STEPS), asleep.context, asleep.desired).steps == STEPS
