"""What forbids a restart of one node now: its own state, the quorum, its partitions, nodes that come back. Pure.

    a process that has not served yet   is starting and is left alone, however long: a broker recovers its logs
    no process: an image, no machine    nothing is lost by a restart
    a process that served and does not  judged by its partitions, as a node in service

A broker is judged by its own partitions: would one get worse without it? A partition without a leader can't, and
holds up no other broker. A user may insist on the restart of a node (`FORCE`), or have a node left out
(`DesiredNode.skips_rollout`); neither puts the quorum at risk, or the only copy of a partition on volumes that go.
"""

from collections.abc import Sequence
from typing import NamedTuple

from quorate_admin.diagnosis import majority

from quorate_operator.models.base import ANNOTATION_FORCE_RESTART, ANNOTATION_SKIP_ROLLOUT
from quorate_operator.placement.cluster import PartitionId
from quorate_operator.planning.addresses import shows_new_addresses
from quorate_operator.planning.cluster import (
    FORCE,
    BrokerLoad,
    DesiredCluster,
    DesiredNode,
    KafkaFacts,
    NodeState,
    ObservedCluster,
    ObservedNode,
    Role,
    RolloutPolicy,
)
from quorate_operator.planning.lifecycle import LATE_AFTER_MS
from quorate_operator.planning.membership import is_changing
from quorate_operator.planning.pods import lacks_its_pod, mate_of
from quorate_operator.planning.registrations import lacks_registration
from quorate_operator.planning.safety import QuorumView, has_other_disk, view_quorum
from quorate_operator.planning.steps import listed, some_of, utc_text
from quorate_operator.planning.volumes import loses_volumes

BROKEN_AFTER_MS = 60_000
"""A node without a process may be restarted this long after its start, and one that does not serve any more."""
BLOCKED_AFTER_MS = 5 * 60_000
"""A node with a problem that was started this long ago is not mended by waiting."""
BLOCKED_AFTER_EXITS = 5
"""Neither is one that ended so often in a row."""

_NO_MACHINE = "its machine does not answer"


class Obstacle(NamedTuple):
    """Why a node may not be restarted now; `way_out` is what a user has to do if it does not end by itself."""

    reason: str
    way_out: str | None = None


def is_forced(node: DesiredNode, seen: ObservedNode) -> bool:
    """Whether a user insists on a restart that was not done yet."""
    wanted = node.revision.get(FORCE)
    return bool(wanted and seen.revision) and wanted != seen.revision.get(FORCE)


def pod_obstacle(
    broker: DesiredNode, desired: DesiredCluster, observed: ObservedCluster, now_ms: int
) -> Obstacle | None:
    """Return why a broker's pod may not be restarted now, by what is said of the broker and of a controller in it."""
    mate = mate_of(observed.nodes[broker.node_id], observed)
    controller = next(
        (node for node in desired.of_role(Role.CONTROLLER) if mate and node.node_id == mate.node_id), None
    )
    if controller is None or mate is None:
        return broker_obstacle(broker, desired, observed, now_ms)
    forced = is_forced(controller, mate) or is_forced(broker, observed.nodes[broker.node_id])
    obstacle = controller_obstacle(controller, desired, observed, now_ms, forced=forced)
    if obstacle is not None:
        return obstacle._replace(reason=f"{controller.label}: {obstacle.reason}")
    return broker_obstacle(broker, desired, observed, now_ms, forced=forced)


def controller_obstacle(
    node: DesiredNode,
    desired: DesiredCluster,
    observed: ObservedCluster,
    now_ms: int,
    *,
    forced: bool = False,
) -> Obstacle | None:
    """Return why a controller may not be restarted now, or None. `forced`: the restart of its pod is."""
    seen, view = observed.nodes[node.node_id], view_quorum(observed)
    forced = forced or is_forced(node, seen)
    if seen.unreachable_host:
        return _away(seen)
    if seen.state is not NodeState.READY:
        # It is of no use now, so it may restart. But without a leader, perhaps only the operator's view is wrong.
        peers = [observed.nodes[peer.node_id] for peer in desired.of_role(Role.CONTROLLER)]
        waiting = {peer.node_id for peer in desired.of_role(Role.CONTROLLER) if lacks_its_pod(peer, observed)}
        down = [
            peer.node_id for peer in peers if _is_down(peer) and peer.node_id not in waiting
        ] or _needed_for_majority(desired, observed)
        if view is None and down:
            return Obstacle(
                f"no leader of the quorum answers, and these have to be started first: {listed(down)}"
            )
        if forced:
            return None
        return _still_starting(desired, observed, seen, now_ms) or _may_become_ready(
            desired, observed, peers, now_ms
        )
    if view is None:
        return Obstacle("no leader of the quorum answers")
    if _voters_change(desired, observed):
        return Obstacle("the quorum's voters change, and are restarted afterwards")
    stopped = None if forced else _controller_not_back(desired, observed, now_ms, except_for=node.node_id)
    forbidden = view.forbids_stop(node.node_id)
    if stopped or forbidden:
        return stopped or Obstacle(f"{forbidden}", _lost_voters(observed, view))
    return None if forced else _broker_on_its_way(desired, observed, now_ms, except_for=seen.pod_mate)


