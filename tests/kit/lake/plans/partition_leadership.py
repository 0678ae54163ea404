"""Table `partition_leadership`: leader, in-sync replicas and the other state of partitions, over time.

A PartitionRecord is complete, a PartitionChangeRecord has only changes (PartitionRegistration.merge), so each field
keeps its value until the next record that has it. Change records have no epochs: these are counted from the
PartitionRecord on, and unknown after a gap without a snapshot.
"""

from typing import Final

from kit.lake.plans.contract import Plan
from kit.lake.plans.intervals import carried, count_so_far, intervals, of_key
from kit.lake.plans.timeline import PLACE, breaks, field, records_of
from kit.lake.plans.topics import topic_ends, topic_names
from pyspark.sql import Column, DataFrame, WindowSpec
from pyspark.sql import functions as f
from pyspark_quorate.tables.intervals import INTERVAL_COLUMNS
from pyspark_quorate.tables.partition_leadership import PARTITION, PARTITION_COLUMNS, SCHEMA
from quorate_protocol.image import NO_LEADER_CHANGE
from quorate_protocol.kafka.enums import LeaderRecoveryState

_STATE: Final = tuple(one.name for one in SCHEMA if one not in {*PARTITION_COLUMNS, *INTERVAL_COLUMNS})

_RECORD: Final = "PartitionRecord"
_CHANGE: Final = "PartitionChangeRecord"
_CLEAR: Final = "ClearElrRecord"
_END: Final = "end"
_FIELDS: Final = {
    "leader": ("leader", "int"),
    "recovery": ("leaderRecoveryState", "int"),
    "isr": ("isr", "array<int>"),
    "replicas": ("replicas", "array<int>"),
    "adding_replicas": ("addingReplicas", "array<int>"),
    "removing_replicas": ("removingReplicas", "array<int>"),
    "elr": ("eligibleLeaderReplicas", "array<int>"),
    "last_known_elr": ("lastKnownElr", "array<int>"),
}
"""Columns by name: the record's field and SQL type. Null: not in this record; a leader can be "none"."""


def partition_leadership(lines: DataFrame) -> DataFrame:
    """The table, from the timeline."""
    stated = _stated(lines)
    events = _merged(stated.unionByName(_ends(stated, lines)).unionByName(_clearings(stated, lines)))
    lives = intervals(events, breaks(lines), key=PARTITION, state=_STATE)
    return lives.join(topic_names(lines), ["cluster_id", "topic_id"], "left")


def _stated(lines: DataFrame) -> DataFrame:
    """The fields of PartitionRecords, which have all of them, and of PartitionChangeRecords."""
    of_record = f.col("type") == _RECORD
    stated = records_of(lines, _RECORD, _CHANGE).select(
        "cluster_id",
        field("topicId", "string").alias("topic_id"),
        field("partitionId", "int").alias("partition"),
        *(*PLACE, "run", "type"),
        field("leaderEpoch", "int").alias("record_leader_epoch"),
        field("partitionEpoch", "int").alias("record_partition_epoch"),
        *(field(path, kind).alias(name) for name, (path, kind) in _FIELDS.items()),
        f.lit(None).cast("bigint").alias("since_offset"),
    )
    nobody = f.array().cast("array<int>")
    return (
        stated.withColumn(
            "leader", f.when(of_record | (f.col("leader") != NO_LEADER_CHANGE), f.col("leader"))
        )
        .withColumn("recovery", f.when(f.col("recovery") >= 0, f.col("recovery")))
        .withColumn("elr", f.coalesce("elr", f.when(of_record, nobody)))
        .withColumn("last_known_elr", f.coalesce("last_known_elr", f.when(of_record, nobody)))
    )


def _ends(stated: DataFrame, lines: DataFrame) -> DataFrame:
    """The ends of partitions of deleted topics."""
    partitions = stated.where(f.col("type") == _RECORD).select(*PARTITION).distinct()
    ends = topic_ends(lines).drop("topic").join(partitions, ["cluster_id", "topic_id"])
    return _like(
        stated,
        ends.select("*", f.lit(_END).alias("type"), f.lit(False).alias("is_snapshot"), f.lit(0).alias("run")),
    )


