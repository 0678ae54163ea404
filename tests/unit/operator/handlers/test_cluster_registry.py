"""The reconciles of all clusters: what is counted of their resources."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from kit.reconciles import shared_parts
from prometheus_client import generate_latest
from quorate_operator.handlers.cluster_registry import Clusters

POOL: dict[str, Any] = {
    "kind": "KafkaBroker",
    "metadata": {"name": "brokers", "namespace": "kafka", "uid": "u", "resourceVersion": "1"},
    "spec": {"controllers": "quorum"},
}
POOL_LABELS = {"kind": "KafkaBroker", "namespace": "kafka"}


async def test_a_namespace_whose_last_resource_is_deleted_has_none() -> None:
    shared = shared_parts()
    reconciler = SimpleNamespace(run=lambda: asyncio.sleep(0), wake=lambda: None)
    clusters = Clusters(shared, lambda *_: cast("Any", reconciler))
    counts = []
    for handle in (clusters.seen, clusters.gone):
        handle(POOL)
        counts.append(shared.metrics.registry.get_sample_value("quorate_resources", POOL_LABELS))
    assert counts == [1, 0]
    assert b"quorate_resource_state{" not in generate_latest(shared.metrics.registry)
    await clusters.close()
