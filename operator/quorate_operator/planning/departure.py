"""Pools that are deleted while their quorum stays: brokers stop one by one. Pure.

They are not drained: whoever wants that decommissions the brokers before. Brokers whose volumes are kept stay
registered, so that the same pool can return with its data. Before a volume is deleted, its broker is unregistered.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace

from quorate_operator.planning.cluster import KafkaFacts, NodeState, ObservedNode
from quorate_operator.planning.lifecycle import GRACE_MS
from quorate_operator.planning.part import Part
from quorate_operator.planning.steps import (
    DeleteVolume,
    ForgetNode,
    Plan,
    RetireAddress,
    StopNode,
    UnregisterBroker,
    WithdrawAddress,
    wait_for,
)


def with_departure(
    plan: Plan, leaving: Mapping[int, ObservedNode], emptied: Collection[str], kafka: KafkaFacts | None
) -> Plan:
    """Returns the cluster's plan together with the steps for brokers of deleted pools.

    `leaving` has the brokers of which anything exists, by node id; `emptied` the pools whose volumes are deleted,
    too. `kafka` is None while no leader answers.
    """
    if not leaving:
        return plan
    # Their names go with their Services; the plan does not know these brokers.
    own = tuple(
        step
        for step in plan.steps
        if not (isinstance(step, RetireAddress | WithdrawAddress) and step.node_id in leaving)
    )
    plan = replace(plan, steps=own)
    is_busy = any(isinstance(step, StopNode) for step in plan.due)
    part = _departure(leaving, emptied, kafka, is_busy=is_busy)
    return replace(plan, steps=(*part.due, *plan.steps, *part.rest))


def _departure(
    leaving: Mapping[int, ObservedNode],
    emptied: Collection[str],
    kafka: KafkaFacts | None,
    *,
    is_busy: bool,
) -> Part:
    present = [node for _, node in sorted(leaving.items()) if has_pod(node)]
    away = [node for node in present if node.unreachable_host]
    waits = tuple(
        wait_for(f"the machine of {node.label}, whose pool is deleted, to answer", node.node_id)
        for node in away
    )
    there = [node for node in present if not node.unreachable_host]
    if there and is_busy:
        reason = f"the turn of {there[0].label}, whose pool is deleted: another node is being stopped"
        return Part(rest=(*waits, wait_for(reason, there[0].node_id)))
    if there:
        node = there[0]
        what = "are deleted" if node.pool in emptied else "stay"
        reason = f"KafkaBroker {node.pool} is deleted; its volumes {what}"
        return Part(due=(StopNode(node_id=node.node_id, reason=reason, grace_ms=GRACE_MS),), rest=waits)
    parts = [
        _emptied(node, kafka)
        for node in leaving.values()
        if node.pool in emptied and not node.unreachable_host
    ]
    return Part(
        due=tuple(action for part in parts for action in part.due),
        rest=(*waits, *(step for part in parts for step in part.rest)),
    )


def _emptied(node: ObservedNode, kafka: KafkaFacts | None) -> Part:
    """Returns the steps for a stopped broker whose volume is deleted."""
    node_id, who = node.node_id, node.label
    if kafka is None:
        wait = wait_for(f"a leader of the quorum, to unregister {who}", node_id)
        return Part(rest=(wait,))
    registration = kafka.registrations.get(node_id)
    if registration is not None and not registration.fenced:
        return Part(rest=(wait_for(f"{who}, which was stopped, to be fenced", node_id),))
    if registration is not None:
        return Part(due=(UnregisterBroker(node_id=node_id, reason="its pool and its volume are deleted"),))
    reason = f"KafkaBroker {node.pool} is deleted, and deletes its volumes"
    return Part(
        due=(DeleteVolume(node_id=node_id, reason=reason), ForgetNode(node_id=node_id, reason=reason))
    )


def has_pod(node: ObservedNode) -> bool:
    """Whether a pod exists, also one whose process has ended."""
    return node.state.runs or node.state is NodeState.CRASHED
