"""The timeline and the tables of the quorum itself, against a slow reader of random quorums."""

import json
from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from kit.lake.oracle import Quorum, make_quorum, timeline_lines
from kit.lake.oracle_intervals import addresses, blockers, leaderships, lives, missing
from kit.lake.tables import assert_promises
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f
from pyspark_quorate import rows
from pyspark_quorate.tables import (
    advertised_addresses,
    controller_registrations,
    feature_levels,
    gaps,
    leadership,
    membership,
    records,
    upgrade_blockers,
)
from pyspark_quorate.tables.registry import TIMELINE, make_all

Lines = dict[str, set[Any]]
"""Cluster -> its lines."""
QUORUM_TABLES = tuple(
    one.TABLE
    for one in (
        *(records, gaps, membership, controller_registrations),
        *(leadership, feature_levels, upgrade_blockers, advertised_addresses),
    )
)
SPAN = ("from_offset", "to_offset")


def plain(value: Any) -> Any:
    """A value of Spark as one that compares with those of the oracle."""
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    return tuple(plain(one) for one in value) if isinstance(value, list | Row) else value


def by_cluster(frame: DataFrame, *columns: str) -> Lines:
    """What a table has of each cluster: some columns of it, or all."""
    found: Lines = defaultdict(set)
    for cluster_id, *line in frame.select("cluster_id", *(columns or frame.columns[1:])).collect():
        found[cluster_id].add(plain(line))
    return found


def share(frame: DataFrame) -> DataFrame:
    """What several tables read is made once."""
    return frame.localCheckpoint()


def assert_same(name: str, found: Lines, quorums: list[Quorum], wanted: Callable[[Quorum], Any]) -> None:
    """Compare cluster by cluster, so that the first that differs is told with its seed."""
    for quorum in quorums:
        expected, seen = set(wanted(quorum)), found.get(quorum.cluster_id, set())
        assert seen == expected, (
            f"{name} of {quorum.cluster_id}: too much {sorted(map(repr, seen - expected))[:5]}, "
            f"lacking {sorted(map(repr, expected - seen))[:5]}"
        )


def a_hashable(line: tuple[Any, ...]) -> tuple[Any, ...]:
    """A line of the timeline with its payload as text; the time of a gap is what follows it, and not compared."""
    payload = None if line[5] is None else json.dumps(line[5], sort_keys=True)
    return (*line[:3], None if line[4] == rows.GAP else line[3], line[4], payload, *line[6:])


@pytest.mark.parametrize(("table", "count"), [(records, 0), (gaps, 3), (leadership, 5)])
def test_only_what_a_table_reads_is_computed(spark: SparkSession, table: ModuleType, count: int) -> None:
    """Goal: a lake of few tables is cheap. Method: count the frames that are shared to build one table."""
    shared = []
    raw = spark.createDataFrame([], rows.SCHEMA)
    made = make_all(raw, [table.TABLE], lambda frame: shared.append(frame) or frame)
    assert len(shared) == count
    assert made.keys() - {TIMELINE} == {table.TABLE.name}


# Hypothesis tries 0 first, always; without it, its one example is another one each time.
@pytest.mark.timeout(900)
@settings(
    max_examples=1,
    deadline=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(seed=st.integers(0, 2**32).filter(bool))
def test_tables_are_what_a_slow_reader_finds(spark: SparkSession, seed: int) -> None:
    """Goal: windows and joins say what one says who reads record after record, and nothing of leaders that lost.

    Method: random quorums with lost ranges, checkpoints, copies, transactions and forks, all in one frame.
    """
    quorums = [make_quorum(seed + number, length=1 + number % 50) for number in range(60)]
    raw = spark.createDataFrame([row for one in quorums for row in one.rows], rows.SCHEMA).localCheckpoint()
    frames = make_all(raw, QUORUM_TABLES, share)
    lines = frames.pop(TIMELINE).withColumn("text", f.to_json("payload")).localCheckpoint()
    shown = by_cluster(
        lines.withColumn("time", f.when(f.col("type") != rows.GAP, f.col("time"))),
        *("offset", "ordinal", "epoch", "time", "type", "text", "run", "is_snapshot"),
    )
    parsed = {
        cluster: {
            (*one[:5], one[5] and json.dumps(json.loads(one[5]), sort_keys=True), *one[6:]) for one in told
        }
        for cluster, told in shown.items()
    }
    assert_same("timeline", parsed, quorums, lambda one: map(a_hashable, timeline_lines(one)))

    made = {name: share(frame) for name, frame in frames.items()}
    for table in QUORUM_TABLES:
        assert_promises(table, made[table.name])
    for name, wanted in {
        "membership": lambda one: lives(one, "voter"),
        "controller_registrations": lambda one: lives(one, "controller"),
        "feature_levels": lambda one: lives(one, "feature"),
        "leadership": leaderships,
    }.items():
        assert_same(
            name,
            by_cluster(made[name]),
            quorums,
            lambda one, wanted=wanted: [life.line for life in wanted(one)],
        )

    found = by_cluster(
        made["upgrade_blockers"],
        *("feature", "level", "role", "node_id", "supported_max", "is_ghost", "ghost_since", *SPAN),
    )
    assert_same("upgrade_blockers", found, quorums, blockers)
    owner = ("host", "port", "role", "node_id", "listener", "reused_from_node_id", "reused_after_s")
    found = by_cluster(made["advertised_addresses"], *owner, *SPAN)
    assert_same(
        "advertised_addresses", found, quorums, lambda one: addresses(one, advertised_addresses.REUSE_WINDOW)
    )

    lacking = made["gaps"].where(f.col("reason") == rows.MISSING_OFFSETS)
    found = by_cluster(lacking, "first_offset", "end_offset", "bridged_at", "not_before", "not_after")
    assert_same("gaps", found, quorums, missing)
    lost = made["gaps"].where(f.col("reason") == rows.TRUNCATED_EPOCH)
    found = by_cluster(lost, "epoch", "first_offset", "end_offset", "hides_records")
    assert_same(
        "truncated epochs",
        found,
        quorums,
        lambda one: {(epoch, *span, False) for epoch, span in one.dead.items()},
    )
    stored = by_cluster(made["records"].where(f.col("kind") == rows.LOG), "offset", "epoch")
    assert_same(
        "records", stored, quorums, lambda one: {(row[3], row[5]) for row in one.rows if row[2] == rows.LOG}
    )
