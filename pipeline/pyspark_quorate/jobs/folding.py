"""Runs the fold of :mod:`pyspark_quorate.tables.fold` as two Spark jobs: a summary of the rows, then the tables.

Spark reads the stored rows, brings those of a cluster together and sorts them, on disk if there are many. A Python
worker folds them batch by batch. The worker writes the files of most tables, each as soon as it has enough complete
rows. It returns the rows of table `records` to Spark, which writes them with their VARIANT column.

Spark may run a task more than once. Each attempt writes a cluster's tables to a folder of its own, and renames the
folder to the cluster's name when it is complete. The first attempt wins; all attempts write the same content.
"""

import pickle
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from pyspark_quorate import rows
from pyspark_quorate.jobs import raw
from pyspark_quorate.tables import summary
from pyspark_quorate.tables.contract import Row, Table
from pyspark_quorate.tables.evidence import Evidence, evidence_of
from pyspark_quorate.tables.fold import ClusterFold
from pyspark_quorate.tables.summary import Summary, summarize

FOLDED_ROWS: Final = StructType(
    [StructField("time", LongType()) if one.name == "time" else one for one in rows.SCHEMA.fields]
)
"""The columns of rows in the fold, whose times are numbers of microseconds."""
WAITING_ROWS_MAX: Final = 100_000
"""The maximum number of complete rows of one cluster in memory, summed over all tables."""
NO_DAY: Final = "__HIVE_DEFAULT_PARTITION__"
_DAY_US: Final = 86_400_000_000
_EPOCH: Final = date(1970, 1, 1)
_SUMMARIES: Final = StructType([rows.CLUSTER_ID, rows.column("summary", BinaryType(), "pickled")])


@dataclass(frozen=True, slots=True)
class Plan:
    """The input of a task: the tables to make, where to write them, and the evidence for each cluster."""

    where: Path
    """The directory for the tables of each cluster: cluster_id=<id>/<table>/day=<YYYY-MM-DD>/*.parquet."""
    tables: Sequence[Table]
    evidence: Mapping[str, Evidence] = field(default_factory=dict)
    """Cluster id -> what counts in the cluster's rows."""


def evidence(found: DataFrame) -> dict[str, Evidence]:
    """Returns for each cluster id which of the cluster's rows count. Runs a Spark job."""
    chosen = found.where(f.col("kind") != rows.GAP).withColumn("time", f.unix_micros("time"))
    parts = chosen.select(*summary.COLUMNS).mapInArrow(_summarize, _SUMMARIES).collect()
    summaries: dict[str, Summary] = {}
    for cluster_id, pickled in parts:
        # The pickle comes from a task of this job: whoever can change it can also change the job.
        summaries.setdefault(cluster_id, Summary()).add(pickle.loads(pickled))  # noqa: S301
    return {cluster_id: evidence_of(one) for cluster_id, one in summaries.items()}


def fold(found: DataFrame, plan: Plan) -> DataFrame:
    """Returns the rows of table `records`, without its VARIANT column. Evaluating them writes the other tables."""
    ordered = (
        found.withColumn("time", f.unix_micros("time"))
        .select(*FOLDED_ROWS.names)
        .repartition("cluster_id")
        .sortWithinPartitions(
            *("cluster_id", f.col("kind") != rows.GAP, "offset", f.desc("kind")),
            *("epoch", "source", "ordinal"),
        )
    )
    folded = ordered.mapInArrow(partial(_fold, plan), FOLDED_ROWS)
    return folded.withColumn("time", f.timestamp_micros("time"))


def _summarize(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    found = summarize(batches)
    columns = [list(found), [pickle.dumps(one) for one in found.values()]]
    yield pa.RecordBatch.from_arrays(
        [pa.array(columns[0], pa.string()), pa.array(columns[1], pa.binary())], names=_SUMMARIES.names
    )


def _fold(plan: Plan, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Fold one partition, which has the sorted rows of some clusters, one cluster after the other."""
    wants_records = any(table.fold is None for table in plan.tables)
    folding: _Folding | None = None
    for batch in batches:
        for cluster_id, part in _by_cluster(batch):
            if folding is not None and folding.cluster_id != cluster_id:
                folding.finish()
                folding = None
            folding = folding or _Folding(plan, cluster_id)
            records = folding.take(part)
            if wants_records and len(records):
                yield records
    if folding is not None:
        folding.finish()


def _by_cluster(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Split a sorted batch by cluster. Yields the cluster id and its rows."""
    encoded = pc.run_end_encode(batch.column("cluster_id"))
    start = 0
    for cluster_id, end in zip(encoded.values.to_pylist(), encoded.run_ends.to_pylist(), strict=True):
        yield cluster_id, batch.slice(start, end - start)
        start = end


class _Folding:
    """The fold of one cluster, and the files of its tables."""

    def __init__(self, plan: Plan, cluster_id: str) -> None:
        self.cluster_id = cluster_id
        self._fold = ClusterFold(plan.evidence.get(cluster_id, Evidence()), plan.tables)
        self._tables = {table.name: table for table in plan.tables}
        self._place = plan.where / raw.folder_name(cluster_id)
        self._attempt = plan.where / f"attempt-{uuid.uuid4()}"
        self._waiting: dict[str, list[Row]] = {}
        self._files = 0

    def take(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Fold the next rows. Returns those that belong to table `records`."""
        records = self._fold.take(batch)
        self._drain()
        if sum(map(len, self._waiting.values())) >= WAITING_ROWS_MAX:
            self._write()
        return records

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
        for name, found in self._waiting.items():
            write_table(self._tables[name], found, self._attempt / name, f"part-{self._files:05d}.parquet")
        self._waiting = {}
        self._files += 1


def write_table(table: Table, found: list[Row], where: Path, file: str) -> None:
    """Write rows of one cluster, a file of this name for each day, ordered by the key."""
    fields = table.schema.fields[1:]
    names = [one.name for one in fields]
    day = names.index(table.day)
    key = [names.index(name) for name in table.key if name != rows.CLUSTER_ID.name]
    of_day: dict[int | None, list[Row]] = {}
    for row in found:
        time_us = row[day]
        of_day.setdefault(None if time_us is None else time_us // _DAY_US, []).append(row)
    schema = pa.schema([pa.field(one.name, to_arrow_type(one.dataType, timezone="UTC")) for one in fields])
    for number, some in of_day.items():
        try:
            some.sort(key=itemgetter(*key))
        except TypeError:  # there are nulls
            some.sort(key=lambda row: [_sortable(row[at]) for at in key])
        columns = [
            pa.array(values, one.type) for values, one in zip(zip(*some, strict=True), schema, strict=True)
        ]
        folder = where / f"day={_day_name(number)}"
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_arrays(columns, schema=schema), folder / file, compression="zstd")


def _day_name(number: int | None) -> str:
    """Returns YYYY-MM-DD for a number of days since 1970-01-01, as the folders are named."""
    return NO_DAY if number is None else (_EPOCH + timedelta(days=number)).isoformat()


def _sortable(value: Any) -> tuple[Any, ...]:
    """Returns a sort key that orders nulls before other values, also within lists and structs."""
    if value is None:
        return (0,)
    return (1, tuple(map(_sortable, value))) if isinstance(value, tuple | list) else (1, value)
