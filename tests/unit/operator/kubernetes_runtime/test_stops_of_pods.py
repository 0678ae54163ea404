"""Pods of a cluster that is deleted: all of a role are stopped at the same time."""

import asyncio
from typing import Any, cast

import pytest
from quorate_operator.planning.steps import StepError
from quorate_operator.resources.facts import Images
from quorate_operator.resources.names import LABEL_CLUSTER, LABEL_COMPONENT, LABEL_NODE_ID, LABEL_POOL
from quorate_operator.runtime.kubernetes.api import Kind
from quorate_operator.runtime.kubernetes.cache import ObjectCache
from quorate_operator.runtime.kubernetes.infrastructure import KubernetesInfrastructure

Object = dict[str, Any]


class _Api:
    """Deletes pods, of which one stays."""

    def __init__(self, stuck: str) -> None:
        self.stuck = stuck
        self.deleted: list[str] = []

    async def delete(self, _kind: Kind, _namespace: str, name: str, **_: Any) -> None:
        if name == self.stuck:
            raise StepError(f"{name} stays")
        for _ in range(10):
            await asyncio.sleep(0)
        self.deleted.append(name)

    async def get(self, _kind: Kind, _namespace: str, _name: str) -> Object | None:
        return None


def _pod(node_id: int, component: str) -> Object:
    labels = {
        LABEL_CLUSTER: "quorum",
        LABEL_COMPONENT: component,
        LABEL_NODE_ID: f"{node_id}",
        LABEL_POOL: "pool",
    }
    metadata = {"name": f"{node_id}", "namespace": "kafka", "uid": f"{node_id}", "resourceVersion": "1"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata | {"labels": labels}, "spec": {}}


async def test_a_pod_that_can_not_be_deleted_ends_no_other_deletion_and_spares_controllers() -> None:
    api, cache = _Api(stuck="0"), ObjectCache()
    for pod in (_pod(0, "broker"), _pod(1, "broker"), _pod(2, "broker"), _pod(3000, "controller")):
        cache.put(pod)
    infrastructure = KubernetesInfrastructure(
        cast("Any", api),
        cache,
        lambda: None,
        lambda _: None,
        namespace="kafka",
        name="quorum",
        images=Images(quorate="quorate"),
    )
    with pytest.raises(StepError, match="0 stays"):
        await infrastructure.stop_pods()
    assert api.deleted == ["1", "2"]
