"""Partitions at risk: with fewer in-sync replicas than replicas, or without a leader.

Replicas that a reassignment is adding do not count until it is done. This is Kafka's own definition
(OngoingReassignmentState.replicationFactor, Partition.isUnderReplicated, kafka-topics --under-replicated-partitions).
"""

from dataclasses import dataclass
from typing import Final

from pyspark.sql.types import ArrayType, BooleanType, IntegerType
from quorate_protocol.image import NO_LEADER

from pyspark_quorate.rows import column, schema
from pyspark_quorate.tables.contract import Cluster, Table
from pyspark_quorate.tables.intervals import INTERVAL_COLUMNS, Interval, Key
from pyspark_quorate.tables.partition_leadership import (
    PARTITION,
    PARTITION_COLUMNS,
    PartitionIntervals,
    PartitionRows,
    PartitionState,
)

SCHEMA: Final = schema(
    *PARTITION_COLUMNS,
    column("is_under_replicated", BooleanType(), "fewer in-sync replicas than replicas"),
    column("is_offline", BooleanType(), "no leader: clients can neither read nor write"),
    column("isr_size_min", IntegerType(), "the smallest number of in-sync replicas within"),
    column("replication_factor", IntegerType(), "the largest number of replicas within"),
    column(
        "missing",
        ArrayType(IntegerType()),
        "broker ids of replicas that were not in sync at some time within, sorted",
    ),
    *INTERVAL_COLUMNS,
)


@dataclass(slots=True)
class _Risk:
    """Adjacent intervals of a partition with the same kind of risk, merged."""

    first: Interval
    last: Interval
    is_under_replicated: bool
    is_offline: bool
    isr_size_min: int
    replication_factor: int
    missing: set[int]
    through_gap: bool

    @classmethod
    def of(cls, interval: Interval) -> "_Risk":
        """The risk within one interval of a partition."""
        state = PartitionState(*interval.state)
        counted = set(state.replicas) - set(state.adding_replicas)
        return cls(
            first=interval,
            last=interval,
            is_under_replicated=len(state.isr) < len(counted),
            is_offline=state.leader == NO_LEADER,
            isr_size_min=len(state.isr),
            replication_factor=len(counted),
            missing=counted - set(state.isr),
            through_gap=interval.through_gap,
        )

    @property
    def is_any(self) -> bool:
        """Whether the partition is at risk."""
        return self.is_under_replicated or self.is_offline

    def add(self, other: "_Risk") -> None:
        """Merge the next interval into this one."""
        self.last = other.last
        self.isr_size_min = min(self.isr_size_min, other.isr_size_min)
        self.replication_factor = max(self.replication_factor, other.replication_factor)
        self.missing |= other.missing
        self.through_gap |= other.through_gap


class UnderReplicated(PartitionRows):
    """The state of the table: for each partition that is at risk, the row that is still open."""

    def __init__(self, cluster: Cluster, partitions: PartitionIntervals) -> None:
        super().__init__(cluster, partitions)
        self._open: dict[Key, _Risk] = {}

    def end_interval(self, interval: Interval, previous: Interval | None, is_followed: bool) -> None:
        """Begin, continue or complete the row of a partition."""
        now, known = _Risk.of(interval), self._open.pop(interval.key, None)
        if known is not None:
            is_same = (known.is_under_replicated, known.is_offline) == (
                now.is_under_replicated,
                now.is_offline,
            )
            if previous is not None and is_same:
                known.add(now)
                now = known
            else:
                self._complete(interval.key, known)
        if not now.is_any:
            return
        if is_followed:
            self._open[interval.key] = now
        else:
            self._complete(interval.key, now)

    def _complete(self, key: Key, risk: _Risk) -> None:
        last = risk.last
        span = risk.first._replace(
            valid_to=last.valid_to,
            to_offset=last.to_offset,
            to_exact=last.to_exact,
            through_gap=risk.through_gap,
        ).span
        state = (risk.is_under_replicated, risk.is_offline, risk.isr_size_min, risk.replication_factor)
        self.add(key, *state, sorted(risk.missing), *span)


TABLE: Final = Table(
    name="under_replicated",
    fold=UnderReplicated,
    doc="When partitions had fewer in-sync replicas than replicas, or no leader.",
    schema=SCHEMA,
    key=(*PARTITION, "from_offset"),
)
