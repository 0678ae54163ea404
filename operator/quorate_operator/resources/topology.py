"""Racks of brokers, and the spread of pods over nodes and zones of Kubernetes.

A pod can't read labels of its node. The operator reads the label once the pod is scheduled, and writes it into an
annotation of the pod, which kubelet shows to the pod as a file. An init container waits for it, and Kafka's
DirectoryConfigProvider reads it.
"""

from quorate_operator.models.v1alpha1 import KafkaBroker
from quorate_operator.planning.cluster import DesiredNode, Role
from quorate_operator.resources.facts import Context, Object
from quorate_operator.resources.names import ANNOTATION_RACK, cluster_labels
from quorate_operator.security import DIRECTORY_PROVIDER, directory_variable

RACK_CONTAINER = "await-rack"
RACK_DIRECTORY = "/etc/quorate-rack"
RACK_FILE = "rack"
_VOLUME = "rack"
# As the first process of its container, a shell gets a signal only if it traps it.
_AWAIT = "trap 'exit 1' TERM; until [ -s \"$0\" ]; do sleep 1 & wait $!; done"
HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"


def topology_key(context: Context, pool: str) -> str | None:
    """Return the label of Kubernetes nodes that has the racks of a pool; None without one."""
    found = context.pool(pool)
    return found.spec.rack.topology_key if isinstance(found, KafkaBroker) and found.spec.rack else None


def rack_properties(context: Context, node: DesiredNode) -> dict[str, str]:
    """Return the node's properties that name its rack."""
    if topology_key(context, node.pool) is not None:
        return {**DIRECTORY_PROVIDER, "broker.rack": directory_variable(RACK_DIRECTORY, RACK_FILE)}
    return {} if node.rack is None else {"broker.rack": node.rack}


def rack_volumes(context: Context, node: DesiredNode) -> list[Object]:
    """Return the volume that shows the annotation as a file."""
    if topology_key(context, node.pool) is None:
        return []
    field = {"fieldPath": f"metadata.annotations['{ANNOTATION_RACK}']"}
    return [{"name": _VOLUME, "downwardAPI": {"items": [{"path": RACK_FILE, "fieldRef": field}]}}]


def rack_mounts(context: Context, node: DesiredNode) -> list[Object]:
    if topology_key(context, node.pool) is None:
        return []
    return [{"name": _VOLUME, "mountPath": RACK_DIRECTORY, "readOnly": True}]


def await_rack_command() -> list[str]:
    """Return the command of the init container that ends when the rack is known."""
    return ["sh", "-c", _AWAIT, f"{RACK_DIRECTORY}/{RACK_FILE}"]


def awaits_rack(pod: Object) -> bool:
    """Whether a pod was created for a rack that is read from its Kubernetes node."""
    return any(volume["name"] == _VOLUME and "downwardAPI" in volume for volume in pod["spec"]["volumes"])


def preferred_spread(context: Context, node: DesiredNode) -> list[Object]:
    """Return the template's constraints, or the default ones of a node whose volume may keep it where it is.

    Constraints without a selector are about the pods of the node's role. By default no constraint is required: a
    volume may bind a pod to a node or zone that has more than its share.
    """
    selector = _selector(context, node.role)
    given = context.pool(node.pool).spec.template.topology_spread_constraints
    if given is not None:
        return [selector | dict(constraint) for constraint in given]
    return [_constraint(key, selector) for key in (HOSTNAME, topology_key(context, node.pool) or ZONE)]


def first_spread(context: Context, node: DesiredNode) -> list[Object]:
    """Return the constraints of a node with a new volume, which is created where the pod is scheduled.

    By default, the spread over racks is required where the pool names them, and the spread over nodes otherwise.
    Each Kubernetes node has the label with its name, while a required label that no node has would make pods
    unschedulable.
    """
    if context.pool(node.pool).spec.template.topology_spread_constraints is not None:
        return preferred_spread(context, node)
    selector = _selector(context, node.role)
    required = topology_key(context, node.pool) or HOSTNAME
    preferred = [
        constraint for constraint in preferred_spread(context, node) if constraint["topologyKey"] != required
    ]
    # Nodes that accept no such pods are not counted, such as those of the control plane, and cordoned ones.
    strict = {"whenUnsatisfiable": "DoNotSchedule", "nodeTaintsPolicy": "Honor"}
    return [_constraint(required, selector) | strict, *preferred]


def _selector(context: Context, role: Role) -> Object:
    return {"labelSelector": {"matchLabels": cluster_labels(context, role)}}


def _constraint(key: str, selector: Object) -> Object:
    return {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "ScheduleAnyway", **selector}
