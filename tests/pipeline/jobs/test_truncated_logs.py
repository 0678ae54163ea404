"""Logs that are truncated between two ingests: the lake has what one ingest of all these logs has."""

import random
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from kit.lake.lakes import ingest_into
from kit.lake.logs import NodeLog, topic
from kit.lake.quorum_logs import QuorumLogs
from kit.lake.tasks import local_tasks
from pyspark_quorate.jobs.compaction import compact
from pyspark_quorate.jobs.lake import Lake
from pyspark_quorate.jobs.progress import Steps
from pyspark_quorate.jobs.table_reader import read_table
from pyspark_quorate.tables.registry import TABLES

COMMON = NodeLog().elected(1).appended(topic("before"))
LOST = COMMON.elected(2).appended(topic("lost"), topic("lost too"))
KEPT = COMMON.appended(topic("kept"), topic("kept too")).elected(3).appended(topic("after"))


def rows(lake: Path) -> dict[str, list[str]]:
    """The rows of all tables, of `records` without payload, and without the names of sources."""
    found = Lake.open(str(lake))
    made = {}
    for table in TABLES:
        read: list[Any]
        if table.name == "records":
            columns = [name for name in table.schema.names if name not in ("cluster_id", "payload")]
            read = ds.dataset(found.table("records")).to_table(columns=columns).to_pylist()
        else:
            stored = read_table(found, table.name)
            assert stored is not None
            read = [row for row in stored.rows if table.name != "gaps" or row["source"] is None]
        made[table.name] = sorted(repr({**row, "source": None}) for row in read)
    return made


def test_the_newest_read_of_a_truncated_log_decides(tmp_path: Path) -> None:
    """The records of a leader that lost were read before its log was truncated."""
    for log in (LOST, KEPT):
        log.write(tmp_path / "node")
        ingest_into(local_tasks(), tmp_path / "lake", tmp_path / "node")
    found = rows(tmp_path / "lake")
    assert not any("'lost" in row for row in found["topics"])
    assert sum("'kept" in row for row in found["topics"]) == 2
    ingest_into(local_tasks(), tmp_path / "fresh", tmp_path / "node")
    fresh = rows(tmp_path / "fresh")
    assert [name for name in fresh if fresh[name] != found[name]] == ["records", "gaps"]
    (gap,) = found["gaps"]
    assert "3 records of epoch 2 did not count" in gap


def test_records_that_come_back_after_a_truncation_count_again(tmp_path: Path) -> None:
    """A later leader had what another one truncated. No row of the last read is new, but what it shows is."""
    node, lake = tmp_path / "node", tmp_path / "lake"
    for number, log in enumerate((LOST, COMMON.elected(3), LOST)):
        log.later(number).write(node)
        ingest_into(local_tasks(), lake, node)
        if number == 1:
            assert not any("'lost" in row for row in rows(lake)["topics"])
    assert sum("'lost" in row for row in rows(lake)["topics"]) == 2
    LOST.elected(4).write(node)
    ingest_into(local_tasks(), lake, node)
    assert sum("'lost" in row for row in rows(lake)["topics"]) == 2


@pytest.mark.parametrize("seed", [0, 1, 2, 38, 40, 64, 116, 122])
def test_portions_orders_and_truncations_do_not_matter(tmp_path: Path, seed: int) -> None:
    """A lake of nodes that are read again and again, and one of copies of what was read, read at once.

    In some of the logs, what the lost leader appended is longer than what took its place.
    """
    chance, jobs = random.Random(seed), random.Random(seed)
    logs = QuorumLogs(chance)
    lake, nodes, copies = tmp_path / "lake", tmp_path / "nodes", tmp_path / "copies"
    # The directories of the other nodes, which may show what these lack, are never read.
    known = chance.sample(sorted(logs.nodes), chance.choice((1, 1, 2, len(logs.nodes))))
    for step in range(chance.randrange(3, 12)):
        for _ in range(chance.randrange(1, 5)):
            logs.step()
        chosen = chance.sample(known, chance.randrange(1, len(known) + 1))
        for node in chosen:
            logs.nodes[node].write(nodes / str(node))
            logs.nodes[node].write(copies / f"{step}-{node}")
        tables = jobs.choice(("", None))
        ingest_into(local_tasks(jobs), lake, *(nodes / str(node) for node in chosen), tables=tables)
        if jobs.random() < 0.2:
            with Lake.writing(str(lake)) as found:
                compact(local_tasks(jobs), found, Steps())
    # Without a record of the last leader, copies do not show which of them were truncated.
    logs.settle()
    for node in known:
        logs.nodes[node].write(nodes / str(node))
        logs.nodes[node].write(copies / f"end-{node}")
    ingest_into(local_tasks(jobs), lake, nodes)
    ingest_into(local_tasks(), tmp_path / "once", copies)
    made = rows(lake)
    assert made == rows(tmp_path / "once")
    ingest_into(local_tasks(), tmp_path / "fresh", nodes)
    fresh = rows(tmp_path / "fresh")
    assert {name for name in fresh if fresh[name] != made[name]} <= {"records", "gaps"}


def test_some_logs_are_truncated() -> None:
    """The random logs have what the test above is about."""
    truncated = 0
    for seed in range(8):
        logs = QuorumLogs(random.Random(seed))
        for _ in range(30):
            logs.step()
        truncated += logs.truncations
    assert truncated >= 8
