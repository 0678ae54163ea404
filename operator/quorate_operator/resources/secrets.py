"""Secrets of listeners that are missing or incomplete: refusals by field, and waits. Pure."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from quorate_operator.models.listeners import BrokerListener
from quorate_operator.planning.cluster import DesiredCluster, DesiredNode, Lifecycle
from quorate_operator.planning.steps import Plan, Refusal, StartNode, StopNode, wait_for
from quorate_operator.resources.facts import Context, Facts, SecretFacts, digest

CODE = "SecretMissing"


_USED_KEYS = ("tls.crt", "tls.key", "ca.crt")
"""What of a Secret is mounted. Whatever else is in it may change without a restart."""


def secret_facts(secret: Mapping[str, Any]) -> SecretFacts:
    """Returns what a listener needs to know of a Secret, as the API server describes it.

    The version changes with the data that nodes read, not with labels or annotations.
    """
    data = secret.get("data") or {}
    used = {key: data.get(key) for key in _USED_KEYS}
    return SecretFacts(version=digest(used), keys=frozenset(data))


def secret_names(node: DesiredNode) -> frozenset[str]:
    """Returns the Secrets of the node's listeners."""
    return frozenset(
        listener.tls.secret_name
        for listener in node.listeners
        if isinstance(listener, BrokerListener) and listener.tls is not None
    )


def are_usable(names: frozenset[str], facts: Facts) -> bool:
    """Whether all of these Secrets exist and have the keys that a listener needs."""
    return all(name in facts.secrets and not facts.secrets[name].lacks for name in names)


def with_secrets(plan: Plan, context: Context, desired: DesiredCluster) -> Plan:
    """Returns the plan without starts and restarts of nodes whose Secrets can't be used, and with refusals for these.

    A running node continues without its Secret, which it has read.
    """
    refusals = _faults(context)
    if not refusals:
        return plan
    plan = replace(plan, refusals=(*plan.refusals, *refusals))
    if not desired.running or desired.lifecycle is not Lifecycle.RUNNING:
        return plan
    held = _held(context, desired)
    kept = tuple(
        step for step in plan.steps if not (isinstance(step, StartNode | StopNode) and step.node_id in held)
    )
    waits = tuple(
        wait_for(f"the Secrets of {label}, to start it", node_id)
        for node_id, label in held.items()
        if len(kept) < len(plan.steps)
    )
    return replace(plan, steps=(*kept, *waits))


def _held(context: Context, desired: DesiredCluster) -> Mapping[int, str]:
    return {
        node.node_id: node.label
        for node in desired.nodes
        if not are_usable(secret_names(node), context.facts)
    }


def _faults(context: Context) -> tuple[Refusal, ...]:
    found = []
    for pool in context.manifests.brokers:
        for place, listener in enumerate(pool.spec.listeners):
            if listener.tls is None:
                continue
            name = listener.tls.secret_name
            field = f"KafkaBroker {pool.metadata.name}: spec.listeners[{place}].tls.secretName: {name!r}"
            secret = context.facts.secrets.get(name)
            if secret is None:
                fault = f"no such Secret in {context.namespace}; it must have tls.crt and tls.key"
            elif secret.lacks:
                fault = f"the Secret has no {' and no '.join(secret.lacks)}; it must have tls.crt and tls.key"
            else:
                continue
            found.append(Refusal(CODE, f"{field}: {fault}"))
    return tuple(found)
