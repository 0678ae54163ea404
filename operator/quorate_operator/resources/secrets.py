"""Secrets of listeners that are missing, incomplete or not issued: refusals by field, and waits. Pure."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from quorate_operator.models.secrets import (
    FOR_LISTENERS,
    Secret,
    SecretUse,
    no_labelled_secret,
    secret_of,
    secret_uses,
)
from quorate_operator.planning.cluster import DesiredCluster, DesiredNode, Lifecycle, Role
from quorate_operator.planning.steps import Plan, Refusal, StartNode, Step, StopNode, wait_for
from quorate_operator.resources.certificates import NOT_THERE
from quorate_operator.resources.configs import secured_properties
from quorate_operator.resources.facts import Context, Facts
from quorate_operator.security import keys_in_use

CODE = "SecretMissing"
NOT_ISSUED = "CertificateNotIssued"


def described_secret(secret: Mapping[str, Any]) -> Secret:
    """Return a Secret as the API server describes it."""
    return secret_of(secret.get("data") or {}, {}, salt=secret["metadata"].get("uid", ""))


def secret_names(context: Context, node: DesiredNode) -> frozenset[str]:
    """Return the Secrets that a node reads when it starts."""
    names = frozenset(keys_in_use(node, secured_properties(context, node)))
    users = context.manifests.controllers.spec.scram_users
    if users is not None and node.role is Role.CONTROLLER and not _is_formed(context):
        return names | {users.secret_name}
    return names


def are_usable(context: Context, names: frozenset[str]) -> bool:
    """Whether each of these Secrets has what the fields that name it need."""
    return not names & _faults(context).keys()


def with_secrets(plan: Plan, context: Context, desired: DesiredCluster) -> Plan:
    """Return the plan without starts and restarts of nodes whose Secrets can't be used, and with their refusals.

    A running node continues without its Secret, which it has read. While a Certificate is not issued for all that it
    asks for, such as a name that the node is about to advertise, nodes start with the former certificate, and are not
    stopped.
    """
    faults, unissued = _faults(context), _unissued(context)
    # Those that the operator is about to write are waited for, and no fault.
    own = {use.name for use in uses_of(context) if use.is_own}
    if not faults and not unissued:
        return plan
    refusals = [
        Refusal(CODE, message)
        for name, messages in faults.items()
        for message in messages
        if name not in unissued and name not in own
    ]
    plan = replace(plan, refusals=(*plan.refusals, *refusals, *unissued.values()))
    if not desired.running or desired.lifecycle is not Lifecycle.RUNNING:
        return plan
    needed = {node.node_id: secret_names(context, node) for node in desired.nodes_with_settings}
    of_node = dict(needed)
    for node in desired.nodes:  # a pod has the Secrets of both of its nodes
        needed[node.node_id] |= (
            frozenset() if node.pod_mate is None else of_node.get(node.pod_mate, frozenset())
        )
    held = {
        node.node_id: node.label
        for node in desired.nodes
        if needed[node.node_id] & (faults.keys() | unissued.keys())
    }

    def waits_for_secret(step: Step) -> bool:
        if isinstance(step, StartNode):
            return bool(needed.get(step.node_id, frozenset()) & faults.keys())
        return isinstance(step, StopNode) and step.node_id in held

    kept = tuple(step for step in plan.steps if not waits_for_secret(step))
    waits = tuple(
        wait_for(f"the Secrets of {label}", node_id)
        for node_id, label in held.items()
        if len(kept) < len(plan.steps)
    )
    return replace(plan, steps=(*kept, *waits))


def uses_of(context: Context) -> tuple[SecretUse, ...]:
    """Return each field that names a Secret which is still read: SCRAM users only until the cluster is formed."""
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
    """Return what is wrong, by the name of the Secret."""
    found: dict[str, tuple[str, ...]] = {}
    for use in uses_of(context):
        fault = _fault(use, context.facts, context.namespace)
        if fault is not None:
            found[use.name] = (*found.get(use.name, ()), fault)
    return found


def _fault(use: SecretUse, facts: Facts, namespace: str) -> str | None:
    if use.name in facts.unlabelled_secrets:
        return no_labelled_secret(use.where, use.name, FOR_LISTENERS)
    if use.name in facts.unreadable_secrets:
        return (
            f"{use.where}: {use.name!r}: the operator may not read Secrets in {namespace}: its chart needs "
            "this namespace in rbac.secretNamespaces"
        )
    return use.fault(facts.secrets, namespace)


def _unissued(context: Context) -> Mapping[str, Refusal]:
    """Return a refusal for each certificate that is not issued, by the name of its Secret."""
    certificates, unissued = context.facts.certificates, context.facts.unissued
    return {
        use.name: Refusal(
            NOT_ISSUED,
            f"{use.where}: the certificate {use.name} is not issued: {unissued[use.name]}",
            pool=use.pool,
        )
        for use in uses_of(context)
        if use.is_own and use.name in unissued
    } | {
        use.name: Refusal(
            NOT_ISSUED, f"{use.where}: the Certificate {use.name} is not issued: {reason}", pool=use.pool
        )
        for use in uses_of(context)
        if use.is_issued and (reason := certificates.get(use.name, NOT_THERE)) is not None
    }
