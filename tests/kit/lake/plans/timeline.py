"""The timeline: a cluster's single history, merged from the directories of several nodes.

A line is a record that took effect. If leaders disagreed, it is the record that the quorum kept (:mod:`.lineage`).
Copies, and records of metadata transactions that were aborted or are still open, are left out. So are checkpoints
that the log covers; a checkpoint that bridges a gap stays, and its lines are the complete state at that offset.
NoOpRecords and the brackets of transactions are left out.

`rows` must contain all record types: offsets are counted to find what is missing.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from kit.lake.plans.lineage import effective_epochs
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    TimestampType,
    VariantType,
)
from pyspark_quorate import rows
from pyspark_quorate.rows import CLUSTER_ID, column, nullable, schema
from pyspark_quorate.tables.lines import GAP_ORDINAL, SNAPSHOT_FOOTER, SNAPSHOT_HEADER
from quorate_protocol.records.control import CONTROL_NAMES

_BEGIN: Final = "BeginTransactionRecord"
_END: Final = "EndTransactionRecord"
_ABORT: Final = "AbortTransactionRecord"
_SILENT: Final = ("NoOpRecord", _BEGIN, _END, _ABORT)

SCHEMA: Final = schema(
    CLUSTER_ID,
    column(
        "offset", LongType(), "the record's offset; of a snapshot, the offset that its state comes before"
    ),
    column(
        "ordinal",
        IntegerType(),
        "orders lines of one offset: the least number for a gap, below 0 for a snapshot, 0 for the log",
    ),
    nullable("epoch", IntegerType(), "leader epoch of the batch, or of the snapshot id"),
    nullable("time", TimestampType(), "when the active controller appended it"),
    column("type", StringType(), "the record's name; 'gap' where offsets are missing right before `offset`"),
    nullable("version", ShortType(), "the version of the record"),
    nullable("payload", VariantType(), "the record's fields; null for a gap"),
    column(
        "run",
        IntegerType(),
        "number of the stretch, from 0; one begins after each gap and with each snapshot",
    ),
    column("is_snapshot", BooleanType(), "whether it belongs to a complete state rather than being a change"),
)
"""Lines are ordered by (cluster_id, offset, ordinal)."""
PLACE: Final = ("time", "offset", "ordinal", "is_snapshot")
"""The columns that place a line in its cluster's history."""

Share = Callable[[DataFrame], DataFrame]
"""Prepares a frame that is read several times, such as `frame.localCheckpoint()`."""


def as_is(frame: DataFrame) -> DataFrame:
    """Shares nothing: Spark computes a frame again for each reader."""
    return frame


@dataclass(frozen=True, slots=True)
class Evidence:
    """Which records exist and count. Small frames; the functions that build them document their columns."""

    epochs: DataFrame
    """From :func:`pyspark_quorate.tables.lineage.effective_epochs`."""
    stretches: DataFrame
    bridges: DataFrame


def evidence(raw: DataFrame, share: Share = as_is) -> Evidence:
    """The epochs that count, the offsets that exist, and the snapshots that are needed."""
    epochs = share(effective_epochs(raw))
    islands = share(stretches(effective_log(raw, epochs)))
    return Evidence(epochs, islands, share(bridging(complete_snapshots(raw), islands)))


def timeline_of(raw: DataFrame, known: Evidence, share: Share = as_is) -> DataFrame:
    """The lines of `SCHEMA`, from rows (see :mod:`pyspark_quorate.rows`) and their evidence."""
    log = effective_log(raw, known.epochs)
    snapshots = complete_snapshots(raw)
    kept = known.bridges
    runs = share(_runs(kept, known.stretches))
    lines = (
        _log_lines(log, runs)
        .unionByName(_snapshot_lines(snapshots, kept, runs))
        .unionByName(_gap_lines(runs))
    )
    return lines.select(*SCHEMA.names)


def effective_log(raw: DataFrame, epochs: DataFrame) -> DataFrame:
    """Rows of the log that the quorum kept, each offset once. `epochs` are those that count."""
    return (
        raw.where(f.col("kind") == rows.LOG)
        .join(f.broadcast(epochs), ["cluster_id", "epoch"])
        .where(f.col("until").isNull() | (f.col("offset") < f.col("until")))
        .drop("until")
        .dropDuplicates(["cluster_id", "offset"])
    )


def stretches(log: DataFrame) -> DataFrame:
    """cluster_id, first, end (exclusive), first_time, last_time: runs of consecutive offsets."""
    by_offset = Window.partitionBy("cluster_id").orderBy("offset")
    begins = f.coalesce(f.lag("offset").over(by_offset) + 1 < f.col("offset"), f.lit(True))
    return (
        log.select("cluster_id", "offset", "time", begins.cast("int").alias("begins"))
        .withColumn("stretch", f.sum("begins").over(by_offset))
        .groupBy("cluster_id", "stretch")
        .agg(
            f.min("offset").alias("first"),
            (f.max("offset") + 1).alias("end"),
            f.min_by("time", "offset").alias("first_time"),
            f.max_by("time", "offset").alias("last_time"),
        )
        .drop("stretch")
    )


