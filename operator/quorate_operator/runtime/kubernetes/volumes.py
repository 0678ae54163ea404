"""The claims of nodes: created, grown, released and deleted."""

from collections.abc import Mapping
from dataclasses import replace

from quorate_operator.planning import steps
from quorate_operator.planning.cluster import DesiredNode, ObservedVolume
from quorate_operator.resources.data_volumes import volume_claim
from quorate_operator.resources.facts import Context
from quorate_operator.runtime.kubernetes.api import VOLUME_CLAIM, Object
from quorate_operator.runtime.kubernetes.objects import DELETION_SLACK_S, ClusterObjects, DryRuns
from quorate_operator.runtime.kubernetes.observation import (
    ANNOTATION_RELEASED,
    NodeObjects,
    annotation,
    growth_refusal,
)

VolumeAction = (
    steps.CreateVolume | steps.GrowVolume | steps.ReleaseVolume | steps.DeleteVolume | steps.ReplaceVolumes
)


class Volumes:
    def __init__(self, objects: ClusterObjects, dry_runs: DryRuns) -> None:
        self._objects = objects
        self._dry_runs = dry_runs

    async def apply(self, action: VolumeAction, context: Context, node: DesiredNode | None) -> None:
        """Apply a step; `node` has the settings for claims that are created or grow. Raises StepError, ApiError."""
        claims = self._claims(action.node_id)
        match action:
            case steps.CreateVolume():
                assert node is not None, "a volume is created for a desired node"
                claim = await self.apply_claim(context, node, action.volume_id)
                if annotation(claim, ANNOTATION_RELEASED) is not None:
                    await self._objects.annotate(claim, {ANNOTATION_RELEASED: None})
            case steps.GrowVolume():
                assert node is not None, "a volume grows for a desired node"
                await self.apply_claim(context, node, action.volume_id)
            case steps.ReleaseVolume():
                if action.volume_id in claims:
                    await self._objects.annotate(claims[action.volume_id], {ANNOTATION_RELEASED: "true"})
            case steps.DeleteVolume():
                for volume_id, claim in claims.items():
                    if action.volume_id in (None, volume_id):
                        await self._objects.delete(VOLUME_CLAIM, claim, DELETION_SLACK_S)
            case steps.ReplaceVolumes():
                for claim in claims.values():
                    await self._objects.request_deletion(VOLUME_CLAIM, claim)
                found = self._objects.node(action.node_id)
                pod = None if found is None else found.pod
                if pod is not None and not pod["spec"].get("nodeName"):
                    # It runs nothing, and is never scheduled without its claims: no roll has to stop it.
                    await self._objects.delete_pod(pod, None)

    async def apply_claim(self, context: Context, node: DesiredNode, volume_id: int) -> Object:
        """Apply the claim of the manifest, and return it. Raises StepError, ApiError."""
        claim = self._claims(node.node_id).get(volume_id)
        if claim is not None and claim["metadata"].get("deletionTimestamp") is not None:
            raise steps.StepError(f"{node.label}: its old volume is still being deleted")
        return await self._objects.apply(volume_claim(context, node, volume_id))

    async def with_refusals(
        self, context: Context, node: DesiredNode, objects: NodeObjects, volumes: Mapping[int, ObservedVolume]
    ) -> Mapping[int, ObservedVolume]:
        """Return volumes with the reason why they can't grow: the StorageClass, a quota, a foreign claim."""
        checked = dict(volumes)
        for volume_id, volume in volumes.items():
            desired_bytes, requested_bytes = node.volumes.get(volume_id), volume.requested_bytes
            if desired_bytes is None or requested_bytes is None or volume.capacity_bytes is None:
                continue
            if requested_bytes < desired_bytes:
                refusal = await self._dry_runs.refusal(volume_claim(context, node, volume_id))
                reported = growth_refusal(refusal, objects.claims[volume_id])
                checked[volume_id] = replace(volume, refusal=reported)
        return checked

    def _claims(self, node_id: int) -> Mapping[int, Object]:
        found = self._objects.node(node_id)
        return {} if found is None else found.claims
