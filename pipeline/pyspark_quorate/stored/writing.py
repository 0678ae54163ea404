"""Writes rows to files, each with its rows in order and a summary of them in its footer."""

import json
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pyspark_quorate import rows
from pyspark_quorate.stored.folders import folder_name
from pyspark_quorate.stored.schema import (
    ARROW_SCHEMA,
    COMMIT,
    FOOTER,
    GROUP_ROWS,
    Key,
    in_order,
    key_of,
    with_times_as_numbers,
)
from pyspark_quorate.tables.summary import Summary, summarize

FILE_ROWS_MAX: Final = 4_000_000

Written = tuple[str, str]
"""A cluster id and the path of a file with rows of this cluster."""


class RowsWriter:
    """Writes rows of clusters, one file after the other: rows that can't follow the last ones begin a new file."""

    def __init__(self, where: Path, commit: int) -> None:
        """`where`: the directory for the clusters' folders; `commit`: of rows that have none."""
        self._where = where
        self._commit = commit
        self._file: _File | None = None
        self._written: list[Written] = []

    def add(self, cluster_id: str, batch: pa.RecordBatch) -> None:
        """Add rows of a cluster, with the columns of :data:`pyspark_quorate.rows.SCHEMA`, or stored ones."""
        if not len(batch):
            return
        is_gap = pc.equal(batch.column("kind"), rows.GAP)
        records = in_order(batch.filter(pc.invert(is_gap)))
        if self._file is None or not self._file.takes(cluster_id, records):
            self._close_file()
            path = self._where / folder_name(cluster_id) / f"{len(self._written):05d}.parquet"
            self._file = _File(path, cluster_id)
            self._written.append((cluster_id, str(path)))
        self._file.add(self._stored(records), self._stored(batch.filter(is_gap)))
        if len(records):
            self._file.summary.add(summarize(with_times_as_numbers(records)))

    def close(self) -> list[Written]:
        """Complete the last file. Returns all files."""
        self._close_file()
        return self._written

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
            [one.cast(field.type) for one, field in zip([*columns, commits], ARROW_SCHEMA, strict=True)],
            schema=ARROW_SCHEMA,
        )


class _File:
    """A file that is being written. Gaps are kept until the end."""

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

    def takes(self, cluster_id: str, records: pa.RecordBatch) -> bool:
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
