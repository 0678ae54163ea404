"""Objects that are applied: what is written, and what is left alone."""

from typing import Any, cast

from quorate_operator.runtime.kubernetes.api import Kind
from quorate_operator.runtime.kubernetes.cache import ObjectCache
from quorate_operator.runtime.kubernetes.objects import ClusterObjects

Object = dict[str, Any]


class _Api:
    """Takes what is applied, and writes quantities as the API server does."""

    def __init__(self) -> None:
        self.applied: list[Object] = []

    async def get(self, _kind: Kind, _namespace: str, _name: str) -> None:
        return None

    async def apply(self, _kind: Kind, _namespace: str, body: Object) -> Object:
        self.applied.append(body)
        number = f"{len(self.applied)}"
        metadata = {**body["metadata"], "namespace": "kafka", "uid": "u", "resourceVersion": number}
        return {**body, "metadata": metadata, "spec": {"resources": {"requests": {"cpu": "500m"}}}}


def _job(cpu: str) -> Object:
    metadata = {"name": "quorum", "labels": {"quorate.dev/cluster": "quorum"}}
    spec = {"resources": {"requests": {"cpu": cpu}}}
    return {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": metadata, "spec": spec}


async def test_a_quantity_that_is_written_in_another_way_is_no_edit() -> None:
    api = _Api()
    objects = ClusterObjects(cast("Any", api), ObjectCache(), namespace="kafka", cluster="quorum")
    await objects.apply(_job("0.5"))
    await objects.apply(_job("0.5"))
    assert len(api.applied) == 1
    await objects.apply(_job("0.6"))
    assert len(api.applied) == 2
    await objects.apply(_job("0.6"))
    assert len(api.applied) == 3, "a manual change is reverted"
