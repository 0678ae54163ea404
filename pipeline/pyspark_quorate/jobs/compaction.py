"""`quorate lake compact`: merges small files."""

import uuid
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from pyspark_quorate.jobs import delta
from pyspark_quorate.jobs.lake import Change, Lake
from pyspark_quorate.jobs.progress import Steps
from pyspark_quorate.jobs.store_tasks import STAGED
from pyspark_quorate.stored.durable import Written, check_shared
from pyspark_quorate.stored.files import folder_name, folders
from pyspark_quorate.stored.row_reader import Listing, Reads, StoredRows, list_rows, valid_gaps
from pyspark_quorate.stored.row_writer import RowsWriter
from pyspark_quorate.tables.generations import collapsed

FILES_MIN = 2
"""Clusters with fewer files of rows are skipped."""


@dataclass(frozen=True, slots=True)
class Compacted:
    """Numbers of files."""

    before: int
    after: int


def compact(spark: SparkSession, lake: Lake, steps: Steps) -> Compacted:
    """Merge the files of rows and of Delta tables that many ingests left. Call it within `Lake.writing`.

    Parquet tables have one file per cluster and day after each ingest. Superseded gaps are removed from the rows.
    """
    steps.begin("merging files")
    before = _count(lake)
    listings = {cluster: list_rows(folder) for cluster, folder in folders(lake.rows).items()}
    many = [(cluster, listing) for cluster, listing in listings.items() if len(listing) >= FILES_MIN]
    if many:
        where = lake.staging / STAGED
        where.mkdir(parents=True)
        merge = partial(_merge, lake.rows, where, lake.state.reads)
        merged = spark.sparkContext.parallelize(many, len(many)).map(merge).collect()
        place = [
            (str(folder.relative_to(lake.path)), str((lake.rows / folder.name).relative_to(lake.path)))
            for folder in dict.fromkeys(Path(file.path).parent for files in merged for file in files)
        ]
        written = [(file.path, file.size_bytes) for files in merged for file in files]
        lake.commit(Change(place=place, written=written), lake.state)
    if lake.state.format == "delta":
        for name in sorted(lake.state.tables):
            steps.say(f"merging {name}")
            delta.compact(lake.table(name))
    return Compacted(before, _count(lake))


def _merge(rows: Path, where: Path, reads: Reads, cluster: tuple[str, Listing]) -> list[Written]:
    """Merge the files of one cluster, in a task. Returns the merged ones, which are in one folder."""
    check_shared(where)
    cluster_id, listing = cluster
    stored = StoredRows(rows / folder_name(cluster_id), listing)
    attempt = where / f"attempt-{uuid.uuid4()}"
    writer = RowsWriter(attempt, 0, collapsed(stored.summary().reads))
    for batch in stored.records():
        writer.add(cluster_id, batch)
    writer.add(cluster_id, valid_gaps(stored.gaps(), reads))
    return writer.close()


def _count(lake: Lake) -> int:
    if lake.state.format == "delta":
        tables = [delta.open_table(lake.table(name)) for name in lake.state.tables]
        return len(list(lake.rows.rglob("*.parquet"))) + sum(
            len(table.file_uris()) for table in tables if table
        )
    return sum(
        len(list(where.rglob("*.parquet"))) for where in (lake.rows, *map(lake.table, lake.state.tables))
    )
