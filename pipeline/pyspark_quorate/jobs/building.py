"""Builds tables from the rows: for clusters with new rows, and for all when a table's definition changed."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import DateType, StringType, StructField, StructType, VariantType

from pyspark_quorate.jobs import folding, raw
from pyspark_quorate.jobs.lake import Change, DeltaWrite, Lake
from pyspark_quorate.jobs.progress import Steps
from pyspark_quorate.jobs.state import LakeError, State, TableState
from pyspark_quorate.rows import nullable
from pyspark_quorate.tables.contract import Table
from pyspark_quorate.tables.registry import TABLES

DAY: Final = nullable("day", DateType(), "the UTC day by which the row is partitioned")
FOLDED: Final = "folded"
"""The folder in staging for the tables of each cluster."""
COLUMNS_FILE: Final = "_common_metadata"
"""Spark reads a table's columns from this file first."""
SPARK_COLUMNS: Final = "org.apache.spark.sql.parquet.row.metadata"
"""The key of Spark's own schema in a Parquet file."""


@dataclass(frozen=True, slots=True)
class Built:
    """The tables that were built, and the number of clusters that they were built for."""

    tables: tuple[str, ...]
    clusters: int


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


def build(
    spark: SparkSession,
    lake: Lake,
    tables: Sequence[Table],
    steps: Steps,
    *,
    everything: bool = False,
) -> Built:
    """Build the stale parts of some tables, in one commit. Call it within `Lake.writing`."""
    spark.conf.set("spark.sql.session.timeZone", "UTC")  # whose days the folders are
    spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")  # few can read INT96
    fingerprints = {table.name: _fingerprint(table) for table in tables}
    stale = {
        table.name: frozenset(lake.state.clusters)
        if everything
        else lake.state.stale(table.name, fingerprints[table.name])
        for table in tables
    }
    unseen = [table for table in tables if table.name not in lake.state.tables]
    clusters = frozenset[str]().union(*stale.values())
    if not clusters and not unseen:
        return Built((), 0)
    chosen = [table for table in tables if stale[table.name] or table in unseen]
    steps.begin("looking at the rows")
    evidence = folding.evidence(raw.read_all_rows(spark, lake, clusters))
    plan = folding.Plan(lake.staging / FOLDED, chosen, evidence)
    steps.begin(f"building {len(chosen)} tables")
    rows = raw.read_rows(spark, lake, clusters).drop(raw.COMMIT_COLUMN)
    _stage(lake, plan, folding.fold(rows, plan))
    lake.commit(_change(lake, chosen, clusters), _state(lake.state, chosen, clusters, fingerprints))
    return Built(tuple(table.name for table in chosen), len(clusters))


def stored_schema(table: Table, kind: str = "parquet") -> StructType:
    """The columns of a stored table: those of its contract, then `day`. VARIANT becomes JSON in Delta."""

    def stored(field: StructField) -> StructField:
        if kind == "delta" and isinstance(field.dataType, VariantType):
            return StructField(field.name, StringType(), field.nullable, field.metadata)
        return field

    return StructType([*(stored(field) for field in table.schema.fields), DAY])


def _stage(lake: Lake, plan: folding.Plan, records: DataFrame) -> None:
    """Fold the rows, and write all tables to staging: a folder per table, cluster and day."""
    tables = lake.staging / "tables"
    for table in plan.tables:
        (tables / table.name).mkdir(parents=True)
    plan.where.mkdir()
    stored = next((table for table in plan.tables if table.fold is None), None)
    if stored is None:
        records.write.format("noop").mode("overwrite").save()
    else:
        _write_records(stored, records, tables / stored.name, lake.state.format)
    for cluster in raw.folders(plan.where).values():
        for made in cluster.iterdir():
            made.rename(tables / made.name / cluster.name)
    for table in plan.tables:
        _write_columns(stored_schema(table, lake.state.format), tables / table.name / COLUMNS_FILE)


def _write_records(table: Table, records: DataFrame, where: Path, kind: str) -> None:
    """Write table `records`, one file per cluster and day, ordered by its key."""
    stored = records.withColumn(DAY.name, f.to_date(table.day)).withColumn("payload", f.parse_json("payload"))
    if kind == "delta":
        stored = stored.withColumn("payload", f.to_json("payload"))
    (
        stored.select(*table.schema.names, DAY.name)
        .sortWithinPartitions(
            *("cluster_id", DAY.name), *(name for name in table.key if name != "cluster_id")
        )
        .write.mode("append")
        .partitionBy("cluster_id", DAY.name)
        .parquet(str(where))
    )


def _write_columns(schema: StructType, file: Path) -> None:
    """Write a Parquet file with the columns, for Spark and for others, and without rows."""
    columns = to_arrow_schema(schema, timezone="UTC").with_metadata({SPARK_COLUMNS: schema.json()})
    pq.write_metadata(columns, file)


def _change(lake: Lake, tables: Sequence[Table], clusters: frozenset[str]) -> Change:
    place, remove, deltas = [], [], []
    for table in tables:
        staged = lake.staging / "tables" / table.name
        relative = str(staged.relative_to(lake.path))
        if lake.state.format == "delta":
            deltas.append(DeltaWrite(table.name, relative, sorted(clusters)))
            continue
        new = raw.folders(staged)
        old = raw.folders(lake.table(table.name))
        place += [(f"{relative}/{folder.name}", f"{table.name}/{folder.name}") for folder in new.values()]
        place.append((f"{relative}/{COLUMNS_FILE}", f"{table.name}/{COLUMNS_FILE}"))
        remove += [
            f"{table.name}/{old[cluster].name}" for cluster in sorted((clusters & set(old)) - set(new))
        ]
    return Change(place=place, remove=remove, deltas=deltas)


def _state(
    state: State, tables: Sequence[Table], clusters: frozenset[str], fingerprints: Mapping[str, str]
) -> State:
    made = dict(state.tables)
    for table in tables:
        before = made.get(table.name)
        built = dict(before.built) if before is not None else {}
        built |= {cluster: state.clusters[cluster] for cluster in clusters}
        made[table.name] = TableState(fingerprints[table.name], built)
    return replace(state, tables=made)


def _fingerprint(table: Table) -> str:
    """A hash of the table's columns; when it changes, the table is rebuilt for every cluster."""
    text = ";".join(f"{field.name} {field.dataType.simpleString()}" for field in table.schema.fields)
    return hashlib.sha256(f"{text};{table.day}".encode()).hexdigest()[:16]
