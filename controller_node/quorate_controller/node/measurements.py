"""What a node measures for metrics, in plain numbers that are read on a scrape: latencies, elections."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final

from quorate_controller.raft.events import Role

if TYPE_CHECKING:
    from collections.abc import Sequence

    from quorate_controller.raft.events import RoleChange

LATENCY_BOUNDS_MS: Final = (0.5, 1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000)
_STANDING: Final = frozenset({Role.PROSPECTIVE, Role.CANDIDATE})


class LatencyHistogram:
    """Counts of durations, in buckets. An observation costs fractions of a microsecond."""

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
        """Return Prometheus' buckets: the upper bound in seconds, and the number of durations up to it."""
        buckets, total = [], 0
        for bound_ms, count in zip((*LATENCY_BOUNDS_MS, None), self.counts, strict=True):
            total += count
            buckets.append(("+Inf" if bound_ms is None else repr(bound_ms / 1000), total))
        return buckets


class ElectionCounts:
    """Counts since the start of the process, for metrics."""

    def __init__(self) -> None:
        self.elections = 0
        """Elections that this node started, pre-votes included."""
        self.leaders = 0
        """Leaders of the quorum, this node included; one that leads again counts again."""
        self._last_role = Role.UNATTACHED
        self._last_leader = (0, -1)

    def role_changed(self, change: RoleChange) -> None:
        """Note a role of this node. One election goes through several of them."""
        if change.role in {*_STANDING, Role.LEADER} and self._last_role not in _STANDING:
            self.elections += 1
        self._last_role = change.role
        if change.leader_id >= 0 and (change.epoch, change.leader_id) != self._last_leader:
            self._last_leader = (change.epoch, change.leader_id)
            self.leaders += 1
