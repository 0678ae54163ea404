"""Latency histograms: plain numbers that cost fractions of a microsecond, read on a scrape."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

LATENCY_BOUNDS_MS: Final = (0.5, 1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000)


class LatencyHistogram:
    """Counts of durations, in buckets."""

    __slots__ = ("count", "counts", "sum_ms")

    def __init__(self) -> None:
        self.counts = [0] * (len(LATENCY_BOUNDS_MS) + 1)
        """Durations up to each bound and above the one before; the last bucket has those above all bounds.
        """
        self.count = 0
        self.sum_ms = 0.0

    def observe_ms(self, duration_ms: float) -> None:
        """Count one duration in milliseconds."""
        self.counts[bisect_left(LATENCY_BOUNDS_MS, duration_ms)] += 1
        self.count += 1
        self.sum_ms += duration_ms

    def cumulative(self) -> Sequence[tuple[str, int]]:
        """Returns Prometheus' buckets: the upper bound in seconds, and the number of durations up to it."""
        buckets, total = [], 0
        for bound_ms, count in zip((*LATENCY_BOUNDS_MS, None), self.counts, strict=True):
            total += count
            buckets.append(("+Inf" if bound_ms is None else repr(bound_ms / 1000), total))
        return buckets
