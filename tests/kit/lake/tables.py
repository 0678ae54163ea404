"""Checks of tables: what every table promises, and what a lake has on disk."""

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pyspark_quorate.jobs.lake import Lake
from pyspark_quorate.jobs.table_reader import read_table
from pyspark_quorate.tables.contract import Table

SPAN = ("from_offset", "to_offset")


def assert_promises(table: Table, rows: Iterable[Mapping[str, Any]]) -> None:
    """The key identifies a row, and no interval is without length."""
    is_of_intervals = set(SPAN) <= set(table.schema.names)
    spans = SPAN if is_of_intervals else ()
    reported = [tuple(row[name] for name in (*table.key, *spans)) for row in rows]
    twice = [
        key for key, count in Counter(repr(row[: len(table.key)]) for row in reported).items() if count > 1
    ]
    assert not twice, f"{table.name}: more than one row has the key {table.key}: {twice[:5]}"
    if is_of_intervals:
        without = [row for row in reported if row[-1] is not None and row[-1] <= row[-2]]
        assert not without, f"{table.name}: intervals without length: {without[:5]}"


def stored_lines(lake: Path, tables: str) -> dict[str, list[str]]:
    """The rows of a lake's tables (a comma-separated list); of gaps, those that hide records."""
    found = Lake.open(str(lake))
    lines = {}
    for name in tables.split(","):
        read = read_table(found, name)
        assert read is not None
        lines[name] = sorted(repr(row) for row in read.rows if row.get("hides_records", True))
    return lines
