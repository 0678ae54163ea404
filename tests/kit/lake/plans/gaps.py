"""Table `gaps`: records that are unreadable, missing, or lost by their leader."""

from typing import Final

from kit.lake.plans.contract import Plan
from kit.lake.plans.timeline import effective_log
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f
from pyspark_quorate import rows


def gaps(raw: DataFrame, epochs: DataFrame, islands: DataFrame, kept: DataFrame) -> DataFrame:
    """The gaps of the sources, the offsets that all of them lack, and the records that leaders lost.

    The others are the parts of :class:`pyspark_quorate.tables.timeline.Evidence`.
    """
    log = effective_log(raw, epochs)
    found = _recorded(raw).unionByName(_missing(islands, kept)).unionByName(_truncated(raw, epochs))
    numbered = found.withColumn("id", f.to_json(f.struct(*found.columns), {"ignoreNullFields": "false"}))
    return (
        numbered.join(_covered(numbered, islands), "id", "left")
        .join(_bridges(numbered, kept, islands), "id", "left")
        .join(_instants(numbered, log, islands, kept), "id", "left")
        .withColumn(
            "hides_records",
            f.when(f.col("first_offset").isNotNull(), ~f.coalesce("is_covered", f.lit(False))),
        )
        .withColumn("bridged_at", f.when(f.col("hides_records"), f.col("bridged_at")))
        .withColumn("time", f.coalesce("not_after", "not_before"))
    )


def _recorded(raw: DataFrame) -> DataFrame:
    payload = f.from_json("payload", "endOffset bigint, detail string")
    return (
        raw.where(f.col("kind") == rows.GAP)
        .select(
            "cluster_id",
            f.col("type").alias("reason"),
            "source",
            f.col("offset").alias("first_offset"),
            payload["endOffset"].alias("end_offset"),
            "epoch",
            payload["detail"].alias("detail"),
        )
        .distinct()
    )


def _missing(islands: DataFrame, kept: DataFrame) -> DataFrame:
    """Offsets that no file has, up to the last known offset."""
    known = islands.select("cluster_id", "first", "end").unionByName(
        kept.where("after_gap").select(
            "cluster_id", f.col("offset").alias("first"), f.col("offset").alias("end")
        )
    )
    order = Window.partitionBy("cluster_id").orderBy("first", "end")
    before = f.coalesce(f.max("end").over(order.rowsBetween(Window.unboundedPreceding, -1)), f.lit(0))
    return (
        known.withColumn("before", before)
        .where("first > before")
        .select(
            "cluster_id",
            f.lit(rows.MISSING_OFFSETS).alias("reason"),
            f.lit(None).cast("string").alias("source"),
            f.col("before").alias("first_offset"),
            f.col("first").alias("end_offset"),
            f.lit(None).cast("int").alias("epoch"),
            f.lit("nothing that was read has these offsets").alias("detail"),
        )
    )


def _truncated(raw: DataFrame, epochs: DataFrame) -> DataFrame:
    """Records in a directory that lost against the log of a later leader."""
    log = raw.where(f.col("kind") == rows.LOG).select("cluster_id", "epoch", "offset")
    kept = epochs.withColumn("is_kept", f.lit(True))
    lost = (
        log.join(f.broadcast(kept), ["cluster_id", "epoch"], "left")
        .where(f.col("is_kept").isNull() | (f.col("offset") >= f.col("until")))
        .groupBy("cluster_id", "epoch")
        .agg(
            f.min("offset").alias("first_offset"),
            (f.max("offset") + 1).alias("end_offset"),
            f.count_distinct("offset").alias("count"),
        )
    )
    detail = f.format_string(
        "%d records of epoch %d did not count: a later leader did not have them", "count", "epoch"
    )
    return lost.select(
        "cluster_id",
        f.lit(rows.TRUNCATED_EPOCH).alias("reason"),
        f.lit(None).cast("string").alias("source"),
        "first_offset",
        "end_offset",
        "epoch",
        detail.alias("detail"),
    )


def _end() -> Column:
    return f.coalesce("end_offset", f.col("first_offset") + 1)


def _covered(numbered: DataFrame, islands: DataFrame) -> DataFrame:
    """id, is_covered: the log has all offsets of the gap, or its records did not take effect."""
    held = numbered.join(f.broadcast(islands), "cluster_id").where(
        (f.col("first") <= f.col("first_offset")) & (f.col("end") >= _end())
    )
    lost = numbered.where(f.col("reason") == rows.TRUNCATED_EPOCH)
    return held.select("id").union(lost.select("id")).distinct().withColumn("is_covered", f.lit(True))


def _bridges(numbered: DataFrame, kept: DataFrame, islands: DataFrame) -> DataFrame:
    """id, bridged_at: the first snapshot after the gap, unless other offsets are missing before it."""
    ends = islands.select("cluster_id", "first", "end")
    snapshots = kept.select("cluster_id", f.col("offset").alias("bridged_at"))
    behind = (
        numbered.select("id", "cluster_id", _end().alias("behind"))
        .join(snapshots, "cluster_id")
        .where(f.col("bridged_at") >= f.col("behind"))
        .join(ends, "cluster_id", "left")
        .where(
            (f.col("bridged_at") == f.col("behind"))
            | ((f.col("first") <= f.col("behind")) & (f.col("bridged_at") <= f.col("end")))
        )
    )
    return behind.groupBy("id").agg(f.min("bridged_at").alias("bridged_at"))


def _instants(numbered: DataFrame, log: DataFrame, islands: DataFrame, kept: DataFrame) -> DataFrame:
    """id, not_before, not_after: the times of the nearest known records on both sides.

    A snapshot stands between two records: half an offset before the one that its state comes before.
    """
    wanted = numbered.select("cluster_id", "id", "first_offset", _end().alias("behind"))
    edges = wanted.select(
        "cluster_id", f.explode(f.array(f.col("first_offset") - 1, "behind")).alias("offset")
    )
    known = (
        log.select("cluster_id", "offset", "time")
        .join(f.broadcast(edges.distinct()), ["cluster_id", "offset"])
        .unionByName(
            islands.select("cluster_id", f.col("first").alias("offset"), f.col("first_time").alias("time"))
        )
        .unionByName(
            islands.select("cluster_id", (f.col("end") - 1).alias("offset"), f.col("last_time").alias("time"))
        )
        .unionByName(kept.select("cluster_id", (f.col("offset") - 0.5).alias("offset"), "time"))
        .where("time is not null")
    )
    place = known.withColumnsRenamed({"offset": "at", "time": "at_time"})
    is_before, is_behind = f.col("at") < f.col("first_offset"), f.col("at") > f.col("behind") - 1
    return (
        wanted.join(place, "cluster_id")
        .groupBy("id")
        .agg(
            f.max_by(f.when(is_before, f.col("at_time")), f.when(is_before, f.col("at"))).alias("not_before"),
            f.min_by(f.when(is_behind, f.col("at_time")), f.when(is_behind, f.col("at"))).alias("not_after"),
        )
    )


PLAN: Final = Plan(build=gaps, inputs=("rows", "epochs", "stretches", "bridges"))
