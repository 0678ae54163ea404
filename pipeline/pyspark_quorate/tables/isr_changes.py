"""Table `isr_changes`: brokers that left or joined the in-sync replicas of partitions."""

from typing import Final

from pyspark.sql.types import ArrayType, BooleanType, IntegerType, StringType

from pyspark_quorate.rows import column, schema
from pyspark_quorate.tables.contract import Table
from pyspark_quorate.tables.intervals import CHANGE_COLUMNS, Interval
from pyspark_quorate.tables.partition_leadership import (
    PARTITION,
    PARTITION_COLUMNS,
    PartitionRows,
    PartitionState,
)

_BROKERS: Final = ArrayType(IntegerType())

SCHEMA: Final = schema(
    *PARTITION_COLUMNS,
    *CHANGE_COLUMNS,
    column("change", StringType(), "shrink, expand, or swap where some left and others joined"),
    column("left", _BROKERS, "broker ids that are no longer in sync, sorted"),
    column("joined", _BROKERS, "broker ids that are in sync now, sorted"),
    column("isr", _BROKERS, "broker ids of the in-sync replicas after it"),
    column("replicas", _BROKERS, "broker ids of the replicas after it"),
    column("leader_before", IntegerType(), "broker id of the leader before it, -1 without one"),
    column("leader", IntegerType(), "broker id of the leader after it, -1 without one"),
    column("leader_changed", BooleanType(), "whether the leader is another one"),
    column(
        "exact",
        BooleanType(),
        "false: the time is hidden by a gap and is at or before `time`; there may have been more changes",
    ),
)


class IsrChanges(PartitionRows):
    """The state of the table: it compares each interval of a partition with the one right before it."""

    def end_interval(self, interval: Interval, previous: Interval | None, is_followed: bool) -> None:  # noqa: ARG002
        """Add a row if brokers left or joined."""
        if previous is None:
            return
        before, after = PartitionState(*previous.state), PartitionState(*interval.state)
        left, joined = set(before.isr) - set(after.isr), set(after.isr) - set(before.isr)
        if not left and not joined:
            return
        change = "shrink" if not joined else "expand" if not left else "swap"
        self.add(
            interval.key,
            interval.valid_from,
            interval.from_offset,
            change,
            sorted(left),
            sorted(joined),
            after.isr,
            after.replicas,
            before.leader,
            after.leader,
            after.leader != before.leader,
            interval.from_exact,
        )


TABLE: Final = Table(
    name="isr_changes",
    fold=IsrChanges,
    doc="Each change of the in-sync replicas of a partition: who left, who joined, and who led before and after.",
    schema=SCHEMA,
    key=(*PARTITION, "offset"),
)
