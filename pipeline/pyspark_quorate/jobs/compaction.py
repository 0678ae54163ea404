"""`quorate lake compact`: merges small files."""

from dataclasses import dataclass

from pyspark.sql import SparkSession

from pyspark_quorate.jobs import delta, raw
from pyspark_quorate.jobs.lake import Change, Lake
from pyspark_quorate.jobs.progress import Steps

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
    many = [
        cluster
        for cluster, folder in raw.folders(lake.rows).items()
        if len(list(folder.glob("*.parquet"))) >= FILES_MIN
    ]
    if many:
        merged = (
            raw.read_rows(spark, lake, many)
            .dropDuplicates([*raw.IDENTITY, raw.COMMIT_COLUMN])
            .repartition("cluster_id")
            .sortWithinPartitions("cluster_id", "source", "kind", "offset", "ordinal", "epoch")
        )
        raw.write_rows(merged, lake.staging / "rows")
        place = [
            (str(folder.relative_to(lake.path)), str((lake.rows / folder.name).relative_to(lake.path)))
            for folder in raw.folders(lake.staging / "rows").values()
        ]
        lake.commit(Change(place=place), lake.state)
    if lake.state.format == "delta":
        for name in sorted(lake.state.tables):
            steps.say(f"merging {name}")
            delta.compact(lake.table(name))
    return Compacted(before, _count(lake))


def _count(lake: Lake) -> int:
    if lake.state.format == "delta":
        tables = [delta.open_table(lake.table(name)) for name in lake.state.tables]
        return len(list(lake.rows.rglob("*.parquet"))) + sum(len(one.file_uris()) for one in tables if one)
    return sum(
        len(list(where.rglob("*.parquet"))) for where in (lake.rows, *map(lake.table, lake.state.tables))
    )
