"""Whether a running node is in service, by what the quorum and the brokers report. Pure."""

from collections.abc import Iterator

from quorate_operator.planning.cluster import (
    KafkaFacts,
    NodeState,
    ObservedNode,
    ObservedQuorum,
    ObservedVoter,
    Role,
)


def state_of(node: ObservedNode, kafka: KafkaFacts | None, *, was_ready: bool) -> NodeState:
    """Return the state of a node; `node.state` is what its runtime observed.

    `was_ready`: whether it has been READY since its process began. A controller is READY when the leader reports that
    it is caught up and has fetched since its process began, as a voter or an observer. A broker is READY when it is
    registered, unfenced, and answers. While no leader answers, a broker that was READY stays so.
    """
    if not node.state.runs:
        return node.state
    is_ready = _is_ready(node, kafka, was_ready=was_ready)
    if is_ready:
        return NodeState.READY
    return NodeState.UNREADY if was_ready else NodeState.STARTING


def _is_ready(node: ObservedNode, kafka: KafkaFacts | None, *, was_ready: bool) -> bool:
    if node.role is Role.CONTROLLER:
        return kafka is not None and any(
            _keeps_up(node, replica) or replica.node_id == kafka.quorum.leader_id
            for replica in _replicas_of(node, kafka.quorum)
        )
    if kafka is None:
        return was_ready
    registration = kafka.registrations.get(node.node_id)
    return (
        registration is not None
        and registration.role is Role.BROKER
        and not registration.fenced
        and node.node_id in kafka.answering
    )


def _replicas_of(node: ObservedNode, quorum: ObservedQuorum) -> Iterator[ObservedVoter]:
    """Yield the replicas of this node with its present disk; those with a former disk don't count."""
    voter = quorum.voters.get(node.node_id)
    for replica in (*([voter] if voter else ()), *quorum.observers):
        is_same_disk = None in (node.directory_id, replica.directory_id) or (
            node.directory_id == replica.directory_id
        )
        if replica.node_id == node.node_id and is_same_disk:
            yield replica


def _keeps_up(node: ObservedNode, replica: ObservedVoter) -> bool:
    # The leader remembers a replica that died: what it fetched before this process began does not count. A pod that
    # still formats its volume has no process, and so no time at which it began.
    return (
        replica.caught_up
        and node.started_at_ms is not None
        and replica.last_fetch_ms is not None
        and replica.last_fetch_ms >= node.started_at_ms
    )
