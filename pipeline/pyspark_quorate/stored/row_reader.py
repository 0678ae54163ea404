"""Reads the stored rows of a cluster: a summary of them, the gaps that count, and all records in order.

The files of several nodes have copies of the same offsets. They are merged, group by group: at any time, one group of
rows is in memory for each file that has rows at the current place.
"""

import json
import re
import socket
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pyspark_quorate import rows
from pyspark_quorate.errors import LakeError
from pyspark_quorate.stored.files import (
    COMMIT,
    FOLDED_SCHEMA,
    FOOTER,
    GROUP_ROWS,
    ORDER,
    Key,
    key_of,
    with_times_as_numbers,
)
from pyspark_quorate.stored.unknown_records import divide_gaps
from pyspark_quorate.tables.summary import Summary, summarize

_FILE: Final = re.compile(r"/[^/]*\.(log|checkpoint)$")
Reads = Mapping[str, Sequence[tuple[int, int]]]
"""Directory -> the commit of each read of it, and the offset that it started at."""
Listing = Sequence[tuple[str, int]]
"""Names and sizes in bytes of the files of a cluster's folder, in order."""
_EMPTY: Final = pa.Table.from_batches([], FOLDED_SCHEMA)


class StoredRows:
    """The rows of one cluster."""

    def __init__(self, folder: Path, listing: Listing | None = None) -> None:
        """Read the footers of the files in the cluster's folder.

        `listing`: the files that the driver sees, which a task must see, too.

        Raises:
            LakeError: for a file of another writer, or if a file of the listing is missing or has another size.
        """
        self._files = [_File(path) for path in _files_in(folder, listing)]
        gaps = [_one_batch(file.gaps()) for file in self._files if file.unknown_records]
        decoded = [pa.Table.from_batches([divide_gaps(some)[1]]) for some in gaps]
        self._decoded = _one_batch(pa.concat_tables([_EMPTY, *decoded])).sort_by(list(ORDER))
        """Records that an older version did not know, in order."""

    def summary(self) -> Summary:
        """A summary of all rows but gaps."""
        made = Summary()
        for file in self._files:
            made.add(file.summary)
        if len(self._decoded):
            made.add(summarize(self._decoded, self._decoded.column(COMMIT).to_numpy()))
        return made

    def time_at(self, offset: int, epoch: int) -> int | None:
        """The time of a record of the log, in microseconds since 1970; None: unknown, or no file has it."""
        for file in self._files:
            if file.has(offset, epoch) and (time_us := file.time_at(offset, epoch)) is not None:
                return time_us
        return None

    def gaps(self) -> pa.RecordBatch:
        """All gaps, whether a newer read resolved them or not, with the columns `FOLDED_SCHEMA`."""
        found = [file.gaps() for file in self._files]
        return divide_gaps(_one_batch(pa.concat_tables([_EMPTY, *found])))[0]

    def records(self) -> Iterator[pa.RecordBatch]:
        """Yield all rows but gaps, in order, in batches with the columns `FOLDED_SCHEMA`.

        A row that was stored twice is yielded twice.
        """
        pending = sorted(
            (
                (first, number)
                for number, file in enumerate(self._files)
                if (first := file.first_offset) is not None
            ),
            reverse=True,
        )
        cursors: list[_Cursor] = []
        if len(self._decoded):
            cursors.append(_Cursor(iter([self._decoded])))
        while pending or cursors:
            heads = [cursor.head for cursor in cursors]
            if pending and (not heads or pending[-1][0] <= min(heads)[0]):
                cursors.append(_Cursor(self._files[pending.pop()[1]].batches()))
                continue
            limits = [cursor.limit for cursor in cursors if cursor.limit is not None]
            limits += [(pending[-1][0],)] if pending else []
            bound = min(limits, default=None)
            parts = [cursor.rows_until(bound) for cursor in cursors]
            cursors = [cursor for cursor in cursors if not cursor.is_done]
            yield from _merged([part for part in parts if len(part)])


def list_rows(folder: Path) -> Listing:
    """List the files of a cluster's folder, on the driver. Raises LakeError without any."""
    found = [(path.name, path.stat().st_size) for path in sorted(folder.glob("*.parquet"))]
    if not found:
        raise LakeError(
            f"{folder} has no files, but the lake has rows of this cluster: restore them from a copy of the lake"
        )
    return found


def _files_in(folder: Path, listing: Listing | None) -> list[Path]:
    if listing is None:
        return sorted(folder.glob("*.parquet"))
    for name, size_bytes in listing:
        file = folder / name
        found_bytes = file.stat().st_size if file.exists() else None
        if found_bytes != size_bytes:
            seen = "is missing" if found_bytes is None else f"has {found_bytes} bytes"
            raise LakeError(
                f"{file} {seen} on {socket.gethostname()}, but has {size_bytes} bytes on the driver: executors need "
                "the directory of the lake, on a disk that they share with the driver"
            )
    return [folder / name for name, _ in listing]


