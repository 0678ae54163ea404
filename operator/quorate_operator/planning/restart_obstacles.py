"""What forbids a restart of one node now: its own state, the quorum, its partitions, nodes that come back. Pure.

a process that has not served yet   is starting and is left alone, however long: a broker recovers its logs
no process: an image, no machine    nothing is lost by a restart
a process that served and does not  judged by its partitions, as a node in service
"""

from collections.abc import Sequence
from typing import NamedTuple

from quorate_admin.diagnosis import majority

from quorate_operator.planning.addresses import shows_new_addresses
from quorate_operator.planning.cluster import (
    BrokerLoad,
    DesiredCluster,
    DesiredNode,
    NodeState,
    ObservedCluster,
    ObservedNode,
    Role,
    RolloutPolicy,
)
from quorate_operator.planning.membership import is_changing
from quorate_operator.planning.safety import view_quorum
from quorate_operator.planning.steps import listed, utc_text

BROKEN_AFTER_MS = 60_000
"""A node without a process may be restarted this long after its start, and one that does not serve any more."""


class Obstacle(NamedTuple):
    """Why a node may not be restarted now."""

    reason: str


def controller_obstacle(
    node: DesiredNode, desired: DesiredCluster, observed: ObservedCluster, now_ms: int
) -> Obstacle | None:
    """Return why a controller may not be restarted now, or None."""
    seen, view = observed.nodes[node.node_id], view_quorum(observed)
    if seen.unreachable_host:
        return Obstacle("its machine does not answer")
    if seen.state is not NodeState.READY:
        # It is of no use now, so it may restart. But without a leader, perhaps only the operator's view is wrong.
        peers = [observed.nodes[peer.node_id] for peer in desired.of_role(Role.CONTROLLER)]
        down = [peer.node_id for peer in peers if _is_down(peer)] or _needed_for_majority(desired, observed)
        if view is None and down:
            return Obstacle(
                f"no leader of the quorum answers, and these have to be started first: {listed(down)}"
            )
        return _still_starting(seen) or _may_become_ready(peers, now_ms)
    if view is None:
        return Obstacle("no leader of the quorum answers")
    if is_changing(desired, observed):
        return Obstacle("the quorum's voters change, and are restarted afterwards")
    stopped = _not_back(desired, observed, Role.CONTROLLER, except_for=node.node_id)
    forbidden = view.forbids_stop(node.node_id)
    return stopped or (Obstacle(forbidden) if forbidden else None) or _broker_on_its_way(desired, observed)


def broker_obstacle(
    node: DesiredNode, desired: DesiredCluster, observed: ObservedCluster, now_ms: int
) -> Obstacle | None:
    """Return why a broker may not be restarted now, or None."""
    seen = observed.nodes[node.node_id]
    if seen.unreachable_host:
        return Obstacle("its machine does not answer")
    if observed.kafka is None:
        return Obstacle("no leader of the quorum answers")
    if is_changing(desired, observed):
        return Obstacle("the quorum's voters change")
    policy = desired.rollouts.get(node.pool, RolloutPolicy())
    pool = [other.node_id for other in desired.of_role(Role.BROKER) if other.pool == node.pool]
    if seen.state is not NodeState.READY:
        others = [observed.nodes[node_id] for node_id in pool if node_id != node.node_id]
        return (
            _still_starting(seen)
            or _may_become_ready([seen], now_ms)
            or _may_become_ready(others, now_ms, allowed=policy.max_unavailable - 1)
        )
    stopped = _not_back(desired, observed, Role.CONTROLLER, except_for=None)
    if stopped:
        return stopped
    down = [node_id for node_id in pool if not _is_back(observed, node_id)]
    if len(down) >= policy.max_unavailable:
        return _stops_the_roll(observed, down[0])
    return _load_obstacle(observed.kafka.loads.get(node.node_id), observed.kafka.offline_partitions)


def spare_brokers(desired: DesiredCluster, observed: ObservedCluster) -> int:
    """Return how many brokers may be evicted now: one, or none while a partition can't spare another replica.

    The only broker may always go: otherwise a node drain would block forever.
    """
    asked = {node.node_id for node in desired.of_role(Role.BROKER)}
    running = {
        seen.node_id for seen in observed.nodes.values() if seen.role is Role.BROKER and seen.state.runs
    }
    if len(asked | running) <= 1:
        return 1
    kafka = observed.kafka
    if kafka is None or not all(_is_back(observed, node_id) for node_id in asked):
        return 0
    loads = [kafka.loads.get(broker_id) for broker_id in running]
    return int(not any(_load_obstacle(load, kafka.offline_partitions) for load in loads))


