"""The timeline and the tables of the quorum itself, against a slow reader of random quorums."""

import json
import random
from collections.abc import Callable, Iterable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from kit.lake.folding import Row, fold_rows, instant, timelines
from kit.lake.oracle import Quorum, make_quorum, timeline_lines
from kit.lake.oracle_intervals import addresses, blockers, leaderships, lives, missing
from kit.lake.tables import assert_promises
from pyspark_quorate import rows
from pyspark_quorate.tables import advertised_addresses
from pyspark_quorate.tables.lines import Line
from pyspark_quorate.tables.registry import TABLES

SPAN = ("from_offset", "to_offset")
REUSE_WINDOW = advertised_addresses.REUSE_WINDOW
CHECKS: tuple[tuple[str, tuple[str, ...], Callable[[Quorum], Iterable[Any]]], ...] = (
    ("membership", (), lambda one: (life.line for life in lives(one, "voter"))),
    ("controller_registrations", (), lambda one: (life.line for life in lives(one, "controller"))),
    ("feature_levels", (), lambda one: (life.line for life in lives(one, "feature"))),
    ("leadership", (), lambda one: (life.line for life in leaderships(one))),
    (
        "upgrade_blockers",
        ("feature", "level", "role", "node_id", "supported_max", "is_ghost", "ghost_since", *SPAN),
        blockers,
    ),
    (
        "advertised_addresses",
        ("host", "port", "role", "node_id", "listener", "reused_from_node_id", "reused_after_s", *SPAN),
        lambda one: addresses(one, REUSE_WINDOW),
    ),
)
"""Table, its columns (none: all but the cluster's id), and what they have."""


def chosen(found: list[Row], *columns: str) -> set[tuple[Any, ...]]:
    """Some columns of the rows, or all but the cluster's id."""
    return {tuple(row[name] for name in columns or tuple(row)[1:]) for row in found}


def shown(line: Line) -> tuple[Any, ...]:
    """A line of the timeline as the oracle has it; the time of a gap is what follows it, and not compared."""
    is_gap = line.type == rows.GAP
    return (
        *(line.offset, line.ordinal, line.epoch, None if is_gap else instant(line.time_us), line.type),
        *(None if is_gap else json.dumps(line.fields, sort_keys=True), line.run, line.is_snapshot),
    )


def a_hashable(line: tuple[Any, ...]) -> tuple[Any, ...]:
    """A line of the oracle's timeline, its payload as text."""
    payload = None if line[5] is None else json.dumps(line[5], sort_keys=True)
    return (*line[:3], None if line[4] == rows.GAP else line[3], line[4], payload, *line[6:])


def assert_same(name: str, quorum: Quorum, seen: set[Any], wanted: Iterable[Any]) -> None:
    """A cluster that differs is told with its seed."""
    expected = set(wanted)
    assert seen == expected, (
        f"{name} of {quorum.cluster_id}: too much {sorted(map(repr, seen - expected))[:5]}, "
        f"lacking {sorted(map(repr, expected - seen))[:5]}"
    )


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), length=st.integers(1, 50))
def test_tables_are_what_a_slow_reader_finds(seed: int, length: int) -> None:
    """The fold says what one says who reads record after record, and nothing of leaders that lost."""
    quorum = make_quorum(seed, length)
    raw = quorum.rows.copy()
    random.Random(seed).shuffle(raw)
    seen = {shown(line) for line in timelines(raw)[quorum.cluster_id]}
    assert_same("timeline", quorum, seen, map(a_hashable, timeline_lines(quorum)))
    made = fold_rows(raw, TABLES)
    for table in TABLES:
        assert_promises(table, made[table.name])
    for name, columns, wanted in CHECKS:
        assert_same(name, quorum, chosen(made[name], *columns), wanted(quorum))
    found = [row for row in made["gaps"] if row["reason"] == rows.MISSING_OFFSETS]
    columns = ("first_offset", "end_offset", "bridged_at", "not_before", "not_after")
    assert_same("gaps", quorum, chosen(found, *columns), missing(quorum))
    lost = [row for row in made["gaps"] if row["reason"] == rows.TRUNCATED_EPOCH]
    assert_same(
        "truncated epochs",
        quorum,
        chosen(lost, "epoch", "first_offset", "end_offset", "hides_records"),
        ((epoch, *span, False) for epoch, span in quorum.dead.items()),
    )
    stored = [row for row in made["records"] if row["kind"] == rows.LOG]
    of_log = ((row[3], row[5]) for row in quorum.rows if row[2] == rows.LOG)
    assert_same("records", quorum, chosen(stored, "offset", "epoch"), of_log)


def test_a_table_made_alone_is_the_same() -> None:
    raw = make_quorum(7, 50).rows
    together = fold_rows(raw, TABLES)
    assert sum(map(bool, together.values())) >= len(CHECKS)
    for table in TABLES:
        assert fold_rows(raw, [table]) == {table.name: together[table.name]}
