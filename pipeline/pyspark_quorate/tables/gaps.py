"""Table `gaps`: records that are unreadable, missing, or lost by their leader."""

from collections.abc import Iterator
from operator import itemgetter
from typing import Any, Final, NamedTuple

import numpy as np
from pyspark.sql.types import BooleanType, IntegerType, LongType, StringType, TimestampType

from pyspark_quorate import rows
from pyspark_quorate.rows import CLUSTER_ID, column, nullable, schema
from pyspark_quorate.tables.contract import Cluster, Fold, Table
from pyspark_quorate.tables.evidence import Evidence
from pyspark_quorate.tables.timeline import NO_TIME

SCHEMA: Final = schema(
    CLUSTER_ID,
    column("reason", StringType(), f"one of {', '.join(rows.GAP_REASONS)}"),
    nullable("source", StringType(), "the file or controller that has the gap; null: all of them together"),
    nullable("first_offset", LongType(), "the first missing offset; null: unknown"),
    nullable("end_offset", LongType(), "the offset after the last missing one; null: unknown"),
    nullable("epoch", IntegerType(), "the leader epoch, if known"),
    nullable("detail", StringType(), "details as text"),
    nullable(
        "hides_records",
        BooleanType(),
        "true: no other file has these offsets, so all tables lack these records; false: another copy has them, "
        "or they did not take effect; null: the offsets are unknown",
    ),
    nullable(
        "bridged_at",
        LongType(),
        "end offset of the snapshot that has the complete state after the gap; null: none, or none is needed",
    ),
    nullable("not_before", TimestampType(), "time of the last record before the gap; null: none"),
    nullable("not_after", TimestampType(), "time of the first record or snapshot after the gap; null: none"),
    nullable("time", TimestampType(), "not_after, or not_before if that is null"),
)


class KnownGap(NamedTuple):
    """Missing records, as the first columns of the table."""

    reason: str
    source: str | None
    first_offset: int | None
    end_offset: int | None
    epoch: int | None
    detail: str | None

    @property
    def behind(self) -> int | None:
        """The offset after the gap.

        If its end is unknown, the gap counts as one offset; None: the start is unknown too.
        """
        if self.end_offset is not None:
            return self.end_offset
        return None if self.first_offset is None else self.first_offset + 1


class Gaps(Fold):
    """The gaps of the sources, the offsets that all of them lack, and the records that leaders lost.

    The times of a gap are those of the nearest records on both sides. A snapshot is placed half an offset before its
    own offset, between the last record in it and the next one.
    """

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        evidence = cluster.evidence
        self._found = {*_missing(evidence), *_truncated(evidence)}
        self._before: list[tuple[int, KnownGap]] | None = None
        """(first offset, gap) of gaps that no record has passed yet, highest first; None before the first record."""
        self._behind: list[tuple[int, KnownGap]] = []
        """(offset after the gap, gap) of the gaps whose end no record has passed yet, highest first."""
        self._last_us: int | None = None
        self._not_before: dict[KnownGap, int | None] = {}
        self._not_after: dict[KnownGap, int | None] = {}

    def add(self, gap: KnownGap) -> None:
        """Add a gap that a source reported. All of them are added before the first call of `note_times`."""
        self._found.add(gap)

    def note_times(self, offsets: Any, times: Any) -> None:
        """Note the times of the next records. The arrays are from :class:`pyspark_quorate.tables.timeline.Chosen`."""
        known = times != NO_TIME
        offsets, times = offsets[known], times[known]
        before, behind = self._queued()
        if not len(offsets):
            return
        while before and before[-1][0] <= offsets[-1]:
            first, gap = before.pop()
            at = int(np.searchsorted(offsets, first, "left"))
            self._not_before[gap] = int(times[at - 1]) if at else self._last_us
        while behind and behind[-1][0] - 1 < offsets[-1]:
            end, gap = behind.pop()
            self._not_after[gap] = int(times[int(np.searchsorted(offsets, end - 1, "right"))])
        self._last_us = int(times[-1])

    def finish(self) -> None:
        """Add all rows."""
        before, _ = self._queued()
        self._not_before |= {gap: self._last_us for _, gap in before}
        for gap in self._found:
            hides = None if gap.first_offset is None else not self._is_covered(gap)
            not_before, not_after = self._not_before.get(gap), self._not_after.get(gap)
            time_us = not_after if not_after is not None else not_before
            self.rows.append(
                (*gap, hides, self._bridge(gap) if hides else None, not_before, not_after, time_us)
            )

    def _queued(self) -> tuple[list[tuple[int, KnownGap]], list[tuple[int, KnownGap]]]:
        if self._before is None:
            self._found = _once(self._found)
            begins = [(gap.first_offset, gap) for gap in self._found if gap.first_offset is not None]
            ends = [(gap.behind, gap) for gap in self._found if gap.behind is not None]
            self._before = sorted(begins, key=itemgetter(0), reverse=True)
            self._behind = sorted(ends, key=itemgetter(0), reverse=True)
        return self._before, self._behind

    def _is_covered(self, gap: KnownGap) -> bool:
        """Whether the gap hides nothing: the log has all its offsets, or its records did not take effect."""
        if gap.reason == rows.TRUNCATED_EPOCH:
            return True
        if gap.first_offset is None or gap.behind is None:
            return False
        stretch = self.cluster.evidence.stretch_at(gap.first_offset)
        return stretch is not None and stretch.end >= gap.behind

    def _bridge(self, gap: KnownGap) -> int | None:
        """The offset of the first snapshot after the gap, unless other offsets are missing before the snapshot."""
        behind = gap.behind
        if behind is None:
            return None
        stretch = self.cluster.evidence.stretch_at(behind)
        until = behind if stretch is None else stretch.end
        return min(
            (
                offset
                for offset in self.cluster.evidence.bridges
                if offset == behind or behind < offset <= until
            ),
            default=None,
        )


