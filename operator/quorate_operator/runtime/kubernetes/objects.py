"""The objects of one cluster: read from the cache, applied if they differ, tried by dry runs, deleted until gone."""

import asyncio
import time
from collections.abc import Callable, Mapping
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
    ApiError,
    Kind,
    KubernetesApi,
    Object,
)
from quorate_operator.runtime.kubernetes.cache import SELECTOR, ObjectCache, object_version
from quorate_operator.runtime.kubernetes.observation import NodeObjects, annotation, by_node
from quorate_operator.runtime.last_error import last_error

POLL_S = 0.5
"""How often an object is read until it is gone or ended."""
DELETION_SLACK_S = 30.0
"""How much longer than its grace period the deletion of a pod may take."""
_QUANTITIES = ("requests", "limits")
"""Fields whose values are quantities."""
ANNOTATION_APPLIED = "quorate.dev/applied"
"""On applied objects: their hash, so that an unchanged object is not applied again."""


DRY_RUN_AGE_S_MAX = 30.0
"""How long a dry run is valid: classes, policies and quotas may change at any time."""
_UNKNOWN_FIELD = "failed to create typed patch object"
_TEMPORARY = ("exceeded quota", "does not support dry run")
"""Refusals that concern the dry run alone: the running pod counts in the quota, or a webhook supports no dry run."""
TASK_TIMEOUT_S = 300.0
ENDED = ("Succeeded", "Failed")
"""Phases of a pod whose containers have ended for good."""


