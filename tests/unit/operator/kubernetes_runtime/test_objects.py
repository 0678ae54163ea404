"""Objects that are applied: what is written, and what is left alone."""

from typing import Any, cast

import pytest
from quorate_operator.planning.steps import StepError
from quorate_operator.runtime.kubernetes.api import Kind
from quorate_operator.runtime.kubernetes.cache import ObjectCache
from quorate_operator.runtime.kubernetes.objects import ClusterObjects

Object = dict[str, Any]


class _Api:
    """Takes what is applied, and writes quantities as the API server does."""

    def __init__(self, existing: Object | None = None) -> None:
        self.applied: list[Object] = []
        self.existing = existing

    async def get(self, _kind: Kind, _namespace: str, _name: str) -> Object | None:
        return self.existing

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


@pytest.mark.parametrize(
    ("labels", "is_taken"), [({}, False), ({"quorate.dev/cluster": "other"}, False), (None, True)]
)
async def test_a_claim_of_another_owner_is_not_taken_for_a_node(
    labels: dict[str, str] | None, is_taken: bool
) -> None:
    """A StatefulSet `payments` with a volume `data` has a claim of the same name as a pool `payments`."""
    ours = {"quorate.dev/cluster": "quorum"}
    metadata = {"name": "data-payments-0", "labels": ours}
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": {}}
    existing = {**claim, "metadata": {**metadata, "labels": ours if labels is None else labels}}
    api = _Api(existing)
    objects = ClusterObjects(cast("Any", api), ObjectCache(), namespace="kafka", cluster="quorum")
    if is_taken:
        await objects.apply(claim)
    else:
        with pytest.raises(StepError, match="PersistentVolumeClaim data-payments-0 exists and belongs to"):
            await objects.apply(claim)
    assert bool(api.applied) == is_taken