def broker_obstacle(
    node: DesiredNode,
    desired: DesiredCluster,
    observed: ObservedCluster,
    now_ms: int,
    *,
    forced: bool = False,
) -> Obstacle | None:
    """Return why a broker may not be restarted now, or None. `forced`: the restart of its pod is."""
    seen = observed.nodes[node.node_id]
    forced = forced or is_forced(node, seen)
    has_voter = mate_of(seen, observed) is not None
    if seen.unreachable_host:
        return _away(seen)
    if observed.kafka is None:
        return Obstacle("no leader of the quorum answers")
    if _voters_change(desired, observed) and (has_voter or node.pod_mate is None):
        return Obstacle("the quorum's voters change")
    if (lost := _only_copies(seen, desired, observed, now_ms)) is not None or forced:
        return lost
    policy = desired.rollouts.get(node.pool, RolloutPolicy())
    pool = [
        other.node_id
        for other in desired.of_role(Role.BROKER)
        if other.pool == node.pool and not other.skips_rollout
    ]
    if seen.state is not NodeState.READY:
        still = _still_starting(desired, observed, seen, now_ms) or _may_become_ready(
            desired, observed, [seen], now_ms
        )
        if still or seen.started_at_ms is None:
            return still
        others = [observed.nodes[node_id] for node_id in pool if node_id != node.node_id]
        coming = _may_become_ready(desired, observed, others, now_ms, allowed=policy.max_unavailable - 1)
        return coming or _partitions_at_risk(node, desired, observed, now_ms)
    stopped = _controller_not_back(desired, observed, now_ms, except_for=seen.pod_mate)
    if stopped:
        return stopped
    down = [node_id for node_id in pool if not _is_back(observed, node_id)]
    if len(down) >= policy.max_unavailable:
        return _stops_the_roll(observed, down[0], now_ms)
    return _partitions_at_risk(node, desired, observed, now_ms)


def _voters_change(desired: DesiredCluster, observed: ObservedCluster) -> bool:
    """Whether the voters are not the desired ones yet, and not only because new ones wait for restarts of pods."""
    view = view_quorum(observed)
    if view is None or not is_changing(desired, observed):
        return False
    joining = [node for node in desired.of_role(Role.CONTROLLER) if node.node_id not in view.voters]
    is_any_lost = any(has_other_disk(observed, voter) for voter in view.voters.values())
    return is_any_lost or not joining or not all(lacks_its_pod(node, observed) for node in joining)


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
    loads = [_load_of(kafka, broker_id) for broker_id in running]
    return int(not any(load is None or load.fragile for load in loads))


def spare_pods_with_controllers(desired: DesiredCluster, observed: ObservedCluster) -> int:
    """Return how many pods may be evicted now where controllers share those of brokers: one, if all voters are well.

    In a quorum of one or two voters one may always go, because a node drain would otherwise block forever.
    """
    if not desired.has_shared_pods or len(desired.of_role(Role.CONTROLLER)) <= 2:
        return 1
    view = view_quorum(observed)
    return int(view is not None and not view.dead and len(view.alive) > majority(view.size))


def lacks_voters_in_pods(desired: DesiredCluster, observed: ObservedCluster) -> bool:
    """Whether controllers share pods with brokers, and a voter is not well, or this is not known."""
    view = view_quorum(observed)
    return desired.has_shared_pods and (view is None or bool(view.dead))


def named_partitions(count: int, first: Sequence[PartitionId]) -> str:
    """Return `3 partitions (orders-0, orders-7 and 1 more)`."""
    named = some_of([f"{partition.topic}-{partition.number}" for partition in first], count)
    listing = f" ({named})" if first else ""
    return f"{count} partition{'s' if count != 1 else ''}{listing}"


