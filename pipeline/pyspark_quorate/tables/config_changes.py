"""Table `config_changes`: changes of dynamic configs of topics, brokers, groups and client metrics."""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import BooleanType, StringType
from quorate_protocol.kafka.enums import ConfigResourceType

from pyspark_quorate.rows import CLUSTER_ID, column, nullable, schema
from pyspark_quorate.source.redaction import REDACTED
from pyspark_quorate.tables.contract import Table
from pyspark_quorate.tables.intervals import CHANGE_COLUMNS, boundaries, intervals, of_key, placed
from pyspark_quorate.tables.timeline import breaks, events_of, field, name_of
from pyspark_quorate.tables.topics import topic_ends

SCHEMA: Final = schema(
    CLUSTER_ID,
    *CHANGE_COLUMNS,
    column("resource_type", StringType(), "what is configured: TOPIC, BROKER, GROUP, CLIENT_METRICS"),
    column("resource_name", StringType(), "topic, broker id or group; empty: the default of all brokers"),
    column("name", StringType(), "name of the config"),
    nullable("old_value", StringType(), "null: it had none, or it is unknown"),
    nullable("new_value", StringType(), "null: deleted, or its topic was deleted"),
    column(
        "exact",
        BooleanType(),
        "false: a gap, or what was before history began, hides when it was, at or before `time`, "
        "and whether there were more",
    ),
)
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


TABLE: Final = Table(
    build=config_changes,
    doc="Changes of dynamic configs. Kafka does not record by whom. Secrets are redacted.",
    schema=SCHEMA,
    key=(*_KEY, "offset"),
)
