"""New volumes for a node whose disk fails or whose machine is gone. One node at a time. Pure.

A user requests them by annotation; with `storage.unbindAfter`, volumes of which the machine is gone for that time are
replaced without a request. The claims are deleted while the node runs, and go when it stops: the roll restarts it by
the rules of every restart, and its next start has new volumes. A broker copies its replicas again; a controller joins
as another voter. It is refused where the volume has the only copy of something. The new volumes carry the text of the
request, which is done once.
"""

from dataclasses import dataclass, field

from quorate_operator.planning.cluster import (
    DesiredCluster,
    DesiredNode,
    NodeState,
    ObservedCluster,
    ObservedNode,
    Role,
    RolloutPolicy,
)
from quorate_operator.planning.losses import LostVolumes
from quorate_operator.planning.membership import is_changing
from quorate_operator.planning.restart_obstacles import named_partitions
from quorate_operator.planning.safety import view_quorum
from quorate_operator.planning.steps import Part, Refusal, ReplaceVolumes, WaitFor, wait_for
from quorate_operator.planning.volumes import has_lost_volumes, loses_volumes

REFUSED = "ReplacementRefused"
VOTERS_MIN = 3
"""With fewer voters, no majority is left when one of them and its disk are gone."""


def plan_replacement(desired: DesiredCluster, observed: ObservedCluster, now_ms: int) -> Part:
    """Plan the replacement of the volumes of one node, with waits and refusals for the others."""
    planning = _Planning(desired, observed, now_ms)
    for node in desired.nodes:
        seen = observed.nodes[node.node_id]
        if seen.has_volume and not loses_volumes(seen):
            planning.plan(node, seen)
    return Part(due=tuple(planning.due), rest=tuple(planning.rest), refusals=tuple(planning.refusals))


@dataclass(slots=True)
class _Planning:
    desired: DesiredCluster
    observed: ObservedCluster
    now_ms: int
    due: list[ReplaceVolumes] = field(default_factory=list)
    rest: list[WaitFor] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)

    def plan(self, node: DesiredNode, seen: ObservedNode) -> None:
        """Plan for a node that has volumes."""
        lost = seen.lost_volumes
        if node.replacement not in (None, seen.replacement):
            self._replace(node, "requested by annotation", lost)
            return
        after_ms = self.desired.rollouts.get(node.pool, RolloutPolicy()).unbind_after_ms
        if lost is None or after_ms is None:
            return
        due_ms = lost.since_ms + after_ms
        if self.now_ms < due_ms:
            what = f"the volumes of {node.label} to be found again or unbound: {lost.reason}"
            if lost.is_known:
                self.rest.append(wait_for(what, node.node_id, until_ms=due_ms))
        elif not lost.is_known:
            self._refuse(node, f"whether their machine is gone is not known: {lost.reason}")
        elif lost.has_pod:
            self._refuse(
                node,
                f"{lost.reason}, and its pod is still there and may run: if the machine is gone, delete its Node "
                "object or taint it with node.kubernetes.io/out-of-service, and Kubernetes removes the pod",
            )
        else:
            self._replace(node, f"storage.unbindAfter has passed: {lost.reason}", lost)

    def _replace(self, node: DesiredNode, reason: str, lost: LostVolumes | None) -> None:
        if (refusal := _refusal(node, self.observed, lost)) is not None:
            self._refuse(node, refusal)
            return
        obstacle = _obstacle(node, self.desired, self.observed)
        if obstacle is None and not self.due:
            self.due.append(ReplaceVolumes(node_id=node.node_id, reason=reason))
        else:
            turn = obstacle or "one node at a time"
            what = f"the replacement of the volumes of {node.label}: {turn}"
            self.rest.append(wait_for(what, node.node_id))

    def _refuse(self, node: DesiredNode, reason: str) -> None:
        message = f"{node.label}: its volumes stay: {reason}"
        self.refusals.append(Refusal(REFUSED, message, pool=node.pool))


def _refusal(node: DesiredNode, observed: ObservedCluster, lost: LostVolumes | None) -> str | None:
    """Return what would be lost with the volumes; None if nothing is, or if that is not known."""
    if observed.kafka is None:
        return None
    load = observed.kafka.loads.get(node.node_id)
    if node.role is Role.BROKER and load is not None and load.sole:
        named = named_partitions(load.sole, load.sole_first)
        copies = f"no other broker has an in-sync replica of {named}"
        if lost is None or not lost.is_known:
            return f"{copies}: reassign these, or wait for other replicas"
        return (
            f"{lost.reason}, and {copies}: bring that machine back. If it is gone for good, delete these topics, or "
            "delete the PersistentVolumeClaims of the broker by hand"
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
        # What waits for lost volumes does not come back: the replicas and the voters that are left decide.
        if seen.state is not NodeState.READY and not (other.skips_rollout or has_lost_volumes(seen)):
            return f"{other.label} is not ready ({seen.state})"
    if node.role is Role.CONTROLLER:
        return view.forbids_stop(node.node_id) or view.forbids_removal(node.node_id)
    is_registered = node.node_id in observed.kafka.registrations
    is_known = node.node_id in observed.kafka.loads or not is_registered
    return None if is_known else "its replicas are not known yet"
