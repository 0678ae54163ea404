"""Summaries of a cluster's rows without payloads: which offsets and snapshots exist, of which epochs, in which files.

A summary is small, whatever the number of rows. Summaries of parts of the rows can be added in any order.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from pyspark_quorate import rows
from pyspark_quorate.tables.lines import SNAPSHOT_FOOTER

BEGIN: Final = "BeginTransactionRecord"
END: Final = "EndTransactionRecord"
ABORT: Final = "AbortTransactionRecord"
COLUMNS: Final = ("cluster_id", "source", "kind", "offset", "ordinal", "epoch", "time", "type")
"""The columns of rows that a summary reads; `time` in microseconds since 1970."""


class Stretch(NamedTuple):
    """Consecutive offsets, or ordinals of a snapshot; `end` is exclusive."""

    first: int
    end: int
    time_us: int | None
    """The time of the first record, in microseconds since 1970."""


def joined(stretches: Iterable[Stretch]) -> list[Stretch]:
    """Merge overlapping and adjacent stretches. Returns them in order."""
    made: list[Stretch] = []
    for one in sorted(stretches, key=lambda each: each[:2]):
        if made and one.first <= made[-1].end:
            made[-1] = made[-1]._replace(end=max(one.end, made[-1].end))
        else:
            made.append(one)
    return made


class Copy(NamedTuple):
    """A snapshot in a file."""

    offset: int
    epoch: int
    source: str


@dataclass(slots=True)
class Summary:
    """The rows of one cluster, without those of gaps."""

    spans: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    """(source, epoch) -> first and last offset. A snapshot counts as the record before its offset."""
    log: dict[int, list[Stretch]] = field(default_factory=dict)
    """epoch -> its offsets in any file."""
    copies: dict[Copy, list[Stretch]] = field(default_factory=dict)
    """The ordinals of each snapshot."""
    footers: dict[Copy, int] = field(default_factory=dict)
    """Snapshot -> the ordinal of its footer record."""
    brackets: set[tuple[int, int, str]] = field(default_factory=set)
    """Offset, epoch and type of the records that begin and end transactions."""

    def add(self, other: "Summary") -> None:
        """Add the summary of other rows of the cluster."""
        for place, (first, last) in other.spans.items():
            known = self.spans.get(place, (first, last))
            self.spans[place] = (min(first, known[0]), max(last, known[1]))
        for epoch, stretches in other.log.items():
            self.log[epoch] = joined([*self.log.get(epoch, ()), *stretches])
        for copy, stretches in other.copies.items():
            self.copies[copy] = joined([*self.copies.get(copy, ()), *stretches])
        for copy, ordinal in other.footers.items():
            self.footers[copy] = max(ordinal, self.footers.get(copy, ordinal))
        self.brackets |= other.brackets

    def size_of(self, copy: Copy) -> int:
        """The number of lines of a snapshot."""
        return sum(one.end - one.first for one in self.copies[copy])

    def is_complete(self, copy: Copy) -> bool:
        """Whether the snapshot is readable from its header to its footer."""
        return self.size_of(copy) == self.footers.get(copy, -1) + 1


def summarize(batches: Iterable[pa.RecordBatch]) -> dict[str, Summary]:
    """Summarize rows of any clusters. Returns cluster id -> summary. The batches have the columns `COLUMNS`."""
    found: dict[str, Summary] = {}
    for batch in batches:
        for cluster_id, part in _summaries(batch).items():
            found.setdefault(cluster_id, Summary()).add(part)
    return found


def codes(column: pa.Array) -> tuple[Any, list[Any]]:
    """Encode a column with a dictionary. Returns the index of each value, and the values."""
    encoded = column.dictionary_encode()
    return encoded.indices.to_numpy(zero_copy_only=False), encoded.dictionary.to_pylist()


def _summaries(batch: pa.RecordBatch) -> dict[str, Summary]:
    """Summarize one batch. Rows that directly follow the previous row are taken together."""
    found: dict[str, Summary] = {}
    keys, values = zip(*(codes(batch.column(name)) for name in ("cluster_id", "source", "kind")), strict=True)
    is_log = np.array([kind == rows.LOG for kind in values[2]], np.bool_)[keys[2]]
    is_row = is_log | np.array([kind == rows.SNAPSHOT for kind in values[2]], np.bool_)[keys[2]]
    offsets, ordinals, epochs = (
        batch.column(name).fill_null(-1).to_numpy(zero_copy_only=False)
        for name in ("offset", "ordinal", "epoch")
    )
    number = np.where(is_log, offsets, ordinals)
    fixed = (*keys, epochs, np.where(is_log, 0, offsets))
    begins = np.ones(len(batch), np.bool_)
    begins[1:] = np.diff(number) != 1
    for column in fixed:
        begins[1:] |= np.diff(column) != 0
    starts = np.flatnonzero(begins)
    ends = np.append(starts[1:], len(batch))
    times = batch.column("time")
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        if not is_row[start]:
            continue
        summary = found.setdefault(values[0][keys[0][start]], Summary())
        source, epoch = values[1][keys[1][start]], int(epochs[start])
        first, time_us = int(number[start]), times[start].as_py()
        one = Stretch(first, first + end - start, time_us)
        if is_log[start]:
            _add_span(summary, source, epoch, first, one.end - 1)
            summary.log.setdefault(epoch, []).append(one)
        else:
            offset = int(offsets[start])
            if offset > 0:
                _add_span(summary, source, epoch, offset - 1, offset - 1)
            summary.copies.setdefault(Copy(offset, epoch, source), []).append(one)
    _add_marks(batch, found, is_log)
    return {cluster: _tidied(summary) for cluster, summary in found.items()}


def _tidied(summary: Summary) -> Summary:
    tidied = Summary()
    tidied.add(summary)
    return tidied


def _add_span(summary: Summary, source: str, epoch: int, first: int, last: int) -> None:
    known = summary.spans.get((source, epoch), (first, last))
    summary.spans[source, epoch] = (min(first, known[0]), max(last, known[1]))


def _add_marks(batch: pa.RecordBatch, found: dict[str, Summary], is_log: Any) -> None:
    """Add the begin and end records of transactions, and the footers of snapshots."""
    kinds, types = codes(batch.column("type"))
    marks = np.array([one in (BEGIN, END, ABORT, SNAPSHOT_FOOTER) for one in types], np.bool_)[kinds]
    for at in np.flatnonzero(marks).tolist():
        row = {name: batch.column(name)[at].as_py() for name in COLUMNS}
        summary = found.get(row["cluster_id"])
        if summary is None:
            continue
        if is_log[at]:
            summary.brackets.add((row["offset"], row["epoch"], row["type"]))
        elif row["type"] == SNAPSHOT_FOOTER:
            copy = Copy(row["offset"], row["epoch"], row["source"])
            summary.footers[copy] = max(row["ordinal"], summary.footers.get(copy, -1))
