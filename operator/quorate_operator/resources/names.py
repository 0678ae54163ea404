"""Names, labels and annotations of what a cluster is made of, and who owns it."""

import re
from collections.abc import Mapping

from quorate_operator.models.object_names import dns_label, short_name
from quorate_operator.models.storage import METADATA_VOLUME
from quorate_operator.models.users import KafkaUser
from quorate_operator.models.v1alpha1 import API_VERSION, KafkaBroker, KafkaController
from quorate_operator.planning.cluster import Address, DesiredCluster, DesiredNode, Role
from quorate_operator.resources.facts import Context, Object

LABEL_CLUSTER = "quorate.dev/cluster"
LABEL_POOL = "quorate.dev/pool"
LABEL_NODE_ID = "quorate.dev/node-id"
LABEL_PURPOSE = "quorate.dev/purpose"
"""What a Service or pod is for besides running a node: `published-name`, `exposure`, `task`."""
LABEL_VOLUME = "quorate.dev/volume"
"""On claims of nodes with several volumes: the id of the volume. Volume 0 has no such label."""
LABEL_CONTROLLER_ID = "quorate.dev/controller-id"
"""On pods of brokers with a controller in them: the node id of the controller."""
LABEL_RUNS_CONTROLLER = "quorate.dev/runs-controller"
"""On the same pods: `true`, for selectors."""
LABEL_COMPONENT = "app.kubernetes.io/component"
LABEL_NAME = "app.kubernetes.io/name"
OPERATOR_COMPONENT = "operator"
"""The component that the operator's own pods have as a label: they may reach controllers."""

ANNOTATION_REVISION = "quorate.dev/revision"
"""On pods: the `DesiredNode.revision` that the pod was created with, as JSON."""
ANNOTATION_RENDERING = "quorate.dev/rendering"
"""On pods: the `DesiredNode.rendering` that the pod was created with, as JSON."""
ANNOTATION_ADVERTISED = "quorate.dev/advertised"
ANNOTATION_LISTENERS = "quorate.dev/listeners"
"""On ConfigMaps and pods: the listeners that the node was started with, see `models.started_listeners`."""
"""On pods and ConfigMaps: the advertised addresses, `host:port` by listener name, as JSON."""
ANNOTATION_RACK = "quorate.dev/rack"
"""On pods of brokers: the rack, by a label of the pod's Kubernetes node."""
ANNOTATION_HOST_IP = "quorate.dev/host-ip"
"""On ConfigMaps: the last status.hostIP of the node's pod."""
ANNOTATION_HOST_IPS = "quorate.dev/host-ips"
"""On ConfigMaps: the last status.hostIPs of the node's pod, separated by commas, where there are several."""
ANNOTATION_VERIFIED = "quorate.dev/verified"
"""On ConfigMaps: when a probe of each externally managed `host:port` reached the node, in Unix ms, as JSON."""
ANNOTATION_PUBLISHED = "quorate.dev/published"
"""On Services of published names: the ports, and when each was published and retired, as JSON."""
ANNOTATION_HOSTS = "quorate.dev/hosts"
"""On Services of Ingresses and Routes: the hosts that lead to the node, and when each was retired, as JSON."""

CONDITION_IN_SYNC = "quorate.dev/in-sync"
"""On pods of brokers, as a readiness gate: whether the broker is in service and its replicas are in sync."""

FINALIZER = "quorate.dev/cluster"
_DNS_LABEL = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")


def pod_name(pool: str, node_id: int) -> str:
    """Return the name of a node's pod and ConfigMap, which is its host name."""
    return f"{pool}-{node_id}"


def volume_claim_name(pool: str, node_id: int, volume_id: int = METADATA_VOLUME) -> str:
    """Return the name of a volume's claim; volume 0 has the name of a node's only volume."""
    # The name of a pool begins with a letter.
    return f"data-{pool}-{node_id}" if volume_id == METADATA_VOLUME else f"data-{volume_id}-{pool}-{node_id}"


def exposure_name(pool: str, node_id: int, listener: str) -> str:
    """Return the name of the Service that exposes a node's listener outside of Kubernetes."""
    return short_name(f"{pool}-{node_id}-{dns_label(listener)}")


def bootstrap_name(pool: str) -> str:
    """Return the name of the Service that leads to any broker of a pool."""
    return short_name(f"{pool}-bootstrap")


def exposure_bootstrap_name(pool: str, listener: str) -> str:
    """Return the name of what leads clients outside of Kubernetes to any broker: a Service, Ingress or Route."""
    return short_name(f"{pool}-bootstrap-{dns_label(listener)}")


