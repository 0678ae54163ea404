"""Objects that are applied: what is written, and what is left alone."""

from typing import Any, cast

import pytest
from quorate_operator.planning.steps import StepError
from quorate_operator.runtime.kubernetes.api import POD, Kind
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


class _Stored(_Api):
    """Has pods, and lists those that a selector matches."""

    def __init__(self, *pods: Object) -> None:
        super().__init__()
        self.pods = pods

    async def list(self, _kind: Kind, _namespace: str, selector: str) -> tuple[list[Object], str]:
        terms = [term.partition("=") for term in selector.split(",")]
        found = [
            pod
            for pod in self.pods
            if all(
                pod["metadata"]["labels"].get(name, "") == value
                if equals
                else name in pod["metadata"]["labels"]
                for name, equals, value in terms
            )
        ]
        return found, "10"


def _pod(name: str, version: int, **labels: str) -> Object:
    metadata = {"name": name, "namespace": "kafka", "uid": name, "resourceVersion": f"{version}"}
    owned = {"app.kubernetes.io/managed-by": "quorate", "quorate.dev/cluster": "quorum"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {**metadata, "labels": owned | labels}}


async def test_pods_are_read_again_as_they_are_watched() -> None:
    """What another tool labels with the name of the cluster is not watched: its end would not be noticed."""
    foreign = _pod("foreign", 4, **{"app.kubernetes.io/managed-by": "Helm"})
    other = _pod("other", 5, **{"quorate.dev/cluster": "other"})
    cache = ObjectCache()
    for pod in (_pod("gone", 2), _pod("stays", 3), _pod("new", 11)):
        cache.put(pod)
    api = _Stored(_pod("stays", 9), foreign, other)
    objects = ClusterObjects(cast("Any", api), cache, namespace="kafka", cluster="quorum")
    await objects.refresh(POD)
    found = {(pod["metadata"]["name"], pod["metadata"]["resourceVersion"]) for pod in objects.of_kind(POD)}
    assert found == {("stays", "9"), ("new", "11")}