class ClusterObjects:
    def __init__(self, api: KubernetesApi, cache: ObjectCache, *, namespace: str, cluster: str) -> None:
        self._api = api
        self._cache = cache
        self.namespace = namespace
        self.cluster = cluster

    def nodes(self) -> dict[int, NodeObjects]:
        """Return every node of which any object exists."""
        return by_node(*(self.of_kind(kind) for kind in (POD, VOLUME_CLAIM, CONFIG_MAP)))

    def node(self, node_id: int) -> NodeObjects | None:
        return self.nodes().get(node_id)

    def of_kind(self, kind: Kind) -> list[Object]:
        return self._cache.of_cluster(kind, self.namespace, self.cluster)

    def find(self, kind: Kind, name: str) -> Object | None:
        """Return an object of the namespace with Quorate's label, or None."""
        return self._cache.find(kind, self.namespace, name)

    async def refresh(self, kind: Kind) -> None:
        """Replace the cluster's objects of a kind in the cache by those of the API server. Raises ApiError."""
        selector = f"{SELECTOR},{LABEL_CLUSTER}={self.cluster}"
        items, version = await self._api.list(kind, self.namespace, selector)
        there = {item["metadata"]["uid"] for item in items}
        for known in self.of_kind(kind):
            was_written_since = object_version(known) > int(version)  # by another step
            if known["metadata"]["uid"] not in there and not was_written_since:
                self._cache.remove(known)
        for item in items:
            self._cache.put(item)

    def seen(self, item: Object) -> None:
        """Store an object as a write returned it."""
        self._cache.put(item)

    async def apply(self, item: Object) -> Object:
        """Apply an object unless it is unchanged; returns the resulting object.

        Raises StepError if an object of this name has another owner, and ApiError.
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
        """Refuse the name of another owner's object, which server-side apply would take over."""
        name = item["metadata"]["name"]
        found = known or await self._api.get(kind, self.namespace, name)
        if found is None:
            return
        owner = found["metadata"].get("labels", {}).get(LABEL_CLUSTER)
        # A claim may have been created for the node, from a backup for instance. It needs the label, because a
        # StatefulSet names its claims in the same way, and the name of a pool is the choice of its owner.
        is_made_for_it = kind == VOLUME_CLAIM and owner == self.cluster
        is_ours = is_made_for_it or annotation(found, ANNOTATION_APPLIED) is not None
        if not is_ours or owner not in (None, self.cluster):
            whose = f"the cluster {owner}" if owner else "another owner"
            raise StepError(
                f"the {kind.name} {name} exists and belongs to {whose}: delete it, or rename the resource"
            )

    async def delete_pod(self, pod: Object, grace_ms: int | None) -> None:
        """Delete a pod with this grace period, None for its own, and wait until it is gone. Raises StepError."""
        spec_s = int(pod["spec"].get("terminationGracePeriodSeconds", 30))
        # Less than a second would be no grace at all to Kubernetes, which then does not wait for the process.
        grace_s = spec_s if grace_ms is None else max(1, grace_ms // 1000) if grace_ms else 0
        await self.delete(POD, pod, grace_s + DELETION_SLACK_S, grace_s=grace_s)

    async def request_deletion(self, kind: Kind, item: Object) -> None:
        """Delete an object without waiting until it is gone: others may hold it. Raises ApiError."""
        name, uid = item["metadata"]["name"], item["metadata"]["uid"]
        await self._api.delete(kind, self.namespace, name, uid=uid)

    async def delete(
        self, kind: Kind, item: Object, timeout_s: float = DELETION_SLACK_S, *, grace_s: int | None = None
    ) -> None:
        """Delete an object and wait until it is gone: only then its processes have ended. Raises StepError."""
        name, uid = item["metadata"]["name"], item["metadata"]["uid"]
        await self._api.delete(kind, self.namespace, name, uid=uid, grace_s=grace_s)
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    current = await self._api.get(kind, self.namespace, name)
                    if current is None or current["metadata"]["uid"] != uid:
                        break
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            raise StepError(f"{kind.name} {name} is not gone {timeout_s:.0f} s after its deletion") from None
        self._cache.remove(item)

    async def run_to_end(self, body: Object) -> Object:
        """Run the pod of a task, delete it, and return it as it ended. Raises StepError.

        A running pod of an operator that was killed is waited for. The result of an ended pod may be old, so its task
        runs again.
        """
        name = body["metadata"]["name"]
        pod = await self._api.get(POD, self.namespace, name)
        if pod is not None and phase_of(pod) in ENDED:
            await self.delete_pod(pod, 0)
            pod = None
        if pod is None:
            pod = await self._api.apply(POD, self.namespace, body)
        try:
            async with asyncio.timeout(TASK_TIMEOUT_S):
                while phase_of(pod) not in ENDED:
                    await asyncio.sleep(POLL_S)
                    pod = await self._api.get(POD, self.namespace, name)
                    if pod is None:
                        raise StepError(f"the pod {name} was deleted before it ended")
        except TimeoutError:
            raise StepError(f"the pod {name} did not end in {TASK_TIMEOUT_S:.0f} s") from None
        # Deleted before its result is stored: an operator that is killed in between runs the task again.
        await self.delete_pod(pod, 0)
        return pod

    async def annotate(self, item: Object, annotations: Mapping[str, str | None]) -> None:
        """Set annotations of an object besides the applied ones; None removes one."""
        kind, name = OWNED_KINDS[item["kind"]], item["metadata"]["name"]
        patch = {"metadata": {"annotations": dict(annotations)}}
        self._cache.put(await self._api.merge(kind, self.namespace, name, patch))


def phase_of(pod: Object) -> str | None:
    phase = pod.get("status", {}).get("phase")
    return str(phase) if phase else None


def last_message(pod: Object) -> str:
    """Return why an ended pod failed."""
    for status in pod.get("status", {}).get("containerStatuses", ()):
        ended = status.get("state", {}).get("terminated") or {}
        if error := last_error(str(ended.get("message") or "")):
            return error
    return str(pod.get("status", {}).get("message") or "see the log of the pod")


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
            and all(_covers(found, applied) for found, applied in zip(whole, part, strict=True))
        )
    if are_quantities and isinstance(whole, str) and isinstance(part, str):
        with suppress(ValueError):  # not in Kubernetes' notation: compared as texts
            return quantity(whole) == quantity(part)
    # Empty values may be left out.
    return whole == part or (whole is None and not part)


class DryRuns:
    """Dry runs of objects of one namespace: whether the API server would accept them, before a step depends on it."""

    def __init__(
        self, api: KubernetesApi, namespace: str, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._api = api
        self._namespace = namespace
        self._clock = clock
        self._refusals: dict[tuple[str, str, str], tuple[float, str | None]] = {}

    async def refusal(self, item: Object) -> str | None:
        """Return why the API server refuses to apply the object; None if it accepts it, or the dry run fails."""
        now = self._clock()
        self._refusals = {
            key: tried for key, tried in self._refusals.items() if now - tried[0] < DRY_RUN_AGE_S_MAX
        }
        key = (item["kind"], item["metadata"]["name"], digest(item))
        if key not in self._refusals:
            self._refusals[key] = now, await self._try(item)
        return self._refusals[key][1]

    async def _try(self, item: Object) -> str | None:
        try:
            await self._api.apply(OWNED_KINDS[item["kind"]], self._namespace, item, dry_run=True)
        except ApiError as error:
            return str(error) if _is_refusal(error) else None
        return None


def _is_refusal(error: ApiError) -> bool:
    message = str(error)
    # Unknown fields of an applied object get status 500.
    refuses = error.rejects_object or _UNKNOWN_FIELD in message
    return refuses and not any(words in message for words in _TEMPORARY)
