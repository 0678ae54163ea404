"""The input of a report: rows of tables, of one cluster and one period, read from a lake."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pyspark_quorate.errors import LakeError
from pyspark_quorate.jobs.lake import Lake
from pyspark_quorate.jobs.table_reader import ROWS_MAX, read_table
from pyspark_quorate.stored.files import folder_name
from pyspark_quorate.stored.history_end import history_end
from pyspark_quorate.stored.row_reader import StoredRows

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
CLUSTERS_MAX: Final = 50
"""The maximum number of clusters of one report."""


@dataclass(frozen=True, slots=True)
class History:
    """Rows of `TABLES` of a cluster, and the period: since <= t < until. Open intervals are known to last until then.

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


def collect(
    lake: Lake, cluster_id: str | None, since: datetime | None, until: datetime | None
) -> list[History]:
    """The histories of one cluster or of all. Raises LakeError for an unknown cluster."""
    known = sorted(lake.state.clusters)
    if cluster_id is not None and cluster_id not in known:
        raise LakeError(
            f"cluster {cluster_id} is not in {lake.path}, which has {', '.join(known) or 'no clusters'}"
        )
    chosen = [cluster_id] if cluster_id is not None else known
    if len(chosen) > CLUSTERS_MAX:
        raise LakeError(
            f"{lake.path} has {len(chosen)} clusters; a report has at most {CLUSTERS_MAX}: select one with --cluster"
        )
    if since is not None and until is not None and since >= until:
        raise LakeError(f"--since {since:%Y-%m-%dT%H:%M:%S} is not before --until {until:%Y-%m-%dT%H:%M:%S}")
    return [_history(lake, chosen_id, since, until) for chosen_id in chosen]


def _history(lake: Lake, cluster_id: str, since: datetime | None, until: datetime | None) -> History:
    tables: dict[str, Sequence[Row]] = {}
    cut = set()
    for name in TABLES:
        found = read_table(lake, name, cluster_id, ROWS_MAX)
        if found is not None:
            tables[name] = [_with_zones(row) for row in found.rows]
            if not found.is_all:
                cut.add(name)
    times = [time for rows in tables.values() for time in _times_of(rows)]
    first = since or min(times, default=datetime.fromtimestamp(0, UTC))
    end = history_end(StoredRows(lake.rows / folder_name(cluster_id)))
    known = (end and end.time) or max(times, default=first)
    # Later than that, nothing is known: not whether a broker is still fenced, and not whether it came back.
    last = min(until or datetime.max.replace(tzinfo=UTC), known + timedelta(milliseconds=1))
    return History(cluster_id, first, max(last, first), tables, frozenset(cut))


def _with_zones(row: Mapping[str, Any]) -> Row:
    return {
        name: value.replace(tzinfo=UTC) if isinstance(value, datetime) and value.tzinfo is None else value
        for name, value in row.items()
    }


def _times_of(rows: Iterable[Row]) -> list[datetime]:
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
