"""Table `advertised_addresses`: addresses that nodes advertised, and addresses that moved to another node."""

from datetime import timedelta
from functools import reduce
from typing import Final

from kit.lake.plans.contract import Plan
from kit.lake.plans.controller_registrations import registrations
from kit.lake.plans.intervals import mark_gaps, merge_adjacent
from kit.lake.plans.timeline import breaks, first_of
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark_quorate.tables.advertised_addresses import REUSE_WINDOW
from pyspark_quorate.tables.controller_registrations import BROKER
from pyspark_quorate.tables.intervals import INTERVAL_COLUMNS

_PLACE: Final = ["cluster_id", "host", "port"]
_OWNER: Final = [*_PLACE, "role", "node_id", "listener"]


def advertised_addresses(
    lines: DataFrame, controllers: DataFrame, voters: DataFrame, window: timedelta = REUSE_WINDOW
) -> DataFrame:
    """One row per interval in which a node advertised an address. Within `window`, another owner counts as reuse."""
    names = [one.name for one in INTERVAL_COLUMNS]
    owners = [
        ("broker", "node_id", registrations(lines, BROKER)),
        ("controller", "controller_id", controllers),
        ("voter", "voter_id", voters),
    ]
    stated = (
        frame.withColumn("one", f.explode("endpoints")).select(
            "cluster_id",
            f.lit(role).alias("role"),
            f.col(node_id).alias("node_id"),
            f.col("one.name").alias("listener"),
            *("one.host", "one.port"),
            *names,
        )
        for role, node_id, frame in owners
    )
    merged = merge_adjacent(reduce(DataFrame.unionByName, stated), key=_OWNER)
    return _with_reuse(mark_gaps(merged, breaks(lines)), window)


def _with_reuse(owned: DataFrame, window: timedelta) -> DataFrame:
    """Adds the last other node at the same host and port, if it was there at most `window` before.

    Offsets decide which node was first. Times come from several leaders' clocks: a negative pause counts as 0.
    """
    others = owned.select(
        *_PLACE,
        f.col("node_id").alias("other_id"),
        f.col("from_offset").alias("other_from"),
        f.col("to_offset").alias("other_to"),
        f.col("valid_to").alias("other_until"),
    )
    still = f.col("other_to").isNull() | (f.col("other_to") > f.col("from_offset"))
    pause_s = (f.unix_micros("valid_from") - f.unix_micros("other_until")) / f.lit(1e6)
    candidates = (
        owned.select(*_OWNER, "from_offset", "valid_from")
        .join(others, _PLACE)
        .where((f.col("other_id") != f.col("node_id")) & (f.col("other_from") < f.col("from_offset")))
        .withColumn("pause_s", f.when(still, 0.0).otherwise(f.greatest(pause_s, f.lit(0.0))))
        .where(f.col("pause_s") <= window.total_seconds())
    )
    latest = first_of(candidates, [*_OWNER, "from_offset"], "pause_s", f.desc("other_from"), "other_id")
    reused = latest.select(
        *(*_OWNER, "from_offset"),
        f.col("other_id").alias("reused_from_node_id"),
        f.col("pause_s").alias("reused_after_s"),
    )
    return owned.join(reused, [*_OWNER, "from_offset"], "left")


PLAN: Final = Plan(build=advertised_addresses, inputs=("timeline", "controller_registrations", "membership"))
