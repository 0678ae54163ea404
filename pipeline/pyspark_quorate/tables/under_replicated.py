"""Partitions at risk: with fewer in-sync replicas than replicas, or without a leader.

Replicas that a reassignment is adding do not count until it is done: that is Kafka's own measure
(OngoingReassignmentState.replicationFactor, Partition.isUnderReplicated, kafka-topics --under-replicated-partitions).
"""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import ArrayType, BooleanType, IntegerType
from quorate_protocol.image import NO_LEADER

from pyspark_quorate.rows import column, schema
from pyspark_quorate.tables.contract import Table
from pyspark_quorate.tables.intervals import INTERVAL_COLUMNS, following
from pyspark_quorate.tables.partition_leadership import PARTITION, PARTITION_COLUMNS

SCHEMA: Final = schema(
    *PARTITION_COLUMNS,
    column("is_under_replicated", BooleanType(), "fewer in-sync replicas than replicas"),
    column("is_offline", BooleanType(), "no leader: nobody can read or write"),
    column("isr_size_min", IntegerType(), "the smallest number of in-sync replicas within"),
    column("replication_factor", IntegerType(), "the largest number of replicas within"),
    column(
        "missing",
        ArrayType(IntegerType()),
        "broker ids of replicas that were not in sync at some time within, sorted",
    ),
    *INTERVAL_COLUMNS,
)


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


TABLE: Final = Table(
    build=under_replicated,
    doc="When partitions had fewer in-sync replicas than replicas, or no leader.",
    schema=SCHEMA,
    inputs=("partition_leadership",),
    key=(*PARTITION, "from_offset"),
)
