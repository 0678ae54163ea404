"""Partitions at risk: with fewer in-sync replicas than replicas, or without a leader.

Replicas that a reassignment is adding do not count until it is done: that is Kafka's own measure
(OngoingReassignmentState.replicationFactor, Partition.isUnderReplicated, kafka-topics --under-replicated-partitions).
"""

from typing import Final

from kit.lake.plans.contract import Plan
from kit.lake.plans.intervals import following
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark_quorate.tables.partition_leadership import PARTITION
from quorate_protocol.image import NO_LEADER


def under_replicated(leadership: DataFrame) -> DataFrame:
    """The table, from partition_leadership: adjacent intervals with equal flags are merged."""
    counted = f.array_except("replicas", "adding_replicas")
    order = following(PARTITION)
    flags = f.struct("is_under_replicated", "is_offline")
    states = (
        leadership.withColumn("replication_factor", f.size(counted))
        .withColumn("isr_size", f.size("isr"))
        .withColumn("missing", f.array_except(counted, "isr"))
        .withColumn("is_under_replicated", f.col("isr_size") < f.col("replication_factor"))
        .withColumn("is_offline", f.col("leader") == NO_LEADER)
        .withColumn(
            "continues",
            f.coalesce(
                (f.lag("to_offset").over(order) == f.col("from_offset"))
                & (f.lag(flags).over(order) == flags),
                f.lit(False),
            ),
        )
        .withColumn("stretch", f.sum((~f.col("continues")).cast("int")).over(order))
    )
    first, last = f.min_by, f.max_by
    return (
        states.where("is_under_replicated or is_offline")
        .groupBy(*PARTITION, "stretch", "is_under_replicated", "is_offline")
        .agg(
            f.first("topic").alias("topic"),
            f.min("isr_size").alias("isr_size_min"),
            f.max("replication_factor").alias("replication_factor"),
            f.array_sort(f.array_distinct(f.flatten(f.collect_list("missing")))).alias("missing"),
            first("valid_from", "from_offset").alias("valid_from"),
            last("valid_to", "from_offset").alias("valid_to"),
            f.min("from_offset").alias("from_offset"),
            last("to_offset", "from_offset").alias("to_offset"),
            first("from_exact", "from_offset").alias("from_exact"),
            last("to_exact", "from_offset").alias("to_exact"),
            f.max("through_gap").alias("through_gap"),
        )
    )


PLAN: Final = Plan(build=under_replicated, inputs=("partition_leadership",))
