"""Pools that are deleted while their quorum stays: brokers stop one by one, and leave what the policy says. Pure.

Nobody drains them: who deletes a pool instead of decommissioning its brokers wants it away as it is. Brokers whose
volumes are kept stay registered, so that the same pool comes back with its data; before a volume is deleted, its
broker is unregistered.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace

from quorate_operator.planning.cluster import KafkaFacts, NodeState, ObservedNode
from quorate_operator.planning.lifecycle import GRACE_MS
from quorate_operator.planning.part import Part, label
from quorate_operator.planning.steps import (
    DeleteVolume,
    ForgetNode,
    Plan,
    RetireAddress,
    StopNode,
    UnregisterBroker,
    WaitFor,
    WithdrawAddress,
)


def with_departure(
    plan: Plan, leaving: Mapping[int, ObservedNode], emptied: Collection[str], kafka: KafkaFacts | None
) -> Plan:
    """The plan of a cluster together with what is due for brokers of pools that are deleted.

    `leaving` are those of which anything is there, by node id; `emptied` the pools whose volumes are deleted, too.
    `kafka` is None while nobody leads.
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
        WaitFor(
            reason=f"the machine of {label(node)}, whose pool is deleted, to answer", node_ids=(node.node_id,)
        )
        for node in away
    )
    there = [node for node in present if not node.unreachable_host]
    if there and is_busy:
        reason = f"the turn of {label(there[0])}, whose pool is deleted: another node is being stopped"
        return Part(rest=(*waits, WaitFor(reason=reason, node_ids=(there[0].node_id,))))
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
    """What is due for a broker that is stopped, and whose volume is to go."""
    node_id, who = node.node_id, label(node)
    if kafka is None:
        wait = WaitFor(reason=f"a leader of the quorum, to unregister {who}", node_ids=(node_id,))
        return Part(rest=(wait,))
    registration = kafka.registrations.get(node_id)
    if registration is not None and not registration.fenced:
        return Part(rest=(WaitFor(reason=f"{who}, which was stopped, to be fenced", node_ids=(node_id,)),))
    if registration is not None:
        return Part(due=(UnregisterBroker(node_id=node_id, reason="its pool and its volume are deleted"),))
    reason = f"KafkaBroker {node.pool} is deleted, and deletes its volumes"
    return Part(
        due=(DeleteVolume(node_id=node_id, reason=reason), ForgetNode(node_id=node_id, reason=reason))
    )


def has_pod(node: ObservedNode) -> bool:
    """Whether a pod is there, also one whose process has ended."""
    return node.state.runs or node.state is NodeState.CRASHED
