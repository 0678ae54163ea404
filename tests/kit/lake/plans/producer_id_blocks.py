"""Table `producer_id_blocks`: blocks of producer ids that brokers received for their clients."""

from typing import Final

from kit.lake.plans.contract import Plan
from kit.lake.plans.intervals import of_key, placed
from kit.lake.plans.timeline import field, records_of
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f
from pyspark_quorate.tables.producer_id_blocks import PRODUCER_ID_BLOCK_SIZE


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


PLAN: Final = Plan(build=producer_id_blocks)
