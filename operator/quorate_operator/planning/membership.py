"""Voters are added and removed, one at a time (KIP-853).

    join     CreateNode -> StartNode -> the observer has caught up -> AddVoter
    replace  RemoveVoter(old disk) -> join
    leave    RemoveVoter -> StopNode -> UnregisterController -> volume by policy -> ForgetNode

A dead voter that is lost or leaves is removed first: a quorum without it tolerates more failures. Then new voters
join, and only then live voters leave: the highest id first, the leader last. Each change waits until `safety`
allows it; the leader refuses a change while an earlier one is not committed.
"""

from quorate_operator.planning.addresses import has_publications
from quorate_operator.planning.cluster import (
    DesiredCluster,
    DesiredNode,
    NodeState,
    ObservedCluster,
    ObservedNode,
    ObservedVoter,
    Role,
    RolloutPolicy,
    VolumePolicy,
)
from quorate_operator.planning.formation import Phase, phase_of
from quorate_operator.planning.lifecycle import grace_ms
from quorate_operator.planning.pods import mate_of
from quorate_operator.planning.registrations import awaits_unregistration
from quorate_operator.planning.safety import QuorumView, has_other_disk, view_quorum
from quorate_operator.planning.steps import (
    AddVoter,
    DeleteVolume,
    ForgetNode,
    Part,
    Refusal,
    RemoveVoter,
    Step,
    StopNode,
    WaitFor,
    listed,
    merge,
    wait_for,
)


def plan_membership(desired: DesiredCluster, observed: ObservedCluster) -> Part:
    """Plan the next change of the voter set, and the steps for controllers that have left it."""
    view = view_quorum(observed)
    if view is None or phase_of(observed) is not Phase.FORMED:
        return Part()
    if not view.is_dynamic:
        return _static(desired, view)
    return merge((_change(desired, observed, view), _retire(desired, observed, view)))


def is_changing(desired: DesiredCluster, observed: ObservedCluster) -> bool:
    """Whether the voter set is not yet the desired one. No living voter is restarted meanwhile."""
    view = view_quorum(observed)
    return (
        view is not None
        and view.is_dynamic
        and (
            view.voters.keys() != {node.node_id for node in desired.of_role(Role.CONTROLLER)}
            or any(has_other_disk(observed, voter) for voter in view.voters.values())
        )
    )


def _static(desired: DesiredCluster, view: QuorumView) -> Part:
    asked = {node.node_id for node in desired.of_role(Role.CONTROLLER)}
    if desired.dynamic_quorum or asked == view.voters.keys():
        return Part()
    message = (
        f"the quorum is static, with voters {listed(sorted(view.voters))}, and {listed(sorted(asked))} are desired: "
        "only a dynamic quorum changes its voters. Set spec.quorum: dynamic"
    )
    return Part(refusals=(Refusal("StaticQuorum", message),))


def _change(desired: DesiredCluster, observed: ObservedCluster, view: QuorumView) -> Part:
    """Plan at most one change of the voter set, with the waits for it and for the others."""
    asked = {node.node_id: node for node in desired.of_role(Role.CONTROLLER)}
    lost = [voter for voter in view.voters.values() if has_other_disk(observed, voter)]
    leaving = _in_leave_order(view, [voter for voter in view.voters.values() if voter.node_id not in asked])
    dead = [*lost, *(voter for voter in leaving if voter.node_id not in view.alive and voter not in lost)]
    joining = [node for node in asked.values() if node.node_id not in view.voters]
    if dead:
        why = "its disk is missing or was replaced" if dead[0] in lost else "it leaves and does not answer"
        return _remove(dead[0], view, f"{why}: a quorum without it tolerates more failures")
    if joining:
        return _add(joining, observed, view)
    if leaving:
        waits = [_turn(voter, view) for voter in leaving[1:]]
        return merge((_remove(leaving[0], view, _why_leave(leaving[0], desired)), Part(rest=tuple(waits))))
    return Part()


def _in_leave_order(view: QuorumView, voters: list[ObservedVoter]) -> list[ObservedVoter]:
    return sorted(voters, key=lambda voter: (voter.node_id == view.leader_id, -voter.node_id))


def _turn(voter: ObservedVoter, view: QuorumView) -> WaitFor:
    last = ", which leads, after all others" if voter.node_id == view.leader_id else ""
    return wait_for(f"the turn of controller-{voter.node_id} to leave the quorum{last}", voter.node_id)


def _why_leave(voter: ObservedVoter, desired: DesiredCluster) -> str:
    if voter.node_id in desired.decommission:
        return "it is decommissioned"
    size = len(desired.of_role(Role.CONTROLLER))
    return f"{size} voter{'s' if size != 1 else ''} are desired, without this one"


