"""A cluster's log, and what a reader of its nodes' files finds of it."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class Moment:
    """What a reader finds at an offset: a record (`entry`), a checkpoint, or otherwise the end of a gap."""

    offset: int
    entry: Any = None
    is_snapshot: bool = False

    @property
    def is_gap(self) -> bool:
        """Whether offsets are missing right before this one."""
        return self.entry is None and not self.is_snapshot


@dataclass(slots=True)
class History:
    """The log of a cluster, and which of it is readable."""

    cluster_id: str
    log: list[Any] = field(default_factory=list)
    """Entries with an offset, an epoch and a time; their indices are their offsets."""
    readable: set[int] = field(default_factory=set)
    """Offsets that some directory has."""
    snapshots: set[int] = field(default_factory=set)
    """End offsets of the complete checkpoints."""

    def moments(self) -> Iterator[Moment]:
        """What a reader finds from offset 0 on. A checkpoint counts only where earlier records are missing."""
        is_hidden, is_based = False, True
        for offset in range(len(self.log) + 1):
            if offset in self.snapshots and (is_hidden or not is_based):
                if is_hidden:
                    yield Moment(offset)
                yield Moment(offset, is_snapshot=True)
                is_hidden, is_based = False, True
            if offset in self.readable:
                if is_hidden:
                    yield Moment(offset)
                    is_hidden, is_based = False, False
                yield Moment(offset, self.log[offset])
            else:
                is_hidden = True

    def time_of(self, moment: Moment) -> datetime:
        """The time of a record, or of the last one in a checkpoint."""
        time: datetime = self.log[moment.offset - (moment.entry is None)].time
        return time
