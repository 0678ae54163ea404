"""Commands of the status page: each sets an annotation, and the reconcile does the rest."""

from quorate_operator import clock
from quorate_operator.models.base import ANNOTATION_PAUSE, ANNOTATION_RESTART
from quorate_operator.runtime.kubernetes.api import (
    BROKERS,
    CONTROLLERS,
    ApiError,
    Kind,
    KubernetesApi,
    Object,
)
from quorate_operator.view.texts import iso_time
from quorate_operator.web.snapshots import ClusterKey, CommandError


class AnnotationCommands:
    """Implements `Commands`."""

    def __init__(self, api: KubernetesApi) -> None:
        self._api = api

    async def pause(self, key: ClusterKey, *, paused: bool) -> None:
        await self._annotate(CONTROLLERS, key, ANNOTATION_PAUSE, "true" if paused else None)

    async def restart_node(self, key: ClusterKey, node_id: int) -> None:
        kind, pool = await self._pool_of(key, node_id)
        now = iso_time(clock.now_ms())
        await self._annotate(kind, pool, f"{ANNOTATION_RESTART}-{node_id}", now)

    async def _pool_of(self, key: ClusterKey, node_id: int) -> tuple[Kind, ClusterKey]:
        try:
            pools, _ = await self._api.list(BROKERS, key.namespace)
        except ApiError as error:
            raise CommandError(f"{key}: {error}") from error
        for pool in pools:
            if pool["spec"]["controllers"] == key.name and node_id in _broker_ids(pool):
                return BROKERS, ClusterKey(key.namespace, pool["metadata"]["name"])
        return CONTROLLERS, key

    async def _annotate(self, kind: Kind, key: ClusterKey, name: str, value: str | None) -> None:
        patch = {"metadata": {"annotations": {name: value}}}
        try:
            await self._api.merge(kind, key.namespace, key.name, patch)
        except ApiError as error:
            raise CommandError(f"{kind.name} {key}: {error}") from error


def _broker_ids(pool: Object) -> frozenset[int]:
    brokers = (pool.get("status") or {}).get("brokers", ())
    return frozenset(broker["nodeId"] for broker in brokers)