def started_within(seen: ObservedNode, now_ms: int, age_ms: int) -> bool:
    since_ms = seen.waiting_since_ms if seen.started_at_ms is None else seen.started_at_ms
    return since_ms is not None and now_ms - since_ms < age_ms


def _needed_for_majority(desired: DesiredCluster, observed: ObservedCluster) -> list[int]:
    """The controllers that leave and are down, if those that stay may be no majority of the voters without them."""
    staying = {node.node_id for node in desired.of_role(Role.CONTROLLER)}
    down = [
        seen.node_id
        for seen in observed.nodes.values()
        if seen.role is Role.CONTROLLER
        and seen.node_id not in staying
        and seen.state is not NodeState.ABSENT
        and not seen.is_forgotten
        and _is_down(seen)
    ]
    return down if len(staying) < majority(len(staying) + len(down)) else []


def _is_down(seen: ObservedNode) -> bool:
    return seen.unreachable_host or not seen.state.runs


def _load_obstacle(load: BrokerLoad | None, offline_partitions: int) -> Obstacle | None:
    if offline_partitions:
        return Obstacle(f"{offline_partitions} partitions have no leader")
    if load is None:
        return Obstacle("its replicas are not known yet")
    if load.fragile:
        return Obstacle(f"{load.fragile} partitions would fall below min.insync.replicas without it")
    return None


def _still_starting(seen: ObservedNode) -> Obstacle | None:
    if not seen.is_starting:
        return None
    assert seen.started_at_ms is not None, "a process has a time of its start"
    recovers = ", and a broker recovers its logs first" if seen.role is Role.BROKER else ""
    return Obstacle(f"it has been starting since {utc_text(seen.started_at_ms)}{recovers}")


def _broker_on_its_way(desired: DesiredCluster, observed: ObservedCluster) -> Obstacle | None:
    """Return the first broker that was started and is not in service yet as a reason to wait: one node at a time.

    A broker with a problem, which controllers may have caused, is not waited for, and neither is a fenced one.
    """
    for node in desired.of_role(Role.BROKER):
        seen = observed.nodes[node.node_id]
        is_coming = seen.is_starting or (seen.state is NodeState.STARTING and not seen.problem)
        if is_coming and not seen.unreachable_host:
            return _stops_the_roll(observed, node.node_id)
    return None


def _is_back(observed: ObservedCluster, node_id: int) -> bool:
    return observed.nodes[node_id].state is NodeState.READY and shows_new_addresses(observed, node_id)


def _not_back(
    desired: DesiredCluster, observed: ObservedCluster, role: Role, except_for: int | None
) -> Obstacle | None:
    """Return the first node of the role that is not ready, or lacks its new addresses, as a reason to wait.

    Nodes on unreachable machines do not block the rollout; quorum safety is checked separately.
    """
    for node in desired.of_role(role):
        is_away = observed.nodes[node.node_id].unreachable_host
        if node.node_id != except_for and not is_away and not _is_back(observed, node.node_id):
            return _stops_the_roll(observed, node.node_id)
    return None


def _stops_the_roll(observed: ObservedCluster, node_id: int) -> Obstacle:
    seen = observed.nodes[node_id]
    if seen.state is NodeState.READY:
        return Obstacle(f"{seen.label} has not registered its new addresses yet")
    state = str(seen.state)
    if seen.is_starting and seen.started_at_ms is not None:
        state = f"{state} since {utc_text(seen.started_at_ms)}"
    problem = seen.problem or (seen.exit_reason if seen.state is NodeState.CRASHED else None)
    return Obstacle(f"{seen.label} is not ready ({problem or state}), and the roll stops until it is")


def _may_become_ready(nodes: Sequence[ObservedNode], now_ms: int, *, allowed: int = 0) -> Obstacle | None:
    """Return a reason to wait if more than `allowed` of the nodes are starting, or were just started and don't serve.

    What is not ready at this moment, because it is fenced or behind, may be ready at the next one. Together with
    what was just started it may be more than the cluster can spare.
    """
    on_their_way = [
        seen
        for seen in nodes
        if seen.state is not NodeState.READY
        and (seen.is_starting or started_within(seen, now_ms, BROKEN_AFTER_MS))
    ]
    if len(on_their_way) <= allowed:
        return None
    return Obstacle("what was just started may still become ready")
