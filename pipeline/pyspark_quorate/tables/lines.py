"""The lines of a cluster's timeline, and the places where offsets are missing in it."""

from bisect import bisect_right
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

GAP_ORDINAL: Final = -(2**31)
SNAPSHOT_HEADER: Final = "SnapshotHeaderRecord"
SNAPSHOT_FOOTER: Final = "SnapshotFooterRecord"

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