def pool_names(context: Context) -> frozenset[str]:
    """Return the names of a cluster's resources, which their headless Services have, too."""
    manifests = context.manifests
    return frozenset(
        (manifests.controllers.metadata.name, *(pool.metadata.name for pool in manifests.brokers))
    )


def is_service_name(text: str) -> bool:
    """Whether a Service may have this name (RFC 1035)."""
    return _DNS_LABEL.fullmatch(text) is not None


def pod_host(context: Context, pool: str, node_id: int) -> str:
    """Return the pod's name from the headless Service, which always belongs to this node."""
    return f"{pod_name(pool, node_id)}.{pool}.{context.namespace}.svc"


def named_by(context: Context, node: DesiredNode) -> tuple[str, int]:
    """Return the pool and the node id that a node's pod is named by: its broker's for a controller in its pod."""
    pool = context.manifests.controllers.spec.placement.pool
    if node.role is Role.CONTROLLER and node.pod_mate is not None and pool is not None:
        return pool, node.pod_mate
    return node.pool, node.node_id


def node_host(context: Context, node: DesiredNode) -> str:
    """Return `pod_host` of a node."""
    return pod_host(context, *named_by(context, node))


def pods_of_node(context: Context, node: DesiredNode) -> dict[str, str]:
    """Return labels of the pod of a node, for selectors."""
    if node.role is Role.CONTROLLER and node.pod_mate is not None:
        return {LABEL_CLUSTER: context.cluster, LABEL_CONTROLLER_ID: str(node.node_id)}
    return node_labels(context, node.pool, node.role, node.node_id)


def pods_with_controllers(context: Context, desired: DesiredCluster) -> dict[str, str]:
    """Return labels of the pods that controllers run in, for selectors."""
    if desired.has_shared_pods:
        return {LABEL_CLUSTER: context.cluster, LABEL_RUNS_CONTROLLER: "true"}
    return pool_labels(context, context.cluster, Role.CONTROLLER)


def cluster_labels(context: Context, role: Role) -> dict[str, str]:
    """Return labels of all objects of one role in a cluster, for selectors."""
    return {LABEL_CLUSTER: context.cluster, LABEL_COMPONENT: role.value}


def pool_labels(context: Context, pool: str, role: Role) -> dict[str, str]:
    """Return labels of all objects of a pool, for selectors."""
    return {**cluster_labels(context, role), LABEL_POOL: pool}


def node_labels(context: Context, pool: str, role: Role, node_id: int) -> dict[str, str]:
    """Return labels of one node's objects, for selectors."""
    return {**pool_labels(context, pool, role), LABEL_NODE_ID: str(node_id)}


def descriptive_labels(context: Context, version: str | None = None) -> dict[str, str]:
    """Return Kubernetes' recommended labels, which no selector uses."""
    labels = {
        LABEL_NAME: "quorate",
        "app.kubernetes.io/instance": context.cluster,
        "app.kubernetes.io/managed-by": "quorate",
        "app.kubernetes.io/part-of": context.cluster,
    }
    return labels | ({"app.kubernetes.io/version": version} if version else {})


def labels_of(context: Context, node: DesiredNode) -> dict[str, str]:
    own = node_labels(context, node.pool, node.role, node.node_id)
    return descriptive_labels(context, node.kafka_version) | own


def owner_references(owner: KafkaController | KafkaBroker) -> list[Object]:
    """Return the reference with which objects are deleted together with `owner`; none while it has no uid."""
    return [] if owner.metadata.uid is None else [{**owner_reference(owner), "blockOwnerDeletion": True}]


def owner_reference(owner: KafkaController | KafkaBroker | KafkaUser) -> Object:
    """Return the reference with which an object is deleted together with `owner`, and does not hold that up."""
    return {
        "apiVersion": API_VERSION,
        "kind": owner.kind,
        "name": owner.metadata.name,
        "uid": owner.metadata.uid,
        "controller": True,
    }


def metadata(
    context: Context,
    name: str,
    labels: Mapping[str, str],
    *,
    owner: KafkaController | KafkaBroker | None = None,
    annotations: Mapping[str, str] | None = None,
) -> Object:
    """Return the metadata of an object. Without an owner it outlives the resource."""
    result: Object = {"name": name, "namespace": context.namespace, "labels": dict(labels)}
    if annotations:
        result["annotations"] = dict(annotations)
    if owner is not None and (references := owner_references(owner)):
        result["ownerReferences"] = references
    return result


def parse_address(text: str) -> Address:
    """Read `host:port` as `str(Address)` writes it. Raises ValueError."""
    host, colon, port = text.rpartition(":")
    if not (colon and host and port.isdecimal()):
        raise ValueError(f"{text!r} must be host:port")
    return Address(host.removeprefix("[").removesuffix("]"), int(port))
