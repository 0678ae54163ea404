"""A lake that follows a living quorum, killed in between; afterwards it is that of the directories."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.cluster import DIE_WITH_PARENT, manifests
from kit.lake.lakes import ingest_into, stored_lines
from kit.membership import Membership
from kit.spark import QUICK_JOB
from kit.waiting import eventually
from pyspark.sql import SparkSession
from pyspark_quorate.jobs.lake import STATE, Lake
from pyspark_quorate.jobs.progress import Steps
from pyspark_quorate.jobs.table_build import choose_tables
from pyspark_quorate.jobs.tail import FollowedQuorum, follow
from quorate_operator.runtime.local.layout import QUORATE

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

TABLES = "controller_registrations,leadership,gaps"
START_TIMEOUT_S = 300


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Membership]:
    """Three controllers of ours, running."""
    made = Membership.found(tmp_path / "cluster", None, manifests(brokers=0), founders=3)
    try:
        yield made.start_founders()
    finally:
        made.close()


def test_a_tail_that_is_killed_goes_on(spark: SparkSession, cluster: Membership, tmp_path: Path) -> None:
    lake = tmp_path / "tailed"
    bootstrap = cluster.bootstrap_controllers
    kill_behind_first_batch(lake, bootstrap)
    cluster.leave_ghost(3099)
    leader = cluster.await_leader()
    cluster.kill(leader)
    cluster.await_leader(other_than=leader)
    cluster.leave_ghost(3098)
    cluster.start(leader)
    cluster.await_quorum()
    followed = FollowedQuorum(bootstrap)
    for tables in ((), choose_tables(TABLES)):
        with Lake.writing(str(lake)) as found:
            follow(spark, found, followed, Steps(), tables=tables, trigger_s=None, refresh_s=3600)
    cluster.kill(*cluster.controllers)

    ingest_into(spark, tmp_path / "read", *map(cluster.data, cluster.controllers), tables=TABLES)
    tailed, read = stored_lines(lake, TABLES), stored_lines(tmp_path / "read", TABLES)
    assert tailed == read
    assert len(tailed["leadership"]) >= 2
    assert sum("3098" in row for row in tailed["controller_registrations"]) == 1


def kill_behind_first_batch(lake: Path, bootstrap: str) -> None:
    """Run a tail in a process of its own, and kill it with its JVM when the lake has its first batch."""
    command = [
        *DIE_WITH_PARENT,
        *QUORATE,
        "lake",
        "tail",
        "--bootstrap-controller",
        bootstrap,
        "--to",
        str(lake),
    ]
    command += ["--trigger", "500ms", "--refresh", "1h", "--tables", TABLES, *QUICK_JOB]
    log = lake.with_name("tail.log")

    def has_batch() -> bool:
        assert process.poll() is None, log.read_text()
        state = lake / STATE
        return state.exists() and bool(json.loads(state.read_text())["streams"])

    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
    try:
        eventually(has_batch, START_TIMEOUT_S, "a batch", log.read_text)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
