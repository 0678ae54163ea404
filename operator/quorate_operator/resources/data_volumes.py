"""The volumes of a node's data: claims, mounts, log directories. Volume 0 is that of a node with one volume."""

from quorate_operator.models.storage import METADATA_VOLUME
from quorate_operator.planning.cluster import DesiredNode
from quorate_operator.resources.facts import Context, Object
from quorate_operator.resources.names import LABEL_VOLUME, labels_of, metadata, volume_claim_name

VOLUME_DIRECTORY = "/var/lib/quorate"
DATA_DIRECTORY = f"{VOLUME_DIRECTORY}/data"
"""A directory below the root of the volume, because the root may have a lost+found, which Kafka takes for a
partition."""


def data_directory(volume_id: int) -> str:
    """Return the log directory in a volume."""
    return f"{_mount_path(volume_id)}/{DATA_DIRECTORY.removeprefix(f'{VOLUME_DIRECTORY}/')}"


def volumes_in_use(context: Context, node: DesiredNode) -> tuple[int, ...]:
    """Return the ids of the volumes that the node's next start uses, in order.

    A node without claims gets those of its manifest. One with claims uses what is there and not released: a volume
    that is added is created first, and one that is removed is used until it is empty.
    """
    wanted = {volume.id for volume in context.pool(node.pool).spec.storage.wanted}
    return tuple(sorted(context.facts.volumes.get(node.node_id, wanted) | {METADATA_VOLUME}))


def pod_volume(node: DesiredNode, volume_id: int) -> Object:
    """Return the volume of a pod."""
    claim = {"claimName": volume_claim_name(node.pool, node.node_id, volume_id)}
    return {"name": _pod_volume_name(volume_id), "persistentVolumeClaim": claim}


def volume_mount(volume_id: int) -> Object:
    """Return where a container has a volume."""
    return {"name": _pod_volume_name(volume_id), "mountPath": _mount_path(volume_id)}


def add_further_volumes(context: Context, node: DesiredNode, spec: Object, *containers: Object) -> None:
    """Add the volumes besides volume 0 to the spec of a pod and to some of its containers."""
    for volume_id in volumes_in_use(context, node):
        if volume_id != METADATA_VOLUME:
            spec["volumes"].append(pod_volume(node, volume_id))
            for container in containers:
                container["volumeMounts"].append(volume_mount(volume_id))


def volume_claim(context: Context, node: DesiredNode, volume_id: int = METADATA_VOLUME) -> Object:
    """Return a claim of one node. Applied with a larger size, the volume grows if its class allows it."""
    volumes = {volume.id: volume for volume in context.pool(node.pool).spec.storage.wanted}
    volume = volumes[volume_id]
    spec: Object = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": volume.size}},
    }
    if volume.class_name is not None:
        spec["storageClassName"] = volume.class_name
    labels = labels_of(context, node)
    if volume_id != METADATA_VOLUME:
        labels[LABEL_VOLUME] = str(volume_id)
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": metadata(context, volume_claim_name(node.pool, node.node_id, volume_id), labels),
        "spec": spec,
    }


def _mount_path(volume_id: int) -> str:
    return VOLUME_DIRECTORY if volume_id == METADATA_VOLUME else f"{VOLUME_DIRECTORY}-{volume_id}"


def _pod_volume_name(volume_id: int) -> str:
    return "data" if volume_id == METADATA_VOLUME else f"data-{volume_id}"
