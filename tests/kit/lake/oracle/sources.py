"""Tables `records` and `gaps`: what was read, and what is missing in it."""

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple, Protocol

from pyspark_quorate import rows

Row = tuple[Any, ...]
FOOTER: Final = "SnapshotFooterRecord"
REPORTED: Final = (
    (rows.TORN_TAIL, 3, None),
    (rows.CORRUPT_BATCH, None, None),
    (rows.CORRUPT_BATCH, 5, 9),
    (rows.UNKNOWN_RECORD, 10**6, 10**6 + 1),
)
"""Reason, first offset and end offset of gaps that a source reported."""


class Event(Protocol):
    """A record, a checkpoint or (neither) the end of a gap, as a reader finds them in order."""

    @property
    def offset(self) -> int: ...
    @property
    def entry(self) -> Any: ...
    @property
    def snapshot(self) -> Any: ...


class Gap(NamedTuple):
    """The first columns of the table."""

    reason: str
    source: str | None
    first: int | None
    end: int | None
    epoch: int | None
    detail: str


def source_of(cluster_id: str) -> str:
    """The file that reports gaps."""
    return f"{cluster_id}/0.log"


def reported_rows(cluster_id: str) -> list[Row]:
    """The rows of `REPORTED`, each twice, as after a second read."""
    return 2 * [
        (
            *(cluster_id, source_of(cluster_id), rows.GAP, first, 0, None, None, reason, None),
            json.dumps({"endOffset": end, "detail": "d"}),
        )
        for reason, first, end in REPORTED
    ]


def records(raw: Iterable[Row]) -> set[Row]:
    """The columns of table `records` but the cluster's id, in its order: each record once, snapshots of one file."""
    log: dict[tuple[int, int], Row] = {}
    snapshots: dict[tuple[int, int], dict[str, dict[int, Row]]] = defaultdict(lambda: defaultdict(dict))
    for row in raw:
        _, source, kind, offset, ordinal, epoch, *_ = row
        if kind == rows.SNAPSHOT:
            snapshots[offset, epoch][source][ordinal] = row
        elif kind == rows.LOG:
            log[offset, epoch] = min(row, log.get((offset, epoch), row), key=lambda each: each[1])
    chosen = list(log.values())
    for copies in snapshots.values():
        first = min(copies, key=lambda source: (not _is_whole(copies[source]), source))
        chosen += copies[first].values()
    return {
        (kind, offset, ordinal, epoch, time, name, version, payload, source)
        for _, source, kind, offset, ordinal, epoch, time, name, version, payload in chosen
    }


def _is_whole(lines: dict[int, Row]) -> bool:
    return any(line[7] == FOOTER and len(lines) == ordinal + 1 for ordinal, line in lines.items())


def gaps(
    cluster_id: str,
    log: list[Any],
    readable: Collection[int],
    found: Iterable[Event],
    lost: Mapping[int, tuple[int, int]],
) -> set[Row]:
    """The columns of table `gaps` but the cluster's id.

    `log`: what was appended; `readable`: offsets that some file has; `lost`: epochs of leaders that lost, with their
    first and end offset.
    """
    events = [event for event in found if event.entry is not None or event.snapshot is not None]
    every = [Gap(reason, source_of(cluster_id), first, end, None, "d") for reason, first, end in REPORTED]
    end = 0
    for event in events:
        if event.offset > end:
            detail = "nothing that was read has these offsets"
            every.append(Gap(rows.MISSING_OFFSETS, None, end, event.offset, None, detail))
        end = event.offset + (event.entry is not None)
    for epoch, (first, end) in lost.items():
        detail = f"{end - first} records of epoch {epoch} did not count: a later leader did not have them"
        every.append(Gap(rows.TRUNCATED_EPOCH, None, first, end, epoch, detail))
    return {_with_context(gap, log, readable, events) for gap in every}


def _with_context(gap: Gap, log: list[Any], readable: Collection[int], events: list[Event]) -> Row:
    if gap.first is None:
        return (*gap, None, None, None, None, None)
    behind = gap.first + 1 if gap.end is None else gap.end
    is_lost = gap.reason == rows.TRUNCATED_EPOCH
    hides = not is_lost and not all(offset in readable for offset in range(gap.first, behind))
    bridges = [
        event.offset
        for event in events
        if event.snapshot is not None
        and event.offset >= behind
        and all(offset in readable for offset in range(behind, event.offset))
    ]
    before = [_time(event, log) for event in events if _place(event) < gap.first]
    after = [_time(event, log) for event in events if _place(event) > behind - 1]
    not_before, not_after = before[-1] if before else None, after[0] if after else None
    bridged_at = min(bridges, default=None) if hides else None
    return (*gap, hides, bridged_at, not_before, not_after, not_after or not_before)


def _place(event: Event) -> float:
    """A checkpoint is between the last record in it and the next one."""
    return event.offset if event.entry is not None else event.offset - 0.5


def _time(event: Event, log: list[Any]) -> datetime:
    time: datetime = log[event.offset - (event.entry is None)].time
    return time
