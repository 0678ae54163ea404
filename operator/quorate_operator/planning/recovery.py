"""Rebuilds a quorum that has lost its majority for good from one disk, if the manifest names that disk.

A quorum is lost if no leader answers and the disks of a majority are gone. A machine that does not answer may run a
live voter, so its disk counts as present. The steps, only with `spec.recovery`, which names the survivor:

    stop everything -> RebuildQuorum(survivor), which stores a new Formation
    -> the other controllers' disks are deleted -> the survivor starts -> it leads -> the others join with new disks

A request is for one loss, which cluster id and last leader epoch name. The rebuilt quorum has a higher epoch, and so
has one that came back by itself: a request that stays in a manifest is not carried out a second time.
"""

from quorate_admin.diagnosis import majority

from quorate_operator.planning.cluster import (
    DesiredCluster,
    Formation,
    NodeState,
    ObservedCluster,
    ObservedNode,
    Role,
)
from quorate_operator.planning.formation import Phase, phase_of
from quorate_operator.planning.lifecycle import GRACE_WITHOUT_QUORUM_MS, grace_ms
from quorate_operator.planning.losses import RecoveryRequest
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
    if not is_lost(desired, observed) or formation is None or not _is_meant(desired, formation):
        return None
    assert desired.recovery is not None, "a request is meant"
    survivor = observed.nodes.get(desired.recovery.survivor)
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
        rest = (wait_for("every node to have stopped"), _rebuild(survivor, formation))
        return Part(due=tuple(stops), rest=rest)
    return Part(due=(_rebuild(survivor, formation),), rest=(wait_for("the quorum to be rebuilt"),))


def _is_meant(desired: DesiredCluster, formation: Formation) -> bool:
    """Whether the manifest asks for the recovery of the quorum as it was seen last."""
    asked = desired.recovery
    return asked is not None and (asked.cluster_id, asked.leader_epoch) == (
        formation.cluster_id,
        formation.leader_epoch,
    )


def refuse_without_quorum(desired: DesiredCluster, observed: ObservedCluster) -> tuple[Refusal, ...]:
    """Return what to do about a lost quorum, or that a request would be carried out as soon as it is lost."""
    formation, asked = observed.formation, desired.recovery
    if formation is None:
        return ()
    if not is_lost(desired, observed):
        if observed.kafka is None or not _is_meant(desired, formation):
            return ()
        message = (
            f"the quorum has a leader in epoch {formation.leader_epoch}, and spec.recovery asks to rebuild it from "
            f"this epoch: remove recovery, so that a loss of the quorum is not followed by a loss of records"
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
        request = RecoveryRequest(disks[0].node_id, formation.cluster_id, formation.leader_epoch)
        others = " or ".join(str(seen.node_id) for seen in disks[1:])
        way = (
            "Bring their volumes back. If they are gone for good, the quorum can be rebuilt from one controller's "
            "disk; what is not on that disk is lost. To do that, set in KafkaController "
            f"{desired.name} spec.recovery: {request}"
        )
        if others:
            way += f", or with the survivor {others}"
        if asked is not None and not _is_meant(desired, formation):
            way += f". It is set to {asked}, which is another loss than this one"
        elif asked is not None:
            way += f". It is set to {asked.survivor}, which is not a controller with a disk"
    return (Refusal("QuorumLost", f"the quorum has lost a majority of its disks: {states}. {way}"),)


def _rebuild(survivor: ObservedNode, formation: Formation) -> RebuildQuorum:
    return RebuildQuorum(
        node_id=survivor.node_id,
        above_epoch=formation.leader_epoch,
        reason=f"requested by spec.recovery: only what is on the disk of {survivor.label} is kept",
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
