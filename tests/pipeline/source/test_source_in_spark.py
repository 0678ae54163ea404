"""The data source as Spark calls it."""

from pathlib import Path

import pyspark_quorate
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark_quorate import rows

GOLDEN = Path(__file__).parents[2] / "golden" / "data"


def test_directories_of_stock_kafka_become_rows(spark: SparkSession) -> None:
    """Goal: stock Kafka's files can be read by name of the format, with and without filters that are pushed down.

    Method: the captured directories; the module registers itself; then the same query with `register`.
    """
    frame = spark.read.format("quorate").load(str(GOLDEN))
    assert frame.schema.names == rows.SCHEMA.names
    everything = {(row.source, row.kind, row.offset, row.ordinal, row.type): row for row in frame.collect()}
    assert len(everything) == frame.count()
    topics = [row for row in everything.values() if row.type == "TopicRecord" and row.kind == "log"]
    assert topics
    assert all(row.time.microsecond % 1000 == 0 for row in topics)
    parsed = frame.where("kind = 'log'").select(f.parse_json("payload").alias("v"), "type")
    names = parsed.where("type = 'TopicRecord'").select(f.variant_get("v", "$.name", "string")).collect()
    assert {"first"} <= {name for (name,) in names}

    pyspark_quorate.register(spark)
    condition = (
        "type in ('TopicRecord', 'PartitionRecord') and kind = 'log' and offset >= 20 and offset < 150"
    )
    pushed = spark.read.format("quorate").load(str(GOLDEN)).where(condition)
    expected = [row for row in everything.values() if row.type in ("TopicRecord", "PartitionRecord")]
    expected = [row for row in expected if row.kind == "log" and 20 <= row.offset < 150]
    assert sorted(pushed.collect()) == sorted(expected)
    plan = pushed._jdf.queryExecution().executedPlan().toString()
    assert " Filter " not in plan, plan
