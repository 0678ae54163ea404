"""Summaries of a cluster's rows without payloads: which offsets and snapshots exist, of which epochs, in which files.

A summary is small, whatever the number of rows. Summaries of parts of the rows can be added in any order.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Self

import numpy as np
import pyarrow as pa

from pyspark_quorate import rows

SNAPSHOT_HEADER: Final = "SnapshotHeaderRecord"
SNAPSHOT_FOOTER: Final = "SnapshotFooterRecord"
BEGIN: Final = "BeginTransactionRecord"
END: Final = "EndTransactionRecord"
ABORT: Final = "AbortTransactionRecord"
COLUMNS: Final = ("source", "kind", "offset", "ordinal", "epoch", "time", "type")
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
    for stretch in sorted(stretches, key=lambda each: each[:2]):
        if made and stretch.first <= made[-1].end:
            made[-1] = made[-1]._replace(end=max(stretch.end, made[-1].end))
        else:
            made.append(stretch)
    return made


class Copy(NamedTuple):
    """A snapshot in a file."""

    offset: int
    epoch: int
    source: str


@dataclass(slots=True)
class Summary:
    """The rows of one cluster, without those of gaps."""

    log: dict[tuple[str, int], list[Stretch]] = field(default_factory=dict)
    """(source, epoch) -> offsets."""
    reads: dict[tuple[str, int, int], list[Stretch]] = field(default_factory=dict)
    """(source, epoch, commit) -> the offsets that this commit's read found first, or again after they were gone."""
    copies: dict[Copy, list[Stretch]] = field(default_factory=dict)
    """The ordinals of each snapshot."""
    footers: dict[Copy, int] = field(default_factory=dict)
    """Snapshot -> the ordinal of its footer record."""
    brackets: set[tuple[int, int, str]] = field(default_factory=set)
    """Offset, epoch and type of the records that begin and end transactions."""

    def add(self, other: "Summary") -> None:
        """Add the summary of other rows of the cluster."""
        for place, stretches in other.log.items():
            self.log[place] = joined([*self.log.get(place, ()), *stretches])
        self.add_reads(other.reads)
        for copy, stretches in other.copies.items():
            self.copies[copy] = joined([*self.copies.get(copy, ()), *stretches])
        for copy, ordinal in other.footers.items():
            self.footers[copy] = max(ordinal, self.footers.get(copy, ordinal))
        self.brackets |= other.brackets

    def add_reads(self, reads: Mapping[tuple[str, int, int], Iterable[Stretch]]) -> None:
        """Add what other reads found."""
        for read, stretches in reads.items():
            self.reads[read] = joined([*self.reads.get(read, ()), *stretches])

    def of_epochs(self) -> dict[int, list[Stretch]]:
        """Return epoch -> its offsets in any file."""
        found: dict[int, list[Stretch]] = {}
        for (_, epoch), stretches in self.log.items():
            found.setdefault(epoch, []).extend(stretches)
        return {epoch: joined(stretches) for epoch, stretches in found.items()}

    def first_offset(self) -> int | None:
        """The lowest offset of a record or a snapshot; None without any."""
        offsets = [stretches[0].first for stretches in self.log.values()]
        return min([*offsets, *(copy.offset for copy in self.copies)], default=None)

    def size_of(self, copy: Copy) -> int:
        """The number of lines of a snapshot."""
        return sum(stretch.end - stretch.first for stretch in self.copies[copy])

    def is_complete(self, copy: Copy) -> bool:
        """Whether the snapshot is readable from its header to its footer."""
        return self.size_of(copy) == self.footers.get(copy, -1) + 1

    def as_json(self) -> dict[str, Any]:
        """The summary as JSON."""
        return {
            "log": [[*place, stretches] for place, stretches in self.log.items()],
            "reads": [[*read, stretches] for read, stretches in self.reads.items()],
            "copies": [[*copy, stretches] for copy, stretches in self.copies.items()],
            "footers": [[*copy, ordinal] for copy, ordinal in self.footers.items()],
            "brackets": sorted(self.brackets),
        }

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Self:
        """Parse what `as_json` returned. Raises KeyError, TypeError or ValueError for anything else."""
        log = {(source, epoch): _stretches(reported) for source, epoch, reported in found["log"]}
        # An older version did not store which read found what.
        reads = found.get("reads", [[*place, 0, stretches] for place, stretches in log.items()])
        return cls(
            log=log,
            reads={
                (source, epoch, commit): _stretches(reported) for source, epoch, commit, reported in reads
            },
            copies={
                Copy(offset, epoch, source): _stretches(reported)
                for offset, epoch, source, reported in found["copies"]
            },
            footers={
                Copy(offset, epoch, source): ordinal for offset, epoch, source, ordinal in found["footers"]
            },
            brackets={(offset, epoch, kind) for offset, epoch, kind in found["brackets"]},
        )


