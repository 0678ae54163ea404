"""Where the stored history of a cluster ends: what came later is unknown, also whether anything changed."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pyspark_quorate.stored.row_reader import StoredRows
from pyspark_quorate.tables.evidence import evidence_of

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class HistoryEnd:
    """The end of a history."""

    offset: int
    """The offset after the last record that took effect."""
    time: datetime | None
    """The time of this record; an idle leader appends NoOpRecords, too. None: unknown."""


def history_end(stored: StoredRows) -> HistoryEnd | None:
    """Find the end of a cluster's history; None without any."""
    evidence = evidence_of(stored.summary())
    last = evidence.last_record()
    bridge = max(evidence.bridges.values(), key=lambda bridge: bridge.copy.offset, default=None)
    if bridge is not None and (last is None or bridge.copy.offset > last[0] + 1):
        return HistoryEnd(bridge.copy.offset, _time(bridge.time_us))
    return None if last is None else HistoryEnd(last[0] + 1, _time(stored.time_at(*last)))


def _time(time_us: int | None) -> datetime | None:
    return None if time_us is None else _EPOCH + timedelta(microseconds=time_us)