def snapshot_copies(raw: DataFrame) -> DataFrame:
    """cluster_id, offset, epoch, source, size (its lines), is_complete (readable from header to footer)."""
    return (
        raw.where(f.col("kind") == rows.SNAPSHOT)
        .groupBy("cluster_id", "offset", "epoch", "source")
        .agg(
            f.count_distinct("ordinal").alias("size"),
            f.max(f.when(f.col("type") == SNAPSHOT_FOOTER, f.col("ordinal") + 1)).alias("whole"),
        )
        .withColumn("is_complete", f.col("size").eqNullSafe(f.col("whole")))
        .drop("whole")
    )


def complete_snapshots(raw: DataFrame) -> DataFrame:
    """Rows of the checkpoints that are complete, and `size`; of each offset one node's copy.

    Nodes write the same state in different orders, so copies are never mixed. What stands at offset 0 is what a
    directory was formatted with: the first leader appends the same to the log.
    """
    complete = snapshot_copies(raw).where(f.col("is_complete") & (f.col("offset") > 0)).drop("is_complete")
    chosen = first_of(complete, ["cluster_id", "offset"], f.desc("epoch"), "source")
    return (
        raw.where(f.col("kind") == rows.SNAPSHOT)
        .join(f.broadcast(chosen), ["cluster_id", "offset", "epoch", "source"])
        .dropDuplicates(["cluster_id", "offset", "ordinal"])
    )


def bridging(snapshots: DataFrame, islands: DataFrame) -> DataFrame:
    """cluster_id, offset, time, after_gap: checkpoints that are needed because the log is incomplete.

    A stretch from offset 0 needs none; in any other, the first checkpoint is enough.
    """
    ids = snapshots.groupBy("cluster_id", "offset").agg(f.max("time").alias("time"))
    placed = ids.join(
        f.broadcast(islands),
        (ids["cluster_id"] == islands["cluster_id"]) & f.col("offset").between(f.col("first"), f.col("end")),
        "left",
    ).select(ids["*"], "first")
    order = Window.partitionBy("cluster_id", "first").orderBy("offset")
    return (
        placed.withColumn("rank", f.row_number().over(order))
        .where("first is null or (first > 0 and rank = 1)")
        .select(
            "cluster_id",
            "offset",
            "time",
            (f.col("first").isNull() | (f.col("first") == f.col("offset"))).alias("after_gap"),
        )
    )


def _runs(kept: DataFrame, islands: DataFrame) -> DataFrame:
    """cluster_id, run, run_first, run_end (null: none), run_time, after_gap, is_based (the state there is known)."""
    begins = islands.select(
        "cluster_id",
        f.col("first").alias("run_first"),
        f.col("first_time").alias("run_time"),
        (f.col("first") > 0).alias("after_gap"),
        (f.col("first") == 0).alias("is_based"),
    ).unionByName(
        kept.select(
            "cluster_id",
            f.col("offset").alias("run_first"),
            f.col("time").alias("run_time"),
            "after_gap",
            f.lit(True).alias("is_based"),
        )
    )
    merged = begins.groupBy("cluster_id", "run_first").agg(
        f.max("run_time").alias("run_time"),
        f.max("after_gap").alias("after_gap"),
        f.max("is_based").alias("is_based"),
    )
    order = Window.partitionBy("cluster_id").orderBy("run_first")
    later = order.rowsBetween(0, Window.unboundedFollowing)
    earlier = order.rowsBetween(Window.unboundedPreceding, 0)
    time = f.coalesce(
        f.first("run_time", ignorenulls=True).over(later), f.last("run_time", ignorenulls=True).over(earlier)
    )
    return merged.select(
        "cluster_id",
        (f.row_number().over(order) - 1).alias("run"),
        "run_first",
        f.lead("run_first").over(order).alias("run_end"),
        time.alias("run_time"),
        "after_gap",
        "is_based",
    )


def _numbered(lines: DataFrame, runs: DataFrame) -> DataFrame:
    """Adds the columns of each line's run."""
    place = (
        (lines["cluster_id"] == runs["cluster_id"])
        & (lines["offset"] >= runs["run_first"])
        & (runs["run_end"].isNull() | (lines["offset"] < runs["run_end"]))
    )
    return lines.join(f.broadcast(runs), place).drop(runs["cluster_id"])