def _stretches(parsed: Iterable[Iterable[Any]]) -> list[Stretch]:
    return [Stretch(*fields) for fields in parsed]


def summarize(batch: pa.RecordBatch, commits: Any = 0) -> Summary:
    """Summarize rows of one cluster. The batch has the columns `COLUMNS`. Rows of gaps are left out.

    `commits`: the number of the commit that stored each of the rows, or of all.
    """
    summary = Summary()
    (sources, names), (kinds, kind_names) = (codes(batch.column(name)) for name in ("source", "kind"))
    is_log = np.array([kind == rows.LOG for kind in kind_names], np.bool_)[kinds]
    is_row = is_log | np.array([kind == rows.SNAPSHOT for kind in kind_names], np.bool_)[kinds]
    offsets, ordinals, epochs = (
        batch.column(name).fill_null(-1).to_numpy(zero_copy_only=False)
        for name in ("offset", "ordinal", "epoch")
    )
    number = np.where(is_log, offsets, ordinals)
    begins = np.ones(len(batch), np.bool_)
    begins[1:] = np.diff(number) != 1
    commits = np.broadcast_to(commits, len(batch))
    for column in (sources, kinds, epochs, np.where(is_log, 0, offsets), commits):
        begins[1:] |= np.diff(column) != 0
    starts = np.flatnonzero(begins)
    ends = np.append(starts[1:], len(batch))
    times = batch.column("time")
    # Rows that directly follow the previous row become one stretch.
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        if not is_row[start]:
            continue
        source, epoch = names[sources[start]], int(epochs[start])
        first = int(number[start])
        stretch = Stretch(first, first + end - start, times[start].as_py())
        if is_log[start]:
            summary.log.setdefault((source, epoch), []).append(stretch)
            summary.reads.setdefault((source, epoch, int(commits[start])), []).append(stretch)
        else:
            summary.copies.setdefault(Copy(int(offsets[start]), epoch, source), []).append(stretch)
    _add_marks(batch, summary, is_log, is_row)
    tidied = Summary()
    tidied.add(summary)
    return tidied


def codes(column: pa.Array) -> tuple[Any, list[Any]]:
    """Encode a column with a dictionary. Returns the index of each value, and the values."""
    encoded = column.dictionary_encode()
    return encoded.indices.to_numpy(zero_copy_only=False), encoded.dictionary.to_pylist()


def _add_marks(batch: pa.RecordBatch, summary: Summary, is_log: Any, is_row: Any) -> None:
    """Add the begin and end records of transactions, and the footers of snapshots."""
    kinds, types = codes(batch.column("type"))
    marks = np.array([type_ in (BEGIN, END, ABORT, SNAPSHOT_FOOTER) for type_ in types], np.bool_)[kinds]
    for at in np.flatnonzero(marks & is_row).tolist():
        row = {name: batch.column(name)[at].as_py() for name in COLUMNS}
        if is_log[at]:
            summary.brackets.add((row["offset"], row["epoch"], row["type"]))
        elif row["type"] == SNAPSHOT_FOOTER:
            copy = Copy(row["offset"], row["epoch"], row["source"])
            summary.footers[copy] = max(row["ordinal"], summary.footers.get(copy, -1))
