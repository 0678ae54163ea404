"""Events that the operator writes about steps and failures."""

import json
from typing import Any, cast

import pytest
from quorate_operator.handlers.events import NOTE_LENGTH_MAX, EventRecorder
from quorate_operator.runtime.kubernetes.api import ApiError
from quorate_operator.web.snapshots import ClusterKey, ClusterSnapshot, SnapshotRegistry

KEY = ClusterKey("kafka", "quorum")
ABOUT = {
    "apiVersion": "quorate.dev/v1alpha1",
    "kind": "KafkaController",
    "metadata": {"uid": "1", "name": "quorum", "namespace": "kafka"},
}


class _Api:
    """Takes Events, or refuses them."""

    def __init__(self, refusal: ApiError | None = None) -> None:
        self._refusal = refusal
        self.requests = 0
        self.namespaces: list[str] = []
        self.written: list[Any] = []
        self.terminating: set[str] = set()

    def is_terminating(self, namespace: str) -> bool:
        return namespace in self.terminating

    async def create(self, _kind: object, namespace: str, body: dict[str, Any]) -> None:
        self.requests += 1
        self.namespaces.append(namespace)
        if self._refusal is not None:
            raise self._refusal
        self.written.append(body)


async def test_nothing_is_written_into_a_namespace_that_is_being_deleted() -> None:
    api, snapshots = _Api(), SnapshotRegistry()
    api.terminating = {"kafka"}
    recorder = EventRecorder(cast("Any", api), snapshots, "operator-1")
    await recorder.record(KEY, ABOUT, "StopNode", "node 1")
    assert api.requests == 0
    elsewhere = {**ABOUT, "metadata": {"uid": "2", "name": "orders", "namespace": "other"}}
    await recorder.record(KEY, elsewhere, "StartNode", "node 1")
    assert api.namespaces == ["other"]


async def test_an_event_is_written_once_until_it_is_settled() -> None:
    api = _Api()
    recorder = EventRecorder(cast("Any", api), SnapshotRegistry(), "operator-1")
    for _ in range(2):
        await recorder.record(KEY, ABOUT, "StartNode", "node 1")
    assert len(api.written) == 1
    assert "node 1" in json.dumps(api.written)
    recorder.settle(ABOUT, "StartNode", "node 1")
    await recorder.record(KEY, ABOUT, "StartNode", "node 1")
    assert len(api.written) == 2


async def test_an_event_is_in_the_namespace_of_its_object() -> None:
    """A topic may be in another namespace than its cluster."""
    api = _Api()
    recorder = EventRecorder(cast("Any", api), SnapshotRegistry(), "operator-1")
    elsewhere = {**ABOUT, "metadata": {"uid": "2", "name": "orders", "namespace": "other"}}
    await recorder.record(KEY, elsewhere, "CreateTopic", "create it")
    assert api.namespaces == ["other"]
    assert api.written[0]["metadata"]["namespace"] == "other"


async def test_an_event_is_shown_on_the_page_of_its_cluster_if_it_has_one() -> None:
    api, snapshots = _Api(), SnapshotRegistry()
    snapshots.put(ClusterSnapshot(key=KEY, at_ms=1))
    recorder = EventRecorder(cast("Any", api), snapshots, "operator-1")
    await recorder.record(KEY, ABOUT, "StartNode", "node 1")
    await recorder.record(None, ABOUT, "StartNode", "node 2")
    assert [event["note"] for event in api.written] == ["node 1", "node 2"]
    (snapshot,) = snapshots.clusters()
    assert [event.text for event in snapshot.events] == ["StartNode: node 1"]


async def test_a_long_note_is_cut_wherever_it_is_kept() -> None:
    api, snapshots = _Api(), SnapshotRegistry()
    snapshots.put(ClusterSnapshot(key=KEY, at_ms=1))
    recorder = EventRecorder(cast("Any", api), snapshots, "operator-1")
    for end in "ab":
        await recorder.record(KEY, ABOUT, "StartNode", "x" * NOTE_LENGTH_MAX + end)
    assert [event["note"] for event in api.written] == ["x" * NOTE_LENGTH_MAX]
    (snapshot,) = snapshots.clusters()
    assert [event.text for event in snapshot.events] == [f"StartNode: {'x' * NOTE_LENGTH_MAX}"]
    recorder.settle(ABOUT, "StartNode", "x" * NOTE_LENGTH_MAX + "c")
    await recorder.record(KEY, ABOUT, "StartNode", "x" * NOTE_LENGTH_MAX + "c")
    assert len(api.written) == 2


async def test_an_event_that_is_refused_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """An operator without the right to write Events logs that, and continues."""
    recorder = EventRecorder(
        cast("Any", _Api(ApiError(403, "Forbidden", "no"))), SnapshotRegistry(), "operator-1"
    )
    for _ in range(2):
        await recorder.record(KEY, ABOUT, "StartNode", "node 1")
    (record,) = caplog.records
    assert record.getMessage().startswith("kafka/quorum: the Event StartNode was not written: ")
