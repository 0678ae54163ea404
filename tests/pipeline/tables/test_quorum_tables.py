"""The timeline and the tables of the quorum itself, against a slow reader of random quorums."""

import random
from collections.abc import Callable, Iterable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from kit.lake.fold import assert_promises, assert_same, fold_rows, instant, timelines
from kit.lake.oracle import sources
from kit.lake.oracle.quorum_tables import addresses, blockers, intervals, leaderships
from kit.lake.oracle.quorums import Quorum, make_quorum, timeline_lines
from pyspark_quorate import rows
from pyspark_quorate.tables.advertised_addresses import REUSE_WINDOW
from pyspark_quorate.tables.contract import Line
from pyspark_quorate.tables.registry import TABLES

CHECKS: dict[str, Callable[[Quorum], Iterable[Any]]] = {
    "membership": lambda quorum: (interval.line for interval in intervals(quorum, "voter")),
    "controller_registrations": lambda quorum: (
        interval.line for interval in intervals(quorum, "controller")
    ),
    "feature_levels": lambda quorum: (interval.line for interval in intervals(quorum, "feature")),
    "leadership": lambda quorum: (interval.line for interval in leaderships(quorum)),
    "upgrade_blockers": blockers,
    "advertised_addresses": lambda quorum: addresses(quorum, REUSE_WINDOW),
    "gaps": lambda quorum: sources.gaps(quorum, quorum.dead),
    "records": lambda quorum: sources.records(quorum.rows),
}
OPEN_COLUMNS = {
    "upgrade_blockers": ("from_exact", "to_exact"),
    "advertised_addresses": ("from_exact", "to_exact"),
}
"""Columns of merged intervals, several of which may begin or end at the same offset."""


def shown(line: Line) -> tuple[Any, ...]:
    """A line of the timeline as the oracle has it; the time of a gap is that of the next line, and not compared."""
    is_gap = line.type == rows.GAP
    return (
        *(line.offset, line.ordinal, line.epoch, None if is_gap else instant(line.time_us), line.type),
        *(None if is_gap else line.fields, line.run, line.is_snapshot),
    )


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), length=st.integers(1, 50))
def test_tables_are_what_a_slow_reader_finds(seed: int, length: int) -> None:
    """The fold agrees with a replay of record after record, and has nothing of leaders that lost."""
    quorum = make_quorum(seed, length)
    raw = [*quorum.rows, *sources.reported_rows(quorum.cluster_id)]
    random.Random(seed).shuffle(raw)
    seen = [shown(line) for line in timelines(raw)[quorum.cluster_id]]
    assert seen == [
        (*line[:3], None if line[4] == rows.GAP else line[3], *line[4:]) for line in timeline_lines(quorum)
    ]
    made = fold_rows(raw, TABLES)
    for table in TABLES:
        assert_promises(table, made[table.name])
        if table.name in CHECKS:
            assert_same(
                table, made[table.name], CHECKS[table.name](quorum), *OPEN_COLUMNS.get(table.name, ())
            )


def test_a_table_made_alone_is_the_same() -> None:
    raw = make_quorum(7, 50).rows
    together = fold_rows(raw, TABLES)
    assert sum(map(bool, together.values())) >= len(CHECKS)
    for table in TABLES:
        assert fold_rows(raw, [table]) == {table.name: together[table.name]}
