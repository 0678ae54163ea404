"""What is written of a status: the difference from the stored one, and whether it is worth a request. Pure."""

from collections.abc import Mapping
from typing import Any

_WITH_PROGRESS = ("Reconciling",)
"""The conditions whose messages count what is under way."""
_REMOVED = ("Progressing", "Degraded")
"""Conditions that former releases wrote."""


def overlaid(status: Mapping[str, Any], part: Mapping[str, Any]) -> dict[str, Any]:
    """Return a status with a part of another in place of its own, and with the conditions of both."""
    reported = {condition["type"] for condition in part["conditions"]}
    others = [condition for condition in status["conditions"] if condition["type"] not in reported]
    return {**status, **part, "conditions": [*part["conditions"], *others]}


def merged_status(before: Mapping[str, Any], new: Mapping[str, Any], now: str) -> dict[str, Any] | None:
    """Return a merge-patch that makes `before` into `new`; None if no write is needed.

    A change of the high watermark alone needs none. `clusterId`, `formation` and fields that `new` lacks stay. A
    condition keeps its time while its status stays.
    """
    known = {
        condition["type"]: condition
        for condition in before.get("conditions", ())
        if condition["type"] not in _REMOVED
    }
    conditions = []
    for condition in new["conditions"]:
        old = known.get(condition["type"])
        is_same = old is not None and old["status"] == condition["status"]
        time = old["lastTransitionTime"] if old is not None and is_same else now
        conditions.append({**condition, "lastTransitionTime": time})
    listed = {condition["type"] for condition in conditions}
    conditions += [condition for kind, condition in known.items() if kind not in listed]
    target = {**new, "conditions": conditions}
    if target.get("clusterId") is None:
        target.pop("clusterId", None)
    if without_watermark(target) == without_watermark(
        {key: value for key, value in before.items() if key in target}
    ):
        return None
    return target


def is_mere_progress(before: Mapping[str, Any], patch: Mapping[str, Any]) -> bool:
    """Whether a patch changes only counts and their texts, as each pass does while work is under way."""
    return _without_progress({**before, **patch}) == _without_progress(before)


def without_watermark(status: Mapping[str, Any]) -> dict[str, Any]:
    """Return a status without the high watermark, whose change alone is not written."""
    kept = {key: value for key, value in status.items() if value is not None}
    if quorum := kept.get("quorum"):
        kept["quorum"] = {key: value for key, value in quorum.items() if key != "highWatermark"}
    return kept


def _without_progress(status: Mapping[str, Any]) -> dict[str, Any]:
    kept = without_watermark(status)
    kept["plan"] = [_without(step, "reason", "waitsFor") for step in kept.get("plan") or ()]
    kept["brokers"] = [_without(broker, "replicas") for broker in kept.get("brokers") or ()]
    kept["voters"] = [_without(voter, "lag") for voter in kept.get("voters") or ()]
    kept["conditions"] = [
        _without(condition, "message") if condition["type"] in _WITH_PROGRESS else condition
        for condition in kept.get("conditions") or ()
    ]
    return kept


def _without(item: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {key: value for key, value in item.items() if key not in names}
