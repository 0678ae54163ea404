"""Table `upgrade_blockers`: registrations that block feature levels, over time."""

from typing import Final

from kit.lake.plans.contract import Plan
from kit.lake.plans.controller_registrations import registrations
from kit.lake.plans.feature_levels import level_name
from kit.lake.plans.intervals import end_of, mark_gaps, merge_adjacent, overlap
from kit.lake.plans.timeline import breaks
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark_quorate.tables.controller_registrations import BROKER, CONTROLLER
from pyspark_quorate.tables.intervals import INTERVAL_COLUMNS

_NODE: Final = ["cluster_id", "role", "node_id"]
_LEVEL: Final = ["cluster_id", "feature", "level"]


def upgrade_blockers(lines: DataFrame, voters: DataFrame) -> DataFrame:
    """One row per registration and level that another registration supports at the same time.

    Kafka checks every registration, also of fenced brokers and stopped controllers
    (FeatureControlManager.reasonNotSupported); a feature that a registration lacks counts as level 0.
    """
    nodes = (
        registrations(lines, BROKER)
        .withColumn("role", f.lit(BROKER.name))
        .unionByName(registrations(lines, CONTROLLER).withColumn("role", f.lit(CONTROLLER.name)))
        .drop("endpoints", "incarnation_id", "zk_migration_ready")
    )
    names = (one.name for one in INTERVAL_COLUMNS)
    supported = (
        nodes.withColumn("one", f.explode("features"))
        .select(
            "cluster_id",
            f.col("one.name").alias("feature"),
            f.col("one.max_level").alias("max_level"),
            *names,
        )
        .where("max_level > 0")
        .withColumn("level", f.explode(f.sequence(f.lit(1), f.col("max_level").cast("int"))))
    )
    reachable = merge_adjacent(supported, key=_LEVEL)
    named = nodes.withColumn(
        "maxima",
        f.map_from_entries(f.transform("features", lambda one: f.struct(one["name"], one["max_level"]))),
    ).drop("features")
    blocking = (
        overlap(named, reachable, on=["cluster_id"])
        .withColumn(
            "supported_max", f.coalesce(f.element_at("maxima", f.col("feature")), f.lit(0)).cast("short")
        )
        .where("supported_max < level")
        .drop("maxima")
    )
    key = [*_NODE, "feature", "level", "supported_max"]
    merged = mark_gaps(merge_adjacent(blocking, key=key), breaks(lines))
    return _with_ghosts(merged, voters).withColumn("level_name", level_name(f.col("feature"), f.col("level")))


def _with_ghosts(blocking: DataFrame, voters: DataFrame) -> DataFrame:
    """With is_ghost and ghost_since, from the table `membership`."""
    members = voters.select(
        "cluster_id",
        f.lit(CONTROLLER.name).alias("role"),
        f.col("voter_id").alias("node_id"),
        f.col("from_offset").alias("member_from"),
        end_of("to_offset").alias("member_to"),
        f.col("valid_to").alias("member_until"),
    )
    dynamic = voters.select("cluster_id", f.lit(True).alias("is_dynamic")).distinct()
    end = end_of("to_offset")
    key = [*_NODE, "feature", "level", "from_offset"]
    seen = (
        blocking.join(members, _NODE)
        .where(f.col("member_from") < end)
        .groupBy(*key)
        .agg(
            f.max(f.col("member_to") >= end).alias("is_voter"),
            f.max_by("member_until", "member_to").alias("member_until"),
        )
    )
    is_ghost = f.when(
        f.col("is_dynamic") & (f.col("role") == CONTROLLER.name), ~f.coalesce("is_voter", f.lit(False))
    )
    return (
        blocking.join(seen, key, "left")
        .join(f.broadcast(dynamic), "cluster_id", "left")
        .withColumn("is_ghost", is_ghost)
        .withColumn("ghost_since", f.when(f.col("is_ghost"), f.col("member_until")))
    )


PLAN: Final = Plan(build=upgrade_blockers, inputs=("timeline", "membership"))
