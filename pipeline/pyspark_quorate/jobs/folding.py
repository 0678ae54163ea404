"""Runs the fold of :mod:`pyspark_quorate.tables.fold` as one Spark job: a task folds a cluster and writes its tables.

A task reads the stored rows of its cluster, which are merged in order, and writes the files of each table as soon as
it has enough complete rows.

Spark may run a task more than once. Each attempt writes a cluster's tables to a folder of its own, and renames the
folder to the cluster's name when it is complete. The first attempt wins; all attempts write the same content.
"""

import shutil
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql import SparkSession

from pyspark_quorate.jobs.table_files import write_records, write_table
from pyspark_quorate.stored.folders import folder_name
from pyspark_quorate.stored.gaps import Reads, valid_gaps
from pyspark_quorate.stored.reading import StoredRows
from pyspark_quorate.tables.contract import Row, Table
from pyspark_quorate.tables.evidence import evidence_of
from pyspark_quorate.tables.fold import ClusterFold

WAITING_ROWS_MAX: Final = 100_000
"""The maximum number of complete rows of one cluster in memory, summed over all tables."""
TASKS_MAX: Final = 10_000
"""With more clusters, a task folds several, one after the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
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


def fold(spark: SparkSession, plan: Plan, clusters: Iterable[str]) -> None:
    """Write the tables of these clusters, in one job of Spark."""
    ordered = sorted(clusters)
    if ordered:
        tasks = spark.sparkContext.parallelize(ordered, min(len(ordered), TASKS_MAX))
        tasks.foreach(partial(fold_cluster, plan))


def fold_cluster(plan: Plan, cluster_id: str) -> None:
    """Write the tables of one cluster, in a task."""
    stored = StoredRows(plan.rows / folder_name(cluster_id))
    folding = _Folding(plan, cluster_id, ClusterFold(evidence_of(stored.summary()), plan.tables))
    folding.take(valid_gaps(stored.gaps(), plan.reads))
    for batch in stored.records():
        folding.take(batch)
    folding.finish()


class _Folding:
    """The fold of one cluster, and the files of its tables."""

    def __init__(self, plan: Plan, cluster_id: str, fold: ClusterFold) -> None:
        self._plan = plan
        self._fold = fold
        self._tables = {table.name: table for table in plan.tables}
        self._stored = next((table for table in plan.tables if table.fold is None), None)
        self._place = plan.where / folder_name(cluster_id)
        self._attempt = plan.where / f"attempt-{uuid.uuid4()}"
        self._waiting: dict[str, list[Row]] = {}
        self._records: list[pa.RecordBatch] = []
        self._files = 0

    def take(self, batch: pa.RecordBatch) -> None:
        """Fold the next rows."""
        records = self._fold.take(batch)
        if self._stored is not None and len(records):
            self._records.append(records)
        self._drain()
        if sum(map(len, (*self._waiting.values(), *self._records))) >= WAITING_ROWS_MAX:
            self._write()

    def finish(self) -> None:
        """Write the remaining rows, and rename the attempt's folder to the cluster's name."""
        self._fold.finish()
        self._drain()
        self._attempt.mkdir(parents=True, exist_ok=True)
        self._write()
        try:
            self._attempt.rename(self._place)
        except OSError:
            if not self._place.is_dir():
                raise
            shutil.rmtree(self._attempt)  # another attempt of the task was faster

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
