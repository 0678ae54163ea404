"""What is worth a write of a status."""

from typing import Any

import pytest
from quorate_operator.handlers.status_patches import is_mere_progress, merged_status
from quorate_operator.handlers.statuses import (
    refused_status,
)

NOW, LATER = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"


def _status(reason: str = "AllReady", *, holds: str = "True", watermark: int = 10) -> dict[str, Any]:
    condition = {
        "type": "Ready",
        "status": holds,
        "reason": reason,
        "message": "",
        "observedGeneration": 1,
        "lastTransitionTime": "",
    }
    quorum = {"leaderId": 3000, "epoch": 1, "highWatermark": watermark, "kraftVersion": 1}
    return {"observedGeneration": 1, "conditions": [condition], "quorum": quorum, "clusterId": None}


def test_a_growing_log_alone_is_no_write() -> None:
    first = merged_status({}, _status(), NOW)
    assert first is not None
    assert merged_status(first, _status(watermark=99), LATER) is None


@pytest.mark.parametrize(
    ("change", "is_mere"),
    [
        ({"plan": [{"step": "WaitFor", "nodeId": 0, "reason": "broker-0 to be drained: 8 left"}]}, True),
        ({"brokers": [{"nodeId": 0, "state": "ready", "replicas": 8}]}, True),
        ({"voters": [{"nodeId": 3000, "lag": 4}]}, True),
        ({"conditions": [{"type": "Reconciling", "status": "True", "message": "8 left"}]}, True),
        ({"plan": []}, False),
        ({"plan": [{"step": "StopNode", "nodeId": 0, "reason": "it leaves"}]}, False),
        ({"brokers": [{"nodeId": 0, "state": "stopped", "replicas": 9}]}, False),
        ({"conditions": [{"type": "Reconciling", "status": "False", "message": "9 left"}]}, False),
        ({"readyReplicas": 2}, False),
    ],
)
def test_counts_of_a_step_under_way_are_mere_progress(change: dict[str, Any], is_mere: bool) -> None:
    """A drain of hours does not write each second, and a change is written at once."""
    before = {
        "readyReplicas": 3,
        "plan": [{"step": "WaitFor", "nodeId": 0, "reason": "broker-0 to be drained: 9 left"}],
        "brokers": [{"nodeId": 0, "state": "ready", "replicas": 9}],
        "voters": [{"nodeId": 3000}],
        "conditions": [{"type": "Reconciling", "status": "True", "message": "9 left"}],
    }
    assert is_mere_progress(before, change) is is_mere


def test_a_condition_keeps_the_time_of_its_last_change() -> None:
    first = merged_status({}, _status(), NOW)
    assert first is not None
    second = merged_status(first, _status("Other"), LATER)
    assert second is not None
    assert second["conditions"][0]["lastTransitionTime"] == NOW
    third = merged_status(second, _status("NodesNotReady", holds="False"), LATER)
    assert third is not None
    assert third["conditions"][0]["lastTransitionTime"] == LATER


def test_a_refused_manifest_leaves_what_is_known() -> None:
    before = {"clusterId": "a" * 22, "formation": {"isFormed": True}, "quorum": {"leaderId": 1}}
    patch = merged_status(before, refused_status("spec.x: wrong", 2), NOW)
    assert patch is not None
    assert patch.keys() == {"observedGeneration", "conditions"}
    assert {condition["reason"] for condition in patch["conditions"]} == {"InvalidManifest"}


def test_conditions_of_former_releases_go() -> None:
    """Others that a part of a status lacks stay."""
    old = [
        {"type": kind, "status": "True", "reason": "A", "message": "", "lastTransitionTime": "then"}
        for kind in ("Ready", "Progressing", "Degraded", "QuorumHealthy")
    ]
    new = {"conditions": [{"type": "Ready", "status": "True", "reason": "A", "message": ""}]}
    written = merged_status({"conditions": old}, new, "now")
    assert written is not None
    assert [condition["type"] for condition in written["conditions"]] == ["Ready", "QuorumHealthy"]
