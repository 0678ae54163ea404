"""Pods that wait for volumes on Kubernetes nodes that are gone.

A local volume can be used on one Kubernetes node alone, as the affinity of its PersistentVolume says. A pod with such
a volume is never scheduled again if that node was removed. Volumes, which no user of a namespace may read, are
read one by one, and only while a pod can't be scheduled.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from quorate_operator.planning.losses import LostVolumes
from quorate_operator.runtime.kubernetes.api import Object
from quorate_operator.runtime.kubernetes.kubernetes_nodes import KubernetesNodes, NodesForbiddenError
from quorate_operator.runtime.kubernetes.observation import NodeObjects, is_node_gone, time_ms

HOST_LABELS = (
    "kubernetes.io/hostname",
    "openebs.io/nodename",
    "topology.hostpath.csi/node",
    "topology.topolvm.io/node",
)
"""Labels that have another value on each Kubernetes node, by which local volumes name theirs."""
HOST_FIELD = "metadata.name"

_FORBIDDEN = "the operator may not read Node objects and PersistentVolumes: see rbac.readNodes of the chart"


class Host(NamedTuple):
    """What names the Kubernetes nodes that can use a volume: the label or the field `key` has one of the values."""

    key: str
    values: tuple[str, ...]

    def __str__(self) -> str:
        return " or ".join(self.values)


async def lost_volumes(kubernetes_nodes: KubernetesNodes, objects: NodeObjects) -> LostVolumes | None:
    """Return why the pod of a node waits for its volumes in vain; None if it does not. Raises ApiError."""
    pod = objects.pod
    if pod is None:
        return None
    try:
        if machine := pod["spec"].get("nodeName"):
            return await _lost_with_pod(kubernetes_nodes, pod, machine)
        since_ms = unschedulable_since_ms(pod)
        if since_ms is None:
            return None
        for claim in objects.claims.values():
            lost = await _lost(kubernetes_nodes, claim)
            if lost is not None:
                return lost._replace(since_ms=max(lost.since_ms, since_ms))
    except NodesForbiddenError:
        since_ms = unschedulable_since_ms(pod)
        return None if since_ms is None else LostVolumes(_FORBIDDEN, since_ms, is_known=False)
    return None


def unschedulable_since_ms(pod: Object) -> int | None:
    """Return since when the scheduler finds no Kubernetes node for a pod; None if it does, or has not tried."""
    if pod["metadata"].get("deletionTimestamp") is not None:
        return None
    for condition in pod.get("status", {}).get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            changed = condition.get("lastTransitionTime") or pod["metadata"].get("creationTimestamp")
            return time_ms(changed) if condition.get("reason", "Unschedulable") == "Unschedulable" else None
    return None


def hosts_of(volume: Object) -> tuple[Host, ...]:
    """Return the Kubernetes nodes that can use a volume; none if it is not bound to single ones."""
    affinity = volume.get("spec", {}).get("nodeAffinity", {}).get("required", {})
    hosts = [_host_of(term) for term in affinity.get("nodeSelectorTerms") or ()]
    named = tuple(host for host in hosts if host is not None)
    return named if len(named) == len(hosts) else ()


def _host_of(term: Mapping[str, Any]) -> Host | None:
    """Return what a term of an affinity says of single Kubernetes nodes. All of its expressions hold."""
    fields = [item for item in term.get("matchFields") or () if item["key"] == HOST_FIELD]
    labels = [item for item in term.get("matchExpressions") or () if item["key"] in HOST_LABELS]
    for item in (*fields, *labels):
        if item.get("operator") == "In" and item.get("values"):
            return Host(item["key"], tuple(item["values"]))
    return None


async def _lost(kubernetes_nodes: KubernetesNodes, claim: Object) -> LostVolumes | None:
    name = claim["spec"].get("volumeName")
    if not name:
        return None
    volume = await kubernetes_nodes.volume(name)
    if volume is None:
        return LostVolumes(f"the PersistentVolume {name} was removed", 0)
    hosts = hosts_of(volume)
    if not hosts:
        return None
    found = [node for host in hosts for node in await _existing(kubernetes_nodes, host)]
    named = f"the Kubernetes node {' or '.join(map(str, hosts))}, which has its volume,"
    if not found:
        return LostVolumes(f"{named} was removed", 0)
    if not all(is_node_gone(node) for node in found):
        return None
    return LostVolumes(f"{named} does not answer", _unready_since_ms(found))


async def _existing(kubernetes_nodes: KubernetesNodes, host: Host) -> list[Object]:
    if host.key != HOST_FIELD:
        return await kubernetes_nodes.with_label(host.key, host.values)
    named = [await kubernetes_nodes.find(name) for name in host.values]
    return [node for node in named if node is not None]


async def _lost_with_pod(kubernetes_nodes: KubernetesNodes, pod: Object, machine: str) -> LostVolumes | None:
    """Return that the Kubernetes node on which the pod is does not answer, or None."""
    if not await kubernetes_nodes.is_gone(pod):
        return None
    node = await kubernetes_nodes.find(machine)
    since_ms = _unready_since_ms([pod] if node is None else [pod, node])
    return LostVolumes(
        f"the Kubernetes node {machine} {'was removed' if node is None else 'does not answer'}",
        since_ms or time_ms(pod["metadata"].get("creationTimestamp")) or 0,
        has_pod=True,
    )


def _unready_since_ms(items: Iterable[Object]) -> int:
    """Return since when all of these Kubernetes nodes, or pods, are not ready; 0 if none of them has a time."""
    times = [
        time_ms(condition.get("lastTransitionTime"))
        for item in items
        for condition in item.get("status", {}).get("conditions") or ()
        if condition["type"] == "Ready"
    ]
    return max((at_ms for at_ms in times if at_ms is not None), default=0)
