"""Reads the input of a report from a lake, with a limit of rows per table."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pyspark_quorate.jobs.lake import Lake
from pyspark_quorate.jobs.reading import ROWS_MAX, read_table
from pyspark_quorate.jobs.state import LakeError
from pyspark_quorate.report.history import TABLES, History, Row, times_of

CLUSTERS_MAX: Final = 50
"""The maximum number of clusters of one report."""


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
    return [_history(lake, one, since, until) for one in chosen]


def _history(lake: Lake, cluster_id: str, since: datetime | None, until: datetime | None) -> History:
    tables: dict[str, Sequence[Row]] = {}
    cut = set()
    for name in TABLES:
        found = read_table(lake, name, cluster_id, ROWS_MAX)
        if found is not None:
            tables[name] = [_with_zones(row) for row in found.rows]
            if not found.is_all:
                cut.add(name)
    times = [time for rows in tables.values() for time in times_of(rows)]
    first = since or min(times, default=datetime.fromtimestamp(0, UTC))
    last = until or max(times, default=first) + timedelta(seconds=1)
    return History(cluster_id, first, max(last, first), tables, frozenset(cut))


def _with_zones(row: Mapping[str, Any]) -> Row:
    return {
        name: value.replace(tzinfo=UTC) if isinstance(value, datetime) and value.tzinfo is None else value
        for name, value in row.items()
    }