def started_within(seen: ObservedNode, now_ms: int, age_ms: int) -> bool:
    """Whether a node was started, or has opened its ports after a long start, less than `age_ms` ago."""
    since_ms = seen.waiting_since_ms if seen.started_at_ms is None else seen.started_at_ms
    latest_ms = max((at_ms for at_ms in (since_ms, seen.opened_at_ms) if at_ms is not None), default=None)
    return latest_ms is not None and now_ms - latest_ms < age_ms


def _away(seen: ObservedNode) -> Obstacle:
    return Obstacle(
        _NO_MACHINE,
        f"decommission {seen.label} if its machine is gone for good. {_skipping(seen.node_id)}",
    )


def _skipping(node_id: int) -> str:
    return f'The annotation {ANNOTATION_SKIP_ROLLOUT}-{node_id}: "true" has the others restarted'


def _lost_voters(observed: ObservedCluster, view: QuorumView) -> str | None:
    """Return what to do about voters that the majority lacks and that can't come back by themselves, or None."""
    dead = [observed.nodes[node_id] for node_id in view.dead if node_id in observed.nodes]
    lost = [seen.label for seen in dead if seen.unreachable_host]
    return f"decommission {lost[0]} if its machine is gone for good" if lost else None


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


def _load_of(kafka: KafkaFacts, broker_id: int) -> BrokerLoad | None:
    """Return the load of a broker; an empty one of a broker that was unregistered, and leads nothing then."""
    is_registered = broker_id in kafka.registrations
    return kafka.loads.get(broker_id, None if is_registered else BrokerLoad())


def _only_copies(
    seen: ObservedNode, desired: DesiredCluster, observed: ObservedCluster, now_ms: int
) -> Obstacle | None:
    """Return which partitions would be lost with the volumes of the broker, which go with its process, or None."""
    if not loses_volumes(seen):
        return None
    assert observed.kafka is not None
    load = _load_of(observed.kafka, seen.node_id)
    if load is None:
        return Obstacle("its replicas are not known yet")
    if not load.sole:
        return None
    named = named_partitions(load.sole, load.sole_first)
    reason = f"its volumes are being replaced and have the only copy of {named}"
    return Obstacle(reason, "reassign these" if _is_at_rest(desired, observed, now_ms) else None)


def _partitions_at_risk(
    node: DesiredNode, desired: DesiredCluster, observed: ObservedCluster, now_ms: int
) -> Obstacle | None:
    """Return which partitions would be worse off without the broker, or None."""
    assert observed.kafka is not None
    load = _load_of(observed.kafka, node.node_id)
    if load is None:
        return Obstacle("its replicas are not known yet")
    if not load.fragile:
        return None
    named = named_partitions(load.fragile, load.fragile_first)
    reason = f"{named} would fall below min.insync.replicas without it"
    if not _is_at_rest(desired, observed, now_ms):
        return Obstacle(reason)
    return Obstacle(
        reason,
        "no node is starting that could help: bring replicas of these partitions in sync or reassign them. "
        f"The annotation {ANNOTATION_FORCE_RESTART}-{node.node_id} restarts the broker all the same, "
        f'{ANNOTATION_SKIP_ROLLOUT}-{node.node_id}: "true" leaves it out',
    )


def _is_at_rest(desired: DesiredCluster, observed: ObservedCluster, now_ms: int) -> bool:
    """Whether no broker was started lately and no replica moves, so that replicas come in sync only by help."""
    assert observed.kafka is not None
    brokers = [observed.nodes[node.node_id] for node in desired.of_role(Role.BROKER)]
    is_any_coming = any(
        (seen.is_starting or started_within(seen, now_ms, LATE_AFTER_MS))
        and not (seen.unreachable_host or _crashes_in_a_loop(seen))
        for seen in brokers
    )
    return not is_any_coming and not any(
        partition.adding or partition.removing for partition in observed.kafka.partitions
    )


def _is_starting(desired: DesiredCluster, observed: ObservedCluster, seen: ObservedNode, now_ms: int) -> bool:
    """Whether a node serves once its start is over."""
    return seen.is_starting and not lacks_registration(desired, observed, seen, now_ms)


def _still_starting(
    desired: DesiredCluster, observed: ObservedCluster, seen: ObservedNode, now_ms: int
) -> Obstacle | None:
    if not _is_starting(desired, observed, seen, now_ms):
        return None
    assert seen.started_at_ms is not None, "a process has a time of its start"
    recovers = ", and a broker recovers its logs first" if seen.role is Role.BROKER else ""
    return Obstacle(f"it has been starting since {utc_text(seen.started_at_ms)}{recovers}")


