"""What a report is made of: plain rows of tables, of one cluster and one stretch of time. Pure."""

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
    """Rows of `TABLES` of a cluster, and the time that is looked at: since <= t < until.

    `cut` are the tables of which a bound left rows out. A table that the lake lacks has no entry in `tables`.
    """

    cluster_id: str
    since: datetime
    until: datetime
    tables: Mapping[str, Sequence[Row]]
    cut: frozenset[str] = frozenset()

    def intervals(self, table: str) -> list[Row]:
        """The rows of a table of intervals that reach into the time looked at, oldest first."""
        found = [
            row
            for row in self.tables.get(table, ())
            if row["valid_from"] is not None
            and row["valid_from"] < self.until
            and (row["valid_to"] is None or row["valid_to"] > self.since)
        ]
        return sorted(found, key=lambda row: (row["valid_from"], row["from_offset"]))

    def begin(self, row: Row) -> datetime:
        """When an interval begins, within the time looked at."""
        valid_from: datetime = row["valid_from"]
        return max(valid_from, self.since)

    def end(self, row: Row) -> datetime:
        """When an interval ends, within the time looked at."""
        valid_to: datetime | None = row["valid_to"]
        return self.until if valid_to is None else min(valid_to, self.until)

    def length(self, row: Row) -> timedelta:
        """How long an interval is, within the time looked at."""
        return max(self.end(row) - self.begin(row), timedelta(0))


def times_of(rows: Iterable[Row]) -> list[datetime]:
    """Every time that rows tell."""
    return [value for row in rows for value in row.values() if isinstance(value, datetime)]


def in_words(span: timedelta) -> str:
    """A length of time for people: 850 ms, 12 s, 4 min 5 s, 3 h 20 min, 2 d 4 h."""
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