def _remove(voter: ObservedVoter, view: QuorumView, why: str) -> Part:
    forbidden = view.forbids_removal(voter.node_id)
    if forbidden is None and voter.directory_id is not None:
        resigns = "; it leads and resigns" if voter.node_id == view.leader_id else ""
        step = RemoveVoter(node_id=voter.node_id, directory_id=voter.directory_id, reason=f"{why}{resigns}")
        settled = wait_for(f"the quorum to be without controller-{voter.node_id}", voter.node_id)
        return Part(due=(step,), rest=(settled,))
    reason = forbidden or "the quorum does not report its directory id"
    return Part(
        rest=(wait_for(f"controller-{voter.node_id} to leave the quorum ({why}): {reason}", voter.node_id),)
    )


def _add(joining: list[DesiredNode], observed: ObservedCluster, view: QuorumView) -> Part:
    """Add the first observer that has caught up; the others wait."""
    due: list[AddVoter] = []
    rest: list[WaitFor] = []
    for node in joining:
        seen = observed.nodes[node.node_id]
        observer = _observer(observed, seen)
        forbidden = view.forbids_addition(node.node_id)
        # The leader remembers for a while what the former process had: READY is by a fetch of this one.
        is_ready = seen.state is NodeState.READY and not seen.unreachable_host
        if observer is None or observer.directory_id is None or not (is_ready and observer.caught_up):
            what = f"{node.label} to catch up with the metadata log, before it becomes a voter"
        elif due:
            what = f"the turn of {node.label} to become a voter"
        elif forbidden is not None:
            what = f"{node.label} to become a voter: {forbidden}"
        else:
            due.append(
                AddVoter(
                    node_id=node.node_id,
                    directory_id=observer.directory_id,
                    endpoints=seen.configured or node.advertised,
                    reason=f"it has caught up as an observer, and becomes one of {view.size + 1} voters",
                )
            )
            what = f"{node.label} to catch up as a voter"
        rest.append(wait_for(what, node.node_id))
    return Part(due=tuple(due), rest=tuple(rest))


def _observer(observed: ObservedCluster, seen: ObservedNode) -> ObservedVoter | None:
    """Return the node as an observer, with the disk that it has now."""
    assert observed.kafka is not None
    return next(
        (
            observer
            for observer in observed.kafka.quorum.observers
            if observer.node_id == seen.node_id and seen.directory_id in (None, observer.directory_id)
        ),
        None,
    )


def _retire(desired: DesiredCluster, observed: ObservedCluster, view: QuorumView) -> Part:
    """Plan for controllers that are no longer voters and are not desired."""
    asked = {node.node_id for node in desired.of_role(Role.CONTROLLER)}
    return merge(
        _dismiss(seen, observed, desired.rollouts.get(seen.pool, RolloutPolicy()))
        for seen in observed.nodes.values()
        if seen.role is Role.CONTROLLER
        and not seen.is_forgotten
        and seen.node_id not in asked
        and seen.node_id not in view.voters
    )


def _dismiss(seen: ObservedNode, observed: ObservedCluster, policy: RolloutPolicy) -> Part:
    """Apply rule 4: stop the controller, wait for its unregistration, delete its volume by policy, and forget it."""
    node_id, name = seen.node_id, seen.label
    if seen.unreachable_host:
        return Part(
            rest=(
                wait_for(
                    f"the machine of {name} to answer or to be decommissioned: the controller may still run, "
                    "so its registration and its volume stay",
                    node_id,
                ),
            )
        )
    left: list[Step] = []
    if (mate := mate_of(seen, observed)) is not None:
        left.append(wait_for(f"the pod of {mate.label} to be restarted without {name}, or to end", node_id))
    elif seen.state.runs:
        allowed_ms = grace_ms(seen.role, policy)
        left.append(StopNode(node_id=node_id, grace_ms=allowed_ms, reason="it has left the quorum"))
    if awaits_unregistration(observed, node_id):
        left.append(wait_for(f"{name} to be unregistered", node_id))
    if seen.has_volume and policy.volumes is VolumePolicy.DELETE:
        left.append(
            DeleteVolume(node_id=node_id, reason="it was decommissioned, and its pool deletes volumes")
        )
    if has_publications(observed, node_id):
        left.append(
            wait_for(f"the addresses that point at {name} to be withdrawn, before it is forgotten", node_id)
        )
    kept = "; its volume is kept" if seen.has_volume and policy.volumes is VolumePolicy.RETAIN else ""
    left.append(ForgetNode(node_id=node_id, reason=f"it has left{kept}"))
    # One step in each plan: the next one needs to observe that it was done.
    if isinstance(left[0], WaitFor):
        return Part(rest=tuple(left))
    first, others = left[0], left[1:]
    after = [wait_for(f"{name} to be gone", node_id)] if others else []
    return Part(due=(first,), rest=(*after, *others))
