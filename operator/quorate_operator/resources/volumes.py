"""The PersistentVolumeClaim of a node. Nobody owns it: data outlives resources unless it is told to go."""

from quorate_operator.planning.cluster import DesiredNode
from quorate_operator.resources.facts import Context, Object
from quorate_operator.resources.names import labels_of, metadata, volume_claim_name


def volume_claim(context: Context, node: DesiredNode) -> Object:
    """The claim of one node; applying it again with a larger size makes the volume grow where it can."""
    storage = context.pool(node.pool).spec.storage
    spec: Object = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": storage.size}},
    }
    if storage.class_name is not None:
        spec["storageClassName"] = storage.class_name
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": metadata(context, volume_claim_name(node.pool, node.node_id), labels_of(context, node)),
        "spec": spec,
    }
