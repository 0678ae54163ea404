"""A whole cluster stops: brokers while controllers can let them go, then controllers, the leader last."""

from quorate_operator.planning.cluster import ObservedCluster, Role
from quorate_operator.planning.part import listed
from quorate_operator.planning.steps import Step, StopNode, WaitFor

GRACE_MS = 30_000
GRACE_WITHOUT_QUORUM_MS = 3_000


def stop_all(observed: ObservedCluster, *, reason: str) -> tuple[Step, ...]:
    """The steps that stop every node that runs, in the order that keeps a quorum for those who need one."""
    leader_id = observed.quorum.leader_id if observed.quorum else None
    running = [node for node in observed.nodes.values() if node.state.runs and not node.unreachable_host]
    away = tuple(node.node_id for node in observed.nodes.values() if node.unreachable_host)
    brokers = [node.node_id for node in running if node.role is Role.BROKER]
    controllers = [node.node_id for node in running if node.role is Role.CONTROLLER]
    followers = [node_id for node_id in controllers if node_id != leader_id]
    leader = [node_id for node_id in controllers if node_id == leader_id]
    # A broker asks the active controller for its controlled shutdown, and would wait for one in vain.
    broker_grace_ms = GRACE_MS if leader else GRACE_WITHOUT_QUORUM_MS
    others = (
        ("standby controllers", "before the active one") if leader else ("controllers", "while nobody leads")
    )
    steps: list[Step] = []
    for node_ids, grace_ms, who, order in (
        (brokers, broker_grace_ms, "brokers", "first"),
        (followers, GRACE_MS, *others),
        (leader, GRACE_MS, "the active controller", "last"),
    ):
        if not node_ids:
            continue
        if steps:
            steps.append(WaitFor(reason=f"the turn of {who}"))
        steps += [
            StopNode(node_id=node_id, grace_ms=grace_ms, reason=f"{reason}, {who} {order}")
            for node_id in node_ids
        ]
    if away:
        what = f"the machines of {listed(away)} to answer, or to be given up: nobody knows whether these still run"
        steps.append(WaitFor(reason=what, node_ids=away))
    return tuple(steps)
