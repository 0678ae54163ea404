"""Writes rows to files, each with its rows in order and a summary of them in its footer; leaves out known rows."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pyspark_quorate import rows
from pyspark_quorate.stored.durable import Written, flush
from pyspark_quorate.stored.files import (
    ARROW_SCHEMA,
    COMMIT,
    FOOTER,
    GROUP_ROWS,
    Key,
    folder_name,
    in_order,
    key_of,
    with_times_as_numbers,
)
from pyspark_quorate.tables.summary import Stretch, Summary, codes, summarize

FILE_ROWS_MAX: Final = 4_000_000


class RowsWriter:
    """Writes rows of clusters, one file after the other: rows that can't follow the last ones begin a new file."""

    def __init__(self, where: Path, commit: int) -> None:
        """`where`: the directory for the clusters' folders; `commit`: of rows that have none."""
        self._where = where
        self._commit = commit
        self._file: _File | None = None
        self._written: list[tuple[str, Path]] = []

    def add(self, cluster_id: str, batch: pa.RecordBatch) -> None:
        """Add rows of a cluster, with the columns of :data:`pyspark_quorate.rows.SCHEMA`, or stored ones."""
        if not len(batch):
            return
        is_gap = pc.equal(batch.column("kind"), rows.GAP)
        records = in_order(batch.filter(pc.invert(is_gap)))
        if self._file is None or not self._file.accepts(cluster_id, records):
            self._close_file()
            path = self._where / folder_name(cluster_id) / f"{len(self._written):05d}.parquet"
            self._file = _File(path, cluster_id)
            self._written.append((cluster_id, path))
        self._file.add(self._stored(records), self._stored(batch.filter(is_gap)))
        if len(records):
            self._file.summary.add(summarize(with_times_as_numbers(records)))

    def close(self) -> list[Written]:
        """Complete the last file. Returns all files, which are durable."""
        self._close_file()
        if self._written:
            flush(self._where)
        return [Written(cluster_id, str(path), path.stat().st_size) for cluster_id, path in self._written]

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _stored(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        commits = pa.repeat(pa.scalar(self._commit, pa.int64()), len(batch))
        if COMMIT in batch.schema.names:
            commits = batch.column(COMMIT)
        columns = [batch.column(name) for name in ARROW_SCHEMA.names if name != COMMIT]
        return pa.RecordBatch.from_arrays(
            [
                column.cast(field.type)
                for column, field in zip([*columns, commits], ARROW_SCHEMA, strict=True)
            ],
            schema=ARROW_SCHEMA,
        )


class _File:
    """A file that is being written. Gaps are written at the end."""

    def __init__(self, path: Path, cluster_id: str) -> None:
        self.summary = Summary()
        self._cluster_id = cluster_id
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = 0
        self._gaps: list[pa.RecordBatch] = []
        self._rows = 0
        self._groups = 0
        self._last: Key | None = None
        path.parent.mkdir(parents=True, exist_ok=True)
        self._writer = pq.ParquetWriter(path, ARROW_SCHEMA, compression="zstd")

    def accepts(self, cluster_id: str, records: pa.RecordBatch) -> bool:
        """Whether these rows may follow the last ones."""
        if cluster_id != self._cluster_id or self._rows + len(records) > FILE_ROWS_MAX:
            return False
        return self._last is None or not len(records) or self._last < key_of(records, 0)

    def add(self, records: pa.RecordBatch, gaps: pa.RecordBatch) -> None:
        """Add rows behind the last ones."""
        if len(gaps):
            self._gaps.append(gaps)
        if not len(records):
            return
        self._last = key_of(records, -1)
        self._rows += len(records)
        self._waiting.append(records)
        self._waiting_rows += len(records)
        if self._waiting_rows >= GROUP_ROWS:
            self._write()

    def close(self) -> None:
        """Write what is left, and the footer."""
        self._write()
        reported: dict[str, Any] = {"recordGroups": self._groups, "summary": self.summary.as_json()}
        self._waiting = self._gaps
        self._write()
        self._writer.add_key_value_metadata({FOOTER: json.dumps(reported, separators=(",", ":"))})
        self._writer.close()

    def _write(self) -> None:
        if self._waiting:
            table = pa.Table.from_batches(self._waiting)
            self._writer.write_table(table, row_group_size=GROUP_ROWS)
            self._groups += -(-len(table) // GROUP_ROWS)
        self._waiting, self._waiting_rows = [], 0


def without_known(batch: pa.RecordBatch, known: Summary) -> pa.RecordBatch:
    """Return the rows of one cluster that are not in the summary, and all gaps.

    A file that was read again after it had grown has rows that the lake already stores.
    """
    (sources, names), (kinds, kind_names) = (codes(batch.column(name)) for name in ("source", "kind"))
    offsets, ordinals, epochs = (
        batch.column(name).fill_null(-1).to_numpy(zero_copy_only=False)
        for name in ("offset", "ordinal", "epoch")
    )
    is_known = np.zeros(len(batch), np.bool_)
    is_log = np.array([kind_name == rows.LOG for kind_name in kind_names], np.bool_)[kinds]
    is_snapshot = np.array([kind_name == rows.SNAPSHOT for kind_name in kind_names], np.bool_)[kinds]
    for (source, epoch), stretches in known.log.items():
        if source in names:
            at = np.flatnonzero(is_log & (sources == names.index(source)) & (epochs == epoch))
            is_known[at] = _is_within(offsets[at], stretches)
    for copy, stretches in known.copies.items():
        if copy.source in names:
            same = (offsets == copy.offset) & (epochs == copy.epoch) & (sources == names.index(copy.source))
            at = np.flatnonzero(is_snapshot & same)
            is_known[at] = _is_within(ordinals[at], stretches)
    return batch.filter(pa.array(~is_known)) if is_known.any() else batch


def _is_within(numbers: Any, stretches: Sequence[Stretch]) -> Any:
    """A mask of the numbers that are in one of the ordered stretches."""
    firsts, ends = (np.array([stretch[place] for stretch in stretches], np.int64) for place in (0, 1))
    at = np.searchsorted(firsts, numbers, "right") - 1
    return (at >= 0) & (numbers < ends[np.maximum(at, 0)])
