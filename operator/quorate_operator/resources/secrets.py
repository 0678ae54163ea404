"""Secrets of listeners that are missing or incomplete: refusals by field, and waits. Pure."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from quorate_operator.models.secrets import Secret, SecretUse, secret_of, secret_uses
from quorate_operator.planning.cluster import DesiredCluster, DesiredNode, Lifecycle, Role
from quorate_operator.planning.steps import Plan, Refusal, StartNode, StopNode, wait_for
from quorate_operator.resources.configs import secured_properties
from quorate_operator.resources.facts import Context
from quorate_operator.security import keys_in_use

CODE = "SecretMissing"


def described_secret(secret: Mapping[str, Any]) -> Secret:
    """Returns a Secret as the API server describes it."""
    return secret_of(secret.get("data") or {}, {}, salt=secret["metadata"].get("uid", ""))


def secret_names(context: Context, node: DesiredNode) -> frozenset[str]:
    """Returns the Secrets that a node reads when it starts."""
    names = frozenset(keys_in_use(secured_properties(context, node)))
    users = context.manifests.controllers.spec.scram_users
    if users is not None and node.role is Role.CONTROLLER and not _is_formed(context):
        return names | {users.secret_name}
    return names


def are_usable(context: Context, names: frozenset[str]) -> bool:
    """Whether each of these Secrets has what the fields that name it need."""
    return not names & _faults(context).keys()


def with_secrets(plan: Plan, context: Context, desired: DesiredCluster) -> Plan:
    """Returns the plan without starts and restarts of nodes whose Secrets can't be used, and with refusals for these.

    A running node continues without its Secret, which it has read.
    """
    faults = _faults(context)
    if not faults:
        return plan
    refusals = (Refusal(CODE, message) for messages in faults.values() for message in messages)
    plan = replace(plan, refusals=(*plan.refusals, *refusals))
    if not desired.running or desired.lifecycle is not Lifecycle.RUNNING:
        return plan
    held = {node.node_id: node.label for node in desired.nodes if secret_names(context, node) & faults.keys()}
    kept = tuple(
        step for step in plan.steps if not (isinstance(step, StartNode | StopNode) and step.node_id in held)
    )
    waits = tuple(
        wait_for(f"the Secrets of {label}, to start it", node_id)
        for node_id, label in held.items()
        if len(kept) < len(plan.steps)
    )
    return replace(plan, steps=(*kept, *waits))


def uses_of(context: Context) -> tuple[SecretUse, ...]:
    """Returns each field that names a Secret which is still read: SCRAM users only until the cluster is formed."""
    manifests = context.manifests
    users = manifests.controllers.spec.scram_users
    found = secret_uses(manifests.controllers, manifests.brokers)
    if users is None or not _is_formed(context):
        return tuple(found)
    return tuple(use for use in found if not use.is_initial)


def _is_formed(context: Context) -> bool:
    formation = context.facts.formation
    return formation is not None and formation.is_formed


def _faults(context: Context) -> Mapping[str, tuple[str, ...]]:
    """Returns what is wrong, by the name of the Secret."""
    found: dict[str, tuple[str, ...]] = {}
    for use in uses_of(context):
        fault = use.fault(context.facts.secrets, context.namespace)
        if fault is not None:
            found[use.name] = (*found.get(use.name, ()), fault)
    return found
