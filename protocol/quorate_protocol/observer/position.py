"""Where in a metadata log somebody stands."""

from typing import Final, NamedTuple


class Position(NamedTuple):
    """The end of a prefix of the log; also the id of the snapshot of that prefix (Kafka: OffsetAndEpoch)."""

    offset: int
    """Offset of the next record."""
    epoch: int
    """Leader epoch of the record before it."""

    def __str__(self) -> str:
        return f"offset {self.offset}, epoch {self.epoch}"


BEGINNING: Final = Position(0, 0)
"""Nothing has been read."""
