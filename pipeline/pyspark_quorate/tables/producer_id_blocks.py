"""Table `producer_id_blocks`: blocks of producer ids that brokers received for their clients."""

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f
from pyspark.sql.types import BooleanType, IntegerType, LongType, TimestampType

from pyspark_quorate.rows import CLUSTER_ID, column, nullable, schema
from pyspark_quorate.tables.contract import Table
from pyspark_quorate.tables.intervals import of_key, placed
from pyspark_quorate.tables.timeline import field, records_of

PRODUCER_ID_BLOCK_SIZE: Final = 1000
"""Kafka's ProducerIdsBlock.PRODUCER_ID_BLOCK_SIZE; a record has only the first id of the block after it."""

SCHEMA: Final = schema(
    CLUSTER_ID,
    column("time", TimestampType(), "when the active controller appended it, or that of a snapshot"),
    column("offset", LongType(), "offset of the record, or of the last one in the snapshot that shows it"),
    nullable(
        "broker_id",
        IntegerType(),
        "the broker that received the block; null: hidden by a gap or by the start of the history",
    ),
    nullable("broker_epoch", LongType(), "the broker's epoch then; null as broker_id"),
    column("first_producer_id", LongType(), "first id of the block"),
    column("last_producer_id", LongType(), "last id of the block, or of the blocks that a gap hides"),
    column("exact", BooleanType(), "false: a gap hides who got it, and when, at or before `time`"),
)


def producer_id_blocks(lines: DataFrame) -> DataFrame:
    """The table, from the timeline. Ids between two known blocks were assigned in a gap."""
    before = of_key("cluster_id").rowsBetween(Window.unboundedPreceding, -1)
    known_until = f.max("next").over(before)
    size = f.when(f.col("is_snapshot"), 0).otherwise(PRODUCER_ID_BLOCK_SIZE)
    stated = (
        records_of(lines, "ProducerIdsRecord")
        .withColumn("next", field("nextProducerId", "bigint"))
        .withColumn("known_until", f.coalesce(known_until, f.lit(0)))
        .withColumn("first", f.col("next") - size)
    )
    unseen = f.struct(
        f.lit(None).cast("int").alias("broker_id"),
        f.lit(None).cast("bigint").alias("broker_epoch"),
        f.col("known_until").alias("first_producer_id"),
        (f.col("first") - 1).alias("last_producer_id"),
        f.lit(False).alias("exact"),
    )
    block = f.struct(
        field("brokerId", "int").alias("broker_id"),
        field("brokerEpoch", "bigint").alias("broker_epoch"),
        f.col("first").alias("first_producer_id"),
        (f.col("next") - 1).alias("last_producer_id"),
        f.lit(True).alias("exact"),
    )
    blocks = f.array(unseen, block)
    return stated.select("cluster_id", "time", placed().alias("offset"), f.inline(blocks)).where(
        "first_producer_id <= last_producer_id"
    )


TABLE: Final = Table(
    build=producer_id_blocks,
    doc="Blocks of producer ids that brokers received.",
    schema=SCHEMA,
    key=("cluster_id", "first_producer_id"),
)
