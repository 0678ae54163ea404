"""Writes rows to files, each with its rows in order and a summary of them in its footer."""

import json
from pathlib import Path
from typing import Any, Final

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
from pyspark_quorate.tables.generations import Reads
from pyspark_quorate.tables.summary import Summary, summarize

FILE_ROWS_MAX: Final = 4_000_000


class RowsWriter:
    """Writes rows of clusters, one file after the other: rows that can't follow the last ones begin a new file."""

    def __init__(self, where: Path, commit: int, reads: Reads | None = None) -> None:
        """`where`: the directory for the clusters' folders; `commit`: of rows that have none.

        `reads`: what the rows' reads found, if the rows are copied; only for one cluster.
        """
        self._where = where
        self._commit = commit
        self._reads = reads
        self._file: _File | None = None
        self._written: list[tuple[str, Path]] = []

    def add(self, cluster_id: str, batch: pa.RecordBatch) -> None:
        """Add rows of a cluster, with the columns of :data:`pyspark_quorate.rows.SCHEMA`, or stored ones."""
        if not len(batch):
            return
        is_gap = pc.equal(batch.column("kind"), rows.GAP)
        records = self._stored(in_order(batch.filter(pc.invert(is_gap))))
        file = self._file_for(cluster_id, records)
        file.add(records, self._stored(batch.filter(is_gap)))
        if len(records):
            file.summary.add(summarize(with_times_as_numbers(records), records.column(COMMIT).to_numpy()))

    def note_again(self, cluster_id: str, batch: pa.RecordBatch) -> None:
        """Note that rows which the lake stores already, but which were gone, were found again."""
        if len(batch):
            found = summarize(with_times_as_numbers(batch), self._commit)
            self._file_for(cluster_id, batch.slice(0, 0)).summary.add_reads(found.reads)

    def _file_for(self, cluster_id: str, records: pa.RecordBatch) -> "_File":
        """The file to which these rows can be added."""
        if self._file is None or not self._file.accepts(cluster_id, records):
            self._close_file()
            path = self._where / folder_name(cluster_id) / f"{len(self._written):05d}.parquet"
            self._file = _File(path, cluster_id)
            self._written.append((cluster_id, path))
        return self._file

    def close(self) -> list[Written]:
        """Complete the last file. Returns all files, which are durable."""
        self._close_file()
        if self._written:
            flush(self._where)
        return [Written(cluster_id, str(path), path.stat().st_size) for cluster_id, path in self._written]

    def _close_file(self) -> None:
        if self._file is not None:
            if self._reads is not None:
                self._file.summary.reads = {} if len(self._written) > 1 else {**self._reads}  # type: ignore[dict-item]
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
        self._unknown = 0
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
            self._unknown += pc.sum(pc.equal(gaps.column("type"), rows.UNKNOWN_RECORD)).as_py()
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
        reported: dict[str, Any] = {
            "recordGroups": self._groups,
            "summary": self.summary.as_json(),
            "unknownRecords": self._unknown,
        }
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
