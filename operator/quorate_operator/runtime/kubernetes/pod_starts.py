"""Starts of nodes: their ConfigMaps and pods."""

from collections.abc import Callable
from dataclasses import replace

from quorate_operator.planning.cluster import DesiredCluster, DesiredNode, Role
from quorate_operator.planning.pods import CONTROLLER
from quorate_operator.planning.steps import StartNode, StepError
from quorate_operator.resources.configs import config_map
from quorate_operator.resources.facts import Context
from quorate_operator.resources.pods import node_pod
from quorate_operator.runtime.kubernetes.api import POD, KubernetesApi
from quorate_operator.runtime.kubernetes.objects import ENDED, ClusterObjects, phase_of
from quorate_operator.runtime.kubernetes.observation import (
    ANNOTATION_DIRECTORY_ID,
    ANNOTATION_FORMAT,
    FORMAT_INITIAL,
    annotation,
    configured_of,
)


class PodStarts:
    def __init__(self, api: KubernetesApi, objects: ClusterObjects) -> None:
        self._api = api
        self._objects = objects

    async def apply(
        self,
        action: StartNode,
        context: Context,
        desired: DesiredCluster,
        settings: Callable[[int], DesiredNode],
    ) -> None:
        """Apply a step; `settings` returns those of a node. Raises StepError, ApiError."""
        node = settings(action.node_id)
        is_placed, is_initial = self._volume_of(node)
        addresses = {**node.advertised, **action.advertised}
        if node.role is Role.CONTROLLER and node.pod_mate is not None:
            # The start of its broker, which follows, creates the pod.
            await self._objects.apply(config_map(context, desired, node, addresses))
            return
        found = self._objects.node(node.node_id)
        if found is not None and found.pod is not None:
            has_ended = phase_of(found.pod) in ENDED
            if not has_ended and found.pod["metadata"].get("deletionTimestamp") is None:
                return
            await self._objects.delete_pod(found.pod, 0 if has_ended else None)
        beside = None
        if action.beside is not None:
            controller = settings(action.beside)
            is_known, is_founder = self._volume_of(controller)
            its = self._objects.node(controller.node_id)
            reported = {**controller.advertised, **configured_of(its.config if its else None)}
            beside = node_pod(context, desired, controller, reported, is_initial=is_founder)
            is_placed = is_placed or is_known
            node = replace(node, revision={**node.revision, CONTROLLER: str(action.beside)})
        # Without a pod, the addresses of the last start are read from the ConfigMap, so it gets every listener.
        await self._objects.apply(config_map(context, desired, node, addresses))
        body = node_pod(
            context, desired, node, addresses, is_initial=is_initial, is_placed=is_placed, beside=beside
        )
        self._objects.seen(await self._api.apply(POD, self._objects.namespace, body))

    def _volume_of(self, node: DesiredNode) -> tuple[bool, bool]:
        """Whether the volume of a node was used before, and whether an empty one is that of a first voter.

        A volume that was formatted once and is empty now is a new disk: it joins, and forms no quorum. Raises
        StepError without a volume.
        """
        found = self._objects.node(node.node_id)
        if found is None or found.claim is None:
            raise StepError(f"{node.label} has no volume")
        is_used = annotation(found.claim, ANNOTATION_DIRECTORY_ID) is not None
        return is_used, annotation(found.claim, ANNOTATION_FORMAT) == FORMAT_INITIAL and not is_used
