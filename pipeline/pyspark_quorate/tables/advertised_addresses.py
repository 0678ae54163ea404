"""Table `advertised_addresses`: which node could be found where, and names that came to lead to another node."""

from datetime import timedelta
from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f
from pyspark.sql.types import DoubleType, IntegerType, StringType, StructType

from pyspark_quorate.rows import column
from pyspark_quorate.tables.contract import Table
from pyspark_quorate.tables.controller_registrations import BROKER, registrations
from pyspark_quorate.tables.intervals import INTERVAL_COLUMNS, mark_gaps, merge_adjacent
from pyspark_quorate.tables.timeline import breaks

REUSE_WINDOW: Final = timedelta(minutes=10)
"""Clients keep addresses for some time: metadata.max.age.ms of Kafka's clients is 5 minutes."""

SCHEMA: Final = StructType(
    [
        column("cluster_id", StringType(), "Kafka's cluster id"),
        column("host", StringType(), "advertised host"),
        column("port", IntegerType(), "advertised port"),
        column(
            "role", StringType(), "broker or controller: by its registration; voter: by the set of voters"
        ),
        column("node_id", IntegerType(), "node.id of who could be found there"),
        column("listener", StringType(), "name of the listener"),
        column(
            "reused_from_node_id",
            IntegerType(),
            "the other node that advertised this host and port last, at most 10 minutes before; null: none",
            is_nullable=True,
        ),
        column(
            "reused_after_s",
            DoubleType(),
            "how long that other node had given it up, in seconds; 0: it still advertised it; null: nobody did",
            is_nullable=True,
        ),
        *INTERVAL_COLUMNS,
    ]
)
_PLACE: Final = ["cluster_id", "host", "port"]
_OWNER: Final = [*_PLACE, "role", "node_id", "listener"]


def advertised_addresses(
    lines: DataFrame, controllers: DataFrame, voters: DataFrame, window: timedelta = REUSE_WINDOW
) -> DataFrame:
    """One line for each stretch in which a node advertised an address. `window`: what counts as reuse."""
    names = [one.name for one in INTERVAL_COLUMNS]
    owners = [
        ("broker", "node_id", registrations(lines, BROKER)),
        ("controller", "controller_id", controllers),
        ("voter", "voter_id", voters),
    ]
    stated = [
        frame.select(
            "cluster_id",
            f.lit(role).alias("role"),
            f.col(node_id).alias("node_id"),
            f.explode("endpoints"),
            *names,
        ).select(
            "cluster_id",
            "role",
            "node_id",
            f.col("col.name").alias("listener"),
            "col.host",
            "col.port",
            *names,
        )
        for role, node_id, frame in owners
    ]
    merged = merge_adjacent(stated[0].unionByName(stated[1]).unionByName(stated[2]), key=_OWNER)
    return _with_reuse(mark_gaps(merged, breaks(lines)), window)


def _with_reuse(owned: DataFrame, window: timedelta) -> DataFrame:
    """With the last other node at the same host and port, where it was there at most `window` before.

    Offsets tell who was first. Times come from the clocks of several leaders: a negative pause counts as none.
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
    latest = Window.partitionBy(*_OWNER, "from_offset").orderBy("pause_s", f.desc("other_from"), "other_id")
    reused = (
        candidates.withColumn("rank", f.row_number().over(latest))
        .where("rank = 1")
        .select(
            *_OWNER,
            "from_offset",
            f.col("other_id").alias("reused_from_node_id"),
            f.col("pause_s").alias("reused_after_s"),
        )
    )
    return owned.join(reused, [*_OWNER, "from_offset"], "left")


TABLE: Final = Table(
    name="advertised_addresses",
    doc=(
        "Who advertised which host and port when: brokers and controllers by registrations, voters by the set of "
        "voters. A node that stops stays registered with its addresses until it registers others or is unregistered. "
        "A name that came to lead to another node soon after is told: clients that still held it met the wrong node."
    ),
    schema=SCHEMA,
    inputs=("timeline", "controller_registrations", "membership"),
    key=("cluster_id", "host", "port", "role", "node_id", "listener", "from_offset"),
    day="valid_from",
    build=advertised_addresses,
)
