"""Table `topics`: topics created, deleted, and created again under the same name."""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f
from pyspark.sql.types import IntegerType, StringType

from pyspark_quorate.rows import CLUSTER_ID, column, nullable, schema
from pyspark_quorate.tables.contract import Table
from pyspark_quorate.tables.intervals import INTERVAL_COLUMNS, intervals, of_key
from pyspark_quorate.tables.timeline import breaks, events_of, field, records_of

SCHEMA: Final = schema(
    CLUSTER_ID,
    column("topic", StringType(), "name of the topic"),
    column("topic_id", StringType(), "its id, never reused: 22 characters of base64"),
    nullable("partitions", IntegerType(), "its last number of partitions; null: unknown"),
    nullable("previous_topic_id", StringType(), "the previous topic of the same name; null: none known"),
    *INTERVAL_COLUMNS,
)


def topics(lines: DataFrame) -> DataFrame:
    """The table, from the timeline."""
    events = events_of(
        lines, "TopicRecord", topic_id=_topic_id(), topic=field("name", "string"), removed=f.lit(False)
    )
    ends = topic_ends(lines).withColumn("removed", f.lit(True)).withColumn("is_snapshot", f.lit(False))
    lives = intervals(
        events.unionByName(ends), breaks(lines), key=["cluster_id", "topic_id"], state=["topic"]
    )
    by_name = Window.partitionBy("cluster_id", "topic").orderBy("from_offset", "topic_id")
    partitions = (
        records_of(lines, "PartitionRecord")
        .groupBy("cluster_id", _topic_id().alias("topic_id"))
        .agg((f.max(field("partitionId", "int")) + 1).alias("partitions"))
    )
    return lives.withColumn("previous_topic_id", f.lag("topic_id").over(by_name)).join(
        partitions, ["cluster_id", "topic_id"], "left"
    )


def topic_names(lines: DataFrame) -> DataFrame:
    """cluster_id, topic_id, topic: of all topics ever created."""
    named = events_of(lines, "TopicRecord", topic_id=_topic_id(), topic=field("name", "string"))
    return named.select("cluster_id", "topic_id", "topic").dropDuplicates(["cluster_id", "topic_id"])


def topic_ends(lines: DataFrame) -> DataFrame:
    """cluster_id, topic_id, topic (or null), time, offset, ordinal: where the log shows that a topic was deleted.

    A record that gives a topic's name to another topic shows it too: the RemoveTopicRecord is then in a gap. A topic
    that ended before such a record may end there once more.
    """
    place = ["cluster_id", "topic_id", "time", "offset", "ordinal"]
    removed = events_of(lines, "RemoveTopicRecord", topic_id=_topic_id()).select(*place)
    by_name = of_key("cluster_id", "topic")
    replaced = (
        events_of(lines, "TopicRecord", topic_id=_topic_id(), topic=field("name", "string"))
        .withColumn("previous", f.lag("topic_id").over(by_name))
        # A snapshot is complete: it ends all topics that it lacks.
        .where("not is_snapshot and previous != topic_id")
        .withColumn("topic_id", f.col("previous"))
        .select(*place, "topic")
    )
    named = removed.join(topic_names(lines), ["cluster_id", "topic_id"], "left")
    return named.unionByName(replaced)


def _topic_id() -> Column:
    return field("topicId", "string")


TABLE: Final = Table(
    build=topics,
    doc="Topics from creation to deletion, and the previous topic of the same name.",
    schema=SCHEMA,
    key=("cluster_id", "topic_id", "from_offset"),
)
