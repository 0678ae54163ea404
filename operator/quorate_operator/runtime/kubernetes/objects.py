"""The objects of one cluster: read from the cache, applied where they differ, deleted until they are gone."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress

from quorate_operator.models.base import quantity
from quorate_operator.planning.steps import StepError
from quorate_operator.resources.facts import digest
from quorate_operator.resources.names import LABEL_CLUSTER
from quorate_operator.runtime.kubernetes.api import (
    CONFIG_MAP,
    OWNED_KINDS,
    POD,
    VOLUME_CLAIM,
    Kind,
    KubernetesApi,
    Object,
)
from quorate_operator.runtime.kubernetes.cache import ObjectCache
from quorate_operator.runtime.kubernetes.observation import NodeObjects, annotation, by_node

DELETION_LOOK_S = 0.5
DELETION_SLACK_S = 30.0
"""How much longer than its grace period the deletion of a pod may take."""
_QUANTITIES = ("requests", "limits")
"""Fields whose values are quantities."""
ANNOTATION_APPLIED = "quorate.dev/applied"
"""On applied objects: their hash, so that an unchanged object is not applied again."""


class ClusterObjects:
    def __init__(self, api: KubernetesApi, cache: ObjectCache, *, namespace: str, cluster: str) -> None:
        self._api = api
        self._cache = cache
        self.namespace = namespace
        self.cluster = cluster

    def nodes(self) -> dict[int, NodeObjects]:
        """Returns every node of which any object exists."""
        return by_node(*(self.of_kind(kind) for kind in (POD, VOLUME_CLAIM, CONFIG_MAP)))

    def node(self, node_id: int) -> NodeObjects | None:
        return self.nodes().get(node_id)

    def of_kind(self, kind: Kind) -> list[Object]:
        return self._cache.of_cluster(kind, self.namespace, self.cluster)

    def find(self, kind: Kind, name: str) -> Object | None:
        """Returns an object of the namespace with Quorate's label, or None."""
        return self._cache.find(kind, self.namespace, name)

    def seen(self, item: Object) -> None:
        """Stores an object as a write returned it."""
        self._cache.put(item)

    async def keep(self, item: Object) -> Object:
        """Applies an object unless it is unchanged; returns the resulting object.

        Raises StepError if the name belongs to a foreign object, and ApiError.
        """
        kind = OWNED_KINDS[item["kind"]]
        metadata = item["metadata"]
        mark = digest(item)
        known = self._cache.find(kind, self.namespace, metadata["name"])
        if (
            known is not None
            and annotation(known, ANNOTATION_APPLIED) == mark
            and not _was_edited(known, item)
        ):
            return known
        await self._refuse_foreign(kind, item, known)
        annotations = {**metadata.get("annotations", {}), ANNOTATION_APPLIED: mark}
        body = {**item, "metadata": {**metadata, "annotations": annotations}}
        written = await self._api.apply(kind, self.namespace, body)
        self._cache.put(written)
        return written

    async def _refuse_foreign(self, kind: Kind, item: Object, known: Object | None) -> None:
        """Refuses a name of a foreign object, which server-side apply would take over."""
        name = item["metadata"]["name"]
        found = known or await self._api.get(kind, self.namespace, name)
        if found is None:
            return
        owner = found["metadata"].get("labels", {}).get(LABEL_CLUSTER)
        # A claim may have been created for the node, from a backup for instance.
        is_ours = kind == VOLUME_CLAIM or annotation(found, ANNOTATION_APPLIED) is not None
        if not is_ours or owner not in (None, self.cluster):
            whose = f"that of the cluster {owner}" if owner else "not Quorate's"
            raise StepError(f"the {kind.name} {name} is there already, and is {whose}: delete or rename one")

    async def delete_pod(self, pod: Object, grace_ms: int | None) -> None:
        """Deletes a pod with this grace period, None for its own, and waits until it is gone. Raises StepError."""
        spec_s = int(pod["spec"].get("terminationGracePeriodSeconds", 30))
        # Less than a second would be no grace at all to Kubernetes, which then does not wait for the process.
        grace_s = spec_s if grace_ms is None else max(1, grace_ms // 1000) if grace_ms else 0
        await self.delete(POD, pod, grace_s + DELETION_SLACK_S, grace_s=grace_s)

    async def delete(
        self, kind: Kind, item: Object, timeout_s: float = DELETION_SLACK_S, *, grace_s: int | None = None
    ) -> None:
        """Deletes an object and waits until it is gone: only then its processes have ended. Raises StepError."""
        name, uid = item["metadata"]["name"], item["metadata"]["uid"]
        await self._api.delete(kind, self.namespace, name, uid=uid, grace_s=grace_s)
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    current = await self._api.get(kind, self.namespace, name)
                    if current is None or current["metadata"]["uid"] != uid:
                        break
                    await asyncio.sleep(DELETION_LOOK_S)
        except TimeoutError:
            raise StepError(f"{kind.name} {name} is not gone {timeout_s:.0f} s after its deletion") from None
        self._cache.remove(item)

    async def annotate(self, item: Object, annotations: Mapping[str, str | None]) -> None:
        """Sets annotations of an object besides the applied ones; None removes one."""
        kind, name = OWNED_KINDS[item["kind"]], item["metadata"]["name"]
        patch = {"metadata": {"annotations": dict(annotations)}}
        self._cache.put(await self._api.merge(kind, self.namespace, name, patch))


def _was_edited(known: Object, item: Object) -> bool:
    """Whether applied fields were changed. Not for claims: the API server rewrites their sizes."""
    if item["kind"] == VOLUME_CLAIM.name:
        return False
    return not all(_covers(known.get(part), item[part]) for part in ("spec", "data") if part in item)


def _covers(whole: object, part: object, *, are_quantities: bool = False) -> bool:
    """Whether all of `part` is in `whole`, which may have more: the API server's defaults.

    The API server writes quantities in its own way, `0.5` as `500m`.
    """
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(
            _covers(whole.get(key), value, are_quantities=are_quantities or key in _QUANTITIES)
            for key, value in part.items()
        )
    if isinstance(part, list):
        return (
            isinstance(whole, list)
            and len(whole) == len(part)
            and all(_covers(one, other) for one, other in zip(whole, part, strict=True))
        )
    if are_quantities and isinstance(whole, str) and isinstance(part, str):
        with suppress(ValueError):  # not in Kubernetes' notation: compared as texts
            return quantity(whole) == quantity(part)
    # Empty values may be left out.
    return whole == part or (whole is None and not part)
