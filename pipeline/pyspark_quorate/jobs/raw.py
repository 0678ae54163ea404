"""The rows that a lake stores: every row ever read, once per source file.

They are kept beside the tables because sources delete segments and replace checkpoints. Tables are rebuilt from them
when a cluster has new rows, when a table's definition changed, or with --rebuild.
"""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import LongType, StructType

from pyspark_quorate import rows
from pyspark_quorate.jobs.lake import Lake
from pyspark_quorate.jobs.state import State

COMMIT_COLUMN: Final = "commit"
SCHEMA: Final = StructType(
    [*rows.SCHEMA.fields, rows.column(COMMIT_COLUMN, LongType(), "the commit of the lake that added it")]
)
IDENTITY: Final = ("cluster_id", "source", "kind", "offset", "ordinal", "epoch", "type", "version")
"""The columns that identify a row of a file that is read again. Of equal gaps, that of the newest read counts."""
UNKNOWN_CLUSTER: Final = "unknown"
"""The cluster id of directories without one."""
FOLDER: Final = "cluster_id="
_ESCAPED: Final = frozenset("\"#%'*/:=?\\{[]^\x7f")
FILE_ROWS_MAX: Final = 4_000_000


def read_rows(spark: SparkSession, lake: Lake, clusters: Collection[str]) -> DataFrame:
    """All rows of these clusters, without gaps that a newer read of the same directory resolved.

    Columns: :data:`pyspark_quorate.rows.SCHEMA` and `commit`.
    """
    found = read_all_rows(spark, lake, clusters)
    return found.where(f.col("kind") != rows.GAP).unionByName(
        _valid_gaps(spark, found.where(f.col("kind") == rows.GAP), lake.state)
    )


def read_all_rows(spark: SparkSession, lake: Lake, clusters: Collection[str]) -> DataFrame:
    """All rows of these clusters, including gaps that a newer read resolved; the columns are those of `read_rows`."""
    known = folders(lake.rows)
    chosen = sorted(set(clusters) & set(known))
    if not chosen:
        return spark.createDataFrame([], SCHEMA)
    frame = spark.read.schema(SCHEMA).parquet(str(lake.rows))
    return (frame if len(chosen) == len(known) else frame.where(f.col("cluster_id").isin(chosen))).select(
        *SCHEMA.names
    )


def stage_rows(spark: SparkSession, lake: Lake, found: DataFrame, known_sources: Collection[str]) -> set[str]:
    """Write rows to staging, except those that the lake already has. Returns their clusters.

    `known_sources` are files that were read before and are read again in part.
    """
    named = found.withColumn(
        "cluster_id", f.when(f.col("cluster_id") == "", UNKNOWN_CLUSTER).otherwise(f.col("cluster_id"))
    )
    if known_sources and lake.state.clusters:
        again = spark.createDataFrame([(source,) for source in sorted(known_sources)], "source string")
        stored = read_all_rows(spark, lake, lake.state.clusters).where(f.col("kind") != rows.GAP)
        stored_already = stored.join(f.broadcast(again), "source", "left_semi").select(*IDENTITY)
        same = [named[name].eqNullSafe(stored_already[name]) for name in IDENTITY]
        named = named.join(stored_already, same, "left_anti")
    write_rows(
        named.withColumn(COMMIT_COLUMN, f.lit(lake.state.commit + 1).cast("long")), lake.staging / "rows"
    )
    return set(folders(lake.staging / "rows"))


def write_rows(found: DataFrame, where: Path) -> None:
    """Write rows, one folder per cluster."""
    (
        found.select(*SCHEMA.names)
        .write.option("maxRecordsPerFile", FILE_ROWS_MAX)
        .partitionBy("cluster_id")
        .parquet(str(where))
    )


def staged_moves(lake: Lake) -> list[tuple[str, str]]:
    """Renames that add staged files to the rows. File names contain the commit, so that repeating them is safe."""
    moves = []
    for folder in folders(lake.staging / "rows").values():
        files = sorted(one for one in folder.iterdir() if one.suffix == ".parquet")
        for place, file in enumerate(files):
            target = lake.rows / folder.name / f"{lake.state.commit + 1:010d}-{place:05d}.parquet"
            moves.append((str(file.relative_to(lake.path)), str(target.relative_to(lake.path))))
    return moves


def folder_name(cluster_id: str) -> str:
    """The name of a cluster's folder, as Spark writes it (ExternalCatalogUtils.escapePathName)."""
    return FOLDER + "".join(
        f"%{ord(one):02X}" if one in _ESCAPED or ord(one) < ord(" ") else one for one in cluster_id
    )


def folders(where: Path) -> dict[str, Path]:
    """The clusters' folders below a path, by cluster id."""
    if not where.is_dir():
        return {}
    return {
        unquote(one.name.removeprefix(FOLDER)): one
        for one in sorted(where.iterdir())
        if one.name.startswith(FOLDER)
    }


def _valid_gaps(spark: SparkSession, gaps: DataFrame, state: State) -> DataFrame:
    """Returns the gaps whose offsets no later read of the same directory covered."""
    reads: Sequence[tuple[str, int, int]] = [
        (directory, read.commit, read.start) for directory, found in state.reads.items() for read in found
    ]
    if not reads:
        return gaps
    read = spark.createDataFrame(reads, "directory string, read_commit long, read_start long")
    directory = f.regexp_replace("source", r"/[^/]*\.(log|checkpoint)$", "")
    end = f.get_json_object("payload", "$.endOffset").cast("long")
    looked_at_again = (directory == read["directory"]) & (f.col("read_commit") > f.col(COMMIT_COLUMN))
    reaches = f.col("offset").isNull() | end.isNull() | (end > f.col("read_start"))
    return gaps.join(f.broadcast(read), looked_at_again & reaches, "left_anti")
