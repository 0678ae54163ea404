"""The contract of a table: its name, its columns, and the part of the fold that makes its rows.

One fold over a cluster's timeline makes all tables of the cluster. Each part of the fold applies the lines of the
record types that it names, keeps what its open rows need, and appends rows when they are complete. A part may need
other parts, which apply each line before it does. Several tables may share a part.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from pyspark.sql.types import StructType

from pyspark_quorate.tables.lines import GapEnds, Line

if TYPE_CHECKING:
    from pyspark_quorate.tables.evidence import Evidence

Row = tuple[Any, ...]
"""The columns of a table's schema but cluster_id, in order. Times are microseconds since 1970, structs are tuples."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """The data that all parts of the fold of one cluster share."""

    evidence: "Evidence"
    gap_ends: GapEnds


class Fold:
    """A part of the fold: the state of one table, or one that several tables share. Pure: no session, no clock."""

    TYPES: ClassVar[tuple[str, ...]] = ()
    """The record types whose lines `step` applies."""
    NEEDS: ClassVar[tuple[type["Fold"], ...]] = ()
    """The parts that this one needs. They are passed to the constructor after the cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.rows: list[Row] = []
        """The complete rows that were not drained yet."""

    def step(self, line: Line) -> None:
        """Apply the next line of one of the types."""

    def step_epoch(self, line: Line) -> None:
        """Apply the first line of an epoch in the log, whatever its type."""

    def gap(self, offset: int) -> None:
        """Offsets are missing right before this one."""

    def begin_snapshot(self, line: Line) -> None:
        """A snapshot's lines follow: its complete state. `line` is its header."""

    def end_snapshot(self) -> None:
        """The snapshot's lines are complete."""

    def finish(self) -> None:
        """Complete the open rows, because there are no more lines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table of the lake. Each column's documentation is its field's comment.

    `fold` makes its rows; None for `records`, which are the rows of the source. `key` identifies a row. In tables of
    intervals it ends with from_offset: intervals of the same key do not overlap, and none is empty.
    """

    name: str
    doc: str
    schema: StructType
    key: tuple[str, ...]
    fold: Callable[..., Fold] | None

    @property
    def day(self) -> str:
        """The timestamp by whose UTC day the stored table is partitioned, in addition to `cluster_id`."""
        return "valid_from" if "valid_from" in self.schema.names else "time"
