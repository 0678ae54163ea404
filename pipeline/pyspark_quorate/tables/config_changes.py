"""Table `config_changes`: changes of dynamic configs of topics, brokers, groups and client metrics."""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f
from pyspark.sql.types import BooleanType, LongType, StringType, StructType, TimestampType
from quorate_protocol.kafka.enums import ConfigResourceType

from pyspark_quorate.rows import column
from pyspark_quorate.source.redaction import REDACTED
from pyspark_quorate.tables.contract import Table
from pyspark_quorate.tables.intervals import EVENT_COLUMNS, boundaries, intervals, placed
from pyspark_quorate.tables.timeline import breaks, field, name_of, records_of
from pyspark_quorate.tables.topics import topic_ends

SCHEMA: Final = StructType(
    [
        column("cluster_id", StringType(), "Kafka's cluster id"),
        column("time", TimestampType(), "when the active controller appended the change"),
        column(
            "offset",
            LongType(),
            "offset of the record, or of the last one in the snapshot that shows the change",
        ),
        column("resource_type", StringType(), "what is configured: TOPIC, BROKER, GROUP, CLIENT_METRICS"),
        column("resource_name", StringType(), "topic, broker id or group; empty: the default of all brokers"),
        column("name", StringType(), "name of the config"),
        column("old_value", StringType(), "null: it had none, or it is unknown", is_nullable=True),
        column("new_value", StringType(), "null: deleted, or its topic was deleted", is_nullable=True),
        column(
            "exact",
            BooleanType(),
            "false: a gap, or what was before history began, hides when it was, at or before `time`, "
            "and whether there were more",
        ),
    ]
)
_KEY: Final = ("cluster_id", "resource_type", "resource_name", "name")


def config_changes(lines: DataFrame) -> DataFrame:
    """The table, from the timeline. Setting the same value is no change, except for secrets, which look alike."""
    secret_set = (f.col("value") == REDACTED) & ~f.col("is_snapshot")
    order = Window.partitionBy(*_KEY).orderBy("offset", "ordinal")
    # The last record in a snapshot has set the secret that the snapshot has.
    just_set = f.col("is_snapshot") & (f.lag("offset").over(order) == placed(f.col("offset")))
    stated = records_of(lines, "ConfigRecord").select(
        "cluster_id",
        name_of(ConfigResourceType, field("resourceType", "int")).alias("resource_type"),
        field("resourceName", "string").alias("resource_name"),
        field("name", "string").alias("name"),
        field("value", "string").alias("value"),
        *(name for name in EVENT_COLUMNS if name != "removed"),
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
        .select(
            *_KEY,
            f.lit(None).cast("string").alias("value"),
            "time",
            "offset",
            "ordinal",
            f.lit(False).alias("is_snapshot"),
        )
    )


TABLE: Final = Table(
    name="config_changes",
    doc="Changes of dynamic configs. Kafka does not record by whom. Secrets are redacted.",
    schema=SCHEMA,
    inputs=("timeline",),
    key=(*_KEY, "offset"),
    day="time",
    build=config_changes,
)
