"""Table `topics`: topics created, deleted, and created again under the same name."""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f
from pyspark.sql.types import IntegerType, StringType, StructType

from pyspark_quorate.rows import column
from pyspark_quorate.tables.contract import Table
from pyspark_quorate.tables.intervals import EVENT_COLUMNS, INTERVAL_COLUMNS, intervals
from pyspark_quorate.tables.timeline import breaks, field, records_of

SCHEMA: Final = StructType(
    [
        column("cluster_id", StringType(), "Kafka's cluster id"),
        column("topic", StringType(), "name of the topic"),
        column("topic_id", StringType(), "its id, never reused: 22 characters of base64"),
        column(
            "partitions",
            IntegerType(),
            "its last number of partitions; null: unknown",
            is_nullable=True,
        ),
        column(
            "previous_topic_id",
            StringType(),
            "the previous topic of the same name; null: none known",
            is_nullable=True,
        ),
        *INTERVAL_COLUMNS,
    ]
)


def topics(lines: DataFrame) -> DataFrame:
    """The table, from the timeline."""
    events = records_of(lines, "TopicRecord").select(
        "cluster_id",
        _topic_id(),
        field("name", "string").alias("topic"),
        *(name for name in EVENT_COLUMNS if name != "removed"),
        f.lit(False).alias("removed"),
    )
    ends = topic_ends(lines).withColumn("removed", f.lit(True)).withColumn("is_snapshot", f.lit(False))
    lives = intervals(
        events.unionByName(ends), breaks(lines), key=["cluster_id", "topic_id"], state=["topic"]
    )
    by_name = Window.partitionBy("cluster_id", "topic").orderBy("from_offset", "topic_id")
    partitions = (
        records_of(lines, "PartitionRecord")
        .groupBy("cluster_id", _topic_id())
        .agg((f.max(field("partitionId", "int")) + 1).alias("partitions"))
    )
    return lives.withColumn("previous_topic_id", f.lag("topic_id").over(by_name)).join(
        partitions, ["cluster_id", "topic_id"], "left"
    )


def topic_names(lines: DataFrame) -> DataFrame:
    """cluster_id, topic_id, topic: of all topics ever created."""
    return (
        records_of(lines, "TopicRecord")
        .select("cluster_id", _topic_id(), field("name", "string").alias("topic"))
        .dropDuplicates(["cluster_id", "topic_id"])
    )


def topic_ends(lines: DataFrame) -> DataFrame:
    """cluster_id, topic_id, topic (or null), time, offset, ordinal: where the log shows that a topic was deleted.

    A record that gives a topic's name to another topic shows it too: the RemoveTopicRecord is then in a gap. A topic
    that ended before such a record may end there once more.
    """
    removed = (
        records_of(lines, "RemoveTopicRecord")
        .select("cluster_id", _topic_id(), "time", "offset", "ordinal")
        .join(topic_names(lines), ["cluster_id", "topic_id"], "left")
    )
    by_name = Window.partitionBy("cluster_id", "topic").orderBy("offset", "ordinal")
    replaced = (
        records_of(lines, "TopicRecord")
        .select(
            "cluster_id",
            _topic_id(),
            field("name", "string").alias("topic"),
            "time",
            "offset",
            "ordinal",
            "is_snapshot",
        )
        .withColumn("previous", f.lag("topic_id").over(by_name))
        # A snapshot is complete: it ends all topics that it lacks.
        .where("not is_snapshot and previous != topic_id")
        .select("cluster_id", f.col("previous").alias("topic_id"), "topic", "time", "offset", "ordinal")
    )
    return removed.unionByName(replaced)


def _topic_id() -> Column:
    return field("topicId", "string").alias("topic_id")


TABLE: Final = Table(
    name="topics",
    doc="Topics from creation to deletion, and the previous topic of the same name.",
    schema=SCHEMA,
    inputs=("timeline",),
    key=("cluster_id", "topic_id", "from_offset"),
    day="valid_from",
    build=topics,
)
