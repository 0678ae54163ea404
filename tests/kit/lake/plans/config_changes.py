"""Table `config_changes`: changes of dynamic configs of topics, brokers, groups and client metrics."""

from typing import Final

from kit.lake.plans.contract import Plan
from kit.lake.plans.intervals import boundaries, intervals, of_key, placed
from kit.lake.plans.timeline import breaks, events_of, field, name_of
from kit.lake.plans.topics import topic_ends
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark_quorate.source.redaction import REDACTED
from quorate_protocol.kafka.enums import ConfigResourceType

_KEY: Final = ("cluster_id", "resource_type", "resource_name", "name")


def config_changes(lines: DataFrame) -> DataFrame:
    """The table, from the timeline. Setting the same value is no change, except for secrets, which look alike."""
    secret_set = (f.col("value") == REDACTED) & ~f.col("is_snapshot")
    order = of_key(*_KEY)
    # The last record in a snapshot has set the secret that the snapshot has.
    just_set = f.col("is_snapshot") & (f.lag("offset").over(order) == placed())
    stated = events_of(
        lines,
        "ConfigRecord",
        resource_type=name_of(ConfigResourceType, field("resourceType", "int")),
        resource_name=field("resourceName", "string"),
        name=field("name", "string"),
        value=field("value", "string"),
    )
    events = (
        stated.unionByName(_gone_with_topics(stated, lines))
        .withColumn("set_offset", f.when(secret_set, f.col("offset")))
        .withColumn(
            "set_offset", f.when(just_set, f.lag("set_offset").over(order)).otherwise(f.col("set_offset"))
        )
        .withColumn("removed", f.col("value").isNull())
    )
    state = ("value", "set_offset")
    lives = intervals(events, breaks(lines), key=_KEY, state=state)
    changed = boundaries(lives, key=_KEY, state=state)
    return changed.where(~_is_same_secret()).select(
        *_KEY,
        "time",
        "offset",
        f.col("before.value").alias("old_value"),
        f.col("after.value").alias("new_value"),
        "exact",
    )


def _is_same_secret() -> Column:
    """A snapshot contains a secret that existed before: whether it is the same one is unknown."""
    same = f.col("before.value") == f.col("after.value")
    return f.coalesce(same & f.col("after.set_offset").isNull(), f.lit(False))


def _gone_with_topics(stated: DataFrame, lines: DataFrame) -> DataFrame:
    """Deleting a topic deletes its configs, without records of their own (ConfigurationsDelta.deleteTopic)."""
    of_topics = stated.where(f.col("resource_type") == ConfigResourceType.TOPIC.name)
    ends = topic_ends(lines).drop("topic_id").withColumnRenamed("topic", "resource_name")
    return (
        of_topics.select(*_KEY)
        .distinct()
        .join(ends, ["cluster_id", "resource_name"])
        .withColumns({"value": f.lit(None).cast("string"), "is_snapshot": f.lit(False)})
        .select(*stated.columns)
    )


PLAN: Final = Plan(build=config_changes)
