"""The latest KafkaControllers and KafkaBrokers, by the cluster that they belong to."""

from collections.abc import Mapping
from dataclasses import dataclass

from quorate_operator.models.base import ANNOTATION_PAUSE
from quorate_operator.models.manifests import ManifestError, load_object
from quorate_operator.models.v1alpha1 import KafkaBroker
from quorate_operator.runtime.kubernetes.api import BROKERS, CONTROLLERS, Kind, Object
from quorate_operator.web.snapshots import ClusterKey

ResourceMap = dict[ClusterKey, Object]
KOPF_PREFIX = "kopf.quorate.dev"
"""The prefix of the annotations in which kopf stores its own state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterResources:
    """The resources of one cluster; `quorum` is None when pools belong to a KafkaController that doesn't exist.

    `leaving_pools` are those that are being deleted, `namesakes` those that have the name of a KafkaController.
    """

    quorum: Object | None
    pools: Mapping[str, Object]
    leaving_pools: frozenset[str]
    namesakes: frozenset[str] = frozenset()

    @property
    def is_deleted(self) -> bool:
        return self.quorum is not None and is_deleted(self.quorum)

    @property
    def drained_pools(self) -> frozenset[str]:
        """Returns the pools that are being deleted together with their volumes while their quorum stays.

        Their brokers are removed once they hold no replica. A pool without node ids never had brokers.
        """
        if self.quorum is None or self.is_deleted:
            return frozenset()
        emptied = self.leaving_pools & self.emptied_pools
        return frozenset(name for name in emptied if "nodeIds" in self.pools[name]["spec"])

    @property
    def ended_pools(self) -> frozenset[str]:
        """Returns the pools that are being deleted and whose brokers are stopped without a drain."""
        return self.leaving_pools - self.drained_pools

    @property
    def used(self) -> tuple[tuple[Kind, Object], ...]:
        """Returns the resources whose nodes run, the quorum first; of deleted ones, only drained pools."""
        pools = [body for name, body in self.pools.items() if name not in self.ended_pools]
        quorum = [] if self.quorum is None or self.is_deleted else [self.quorum]
        return (*((CONTROLLERS, body) for body in quorum), *((BROKERS, body) for body in pools))

    @property
    def emptied_pools(self) -> frozenset[str]:
        """Returns the resources that are being deleted together with their volumes."""
        going = [self.pools[name] for name in self.leaving_pools]
        if self.quorum is not None and self.is_deleted:
            going.append(self.quorum)
        return frozenset(
            body["metadata"]["name"]
            for body in going
            if body["spec"].get("storage", {}).get("onDeletion") == "Delete"
        )


def claimed_node_ids(body: Object) -> range:
    """Return the ids that a resource claims, also if the rest of it is invalid; none while it has no `nodeIds`."""
    spec = body["spec"]
    if "nodeIds" not in spec:
        return range(0)
    first = spec["nodeIds"]["first"]
    return range(first, first + spec["replicas"] + len(spec.get("decommission", ())))


def lacks_node_ids(body: Object) -> bool:
    """Whether a valid pool names no range of node ids."""
    try:
        pool = load_object(body, "")
    except ManifestError:
        return False
    return isinstance(pool, KafkaBroker) and pool.spec.node_ids is None


def named_node_ids(body: Object) -> frozenset[int]:
    """Return the ids that a resource names one by one."""
    spec = body["spec"]
    return frozenset((*spec.get("decommission", ()), *(node["nodeId"] for node in spec.get("nodes", ()))))


class ResourceStore:
    """Every KafkaController and KafkaBroker, in one event loop."""

    def __init__(self) -> None:
        self._quorums: ResourceMap = {}
        self._pools: ResourceMap = {}

    def put(self, body: Object) -> bool:
        """Store a resource as it was seen. Returns whether something changed that a reconcile acts on."""
        return put_newer(self._of_kind(body), body)

    def remove(self, body: Object) -> None:
        self._of_kind(body).pop(key_of(body), None)

    def cluster_of(self, body: Object) -> ClusterKey:
        """Return the cluster that a resource belongs to."""
        if body["kind"] == CONTROLLERS.name:
            return key_of(body)
        return ClusterKey(body["metadata"]["namespace"], body["spec"]["controllers"])

    def of_cluster(self, key: ClusterKey) -> ClusterResources:
        pools = {
            name: body
            for (namespace, name), body in self._pools.items()
            if namespace == key.namespace and body["spec"]["controllers"] == key.name
        }
        leaving = frozenset(name for name, body in pools.items() if is_deleted(body))
        namesakes = frozenset(name for name in pools if ClusterKey(key.namespace, name) in self._quorums)
        return ClusterResources(
            quorum=self._quorums.get(key), pools=pools, leaving_pools=leaving, namesakes=namesakes
        )

    def _of_kind(self, body: Object) -> ResourceMap:
        return self._quorums if body["kind"] == CONTROLLERS.name else self._pools


def put_newer(known: ResourceMap, body: Object) -> bool:
    """Store a resource unless a newer state is stored. Returns whether a change matters to the reconcile."""
    key = key_of(body)
    before = known.get(key)
    if before is not None and is_older(body, before):
        return False
    known[key] = body
    return before is None or _essence(before) != _essence(body)


def key_of(body: Object) -> ClusterKey:
    return ClusterKey(body["metadata"]["namespace"], body["metadata"]["name"])


def is_deleted(body: Object) -> bool:
    return body["metadata"].get("deletionTimestamp") is not None


def is_paused(body: Object) -> bool:
    annotations = body["metadata"].get("annotations") or {}
    return body["spec"].get("state") == "Paused" or annotations.get(ANNOTATION_PAUSE) == "true"


def is_older(body: Object, than: Object) -> bool:
    """Whether an event was sent before our last write of the resource."""
    metadata, newer = body["metadata"], than["metadata"]
    is_same = metadata["uid"] == newer["uid"]
    return is_same and int(metadata["resourceVersion"]) < int(newer["resourceVersion"])


def _essence(body: Object) -> tuple[object, ...]:
    """Return the parts that a reconcile acts on, without the status and kopf's annotations."""
    metadata = body["metadata"]
    annotations = {
        name: value
        for name, value in metadata.get("annotations", {}).items()
        if not name.startswith(KOPF_PREFIX)
    }
    return metadata["uid"], metadata.get("generation"), is_deleted(body), annotations, metadata.get("labels")
