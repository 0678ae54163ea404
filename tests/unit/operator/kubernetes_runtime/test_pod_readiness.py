"""The condition that the readiness of a broker's pod waits for: when it is written, and how."""

from typing import Any, cast

import pytest
from kit.scenarios import Situation, healthy
from quorate_operator.resources.names import CONDITION_IN_SYNC
from quorate_operator.runtime.kubernetes.api import ApiError, Kind
from quorate_operator.runtime.kubernetes.cache import ObjectCache
from quorate_operator.runtime.kubernetes.objects import ClusterObjects
from quorate_operator.runtime.kubernetes.supporting_objects import update_readiness

Object = dict[str, Any]
OF_KUBELET = {"type": "ContainersReady", "status": "True"}


class _Api:
    """Keeps the conditions of one pod as server-side apply does: by their type."""

    def __init__(self, error: ApiError | None = None) -> None:
        self.error = error
        self.pod: Object = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": "brokers-0",
                "namespace": "kafka",
                "uid": "u",
                "resourceVersion": "1",
                "labels": {
                    "quorate.dev/cluster": "quorum",
                    "quorate.dev/pool": "brokers",
                    "quorate.dev/node-id": "0",
                    "app.kubernetes.io/component": "broker",
                },
            },
            "status": {"conditions": [OF_KUBELET]},
        }
        self.writes = 0

    async def apply(
        self, _kind: Kind, _namespace: str, body: Object, *, subresource: str | None = None
    ) -> Object:
        assert (subresource, body["metadata"]["uid"]) == ("status", "u")
        if self.error is not None:
            raise self.error
        self.writes += 1
        metadata = {**self.pod["metadata"], "resourceVersion": f"{self.writes + 1}"}
        status = {"conditions": [OF_KUBELET, *body["status"]["conditions"]]}
        self.pod = {**self.pod, "metadata": metadata, "status": status}
        return self.pod

    @property
    def condition(self) -> Object:
        """What the readiness of the pod waits for."""
        return next(
            condition
            for condition in self.pod["status"]["conditions"]
            if condition["type"] == CONDITION_IN_SYNC
        )


async def _update(api: _Api, situation: Situation) -> None:
    cache = ObjectCache()
    objects = ClusterObjects(cast("Any", api), cache, namespace="kafka", cluster="quorum")
    cache.put(api.pod)
    await update_readiness(cast("Any", api), objects, situation.observed)


async def test_a_condition_is_written_when_it_changes() -> None:
    """A look at a settled cluster writes nothing, and times are those of changes."""
    api, lags = _Api(), healthy(3, brokers=1).load(0, lagging=2)
    await _update(api, lags)
    assert (api.condition["status"], api.condition["reason"]) == ("False", "ReplicasNotInSync")
    api.condition["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    await _update(api, lags)
    assert api.writes == 1
    await _update(api, healthy(3, brokers=1).unregistered(0))
    assert (api.condition["reason"], api.writes) == ("NotRegistered", 2)
    assert api.condition["lastTransitionTime"] == "2026-01-01T00:00:00Z", "the status is the same"
    await _update(api, healthy(3, brokers=1))
    assert (api.condition["status"], api.writes) == ("True", 3)
    assert api.condition["lastTransitionTime"] != "2026-01-01T00:00:00Z"
    await _update(api, healthy(3, brokers=1).leaderless())
    assert (api.condition["status"], api.writes) == ("True", 3), "no leader answers"


async def test_a_pod_that_leaves_is_let_alone() -> None:
    api = _Api()
    api.pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    await _update(api, healthy(3, brokers=1))
    assert api.writes == 0


@pytest.mark.parametrize(("status", "is_fault"), [(404, False), (409, False), (403, True)])
async def test_a_pod_that_was_replaced_meanwhile_is_no_fault(status: int, is_fault: bool) -> None:
    api = _Api(ApiError(status, "", "no"))
    if is_fault:
        with pytest.raises(ApiError):
            await _update(api, healthy(3, brokers=1))
    else:
        await _update(api, healthy(3, brokers=1))
