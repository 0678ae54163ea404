"""Runs the fold of :mod:`pyspark_quorate.tables.fold` as one Spark job: a task folds a cluster and writes its tables.

A task reads the stored rows of its cluster, which are merged in order, and writes the files of each table as soon as
it has enough complete rows.

Spark may run a task more than once. Each attempt writes a cluster's tables to a folder of its own, and renames the
folder to the cluster's name when it is complete. The first attempt wins; all attempts write the same content.
"""

import shutil
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql.types import StringType, StructField, StructType, VariantType

from pyspark_quorate import rows
from pyspark_quorate.errors import LakeError
from pyspark_quorate.jobs.variant import variants
from pyspark_quorate.stored.durable import Written, check_shared, flush
from pyspark_quorate.stored.files import folder_name
from pyspark_quorate.stored.row_reader import Listing, Reads, StoredRows, list_rows, valid_gaps
from pyspark_quorate.tables.contract import Row, Table
from pyspark_quorate.tables.evidence import evidence_of
from pyspark_quorate.tables.fold import ClusterFold
from pyspark_quorate.tables.records import TABLE as RECORDS

WAITING_ROWS_MAX: Final = 100_000
"""The maximum number of complete rows of one cluster in memory, summed over all tables."""
TASKS_MAX: Final = 10_000
"""With more clusters, a task folds several, one after the other."""
NO_DAY: Final = "__HIVE_DEFAULT_PARTITION__"
_DAY_US: Final = 86_400_000_000
_EPOCH: Final = date(1970, 1, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldPlan:
    """The input of a task: the tables to make, from which rows, and where to write them."""

    rows: Path
    """The stored rows."""
    where: Path
    """The directory for the tables of each cluster: cluster_id=<id>/<table>/day=<YYYY-MM-DD>/*.parquet."""
    tables: Sequence[Table]
    format: str
    """The lake's."""
    reads: Reads = field(default_factory=dict)
    """The reads of directories, which make older gaps void."""


def fold(spark: SparkSession, plan: FoldPlan, clusters: Iterable[str]) -> list[Written]:
    """Write the tables of these clusters, in one job of Spark. Returns their files.

    Raises:
        LakeError: if the lake has no files with the rows of a cluster.
    """
    ordered = [(cluster, list_rows(plan.rows / folder_name(cluster))) for cluster in sorted(clusters)]
    if not ordered:
        return []
    tasks = spark.sparkContext.parallelize(ordered, min(len(ordered), TASKS_MAX))
    done = tasks.map(partial(_fold_listed, plan)).collect()
    return [file for files in done for file in files]


def _fold_listed(plan: FoldPlan, cluster: tuple[str, Listing]) -> list[Written]:
    check_shared(plan.where)
    return fold_cluster(plan, *cluster)


def fold_cluster(plan: FoldPlan, cluster_id: str, listing: Listing | None = None) -> list[Written]:
    """Write the tables of one cluster, in a task, from the files that the driver listed. Returns the tables' files.

    Raises:
        LakeError: if the task does not see these files, or if records become tables without rows.
    """
    stored = StoredRows(plan.rows / folder_name(cluster_id), listing)
    tables = _ClusterTables(plan, cluster_id, ClusterFold(evidence_of(stored.summary()), plan.tables))
    tables.add(valid_gaps(stored.gaps(), plan.reads))
    has_records = False
    for batch in stored.records():
        has_records = True
        tables.add(batch)
    files = tables.finish()
    if has_records and not files and RECORDS in plan.tables:
        raise LakeError(f"cluster {cluster_id} has rows in {plan.rows}, but its tables would have none")
    return files


class _ClusterTables:
    """The fold of one cluster, and the files of its tables."""

    def __init__(self, plan: FoldPlan, cluster_id: str, fold: ClusterFold) -> None:
        self._plan = plan
        self._cluster_id = cluster_id
        self._fold = fold
        self._tables = {table.name: table for table in plan.tables}
        self._stored = next((table for table in plan.tables if table.fold is None), None)
        self._place = plan.where / folder_name(cluster_id)
        self._attempt = plan.where / f"attempt-{uuid.uuid4()}"
        self._waiting: dict[str, list[Row]] = {}
        self._records: list[pa.RecordBatch] = []
        self._files = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Fold the next rows."""
        records = self._fold.fold(batch)
        if self._stored is not None and len(records):
            self._records.append(records)
        self._drain()
        if sum(map(len, (*self._waiting.values(), *self._records))) >= WAITING_ROWS_MAX:
            self._write()

    def finish(self) -> list[Written]:
        """Write the remaining rows, and rename the attempt's folder to the cluster's name. Returns its files."""
        self._fold.finish()
        self._drain()
        self._attempt.mkdir(parents=True, exist_ok=True)
        self._write()
        flush(self._attempt)
        # The sizes are those of this attempt, also if another one was faster: what that one left is checked by them.
        files = [
            Written(self._cluster_id, str(self._place / file.relative_to(self._attempt)), file.stat().st_size)
            for file in sorted(self._attempt.rglob("*.parquet"))
        ]
        try:
            self._attempt.rename(self._place)
        except OSError:
            if not self._place.is_dir():
                raise
            shutil.rmtree(self._attempt)
        return files

    def _drain(self) -> None:
        for name, found in self._fold.drain():
            self._waiting.setdefault(name, []).extend(found)

    def _write(self) -> None:
        file = f"part-{self._files:05d}.parquet"
        for name, found in self._waiting.items():
            write_table(self._tables[name], found, self._attempt / name, file)
        if self._stored is not None and self._records:
            where = self._attempt / self._stored.name
            write_records(self._stored, self._records, where, file, self._plan.format)
        self._waiting, self._records = {}, []
        self._files += 1


# Files of tables: one folder for each day, rows ordered by the key of the table


def stored_fields(table: Table, kind: str) -> list[StructField]:
    """The columns of a stored table of a format, without `day`. VARIANT becomes JSON in Delta."""

    def stored(field: StructField) -> StructField:
        if kind == "delta" and isinstance(field.dataType, VariantType):
            return StructField(field.name, StringType(), field.nullable, field.metadata)
        return field

    return [stored(field) for field in table.schema.fields]


def write_table(table: Table, found: list[Row], where: Path, file: str) -> None:
    """Write rows of one cluster, a file of this name for each day, ordered by the key."""
    fields = table.schema.fields[1:]
    names = [field.name for field in fields]
    day = names.index(table.day)
    key = [names.index(name) for name in _key(table)]
    of_day: dict[int | None, list[Row]] = {}
    for row in found:
        time_us = row[day]
        of_day.setdefault(None if time_us is None else time_us // _DAY_US, []).append(row)
    schema = rows.arrow_schema(StructType(fields))
    for number, some in of_day.items():
        try:
            some.sort(key=itemgetter(*key))
        except TypeError:  # there are nulls
            some.sort(key=lambda row: [_sortable(row[at]) for at in key])
        columns = [
            pa.array(values, column.type)
            for values, column in zip(zip(*some, strict=True), schema, strict=True)
        ]
        _write(pa.Table.from_arrays(columns, schema=schema), where, number, file)


def write_records(table: Table, batches: Sequence[pa.RecordBatch], where: Path, file: str, kind: str) -> None:
    """Write rows of table `records` of one cluster, with times as numbers, a file of this name for each day."""
    schema = rows.arrow_schema(StructType(stored_fields(table, kind)[1:]))
    found = pa.Table.from_batches(batches).combine_chunks()
    for number, some in _by_day(found.sort_by([(name, "ascending") for name in _key(table)])):
        columns = [some.column(name).combine_chunks() for name in schema.names]
        columns = [
            variants(column, field.type) if pa.types.is_struct(field.type) else column.cast(field.type)
            for column, field in zip(columns, schema, strict=True)
        ]
        _write(pa.Table.from_arrays(columns, schema=schema), where, number, file)


def _key(table: Table) -> list[str]:
    return [name for name in table.key if name != rows.CLUSTER_ID.name]


def _by_day(found: pa.Table) -> Iterator[tuple[int | None, pa.Table]]:
    """Split rows by the UTC day of their times. Yields the number of days since 1970, and the rows in order."""
    time = found.column("time")
    unknown = pc.is_null(time)
    if pc.any(unknown).as_py():
        yield None, found.filter(unknown)
        found = found.filter(pc.invert(unknown))
        time = found.column("time")
    days = np.floor_divide(time.to_numpy(), _DAY_US)
    for number in np.unique(days).tolist():
        yield number, found.filter(pa.array(days == number))


def _write(found: pa.Table, where: Path, day: int | None, file: str) -> None:
    folder = where / f"day={_day_name(day)}"
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(found, folder / file, compression="zstd")


def _day_name(number: int | None) -> str:
    """Return YYYY-MM-DD for a number of days since 1970-01-01, as the folders are named."""
    return NO_DAY if number is None else (_EPOCH + timedelta(days=number)).isoformat()


def _sortable(value: Any) -> tuple[Any, ...]:
    """Return a sort key that orders nulls before other values, also within lists and structs."""
    if value is None:
        return (0,)
    return (1, tuple(map(_sortable, value))) if isinstance(value, tuple | list) else (1, value)
