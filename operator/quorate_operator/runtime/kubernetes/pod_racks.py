"""Tells each broker's pod its rack, as soon as it is on a machine."""

from collections.abc import Iterable, Mapping

from quorate_operator.resources.facts import Context
from quorate_operator.resources.names import ANNOTATION_RACK
from quorate_operator.resources.racks import awaits_rack, topology_key
from quorate_operator.runtime.kubernetes.api import Object
from quorate_operator.runtime.kubernetes.kubernetes_nodes import KubernetesNodes, NodesForbiddenError
from quorate_operator.runtime.kubernetes.objects import ClusterObjects
from quorate_operator.runtime.kubernetes.observation import NodeObjects, annotation


async def set_racks(
    objects: ClusterObjects, machines: KubernetesNodes, context: Context, nodes: Iterable[NodeObjects]
) -> Mapping[int, str]:
    """Writes the racks of pods that wait for theirs; returns why others have to wait on, by node id.

    A pod keeps the rack that it was told: its process has registered with it. Raises ApiError.
    """
    problems: dict[int, str] = {}
    pools = {pool.metadata.name for pool in context.manifests.brokers}
    for node in nodes:
        key = topology_key(context, node.pool) if node.pool in pools else None
        if key is None or node.pod is None or not _waits(node.pod):
            continue
        rack, problem = await _rack(machines, node.pod, key)
        if rack:
            await objects.annotate(node.pod, {ANNOTATION_RACK: rack})
        else:
            problems[node.node_id] = f"its rack is not known: {problem}"
    return problems


def _waits(pod: Object) -> bool:
    """Whether a pod is on a machine, and was not told its rack yet."""
    return (
        pod["spec"].get("nodeName") is not None
        and pod["metadata"].get("deletionTimestamp") is None
        and annotation(pod, ANNOTATION_RACK) is None
        and awaits_rack(pod)
    )


async def _rack(machines: KubernetesNodes, pod: Object, key: str) -> tuple[str | None, str]:
    """Returns the rack of a pod, or why it is not known."""
    # Newer releases of Kubernetes copy labels of zones and regions to pods, which needs no right to read machines.
    own = pod["metadata"].get("labels", {}).get(key)
    if own:
        return str(own), ""
    name = pod["spec"]["nodeName"]
    try:
        rack = await machines.label(name, key)
    except NodesForbiddenError:
        return None, f"the operator may not read the labels of {name}; see rbac.readNodes of the chart"
    return rack, f"the machine {name} has no label {key}"
