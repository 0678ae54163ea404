"""The rack of a broker by a label of the machine that its pod is on.

A pod can't read labels of machines. The operator reads the label when the pod has a machine, and writes it into an
annotation of the pod, which kubelet shows to the pod as a file. An init container waits for it, and Kafka's
DirectoryConfigProvider reads it.
"""

from quorate_operator.models.v1alpha1 import KafkaBroker
from quorate_operator.planning.cluster import DesiredNode
from quorate_operator.resources.facts import Context, Object
from quorate_operator.resources.names import ANNOTATION_RACK
from quorate_operator.security import DIRECTORY_PROVIDER, directory_variable

RACK_CONTAINER = "await-rack"
RACK_DIRECTORY = "/etc/quorate-rack"
RACK_FILE = "rack"
_VOLUME = "rack"
# As the first process of its container, a shell gets a signal only if it traps it.
_AWAIT = "trap 'exit 1' TERM; until [ -s \"$0\" ]; do sleep 1 & wait $!; done"


def topology_key(context: Context, pool: str) -> str | None:
    """Returns the label of machines that names the racks of a pool; None if it has none."""
    found = context.pool(pool)
    return found.spec.rack.topology_key if isinstance(found, KafkaBroker) and found.spec.rack else None


def rack_properties(context: Context, node: DesiredNode) -> dict[str, str]:
    """Returns the node's properties that name its rack."""
    if topology_key(context, node.pool) is not None:
        return {**DIRECTORY_PROVIDER, "broker.rack": directory_variable(RACK_DIRECTORY, RACK_FILE)}
    return {} if node.rack is None else {"broker.rack": node.rack}


def rack_volumes(context: Context, node: DesiredNode) -> list[Object]:
    """Returns the volume that shows the annotation as a file."""
    if topology_key(context, node.pool) is None:
        return []
    field = {"fieldPath": f"metadata.annotations['{ANNOTATION_RACK}']"}
    return [{"name": _VOLUME, "downwardAPI": {"items": [{"path": RACK_FILE, "fieldRef": field}]}}]


def rack_mounts(context: Context, node: DesiredNode) -> list[Object]:
    if topology_key(context, node.pool) is None:
        return []
    return [{"name": _VOLUME, "mountPath": RACK_DIRECTORY, "readOnly": True}]


def await_rack_command() -> list[str]:
    """Returns the command of the init container that ends when the rack is known."""
    return ["sh", "-c", _AWAIT, f"{RACK_DIRECTORY}/{RACK_FILE}"]


def awaits_rack(pod: Object) -> bool:
    """Whether a pod was made for a rack that is read from its machine."""
    return any(volume["name"] == _VOLUME and "downwardAPI" in volume for volume in pod["spec"]["volumes"])
