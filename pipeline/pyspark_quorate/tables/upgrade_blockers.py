"""Table `upgrade_blockers`: registrations that block feature levels, over time."""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import BooleanType, IntegerType, ShortType, StringType, TimestampType

from pyspark_quorate.rows import CLUSTER_ID, column, nullable, schema
from pyspark_quorate.tables.contract import Table
from pyspark_quorate.tables.controller_registrations import BROKER, CONTROLLER, registrations
from pyspark_quorate.tables.feature_levels import level_name
from pyspark_quorate.tables.intervals import INTERVAL_COLUMNS, end_of, mark_gaps, merge_adjacent, overlap
from pyspark_quorate.tables.timeline import breaks

SCHEMA: Final = schema(
    CLUSTER_ID,
    column("feature", StringType(), "the feature that can't be raised"),
    column("level", ShortType(), "a level that another registered node supports and this one does not"),
    column(
        "level_name", StringType(), "metadata.version: its name, such as 4.3-IV0; other features: the number"
    ),
    column("role", StringType(), "role of the registered node: broker or controller"),
    column("node_id", IntegerType(), "node.id of the registered node"),
    column(
        "supported_max", ShortType(), "the highest level that it supports; 0: it does not support the feature"
    ),
    nullable(
        "is_ghost",
        BooleanType(),
        "controller: registered but not a voter when the interval ended, or now if it still holds; null: a "
        "broker, or a static quorum, whose voters are not in the log",
    ),
    nullable(
        "ghost_since",
        TimestampType(),
        "when it last stopped being a voter; null: not a ghost, or never seen as a voter",
    ),
    *INTERVAL_COLUMNS,
)
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


TABLE: Final = Table(
    build=upgrade_blockers,
    doc=(
        "Registrations that block feature levels: for each level that at least one registered node supports, the "
        "registrations whose range ends below it, while both are registered. Kafka refuses to raise a feature past "
        "such a registration, even if its node no longer exists: a ghost."
    ),
    schema=SCHEMA,
    inputs=("timeline", "membership"),
    key=("cluster_id", "feature", "level", "role", "node_id", "from_offset"),
)