def _merged(parts: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield rows that are in order within each part, in order, in batches of limited size."""
    if len(parts) < 2:
        yield from parts
        return
    together = _one_batch(pa.Table.from_batches(parts))
    ordered = pc.sort_indices(together, sort_keys=list(ORDER))
    for start in range(0, len(together), GROUP_ROWS):
        yield together.take(ordered.slice(start, GROUP_ROWS))


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)


class _Cursor:
    """The place in a file up to which its rows were merged."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._batch: pa.RecordBatch = next(batches)
        self._following = next(batches, None)

    @property
    def is_done(self) -> bool:
        """Whether all rows were merged."""
        return not len(self._batch)

    @property
    def head(self) -> Key:
        """The place of the next row."""
        return key_of(self._batch, 0)

    @property
    def limit(self) -> Key | None:
        """The place of the last row in memory; None if the file has no others."""
        return None if self._following is None else key_of(self._batch, -1)

    def rows_until(self, bound: Key | None) -> pa.RecordBatch:
        """Remove and return the rows in memory up to and including this place; None: all."""
        count = len(self._batch)
        if bound is not None:
            count = bisect_right(range(count), bound, key=partial(key_of, self._batch))
        removed, self._batch = self._batch.slice(0, count), self._batch.slice(count)
        if not len(self._batch) and self._following is not None:
            self._batch, self._following = self._following, next(self._batches, None)
        return removed


def valid_gaps(gaps: pa.RecordBatch, reads: Reads) -> pa.RecordBatch:
    """Return the gaps whose offsets no later read of the same directory covered."""
    columns = [gaps.column(name).to_pylist() for name in ("source", "offset", "payload", COMMIT)]
    valid = []
    for source, offset, payload, commit in zip(*columns, strict=True):
        end = json.loads(payload).get("endOffset")
        valid.append(
            not any(
                read_commit > commit and (offset is None or end is None or end > start)
                for read_commit, start in reads.get(_FILE.sub("", source), ())
            )
        )
    return gaps.filter(pa.array(valid, pa.bool_()))


# Files


def summary_of(file: Path) -> Summary:
    """The summary of the rows of one file. Raises LakeError for a file of another writer."""
    return _File(file).summary


class _File:
    """A file of :class:`pyspark_quorate.stored.row_writer.RowsWriter`."""

    def __init__(self, path: Path) -> None:
        try:
            metadata = pq.read_metadata(path)
            footer = _footer_of(metadata)
            self.summary = Summary.from_json(footer["summary"])
            self._record_groups = int(footer["recordGroups"])
            self.unknown_records = int(footer.get("unknownRecords", 0))
        except (KeyError, TypeError, ValueError) as error:  # pyarrow's ArrowInvalid is a ValueError
            raise LakeError(
                f"{path} is not a file that a lake wrote: {error}; move it out of the lake, or restore it from a copy"
            ) from error
        self._path = path
        self._groups = range(metadata.num_row_groups)

    @property
    def first_offset(self) -> int | None:
        """The lowest offset of its records; None without records."""
        return self.summary.first_offset()

    def gaps(self) -> pa.Table:
        """The rows of gaps."""
        groups = list(self._groups[self._record_groups :])
        return _folded(pq.ParquetFile(self._path).read_row_groups(groups)) if groups else _EMPTY

    def has(self, offset: int, epoch: int) -> bool:
        """Whether it has this record of the log."""
        return any(
            stretch.first <= offset < stretch.end
            for (_, of_epoch), stretches in self.summary.log.items()
            if of_epoch == epoch
            for stretch in stretches
        )

    def time_at(self, offset: int, epoch: int) -> int | None:
        """The time of a record of the log that it has."""
        found = pq.read_table(
            self._path,
            columns=["time"],
            filters=[("offset", "==", offset), ("epoch", "==", epoch), ("kind", "==", rows.LOG)],
            partitioning=None,
        )
        times = found.column("time").cast(pa.int64()).drop_null()
        return times[0].as_py() if len(times) else None

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the other rows, in order."""
        file = pq.ParquetFile(self._path, pre_buffer=True)
        for group in self._groups[: self._record_groups]:
            yield _one_batch(_folded(file.read_row_group(group)))


def _footer_of(metadata: pq.FileMetaData) -> Any:
    """The JSON in the footer of a file. Raises ValueError."""
    footer = (metadata.metadata or {}).get(FOOTER)
    if footer is None:
        raise ValueError(f"its footer has no {FOOTER.decode()}")
    return json.loads(footer)


def _folded(table: pa.Table) -> pa.Table:
    """The columns `FOLDED_SCHEMA` of a stored table."""
    batches = [with_times_as_numbers(batch) for batch in table.select(FOLDED_SCHEMA.names).to_batches()]
    return pa.Table.from_batches(
        [pa.RecordBatch.from_arrays(batch.columns, schema=FOLDED_SCHEMA) for batch in batches], FOLDED_SCHEMA
    )
