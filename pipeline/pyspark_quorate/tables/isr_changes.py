"""Table `isr_changes`: brokers that left or joined the in-sync replicas of partitions."""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import ArrayType, BooleanType, IntegerType, StringType

from pyspark_quorate.rows import column, schema
from pyspark_quorate.tables.contract import Table
from pyspark_quorate.tables.intervals import CHANGE_COLUMNS, following
from pyspark_quorate.tables.partition_leadership import PARTITION, PARTITION_COLUMNS

_BROKERS: Final = ArrayType(IntegerType())

SCHEMA: Final = schema(
    *PARTITION_COLUMNS,
    *CHANGE_COLUMNS,
    column("change", StringType(), "shrink, expand, or swap where some left and others joined"),
    column("left", _BROKERS, "broker ids that are no longer in sync, sorted"),
    column("joined", _BROKERS, "broker ids that are in sync now, sorted"),
    column("isr", _BROKERS, "broker ids of the in-sync replicas after it"),
    column("replicas", _BROKERS, "broker ids of the replicas after it"),
    column("leader_before", IntegerType(), "broker id of the leader before it, -1 without one"),
    column("leader", IntegerType(), "broker id of the leader after it, -1 without one"),
    column("leader_changed", BooleanType(), "whether the leader is another one"),
    column(
        "exact",
        BooleanType(),
        "false: the time is hidden by a gap and is at or before `time`; there may have been more changes",
    ),
)


def isr_changes(leadership: DataFrame) -> DataFrame:
    """The table, from partition_leadership."""
    order = following(PARTITION)
    before = f.lag("isr").over(order)
    compared = leadership.withColumns(
        {
            "leader_before": f.lag("leader").over(order),
            "left": f.array_sort(f.array_except(before, "isr")),
            "joined": f.array_sort(f.array_except("isr", before)),
            "continues": f.lag("to_offset").over(order) == f.col("from_offset"),
        }
    )
    change = f.when(f.size("joined") == 0, "shrink").when(f.size("left") == 0, "expand").otherwise("swap")
    return compared.where("continues and (size(left) > 0 or size(joined) > 0)").select(
        *PARTITION,
        "topic",
        f.col("valid_from").alias("time"),
        f.col("from_offset").alias("offset"),
        change.alias("change"),
        "left",
        "joined",
        "isr",
        "replicas",
        "leader_before",
        "leader",
        (f.col("leader") != f.col("leader_before")).alias("leader_changed"),
        f.col("from_exact").alias("exact"),
    )


TABLE: Final = Table(
    build=isr_changes,
    doc="Each change of the in-sync replicas of a partition: who left, who joined, and who led before and after.",
    schema=SCHEMA,
    inputs=("partition_leadership",),
    key=(*PARTITION, "offset"),
)