def _broker_on_its_way(
    desired: DesiredCluster, observed: ObservedCluster, now_ms: int, *, except_for: int | None
) -> Obstacle | None:
    """Return the first broker that was started and is not in service yet as a reason to wait: one node at a time.

    A process that recovers its logs is waited for. A fenced broker is not, and neither is one with a problem that has
    no process or crashes in a loop: controllers may be the cause.
    """
    for node in desired.of_role(Role.BROKER):
        seen = observed.nodes[node.node_id]
        may_come = seen.state is NodeState.STARTING and not seen.problem
        is_coming = (seen.is_starting and not _crashes_in_a_loop(seen)) or (
            may_come and started_within(seen, now_ms, LATE_AFTER_MS)
        )
        is_left_out = (
            node.skips_rollout or seen.unreachable_host or lacks_registration(desired, observed, seen, now_ms)
        )
        if is_coming and not is_left_out and node.node_id != except_for:
            return _stops_the_roll(observed, node.node_id, now_ms)
    return None


def _is_back(observed: ObservedCluster, node_id: int) -> bool:
    return observed.nodes[node_id].state is NodeState.READY and shows_new_addresses(observed, node_id)


def _controller_not_back(
    desired: DesiredCluster, observed: ObservedCluster, now_ms: int, *, except_for: int | None = None
) -> Obstacle | None:
    """Return the first controller that is not ready, or lacks its new addresses, as a reason to wait.

    Nodes on unreachable machines do not block the rollout; quorum safety is checked separately. Neither do those
    that only the restart of their broker's pod will start.
    """
    for node in desired.of_role(Role.CONTROLLER):
        seen = observed.nodes[node.node_id]
        is_left_out = node.skips_rollout or seen.unreachable_host or lacks_its_pod(node, observed)
        if node.node_id != except_for and not is_left_out and not _is_back(observed, node.node_id):
            return _stops_the_roll(observed, node.node_id, now_ms)
    return None


def _stops_the_roll(observed: ObservedCluster, node_id: int, now_ms: int) -> Obstacle:
    seen = observed.nodes[node_id]
    if seen.state is NodeState.READY:
        return Obstacle(f"{seen.label} has not registered its new addresses yet")
    state = str(seen.state)
    if seen.is_starting and seen.started_at_ms is not None:
        state = f"{state} since {utc_text(seen.started_at_ms)}"
    problem = _problem_of(seen)
    reason = f"{seen.label} is not ready ({problem or state}), and the roll stops until it is"
    if seen.unreachable_host:
        return Obstacle(reason, _away(seen).way_out)
    may_come = seen.is_starting or started_within(seen, now_ms, BLOCKED_AFTER_MS)
    if not problem or (may_come and not _crashes_in_a_loop(seen)):
        return Obstacle(reason)
    return Obstacle(reason, f"mend what it reports. {_skipping(node_id)}")


def _problem_of(seen: ObservedNode) -> str | None:
    if seen.unreachable_host:
        return _NO_MACHINE
    return seen.problem or (seen.exit_reason if seen.state is NodeState.CRASHED else None)


def _crashes_in_a_loop(seen: ObservedNode) -> bool:
    """Whether a node has ended so often in a row that another attempt of it is nothing to wait for."""
    return seen.exits_in_a_row >= BLOCKED_AFTER_EXITS and _problem_of(seen) is not None


def _may_become_ready(
    desired: DesiredCluster,
    observed: ObservedCluster,
    nodes: Sequence[ObservedNode],
    now_ms: int,
    *,
    allowed: int = 0,
) -> Obstacle | None:
    """Return a reason to wait if more than `allowed` of the nodes are starting, or were just started and don't serve.

    What is not ready at this moment, because it is fenced or behind, may be ready at the next one. Together with
    what was just started it may be more than the cluster can spare. Of a machine that does not answer, nothing is
    expected.
    """
    on_their_way = [
        seen
        for seen in nodes
        if seen.state is not NodeState.READY
        and not seen.unreachable_host
        and (_is_starting(desired, observed, seen, now_ms) or started_within(seen, now_ms, BROKEN_AFTER_MS))
    ]
    if len(on_their_way) <= allowed:
        return None
    return Obstacle("what was just started may still become ready")
