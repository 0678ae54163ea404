"""Pods of a broker and a controller: created, observed and deleted by the steps of both."""

from typing import Any, cast

import pytest
from kit.desired_cluster import FORMATION
from quorate_operator.models.manifests import load_manifests
from quorate_operator.planning.cluster import Address, DesiredCluster, NodeState
from quorate_operator.planning.desired import desired_cluster
from quorate_operator.planning.steps import CreateNode, RuntimeAction, StartNode, StepError, StopNode
from quorate_operator.resources.facts import Images
from quorate_operator.runtime.kubernetes.api import Kind
from quorate_operator.runtime.kubernetes.cache import ObjectCache
from quorate_operator.runtime.kubernetes.infrastructure import KubernetesInfrastructure

Object = dict[str, Any]
TEXT = """\
apiVersion: quorate.dev/v1alpha1
kind: KafkaController
metadata: {name: quorum}
spec: {placement: {type: WithBrokers, pool: brokers}}
---
apiVersion: quorate.dev/v1alpha1
kind: KafkaBroker
metadata: {name: brokers}
spec: {controllers: quorum, nodeIds: {first: 0}}
"""
FORMED = {
    "metadata": {"name": "quorum", "namespace": "kafka"},
    "spec": {"quorum": "dynamic"},
    "status": {
        "clusterId": FORMATION.cluster_id,
        "formation": {
            "initialVoters": [
                {"nodeId": node_id, "directoryId": directory_id}
                for node_id, directory_id in FORMATION.initial_voters.items()
            ],
            "isFormed": False,
            "isStatic": False,
            "isRebuilt": False,
        },
    },
}


class _Api:
    """Stores objects, as an API server without controllers does."""

    def __init__(self) -> None:
        self.stored: dict[tuple[str, str], Object] = {}
        self.writes = 0

    async def apply(self, kind: Kind, _namespace: str, body: Object, *, dry_run: bool = False) -> Object:
        key = (kind.name, body["metadata"]["name"])
        self.writes += 1
        known = self.stored.get(key, {})
        metadata = {**known.get("metadata", {}), **body["metadata"]}
        metadata |= {"uid": f"{key}", "resourceVersion": f"{self.writes}", "namespace": "kafka"}
        written = {**known, **body, "metadata": metadata}
        if not dry_run:
            self.stored[key] = written
        return written

    async def merge(self, kind: Kind, namespace: str, name: str, patch: Object) -> Object:
        known = self.stored[kind.name, name]
        annotations = {**known["metadata"].get("annotations", {}), **patch["metadata"]["annotations"]}
        metadata = {**known["metadata"], "annotations": annotations}
        return await self.apply(kind, namespace, {**known, "metadata": metadata})

    async def get(self, kind: Kind, _namespace: str | None, name: str) -> Object | None:
        return self.stored.get((kind.name, name))

    async def delete(self, kind: Kind, _namespace: str, name: str, **_: Any) -> None:
        self.stored.pop((kind.name, name), None)


class _Cluster:
    """The infrastructure on `_Api`, with the desired cluster of TEXT."""

    def __init__(self) -> None:
        self.api = _Api()
        self.infrastructure = KubernetesInfrastructure(
            cast("Any", self.api),
            ObjectCache(),
            lambda: FORMED,
            lambda _: None,
            namespace="kafka",
            name="quorum",
            images=Images(quorate="quorate"),
        )
        self.manifests = load_manifests(TEXT, "m.yaml")

    async def completed(self) -> DesiredCluster:
        return await self.infrastructure.complete(desired_cluster(self.manifests), self.manifests)

    async def apply(self, *actions: RuntimeAction) -> None:
        desired = await self.completed()
        for action in actions:
            await self.infrastructure.apply(action, desired)

    @property
    def pods(self) -> list[Object]:
        return [item for (kind, _), item in self.api.stored.items() if kind == "Pod"]


def _start(node_id: int, **advertised: Address) -> StartNode:
    beside = 3000 if node_id == 0 else None
    return StartNode(node_id=node_id, reason="", advertised=advertised, beside=beside)


async def test_a_pod_is_created_by_the_start_of_its_broker() -> None:
    cluster = _Cluster()
    await cluster.apply(
        CreateNode(node_id=3000, reason=""), CreateNode(node_id=0, reason="", is_initial=False)
    )
    moved = Address("moved.example.com", 9093)
    await cluster.apply(_start(3000, CONTROLLER=moved))
    assert cluster.pods == []
    await cluster.apply(_start(0))
    (pod,) = cluster.pods
    assert pod["metadata"]["name"] == "brokers-0"
    formats = {
        item["name"]: item["command"] for item in pod["spec"]["initContainers"] if "format" in item["name"]
    }
    assert "--initial-controllers" in formats["controller-format"]
    assert "--initial-controllers" not in formats["format"]
    nodes = await cluster.infrastructure.nodes(await cluster.completed())
    assert nodes[3000].configured == {"CONTROLLER": moved}
    assert (nodes[0].pod_mate, nodes[3000].pod_mate) == (3000, 0)
    assert nodes[0].state is nodes[3000].state is NodeState.STARTING
    assert nodes[1].state is nodes[3001].state is NodeState.ABSENT
    assert nodes[3000].pool == "quorum"


@pytest.mark.parametrize("first", [0, 3000])
async def test_the_stop_of_either_node_deletes_the_pod_once(first: int) -> None:
    cluster = _Cluster()
    await cluster.apply(
        CreateNode(node_id=3000, reason=""), CreateNode(node_id=0, reason="", is_initial=False)
    )
    await cluster.apply(_start(3000), _start(0))
    second = 3000 - first
    await cluster.apply(StopNode(node_id=first, reason="", grace_ms=120_000))
    assert cluster.pods == []
    await cluster.apply(StopNode(node_id=second, reason="", grace_ms=120_000))
    nodes = await cluster.infrastructure.nodes(await cluster.completed())
    assert nodes[0].state is nodes[3000].state is NodeState.STOPPED
    assert nodes[0].pod_mate is nodes[3000].pod_mate is None


async def test_a_broker_does_not_start_without_the_volume_of_its_controller() -> None:
    cluster = _Cluster()
    await cluster.apply(CreateNode(node_id=0, reason="", is_initial=False))
    with pytest.raises(StepError, match="controller-3000 has no volume"):
        await cluster.apply(_start(3000))
    with pytest.raises(StepError, match="controller-3000 has no volume"):
        await cluster.apply(_start(0))
    assert cluster.pods == []