def _once(found: set[KnownGap]) -> set[KnownGap]:
    """Leave out copies of unknown records, which several nodes have, and missing offsets that are unknown records."""
    unknown: dict[tuple[int, int | None], KnownGap] = {}
    kept = set()
    for gap in sorted(found, key=lambda gap: gap.source or ""):
        if gap.reason == rows.UNKNOWN_RECORD and gap.first_offset is not None:
            unknown.setdefault((gap.first_offset, gap.epoch), gap)
        else:
            kept.add(gap)
    places = np.unique(np.array([offset for offset, _ in unknown], np.int64))
    missing = {gap for gap in kept if gap.reason == rows.MISSING_OFFSETS and gap.source is None}
    parts = {part for gap in missing for part in _without(gap, places)}
    return {*(kept - missing), *parts, *unknown.values()}


def _without(gap: KnownGap, places: Any) -> Iterator[KnownGap]:
    """Yield the parts of a gap between these offsets."""
    first, end = gap.first_offset or 0, gap.end_offset or 0
    for place in places[np.searchsorted(places, first) : np.searchsorted(places, end)].tolist():
        if place > first:
            yield gap._replace(first_offset=first, end_offset=place)
        first = place + 1
    if first < end:
        yield gap._replace(first_offset=first, end_offset=end)


def _missing(evidence: Evidence) -> Iterator[KnownGap]:
    """Yield the offsets that no file has, up to the last known offset."""
    known = [(stretch.first, stretch.end) for stretch in evidence.stretches]
    known += [(offset, offset) for offset, bridge in evidence.bridges.items() if bridge.after_gap]
    before = 0
    for first, end in sorted(known):
        if first > before:
            detail = "nothing that was read has these offsets"
            yield KnownGap(rows.MISSING_OFFSETS, None, before, first, None, detail)
        before = max(before, end)


def _truncated(evidence: Evidence) -> Iterator[KnownGap]:
    """Yield the records that are not in the log of a later leader, and so were truncated."""
    for lost in evidence.lost:
        detail = (
            f"{lost.records} records of epoch {lost.epoch} did not count: a later leader did not have them"
        )
        yield KnownGap(rows.TRUNCATED_EPOCH, None, lost.first, lost.end, lost.epoch, detail)


TABLE: Final = Table(
    name="gaps",
    fold=Gaps,
    doc=(
        "Data that the other tables lack: damaged parts of files, offsets that no file has, and records of leaders "
        "that lost. If `hides_records` is true, changes may be missing in all tables; inexact intervals start or end "
        "at such a gap."
    ),
    schema=SCHEMA,
    key=("cluster_id", "reason", "source", "first_offset", "end_offset", "epoch", "detail"),
)
