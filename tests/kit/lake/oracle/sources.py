"""Tables `records` and `gaps`: what was read, and what is missing in it."""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from kit.lake.oracle.history import History, Moment
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


def gaps(history: History, lost: Mapping[int, tuple[int, int]]) -> set[Row]:
    """The columns of table `gaps` but the cluster's id. `lost`: first and end offset of the epochs that lost."""
    found = [moment for moment in history.moments() if not moment.is_gap]
    file = source_of(history.cluster_id)
    every = [Gap(reason, file, first, end, None, "d") for reason, first, end in REPORTED]
    end = 0
    for moment in found:
        if moment.offset > end:
            detail = "nothing that was read has these offsets"
            every.append(Gap(rows.MISSING_OFFSETS, None, end, moment.offset, None, detail))
        end = moment.offset + (not moment.is_snapshot)
    for epoch, (first, end) in lost.items():
        detail = f"{end - first} records of epoch {epoch} did not count: a later leader did not have them"
        every.append(Gap(rows.TRUNCATED_EPOCH, None, first, end, epoch, detail))
    return {_with_context(gap, history, found) for gap in every}


def _with_context(gap: Gap, history: History, found: list[Moment]) -> Row:
    if gap.first is None:
        return (*gap, None, None, None, None, None)
    behind = gap.first + 1 if gap.end is None else gap.end
    is_lost = gap.reason == rows.TRUNCATED_EPOCH
    hides = not is_lost and not history.readable.issuperset(range(gap.first, behind))
    bridges = [
        moment.offset
        for moment in found
        if moment.is_snapshot
        and moment.offset >= behind
        and history.readable.issuperset(range(behind, moment.offset))
    ]
    before = [history.time_of(moment) for moment in found if _place(moment) < gap.first]
    after = [history.time_of(moment) for moment in found if _place(moment) > behind - 1]
    not_before, not_after = before[-1] if before else None, after[0] if after else None
    bridged_at = min(bridges, default=None) if hides else None
    return (*gap, hides, bridged_at, not_before, not_after, not_after or not_before)


def _place(moment: Moment) -> float:
    """A checkpoint is between the last record in it and the next one."""
    return moment.offset - 0.5 * moment.is_snapshot
