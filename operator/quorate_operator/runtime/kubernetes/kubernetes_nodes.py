"""The nodes of Kubernetes: whether they answer, the racks that their labels name, and volumes that only they have.

They are read one by one and cached for some seconds. Each broker's pod gets its rack as soon as it is scheduled.
"""

import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from quorate_operator.resources.facts import Context
from quorate_operator.resources.names import ANNOTATION_RACK
from quorate_operator.resources.topology import awaits_rack, topology_key
from quorate_operator.runtime.kubernetes.api import (
    NODE,
    PERSISTENT_VOLUME,
    ApiError,
    Kind,
    KubernetesApi,
    Object,
)
from quorate_operator.runtime.kubernetes.objects import ClusterObjects
from quorate_operator.runtime.kubernetes.observation import (
    NodeObjects,
    annotation,
    is_node_gone,
    is_suspicious,
)

AGE_S_MAX = 10.0


class NodesForbiddenError(Exception):
    """The operator may not read nodes: it was installed for some namespaces."""


class KubernetesNodes:
    def __init__(self, api: KubernetesApi, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._api = api
        self._clock = clock
        self._found: dict[tuple[str, str], tuple[float, list[Object] | NodesForbiddenError]] = {}
        """When it was read, by kind and name or selector."""

    async def is_gone(self, pod: Object | None) -> bool:
        """Whether the node of a pod does not answer; False without the right to read nodes. Raises ApiError."""
        if pod is None or not is_suspicious(pod):
            return False
        try:
            return is_node_gone(await self._node(pod["spec"]["nodeName"]))
        except NodesForbiddenError:
            return False

    async def label(self, name: str, key: str) -> str | None:
        """Return a label of a node. A present label is read again; a missing label may be cached.

        Raises:
            NodesForbiddenError: the operator may not read nodes.
            ApiError: the API server did not answer.
        """
        if _label(await self._node(name), key) is None:
            return None
        return _label(await self._node(name, age_s_max=0.0), key)

    async def find(self, name: str) -> Object | None:
        """Return a node; None if it was removed. Raises NodesForbiddenError, ApiError."""
        return await self._node(name)

    async def with_label(self, key: str, values: Sequence[str]) -> list[Object]:
        """Return the nodes whose label has one of the values. Raises NodesForbiddenError, ApiError."""
        selector = f"{key} in ({','.join(values)})"

        async def read() -> list[Object]:
            return (await self._api.list(NODE, None, selector))[0]

        return await self._read((NODE.name, selector), read, AGE_S_MAX)

    async def volume(self, name: str) -> Object | None:
        """Return a PersistentVolume; None if it was removed. Raises NodesForbiddenError, ApiError."""
        return await self._get(PERSISTENT_VOLUME, name, AGE_S_MAX)

    async def _node(self, name: str, age_s_max: float = AGE_S_MAX) -> Object | None:
        return await self._get(NODE, name, age_s_max)

    async def _get(self, kind: Kind, name: str, age_s_max: float) -> Object | None:
        async def read() -> list[Object]:
            item = await self._api.get(kind, None, name)
            return [] if item is None else [item]

        found = await self._read((kind.name, name), read, age_s_max)
        return found[0] if found else None

    async def _read(
        self, key: tuple[str, str], read: Callable[[], Awaitable[list[Object]]], age_s_max: float
    ) -> list[Object]:
        now = self._clock()
        at, found = self._found.get(key, (-AGE_S_MAX, []))
        if now - at >= age_s_max:
            try:
                found = await read()
            except ApiError as error:
                if not error.is_forbidden:
                    raise
                found = NodesForbiddenError(str(error))
            self._found[key] = now, found
        if isinstance(found, NodesForbiddenError):
            raise found
        return found


def _label(node: Object | None, key: str) -> str | None:
    value = (node or {}).get("metadata", {}).get("labels", {}).get(key)
    return str(value) if value else None


async def set_racks(
    objects: ClusterObjects, kubernetes_nodes: KubernetesNodes, context: Context, nodes: Iterable[NodeObjects]
) -> Mapping[int, str]:
    """Annotate the pods that wait for their rack; return why others keep waiting, by node id.

    A rack that was set stays, because the broker has registered with it. Raises ApiError.
    """
    problems: dict[int, str] = {}
    pools = {pool.metadata.name for pool in context.manifests.brokers}
    for node in nodes:
        key = topology_key(context, node.pool) if node.pool in pools else None
        if key is None or node.pod is None or not _waits(node.pod):
            continue
        rack, problem = await _rack(kubernetes_nodes, node.pod, key)
        if rack:
            await objects.annotate(node.pod, {ANNOTATION_RACK: rack})
        else:
            problems[node.node_id] = f"its rack is unknown: {problem}"
    return problems


def _waits(pod: Object) -> bool:
    """Whether a pod is scheduled, and its rack was not set yet."""
    return (
        pod["spec"].get("nodeName") is not None
        and pod["metadata"].get("deletionTimestamp") is None
        and annotation(pod, ANNOTATION_RACK) is None
        and awaits_rack(pod)
    )


async def _rack(kubernetes_nodes: KubernetesNodes, pod: Object, key: str) -> tuple[str | None, str]:
    """Return the rack of a pod, or why it is not known."""
    # Newer releases of Kubernetes copy labels of zones and regions to pods, which needs no right to read nodes.
    own = pod["metadata"].get("labels", {}).get(key)
    if own:
        return str(own), ""
    name = pod["spec"]["nodeName"]
    try:
        rack = await kubernetes_nodes.label(name, key)
    except NodesForbiddenError:
        return None, f"the operator may not read the labels of {name}; see rbac.readNodes of the chart"
    return rack, f"the node {name} has no label {key}"