def _log_lines(log: DataFrame, runs: DataFrame) -> DataFrame:
    void = _void_transactions(_numbered(log.where(f.col("type").isin(_BEGIN, _END, _ABORT)), runs))
    lines = _numbered(log.where(~f.col("type").isin(*_SILENT)), runs)
    is_void = (
        (lines["cluster_id"] == void["cluster_id"])
        & lines["offset"].between(void["void_first"], void["void_last"])
        & ~lines["type"].isin(*CONTROL_NAMES)  # the quorum writes them for itself, also amid a transaction
    )
    return lines.join(f.broadcast(void), is_void, "left_anti").select(
        "cluster_id",
        "offset",
        f.lit(0).alias("ordinal"),
        "epoch",
        "time",
        "type",
        "version",
        f.parse_json("payload").alias("payload"),
        "run",
        f.lit(False).alias("is_snapshot"),
    )


def _void_transactions(brackets: DataFrame) -> DataFrame:
    """cluster_id, void_first, void_last: the offsets of transactions that were aborted, or whose end is unknown.

    Transactions do not nest (KIP-868). An abort whose begin is missing voids the stretch up to it.
    """
    order = Window.partitionBy("cluster_id", "run").orderBy("offset")
    following = f.lead("type").over(order)
    until = f.coalesce(f.lead("offset").over(order), f.col("run_end") - 1, f.lit(2**63 - 1))
    is_open = (f.col("type") == _BEGIN) & (following.isNull() | (following != _END))
    has_no_begin = (f.col("type") == _ABORT) & f.lag("type").over(order).isNull() & ~f.col("is_based")
    return (
        brackets.withColumn(
            "void_first", f.when(is_open, f.col("offset")).when(has_no_begin, f.col("run_first"))
        )
        .withColumn("void_last", f.when(is_open, until).when(has_no_begin, f.col("offset")))
        .where("void_first is not null")
        .select("cluster_id", "void_first", "void_last")
    )


def _snapshot_lines(snapshots: DataFrame, kept: DataFrame, runs: DataFrame) -> DataFrame:
    lines = snapshots.join(f.broadcast(kept.select("cluster_id", "offset")), ["cluster_id", "offset"])
    return _numbered(lines, runs).select(
        "cluster_id",
        "offset",
        (f.col("ordinal") - f.col("size")).cast("int").alias("ordinal"),
        "epoch",
        f.coalesce("time", "run_time").alias("time"),
        "type",
        "version",
        f.parse_json("payload").alias("payload"),
        "run",
        f.lit(True).alias("is_snapshot"),
    )


def _gap_lines(runs: DataFrame) -> DataFrame:
    return runs.where("after_gap").select(
        "cluster_id",
        f.col("run_first").alias("offset"),
        f.lit(GAP_ORDINAL).alias("ordinal"),
        f.lit(None).cast("int").alias("epoch"),
        f.col("run_time").alias("time"),
        f.lit(rows.GAP).alias("type"),
        f.lit(None).cast("short").alias("version"),
        f.parse_json(f.lit(None).cast("string")).alias("payload"),
        "run",
        f.lit(False).alias("is_snapshot"),
    )


def first_of(frame: DataFrame, key: Sequence[str], *order: Column | str) -> DataFrame:
    """One row of each key: the first in this order."""
    rank = f.row_number().over(Window.partitionBy(*key).orderBy(*order))
    return frame.withColumn("rank", rank).where("rank = 1").drop("rank")


def breaks(lines: DataFrame) -> DataFrame:
    """cluster_id and `PLACE`: the ends of gaps, and the snapshots, which are complete."""
    return events_of(lines, rows.GAP, SNAPSHOT_HEADER)


def records_of(lines: DataFrame, *types: str) -> DataFrame:
    """The lines of these record types."""
    return lines.where(f.col("type").isin(*types))


def events_of(lines: DataFrame, *types: str, **columns: Column) -> DataFrame:
    """cluster_id, these columns and `PLACE`, of the lines of these record types."""
    named = (column.alias(name) for name, column in columns.items())
    return records_of(lines, *types).select("cluster_id", *named, *PLACE)


def field(path: str, kind: str) -> Column:
    """A field of the payload, by its name in Kafka's schema (such as "brokerId"), as the given SQL type.

    Null if the record lacks the field or has it with another type: Spark also reads it from records that are
    filtered out later, and "id" is a number in some records and a UUID in others.
    """
    return f.try_variant_get("payload", f"$.{path}", kind)


def sorted_list(path: str, stated: str, kind: ArrayType) -> Column:
    """A list of structs as `kind`, which may name the fields otherwise; sorted, as snapshots have any order.

    `stated` has Kafka's names and the SQL types of the fields.
    """
    return f.array_sort(field(path, f"array<struct<{stated}>>")).cast(kind)


def name_of(kind: type[IntEnum], number: Column) -> Column:
    """The name of the enum's member; for a number without a member, the number as text."""
    names = f.create_map(*(f.lit(part) for one in kind for part in (int(one), one.name)))
    return f.coalesce(f.try_element_at(names, number), number.cast("string"))
