"""The data source as Spark calls it."""

from pathlib import Path

import pyspark_quorate
from kit.lake.directories import write_directory
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark_quorate import rows

CLUSTERS = 1_000
GOLDEN = Path(__file__).parents[2] / "golden" / "data"


def test_directories_of_stock_kafka_become_rows(spark: SparkSession) -> None:
    """Stock Kafka's files can be read by name of the format, with and without filters that are pushed down."""
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


def test_a_thousand_small_clusters_are_one_job_of_few_tasks(spark: SparkSession, tmp_path: Path) -> None:
    log = (GOLDEN / "current" / f"{0:020d}.log").read_bytes()[:6_000]
    for number in range(CLUSTERS):
        write_directory(tmp_path / str(number), {0: log}, f"cluster-{number}")
    frame = spark.read.format("quorate").load(str(tmp_path))
    counted = frame.groupBy("kind").agg(
        f.count("*"), f.countDistinct("cluster_id"), f.count_distinct("source")
    )
    found = {kind: tuple(counts) for kind, *counts in counted.collect()}
    assert found[rows.LOG][0] % CLUSTERS == 0
    assert found[rows.LOG][1:] == found[rows.GAP][1:] == (CLUSTERS, CLUSTERS)
    assert frame.rdd.getNumPartitions() < CLUSTERS / 100
