"""Conditions of a status in a form that tests compare."""

from collections.abc import Mapping
from typing import Any


def conditions_by_type(status: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Status and reason of each condition, for instance `{"Ready": ("True", "AllReady")}`."""
    return {
        condition["type"]: (condition["status"], condition["reason"]) for condition in status["conditions"]
    }


def conditions_of(status: Mapping[str, Any], *types: str) -> list[tuple[str, str]]:
    """Status and reason of some conditions, in the order of `types`."""
    known = conditions_by_type(status)
    return [known[kind] for kind in types]
