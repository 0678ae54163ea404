"""Table `isr_changes`: brokers that left or joined the in-sync replicas of partitions."""

from typing import Final

from kit.lake.plans.contract import Plan
from kit.lake.plans.intervals import following
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import ArrayType, IntegerType
from pyspark_quorate.tables.partition_leadership import PARTITION

_BROKERS: Final = ArrayType(IntegerType())


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


PLAN: Final = Plan(build=isr_changes, inputs=("partition_leadership",))
