"""When a reconcile writes the status of a resource."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from kit.reconciles import filled, shared_parts
from quorate_operator.handlers import reconciler as reconciler_module
from quorate_operator.handlers.reconciler import PROGRESS_INTERVAL_MS, ClusterReconciler
from quorate_operator.handlers.statuses import Condition, conditions_of
from quorate_operator.runtime.kubernetes.api import BROKERS, ApiError, Kind
from quorate_operator.web.snapshots import ClusterKey

Object = dict[str, Any]


class _Api:
    """Keeps one resource, whose status is written."""

    def __init__(self) -> None:
        self.body: Object = {"metadata": {"namespace": "kafka", "name": "brokers", "uid": "u"}, "status": {}}
        self.writes = 0

    async def merge(self, _kind: Kind, _namespace: str, _name: str, patch: Object, **_: Any) -> Object:
        self.writes += 1
        self.body = {**self.body, "status": {**self.body["status"], **patch["status"]}}
        return self.body


async def test_progress_is_written_from_time_to_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now_ms = [1_000_000]
    monkeypatch.setattr(reconciler_module.clock, "now_ms", lambda: now_ms[0])
    api = _Api()
    store = SimpleNamespace(of_cluster=lambda _key: None, put=lambda _body: None)
    shared = shared_parts(api=api, store=store)
    reconciler = ClusterReconciler(
        ClusterKey("kafka", "quorum"), shared, cast("Any", None), cast("Any", None), fill=filled
    )

    async def write(left: int | None) -> int:
        plan = [] if left is None else [{"step": "WaitFor", "reason": f"broker-0 to be drained: {left} left"}]
        await reconciler._write_status(BROKERS, api.body, {"conditions": [], "plan": plan})
        now_ms[0] += 1_000
        return api.writes

    seconds = PROGRESS_INTERVAL_MS // 1_000
    assert [await write(100 - second) for second in range(seconds)] == [1] * seconds
    assert await write(50) == 2
    assert await write(49) == 2
    assert await write(None) == 3


class _OtherDefinitions(_Api):
    """An API server whose definitions lack a field of the status, or refuse a value in it."""

    def __init__(self, refusal: ApiError | None = None) -> None:
        super().__init__()
        self._refusal = refusal

    async def merge(self, _kind: Kind, _namespace: str, _name: str, patch: Object, **_: Any) -> Object:
        if self._refusal is not None:
            self.writes += 1
            raise self._refusal
        kept = {field: value for field, value in patch["status"].items() if field != "newer"}
        return await super().merge(_kind, _namespace, _name, {"status": kept})


@pytest.mark.parametrize("refusal", [None, ApiError(422, "Invalid", "status.conditions[0].type")])
async def test_a_status_that_is_not_stored_is_not_written_in_each_pass(refusal: ApiError | None) -> None:
    """Reconciling continues while definitions of an older release are installed, without a write in each pass."""
    api = _OtherDefinitions(refusal)
    store = SimpleNamespace(of_cluster=lambda _key: None, put=lambda _body: None)
    shared = shared_parts(api=api, store=store)
    reconciler = ClusterReconciler(
        ClusterKey("kafka", "quorum"), shared, cast("Any", None), cast("Any", None), fill=filled
    )
    conditions = conditions_of([Condition("Ready", True, "AllReady", "3 of 3 nodes are ready")], 1)
    status = {"observedGeneration": 1, "conditions": conditions, "newer": "on"}
    for _ in range(5):
        await reconciler._write_status(BROKERS, api.body, status)
    assert api.writes == 1
    await reconciler._write_status(BROKERS, api.body, {**status, "observedGeneration": 2})
    assert api.writes == 2
