"""Rebuilds a quorum that has lost its majority for good from one disk, if an annotation names that disk.

A quorum is lost if no leader answers and the disks of a majority are gone. A machine that does not answer may run a
live voter, so its disk counts as present. The steps, only with the annotation that names the survivor:

    stop everything -> RebuildQuorum(survivor), which stores a new Formation
    -> the other controllers' disks are deleted -> the survivor starts -> it leads -> the others join with new disks
"""

from quorate_admin.diagnosis import majority

from quorate_operator.models.base import ANNOTATION_RECOVER
from quorate_operator.planning.cluster import (
    DesiredCluster,
    NodeState,
    ObservedCluster,
    ObservedNode,
    Role,
)
from quorate_operator.planning.formation import Phase, phase_of
from quorate_operator.planning.lifecycle import GRACE_WITHOUT_QUORUM_MS, grace_ms
from quorate_operator.planning.steps import (
    Action,
    DeleteVolume,
    Part,
    RebuildQuorum,
    Refusal,
    StopNode,
    wait_for,
)
from quorate_operator.planning.volumes import has_lost_volumes


def is_lost(desired: DesiredCluster, observed: ObservedCluster) -> bool:
    """Whether a majority of the controllers' disks is gone, and no leader answers."""
    if observed.quorum is not None or phase_of(observed) is not Phase.FORMED:
        return False
    known = _controllers(desired, observed)
    return len(_with_disk(known)) < majority(len(known))


def plan_recovery(desired: DesiredCluster, observed: ObservedCluster) -> Part | None:
    """Plan while a quorum is lost or is being rebuilt; None if neither is so."""
    formation = observed.formation
    if phase_of(observed) is Phase.FORMING and formation is not None and formation.is_rebuilt:
        return _clear_the_others(desired, observed, next(iter(formation.initial_voters)))
    if not is_lost(desired, observed) or desired.survivor is None:
        return None
    survivor = observed.nodes.get(desired.survivor)
    if survivor is None or survivor not in _with_disk(_controllers(desired, observed)):
        return None
    away = [seen for seen in _with_disk(_controllers(desired, observed)) if seen.unreachable_host]
    if away:
        names = ", ".join(seen.label for seen in away)
        what = (
            f"the machine of {names} to answer or to be decommissioned: what runs there may still be a quorum"
        )
        return Part(rest=(wait_for(what, *(seen.node_id for seen in away)),))
    # A pod that waits for lost volumes runs nothing. Without it they would count as disks again.
    running = [seen for seen in observed.nodes.values() if seen.state.runs and not has_lost_volumes(seen)]
    if running:
        stops = [
            StopNode(
                node_id=seen.node_id,
                grace_ms=grace_ms(seen.role, desired.rollouts.get(seen.pool))
                if seen.role is Role.CONTROLLER
                else GRACE_WITHOUT_QUORUM_MS,
                reason=f"the quorum is rebuilt from the disk of {survivor.label}",
            )
            for seen in running
        ]
        rest = (wait_for("every node to have stopped"), _rebuild(survivor))
        return Part(due=tuple(stops), rest=rest)
    return Part(due=(_rebuild(survivor),), rest=(wait_for("the quorum to be rebuilt"),))


def refuse_without_quorum(desired: DesiredCluster, observed: ObservedCluster) -> tuple[Refusal, ...]:
    """Return what to do about a lost quorum, or that an old annotation should be removed."""
    if not is_lost(desired, observed):
        if desired.survivor is None or observed.kafka is None:
            return ()
        message = (
            f"the quorum has a leader, and {ANNOTATION_RECOVER} is still set to {desired.survivor}: "
            "remove the annotation, so that it has no effect later"
        )
        return (Refusal("RecoveryNotNeeded", message),)
    known = _controllers(desired, observed)
    disks = _with_disk(known)
    states = "; ".join(f"{seen.label} {_state(seen)}" for seen in known)
    if not disks:
        way = (
            "No disk is left to rebuild it from. Bring a controller's volume back, or delete the cluster "
            "and create a new one; brokers' volumes belong to the cluster that is lost"
        )
    else:
        # The last leader, or the controller with the longest log, is the best choice; neither is known here.
        names = " or ".join(f'"{seen.node_id}"' for seen in disks)
        way = (
            "Bring their volumes back. If they are gone for good, the quorum can be rebuilt from one controller's "
            "disk; what is not on that disk is lost. To do that, annotate KafkaController "
            f"{desired.name} with {ANNOTATION_RECOVER}: {names}"
        )
        if desired.survivor is not None and desired.survivor not in {seen.node_id for seen in disks}:
            way += f". It is set to {desired.survivor}, which is not a controller with a disk"
    return (Refusal("QuorumLost", f"the quorum has lost a majority of its disks: {states}. {way}"),)


def _rebuild(survivor: ObservedNode) -> RebuildQuorum:
    return RebuildQuorum(
        node_id=survivor.node_id,
        reason=f"requested by {ANNOTATION_RECOVER}: only what is on the disk of {survivor.label} is kept",
    )


def _clear_the_others(desired: DesiredCluster, observed: ObservedCluster, survivor: int) -> Part | None:
    """Delete the disks of the old quorum: their logs may continue where the survivor's ends."""
    due: list[Action] = []
    asked = {node.node_id for node in desired.of_role(Role.CONTROLLER)}
    for seen in _controllers(desired, observed):
        if seen.node_id == survivor or seen.unreachable_host:
            continue
        if seen.state.runs:
            due.append(
                StopNode(
                    node_id=seen.node_id,
                    grace_ms=grace_ms(seen.role, desired.rollouts.get(seen.pool)),
                    reason="it is not a voter of the rebuilt quorum",
                )
            )
        elif seen.node_id in asked and (seen.has_volume or seen.state is not NodeState.ABSENT):
            reason = f"the quorum is rebuilt from controller-{survivor}: this one joins it with an empty disk"
            due.append(DeleteVolume(node_id=seen.node_id, reason=reason))
    if not due:
        return None
    return Part(due=tuple(due), rest=(wait_for("the disks of the old quorum to be deleted"),))


def _controllers(desired: DesiredCluster, observed: ObservedCluster) -> list[ObservedNode]:
    """Return the controllers that are desired or exist, without forgotten ones."""
    asked = {node.node_id for node in desired.of_role(Role.CONTROLLER)}
    return [
        seen
        for node_id, seen in sorted(observed.nodes.items())
        if seen.role is Role.CONTROLLER and (node_id in asked or not seen.is_forgotten)
    ]


def _with_disk(controllers: list[ObservedNode]) -> list[ObservedNode]:
    return [
        seen
        for seen in controllers
        if seen.unreachable_host or (seen.state is not NodeState.ABSENT and not has_lost_volumes(seen))
    ]


def _state(seen: ObservedNode) -> str:
    if seen.unreachable_host:
        return "is on a machine that does not answer"
    if seen.state is NodeState.ABSENT:
        return "has no disk"
    if has_lost_volumes(seen):
        return "has its disk on a machine that is gone"
    return "has its disk and runs" if seen.state.runs else "has its disk and does not run"
