"""Judges whether each broker is in service with all its replicas in sync, for the readiness gate of its pod. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from quorate_operator.planning.cluster import (
    BrokerLoad,
    KafkaFacts,
    NodeState,
    ObservedCluster,
    ObservedNode,
    Role,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class InSync:
    """Whether a broker is in service and every replica on it is in sync; if not, why, as a condition has it.

    The message does not count: it would change at each pass while a broker catches up.
    """

    holds: bool
    reason: str
    message: str


def brokers_in_sync(observed: ObservedCluster) -> Mapping[int, InSync]:
    """Return the judgement of each running broker; none while no leader answers, because nothing is known then."""
    kafka = observed.kafka
    if kafka is None:
        return {}
    return {
        node_id: _judged(seen, kafka)
        for node_id, seen in observed.nodes.items()
        if seen.role is Role.BROKER and seen.state.runs
    }


def may_unready_go(observed: ObservedCluster) -> bool:
    """Whether brokers that are not in sync may be evicted: no partition needs one of them, or waits for one.

    While no leader answers, that is not known.
    """
    kafka = observed.kafka
    if kafka is None:
        return False
    unready = [node_id for node_id, found in brokers_in_sync(observed).items() if not found.holds]
    loads = [kafka.loads.get(node_id, BrokerLoad()) for node_id in unready]
    return not any(load.fragile or load.awaited for load in loads)


def _judged(seen: ObservedNode, kafka: KafkaFacts) -> InSync:
    registration = kafka.registrations.get(seen.node_id)
    if registration is None or registration.role is not Role.BROKER:
        return InSync(holds=False, reason="NotRegistered", message="the broker is not registered")
    if registration.fenced:
        return InSync(holds=False, reason="Fenced", message="the broker is fenced")
    if registration.in_controlled_shutdown:
        return InSync(holds=False, reason="ShuttingDown", message="the broker shuts down")
    if seen.state is not NodeState.READY:
        # The registration may be that of the previous process.
        return InSync(
            holds=False, reason="NotAnswering", message="the broker does not answer as one in service"
        )
    if kafka.loads.get(seen.node_id, BrokerLoad()).lagging:
        message = "replicas of the broker are not in the ISR of their partitions"
        return InSync(holds=False, reason="ReplicasNotInSync", message=message)
    return InSync(
        holds=True, reason="InSync", message="the broker is in service, and its replicas are in sync"
    )
