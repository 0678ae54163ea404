"""Figures of one round by name, and summaries of several rounds."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

Figures = dict[str, float | str]
"""By name: a number, or why it is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """The median, minimum and maximum of some rounds."""

    median: float
    least: float
    most: float


def numbers(runs: Sequence[Figures], name: str) -> list[float]:
    """Return what the rounds have of a figure."""
    return [value for run in runs if isinstance(value := run.get(name), int | float)]


def spread(values: Sequence[float]) -> Spread:
    """Return the spread of at least one value."""
    return Spread(median=statistics.median(values), least=min(values), most=max(values))


def medians(runs: Sequence[Figures]) -> Figures:
    """Return the medians of what was measured; a reason where no round measured it."""
    names = dict.fromkeys(name for run in runs for name in run)
    found: Figures = {}
    for name in names:
        values = numbers(runs, name)
        reasons = [value for run in runs if isinstance(value := run.get(name), str)]
        found[name] = statistics.median(values) if values else reasons[0]
    return found


def percentiles(name: str, latencies: Sequence[float]) -> Figures:
    """Return p50 and p99 of two or more latencies, in seconds, under the name of what they are of."""
    return {
        f"{name}_p50_seconds": statistics.median(latencies),
        f"{name}_p99_seconds": statistics.quantiles(latencies, n=100)[98],
    }
