"""New volumes for a node at the request of a user: its disk fails, or its machine is gone. One node at a time. Pure.

The claims are deleted while the node runs, and go when it stops: the roll restarts it by the rules of every restart,
and its next start has new volumes. A broker copies its replicas again; a controller joins as another voter. It is
refused where the volume has the only copy of something. The new volumes carry the text of the request, which is done
once.
"""

from quorate_operator.planning.cluster import (
    DesiredCluster,
    DesiredNode,
    NodeState,
    ObservedCluster,
    ObservedNode,
    Role,
)
from quorate_operator.planning.membership import is_changing
from quorate_operator.planning.restart_obstacles import named_partitions
from quorate_operator.planning.safety import view_quorum
from quorate_operator.planning.steps import Part, Refusal, ReplaceVolumes, WaitFor, wait_for
from quorate_operator.planning.volumes import loses_volumes

REFUSED = "ReplacementRefused"
VOTERS_MIN = 3
"""With fewer voters, no majority is left when one of them and its disk are gone."""


def plan_replacement(desired: DesiredCluster, observed: ObservedCluster) -> Part:
    """Plan the replacement of the volumes of one node, with waits and refusals for the others."""
    due: list[ReplaceVolumes] = []
    rest: list[WaitFor] = []
    refusals: list[Refusal] = []
    for node in desired.nodes:
        seen = observed.nodes[node.node_id]
        if not _is_requested(node, seen):
            continue
        if (refusal := _refusal(node, observed)) is not None:
            refusals.append(Refusal(REFUSED, f"{node.label}: its volumes stay: {refusal}", pool=node.pool))
            continue
        obstacle = _obstacle(node, desired, observed)
        if obstacle is None and not due:
            due.append(ReplaceVolumes(node_id=node.node_id, reason="requested by annotation"))
        else:
            turn = obstacle or "one node at a time"
            rest.append(wait_for(f"the replacement of the volumes of {node.label}: {turn}", node.node_id))
    return Part(due=tuple(due), rest=tuple(rest), refusals=tuple(refusals))


def _is_requested(node: DesiredNode, seen: ObservedNode) -> bool:
    """Whether its volumes are not those of the request, and are not on their way out."""
    return node.replacement not in (None, seen.replacement) and seen.has_volume and not loses_volumes(seen)


def _refusal(node: DesiredNode, observed: ObservedCluster) -> str | None:
    """Return what would be lost with the volumes; None if nothing is, or if that is not known."""
    if observed.kafka is None:
        return None
    load = observed.kafka.loads.get(node.node_id)
    if node.role is Role.BROKER and load is not None and load.sole:
        named = named_partitions(load.sole, load.sole_first)
        return (
            f"no other broker has an in-sync replica of {named}: reassign these, or wait for other replicas"
        )
    view = view_quorum(observed)
    if node.role is Role.CONTROLLER and view is not None and not view.is_dynamic:
        return "the quorum is static, and a voter with an empty disk could vote for less. Set spec.quorum: dynamic"
    if node.role is Role.CONTROLLER and view is not None and view.size < VOTERS_MIN:
        return f"the others of {view.size} voters are no majority. Have {VOTERS_MIN} controllers or more"
    return None


def _obstacle(node: DesiredNode, desired: DesiredCluster, observed: ObservedCluster) -> str | None:
    """Return why the volumes are not replaced now, or None."""
    view = view_quorum(observed)
    if view is None or observed.kafka is None:
        return "no leader of the quorum answers"
    if is_changing(desired, observed):
        return "the quorum's voters change"
    if observed.nodes[node.node_id].unreachable_host:
        return "its machine does not answer, and its pod is still there"
    for other in desired.nodes:
        seen = observed.nodes[other.node_id]
        if other.node_id == node.node_id:
            continue
        if loses_volumes(seen):
            return f"{other.label} gets new volumes"
        if seen.state is not NodeState.READY and not other.skips_rollout:
            return f"{other.label} is not ready ({seen.state})"
    if node.role is Role.CONTROLLER:
        return view.forbids_stop(node.node_id) or view.forbids_removal(node.node_id)
    is_registered = node.node_id in observed.kafka.registrations
    is_known = node.node_id in observed.kafka.loads or not is_registered
    return None if is_known else "its replicas are not known yet"
