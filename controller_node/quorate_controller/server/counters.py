"""What is counted while requests are served: plain numbers, read by `metrics.py` when somebody scrapes.

Counting costs fractions of a microsecond and needs no metrics library; without a metrics listener that
library is never loaded.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kio.schema.errors import ErrorCode

LATENCY_BOUNDS_MS: Final = (0.5, 1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000)


class LatencyHistogram:
    """How often something took how long, in buckets."""

    __slots__ = ("count", "counts", "sum_ms")

    def __init__(self) -> None:
        self.counts = [0] * (len(LATENCY_BOUNDS_MS) + 1)
        """Observations at most as long as each bound, and longer than the one before; last: longer than all.
        """
        self.count = 0
        self.sum_ms = 0.0

    def observe_ms(self, duration_ms: float) -> None:
        """Count one duration in milliseconds."""
        self.counts[bisect_left(LATENCY_BOUNDS_MS, duration_ms)] += 1
        self.count += 1
        self.sum_ms += duration_ms

    def cumulative(self) -> Sequence[tuple[str, int]]:
        """Buckets as Prometheus has them: upper bound in seconds and how many were at most that long."""
        buckets, total = [], 0
        for bound_ms, count in zip((*LATENCY_BOUNDS_MS, None), self.counts, strict=True):
            total += count
            buckets.append(("+Inf" if bound_ms is None else repr(bound_ms / 1000), total))
        return buckets


class RequestCounters:
    """Requests and errors by API, and connections that were refused, or led to the wrong node."""

    __slots__ = (
        "errors",
        "misrouted_connections",
        "misrouted_peer_connections",
        "refused_connections",
        "requests",
        "seconds",
    )

    def __init__(self) -> None:
        self.requests: dict[int, int] = defaultdict(int)
        """By API key; a forwarded request counts as Envelope and as itself."""
        self.errors: dict[tuple[int, ErrorCode], int] = defaultdict(int)
        """Error responses to a request as a whole, by API key and code."""
        self.seconds: dict[int, LatencyHistogram] = defaultdict(LatencyHistogram)
        """Time from a control request to its committed answer, by API key."""
        self.refused_connections = 0
        """Connections closed because of garbage, unknown APIs or versions."""
        self.misrouted_connections: dict[str, int] = defaultdict(int)
        """Clients that meant another node or cluster (KIP-1242), by what was wrong: `node` or `cluster`."""
        self.misrouted_peer_connections = 0
        """Our own connections to other controllers that ended at somebody else."""
