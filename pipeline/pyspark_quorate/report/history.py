"""The input of a report: rows of tables, of one cluster and one period. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

Row = Mapping[str, Any]

TABLES: Final = (
    "membership",
    "leadership",
    "broker_sessions",
    "under_replicated",
    "advertised_addresses",
    "upgrade_blockers",
    "gaps",
)
"""The tables that a report reads."""


@dataclass(frozen=True, slots=True)
class History:
    """Rows of `TABLES` of a cluster, and the period: since <= t < until.

    `cut` names the tables with more rows than the limit. A table that the lake lacks has no entry in `tables`.
    """

    cluster_id: str
    since: datetime
    until: datetime
    tables: Mapping[str, Sequence[Row]]
    cut: frozenset[str] = frozenset()

    def intervals(self, table: str) -> list[Row]:
        """The rows of a table of intervals that overlap the period, oldest first."""
        found = [
            row
            for row in self.tables.get(table, ())
            if row["valid_from"] is not None
            and row["valid_from"] < self.until
            and (row["valid_to"] is None or row["valid_to"] > self.since)
        ]
        return sorted(found, key=lambda row: (row["valid_from"], row["from_offset"]))

    def begin(self, row: Row) -> datetime:
        """The start of an interval, within the period."""
        valid_from: datetime = row["valid_from"]
        return max(valid_from, self.since)

    def end(self, row: Row) -> datetime:
        """The end of an interval, within the period."""
        valid_to: datetime | None = row["valid_to"]
        return self.until if valid_to is None else min(valid_to, self.until)

    def length(self, row: Row) -> timedelta:
        """The length of an interval, within the period."""
        return max(self.end(row) - self.begin(row), timedelta(0))


def times_of(rows: Iterable[Row]) -> list[datetime]:
    """All timestamps in the rows."""
    return [value for row in rows for value in row.values() if isinstance(value, datetime)]


def in_words(span: timedelta) -> str:
    """A duration as text: 850 ms, 12 s, 4 min 5 s, 3 h 20 min, 2 d 4 h."""
    seconds = span.total_seconds()
    if seconds < 1:
        return f"{round(seconds * 1000)} ms"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    for big, small, size, base in (
        ("min", "s", 60, 3600),
        ("h", "min", 3600, 86_400),
        ("d", "h", 86_400, None),
    ):
        if base is None or whole < base:
            first, rest = divmod(whole, size)
            second = rest // {"s": 1, "min": 60, "h": 3600}[small]
            return f"{first} {big} {second} {small}" if second else f"{first} {big}"
    raise AssertionError(seconds)


def counted(number: int, noun: str) -> str:
    """A number with its noun: 1 broker, 2 brokers."""
    ending = "" if number == 1 else "es" if noun.endswith("s") else "s"
    return f"{number} {noun}{ending}"
