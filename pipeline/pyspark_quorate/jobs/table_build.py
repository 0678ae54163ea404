"""Builds tables from the rows: for clusters with new rows, and for all when a table's definition changed."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql.types import DateType, StructType

from pyspark_quorate.errors import LakeError
from pyspark_quorate.jobs import fold_tasks
from pyspark_quorate.jobs.fold_tasks import stored_fields
from pyspark_quorate.jobs.lake import Change, DeltaWrite, Lake
from pyspark_quorate.jobs.progress import Steps
from pyspark_quorate.jobs.state import LakeState, TableState
from pyspark_quorate.rows import arrow_schema, nullable
from pyspark_quorate.source.payload import decoder_version
from pyspark_quorate.stored.files import folders
from pyspark_quorate.tables.contract import Table
from pyspark_quorate.tables.registry import TABLES

DAY: Final = nullable("day", DateType(), "the UTC day by which the row is partitioned")
FOLDED: Final = "folded"
"""The folder in staging for the tables of each cluster."""
COLUMNS_FILE: Final = "_common_metadata"
"""Spark reads a table's columns from this file first."""
SPARK_COLUMNS: Final = "org.apache.spark.sql.parquet.row.metadata"
"""The key of Spark's own schema in a Parquet file."""


FOLD_VERSION: Final = 2
"""Raise it when the same rows make other tables: they are built again then."""


@dataclass(frozen=True, slots=True)
class Built:
    """The tables that were built, and the number of clusters that they were built for."""

    tables: tuple[str, ...]
    clusters: int


NOTHING_BUILT: Final = Built((), 0)


def choose_tables(names: str | None) -> tuple[Table, ...]:
    """The tables of a comma-separated list, or all. Raises LakeError for an unknown one."""
    if names is None:
        return TABLES
    known = {table.name: table for table in TABLES}
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    for name in wanted:
        if name not in known:
            raise LakeError(f"--tables {name}: unknown table; allowed are {', '.join(known)}")
    return tuple(table for table in TABLES if table.name in wanted)


def stale_tables(
    lake: Lake, tables: Sequence[Table], *, everything: bool = False
) -> list[tuple[Table, frozenset[str]]]:
    """Return the tables that have to be built, each with the clusters whose part of it is stale."""
    stale = []
    for table in tables:
        clusters = lake.state.stale(table.name, _fingerprint(table))
        if everything:
            clusters = frozenset(lake.state.clusters)
        if clusters or table.name not in lake.state.tables:
            stale.append((table, clusters))
    return stale


def build(
    spark: SparkSession, lake: Lake, tables: Sequence[Table], steps: Steps, *, everything: bool = False
) -> Built:
    """Build the stale parts of some tables, in one commit. Call it within `Lake.writing`."""
    stale = stale_tables(lake, tables, everything=everything)
    if not stale:
        return NOTHING_BUILT
    chosen = [table for table, _ in stale]
    clusters = frozenset[str]().union(*(some for _, some in stale))
    steps.begin(f"building {len(chosen)} tables")
    written = _stage(spark, lake, chosen, clusters)
    change = replace(_change(lake, chosen, clusters), written=written)
    lake.commit(change, _state(lake.state, chosen, clusters))
    return Built(tuple(table.name for table in chosen), len(clusters))


def stored_schema(table: Table, kind: str = "parquet") -> StructType:
    """The columns of a stored table: those of its contract, then `day`. VARIANT becomes JSON in Delta."""
    return StructType([*stored_fields(table, kind), DAY])


def _stage(
    spark: SparkSession, lake: Lake, tables: Sequence[Table], clusters: frozenset[str]
) -> list[tuple[str, int]]:
    """Fold the rows, and write all tables to staging: a folder per table, cluster and day.

    Returns the files that tasks wrote, and their sizes.
    """
    staged = lake.staging / "tables"
    for table in tables:
        (staged / table.name).mkdir(parents=True)
    plan = fold_tasks.FoldPlan(
        rows=lake.rows,
        where=lake.staging / FOLDED,
        tables=tables,
        format=lake.state.format,
        reads=lake.state.reads,
    )
    plan.where.mkdir()
    written = fold_tasks.fold(spark, plan, clusters)
    for cluster in folders(plan.where).values():
        for made in cluster.iterdir():
            made.rename(staged / made.name / cluster.name)
    for table in tables:
        _write_columns(stored_schema(table, lake.state.format), staged / table.name / COLUMNS_FILE)
    files = []
    for file in written:
        cluster_folder, name, *below = Path(file.path).relative_to(plan.where).parts
        files.append((str(staged.joinpath(name, cluster_folder, *below)), file.size_bytes))
    return files


def _write_columns(schema: StructType, file: Path) -> None:
    """Write a Parquet file with the columns, for Spark and for others, and without rows."""
    columns = arrow_schema(schema).with_metadata({SPARK_COLUMNS: schema.json()})
    pq.write_metadata(columns, file)


def _change(lake: Lake, tables: Sequence[Table], clusters: frozenset[str]) -> Change:
    place, remove, deltas = [], [], []
    for table in tables:
        staged = lake.staging / "tables" / table.name
        relative = str(staged.relative_to(lake.path))
        if lake.state.format == "delta":
            deltas.append(DeltaWrite(table.name, relative, sorted(clusters)))
            continue
        new = folders(staged)
        old = folders(lake.table(table.name))
        place += [(f"{relative}/{folder.name}", f"{table.name}/{folder.name}") for folder in new.values()]
        place.append((f"{relative}/{COLUMNS_FILE}", f"{table.name}/{COLUMNS_FILE}"))
        remove += [
            f"{table.name}/{old[cluster].name}" for cluster in sorted((clusters & set(old)) - set(new))
        ]
    return Change(place=place, remove=remove, deltas=deltas)


def _state(state: LakeState, tables: Sequence[Table], clusters: frozenset[str]) -> LakeState:
    made = dict(state.tables)
    for table in tables:
        before = made.get(table.name)
        built = dict(before.built) if before is not None else {}
        built |= {cluster: state.clusters[cluster] for cluster in clusters}
        made[table.name] = TableState(_fingerprint(table), built)
    return replace(state, tables=made)


def _fingerprint(table: Table) -> str:
    """A hash of the table's columns, the fold's version and the known records; with another one, all is rebuilt."""
    text = ";".join(f"{field.name} {field.dataType.simpleString()}" for field in table.schema.fields)
    return hashlib.sha256(f"{text};{table.day};{FOLD_VERSION};{decoder_version()}".encode()).hexdigest()[:16]
