"""Secrets that are missing: told by field, and nodes that need them are neither started nor stopped."""

from typing import Any

import pytest
from kit.desired_cluster import Make
from quorate_operator.planning.cluster import Lifecycle
from quorate_operator.planning.steps import Plan, StartNode, StopNode, WaitFor
from quorate_operator.resources.facts import SecretFacts
from quorate_operator.resources.secrets import secret_facts, with_secrets

TLS = "replicas: 1, listeners: [{name: IN}, {name: A, protocol: SSL, tls: {secretName: cert}}]"
STEPS = (
    StartNode(node_id=3000, reason="it does not run"),
    StopNode(node_id=0, grace_ms=1, reason="config"),
    StartNode(node_id=0, reason="it was stopped for a restart"),
)


def secret(*keys: str) -> dict[str, SecretFacts]:
    """A Secret with these keys."""
    return {"cert": SecretFacts(version="1", keys=frozenset(keys))}


def described(resource_version: str, **data: str) -> dict[str, Any]:
    """A Secret as the API server describes it; `data` has underscores for dots."""
    return {
        "metadata": {
            "name": "cert",
            "resourceVersion": resource_version,
            "labels": {"seen": resource_version},
        },
        "data": {key.replace("_", "."): value for key, value in data.items()},
    }


def test_nodes_restart_for_another_certificate_and_for_nothing_else() -> None:
    """Goal: who labels a Secret restarts no broker. Method: the version of a Secret whose labels change, to which a
    key is added that nobody mounts, and of which each mounted key changes or is added in turn.
    """
    first = secret_facts(described("1", tls_crt="Y2VydA==", tls_key="a2V5"))
    assert first.keys == {"tls.crt", "tls.key"}
    assert secret_facts(described("2", tls_crt="Y2VydA==", tls_key="a2V5")) == first
    with_more = secret_facts(described("3", tls_crt="Y2VydA==", tls_key="a2V5", keystore_p12="eA=="))
    assert with_more.version == first.version
    others = [
        described("4", tls_crt="b3RoZXI=", tls_key="a2V5"),
        described("5", tls_crt="Y2VydA==", tls_key="b3RoZXI="),
        described("6", tls_crt="Y2VydA==", tls_key="a2V5", ca_crt="Y2E="),
    ]
    assert len({first.version, *(secret_facts(one).version for one in others)}) == 4
    assert secret_facts({"metadata": {"resourceVersion": "7"}}).lacks == ("tls.crt", "tls.key")


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
