"""Pools that are deleted without their volumes while their quorum stays: brokers stop one by one. Pure.

They are not drained, and stay registered, so that the same pool can return with its data. A pool that is deleted
together with its volumes is drained first: see `planning.drain`.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace

from quorate_operator.planning.cluster import DesiredCluster, KafkaFacts, NodeState, ObservedNode
from quorate_operator.planning.lifecycle import GRACE_MS
from quorate_operator.planning.part import Part
from quorate_operator.planning.steps import (
    Plan,
    RetireAddress,
    StopNode,
    WithdrawAddress,
    wait_for,
)


def with_departure(plan: Plan, leaving: Mapping[int, ObservedNode]) -> Plan:
    """Returns the cluster's plan together with the steps for brokers of deleted pools.

    `leaving` has the brokers of which anything exists, by node id.
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
    part = _departure(leaving, is_busy=is_busy)
    return replace(plan, steps=(*part.due, *plan.steps, *part.rest))


def _departure(leaving: Mapping[int, ObservedNode], *, is_busy: bool) -> Part:
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
        reason = f"KafkaBroker {there[0].pool} is deleted; its volumes stay"
        return Part(due=(StopNode(node_id=there[0].node_id, reason=reason, grace_ms=GRACE_MS),), rest=waits)
    return Part(rest=waits)


def remaining_pools(
    leaving: Mapping[int, ObservedNode],
    drained: Collection[str],
    desired: DesiredCluster | None = None,
    kafka: KafkaFacts | None = None,
) -> frozenset[str]:
    """Returns the deleted pools of which something is left that has to go before them.

    That is a pod; of the `drained` ones, also a volume, and a registration that `kafka` tells of. `leaving` has the
    nodes of all deleted pools.
    """
    present = {
        node.pool for node in leaving.values() if has_pod(node) or (node.has_volume and node.pool in drained)
    }
    registered = kafka.registrations if kafka is not None else {}
    brokers = desired.drained if desired is not None else ()
    return frozenset(present | {node.pool for node in brokers if node.node_id in registered})


def has_pod(node: ObservedNode) -> bool:
    """Whether a pod exists, also one whose process has ended."""
    return node.state.runs or node.state is NodeState.CRASHED