def _clearings(stated: DataFrame, lines: DataFrame) -> DataFrame:
    """ClearElrRecords as events of each partition that ever had eligible leader replicas.

    Such a record has the name of its topic, or no name for all topics. `since_offset` is that of the snapshot before
    it: partitions without a record since then no longer existed.
    """
    named = (
        records_of(lines, "TopicRecord", _CLEAR)
        .withColumn(
            "name",
            f.when(f.col("type") == _CLEAR, field("topicName", "string")).otherwise(field("name", "string")),
        )
        .withColumn("topic_id", carried(field("topicId", "string"), of_key("cluster_id", "name")))
        .where(f.col("type") == _CLEAR)
    )
    snapshots = breaks(lines).where("is_snapshot").select("cluster_id", f.col("offset").alias("snapshot"))
    placed = (
        named.join(
            f.broadcast(snapshots),
            (named["cluster_id"] == snapshots["cluster_id"]) & (snapshots["snapshot"] <= named["offset"]),
            "left",
        )
        .groupBy(named["cluster_id"], "name", "topic_id", *PLACE, "run", "type")
        .agg(f.max("snapshot").alias("since_offset"))
    )
    eligible = (
        stated.where((f.size("elr") > 0) | (f.size("last_known_elr") > 0)).select(*PARTITION).distinct()
    )
    of_topic = placed.where("name != ''").join(eligible, ["cluster_id", "topic_id"])
    of_all = placed.where("name = ''").drop("topic_id").join(eligible, "cluster_id")
    nobody = f.array().cast("array<int>")
    return _like(
        stated,
        of_topic.unionByName(of_all)
        .drop("name")
        .withColumn("elr", nobody)
        .withColumn("last_known_elr", nobody),
    )


def _like(stated: DataFrame, events: DataFrame) -> DataFrame:
    """`events` with the columns of `stated`; missing columns are null."""
    return events.select(
        *(
            (f.col(one.name) if one.name in events.columns else f.lit(None))
            .cast(one.dataType)
            .alias(one.name)
            for one in stated.schema.fields
        )
    )


def _merged(stated: DataFrame) -> DataFrame:
    """Every event with the complete state after it, as input of :func:`intervals`."""
    order = of_key(*PARTITION)
    is_base = f.col("type").isin(_RECORD, _END)
    base = f.struct("type", "offset", "run")
    filled = stated.withColumns(
        {
            "names_leader": (f.col("type") == _CHANGE) & f.col("leader").isNotNull(),
            "base": carried(f.when(is_base, base), order),
            **{name: carried(f.col(name), order) for name in _FIELDS},
        }
    ).where(
        is_base
        | (
            (f.col("base.type") == _RECORD)
            & (f.col("since_offset").isNull() | (f.col("base.offset") >= f.col("since_offset")))
        )
    )
    # Kafka skips partitions without eligible leader replicas when it clears them (TopicDelta).
    had_some = (f.size(f.lag("elr").over(order)) > 0) | (f.size(f.lag("last_known_elr").over(order)) > 0)
    effective = filled.withColumn("had_some", had_some).where((f.col("type") != _CLEAR) | f.col("had_some"))
    counts = {"leaders": count_so_far(f.col("names_leader"), order), "changes": count_so_far(~is_base, order)}
    counted = effective.withColumns(counts)
    return counted.select(
        *PARTITION,
        "leader",
        _epoch("record_leader_epoch", "leaders", order).alias("leader_epoch"),
        _epoch("record_partition_epoch", "changes", order).alias("partition_epoch"),
        f.when(f.col("recovery") == int(LeaderRecoveryState.RECOVERING), LeaderRecoveryState.RECOVERING.name)
        .otherwise(LeaderRecoveryState.RECOVERED.name)
        .alias("leader_recovery_state"),
        *(name for name in _FIELDS if name not in {"leader", "recovery"}),
        *PLACE,
        (f.col("type") == _END).alias("removed"),
    )


def _epoch(stated: str, count: str, order: WindowSpec) -> Column:
    """The epoch of the last PartitionRecord plus the changes since; null if offsets in between are missing."""
    start = carried(f.col(stated) - f.col(count), order)
    return f.when(f.col("run") == f.col("base.run"), start + f.col(count))


PLAN: Final = Plan(build=partition_leadership)
