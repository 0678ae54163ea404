"""Table `topics`: topics created, deleted, and created again under the same name."""

from typing import Final

from kit.lake.plans.contract import Plan
from kit.lake.plans.intervals import intervals, of_key
from kit.lake.plans.timeline import breaks, events_of, field, records_of
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f


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


PLAN: Final = Plan(build=topics)
