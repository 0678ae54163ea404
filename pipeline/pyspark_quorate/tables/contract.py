"""The contract of a table: name, columns, and part of the fold; and the lines that the fold applies.

One fold over a cluster's timeline makes all tables of the cluster. Each part of the fold applies the lines of the
record types that it names, keeps what its open rows need, and appends rows when they are complete. A part may need
other parts, which apply each line before it does. Several tables may share a part.
"""

from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from pyspark_quorate.tables.evidence import Evidence

GAP_ORDINAL: Final = -(2**31)

Fields = Mapping[str, Any]
"""The fields of a record, by their names in Kafka's schema."""


class Line(NamedTuple):
    """A record that took effect, a line of a snapshot, or the end of a gap; ordered by offset and ordinal."""

    offset: int
    """The record's offset; for a snapshot, its end offset: its state is that before the record at this offset."""
    ordinal: int
    """Orders lines of one offset: `GAP_ORDINAL` for a gap, below 0 for a snapshot, 0 for the log."""
    epoch: int | None
    time_us: int | None
    """When the active controller appended it, in microseconds since 1970."""
    type: str
    """The record's name; :data:`pyspark_quorate.rows.GAP` where offsets are missing right before `offset`."""
    fields: Fields
    run: int
    """The index of its :class:`pyspark_quorate.tables.evidence.Run`, from 0."""
    is_snapshot: bool = False
    """Whether the line is part of a complete state and not a change."""

    @property
    def placed(self) -> int:
        """The offset; for a snapshot, that of the last record in it."""
        return self.offset - self.is_snapshot


class GapEnds:
    """The ends of gaps up to the current line. A gap that a snapshot bridges ends at the snapshot's place."""

    def __init__(self) -> None:
        self._ends: list[int] = []

    @property
    def count(self) -> int:
        """The number of gaps so far."""
        return len(self._ends)

    def gap(self, offset: int) -> None:
        """Add a gap that ends right before this offset."""
        self._ends.append(offset)

    def bridge(self, offset: int) -> None:
        """Place the gap that ends at this offset before the snapshot that bridges it."""
        if self._ends and self._ends[-1] == offset:
            self._ends[-1] = offset - 1

    def is_within(self, from_offset: int, to_offset: int | None) -> bool:
        """Whether a gap ends after `from_offset` and at or before `to_offset`. None: no upper bound."""
        after = bisect_right(self._ends, from_offset)
        until = len(self._ends) if to_offset is None else bisect_right(self._ends, to_offset)
        return after < until


def name_of(kind: type[IntEnum], number: int) -> str:
    """Return the name of the enum's member with this number; the number as text if the enum has no such member."""
    return _names(kind).get(number, str(number))


@cache
def _names(kind: type[IntEnum]) -> dict[int, str]:
    return {int(member): member.name for member in kind}


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
