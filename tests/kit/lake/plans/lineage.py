"""Finds the records of several nodes' logs that belong to the log that the quorum kept.

A leader that lost may leave records that the next leaders never had, so that one offset exists with several epochs.
The log of the newest epoch decides: records at the same offset and epoch are identical, and so is everything before
them (Raft, "Log Matching"). The walk starts at the newest epoch and goes back: the record directly before the first
record of an epoch, in the same file, has the epoch before it in that leader's log, and epochs between the two lost.
If no file has that record, the newest earlier epoch is taken.
"""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f
from pyspark.sql.window import WindowSpec
from pyspark_quorate import rows

_WALK: Final = "struct<until: bigint, prior: int, kept: array<struct<epoch: int, until: bigint>>>"


def effective_epochs(raw: DataFrame) -> DataFrame:
    """cluster_id, epoch, until: records of `epoch` count at offsets below `until` (null: all of them).

    Epochs that lost completely have no row.
    """
    walked = (
        _beginnings(raw)
        .groupBy("cluster_id")
        .agg(f.sort_array(f.collect_list(f.struct("epoch", "first", "prior")), asc=False).alias("epochs"))
        .select("cluster_id", f.aggregate("epochs", _start(), _step).alias("walk"))
    )
    return walked.select("cluster_id", f.inline("walk.kept"))


def _spans(raw: DataFrame) -> DataFrame:
    """First and last offset of each epoch in each file. A snapshot id has the epoch of the record before it."""
    is_snapshot = f.col("kind") == rows.SNAPSHOT
    place = f.when(is_snapshot, f.col("offset") - 1).otherwise(f.col("offset"))
    return (
        raw.where(f.col("kind").isin(rows.LOG, rows.SNAPSHOT) & ~(is_snapshot & (f.col("offset") == 0)))
        .groupBy("cluster_id", "source", "epoch")
        .agg(f.min(place).alias("first"), f.max(place).alias("last"))
        .withColumn("directory", f.regexp_replace("source", "[^/]*$", ""))
    )


def _beginnings(raw: DataFrame) -> DataFrame:
    """cluster_id, epoch, first (its lowest offset anywhere), prior (the epoch right before it; null: not known)."""
    spans = _spans(raw)
    files = Window.partitionBy("cluster_id", "source").orderBy("first", "epoch")
    directories = Window.partitionBy("cluster_id", "directory").orderBy("first", "epoch")
    known = spans.select(
        "cluster_id",
        "epoch",
        "first",
        _epoch_right_before(files).alias("in_file"),
        _epoch_right_before(directories).alias("in_directory"),
    )
    lowest = f.min("first").over(Window.partitionBy("cluster_id", "epoch"))
    return (
        known.withColumn("lowest", lowest)
        .where(f.col("first") == f.col("lowest"))
        .groupBy("cluster_id", "epoch", "first")
        .agg(f.coalesce(f.max("in_file"), f.max("in_directory")).alias("prior"))
    )


def _epoch_right_before(window: WindowSpec) -> Column:
    before = f.max(f.struct("last", "epoch")).over(window.rowsBetween(Window.unboundedPreceding, -1))
    return f.when(
        (before["last"] == f.col("first") - 1) & (before["epoch"] < f.col("epoch")), before["epoch"]
    )


def _start() -> Column:
    return f.struct(
        f.lit(None).alias("until"),
        f.lit(None).alias("prior"),
        f.array().alias("kept"),
    ).cast(_WALK)


def _step(walk: Column, epoch: Column) -> Column:
    """From an epoch to the ones before it, newest first."""
    lost = (epoch["epoch"] > walk["prior"]) | (epoch["first"] >= walk["until"])
    kept = f.concat(
        walk["kept"], f.array(f.struct(epoch["epoch"].alias("epoch"), walk["until"].alias("until")))
    )
    taken = f.struct(epoch["first"].alias("until"), epoch["prior"].alias("prior"), kept.alias("kept")).cast(
        _WALK
    )
    return f.when(f.coalesce(lost, f.lit(False)), walk).otherwise(taken)
