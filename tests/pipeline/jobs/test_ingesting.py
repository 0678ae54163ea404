"""Ingests into a lake: in portions, again, killed in between; what is in it afterwards is always the same."""

import json
import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from kit.cluster import DIE_WITH_PARENT
from kit.lake.directories import CLUSTER, write_directory
from kit.lake.lakes import gaps_of, ingest_into
from kit.metadata import scram_keys
from kit.secret_search import PARQUET, files_below, homes_of
from kit.spark import QUICK_JOB
from kit.waiting import eventually
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark_quorate.errors import LakeError
from pyspark_quorate.jobs.compaction import compact
from pyspark_quorate.jobs.ingest import Ingested
from pyspark_quorate.jobs.lake import STAGING, Lake
from pyspark_quorate.jobs.progress import Steps
from pyspark_quorate.jobs.table_reader import count_rows, read_table
from pyspark_quorate.rows import TORN_TAIL
from quorate_operator.runtime.local.layout import QUORATE

pytestmark = pytest.mark.timeout(600)

GOLDEN = Path(__file__).parents[2] / "golden" / "data"
PLANTED = "__transaction_state"
"""A topic of the captured log."""
TABLES = "records,gaps"
DELTA_TABLES = f"{TABLES},controller_registrations"
START_TIMEOUT_S = 240


def node(where: Path, name: str, *, cut_bytes: int = 0, cluster_id: str = CLUSTER) -> Path:
    """A node's log directory with a log that stock Kafka wrote; its last bytes are cut off."""
    files = {}
    for file in (GOLDEN / "current").iterdir():
        if file.name.startswith("0000") and not (cut_bytes and file.suffix == ".checkpoint"):
            content = file.read_bytes()
            files[file.name] = content[: len(content) - cut_bytes]
    write_directory(where / name, files, cluster_id)
    return where / name


def run(
    spark: SparkSession, lake: Path, *sources: Path, kind: str | None = None, tables: str = TABLES
) -> Ingested:
    """One ingest, into a lake of this format."""
    return ingest_into(spark, lake, *sources, kind=kind, tables=tables)


def content(spark: SparkSession, lake: Path) -> dict[str, list[Any]]:
    """The rows of all tables; of records without the file that they are from."""
    found = Lake.open(str(lake))
    tables: dict[str, list[Any]] = {}
    for name in TABLES.split(","):
        if name == "records":
            frame = spark.read.parquet(str(found.table(name))).drop("source", "day")
            tables[name] = sorted(
                repr(row) for row in frame.selectExpr("* except (payload)", "to_json(payload)").collect()
            )
        else:
            read = read_table(found, name)
            assert read is not None
            tables[name] = sorted(repr({**row, "source": None}) for row in read.rows)
    return tables


def files(lake: Path) -> dict[str, int]:
    """Every file of a lake with its time, but for the lock."""
    return {str(path): path.stat().st_mtime_ns for path in sorted(lake.rglob("*")) if path.is_file()}


def test_a_directory_becomes_a_lake(spark: SparkSession, tmp_path: Path) -> None:
    """The shortest way into a lake, and secrets stay behind."""
    node(tmp_path / "nodes", "a")
    lake = tmp_path / "lake"
    done = run(spark, lake, tmp_path / "nodes")
    assert (done.directories, done.built.clusters) == (1, 1)
    rows = content(spark, lake)
    assert len(rows["records"]) > 100
    assert all(CLUSTER in row for row in rows["records"])
    assert run(spark, lake, tmp_path / "nodes").files == 0
    assert content(spark, lake) == rows
    keys = scram_keys(GOLDEN / "current")
    assert len(keys) >= 3
    files_of = files_below(lake)
    found = homes_of({"planted": PLANTED, **keys}, files_of)
    stored = {path.partition("/")[0] for path in found.pop("planted") if path.endswith(PARQUET)}
    assert stored == {"_lake", "records"}, "a leak there would not have been found"
    assert found == {name: set() for name in keys}


def test_portions_reruns_and_copies_give_the_same_tables(spark: SparkSession, tmp_path: Path) -> None:
    node(tmp_path / "all", "a")
    node(tmp_path / "all", "b")
    node(tmp_path / "all", "other", cluster_id="other-other-other-othe")
    run(spark, tmp_path / "once", tmp_path / "all")
    expected = content(spark, tmp_path / "once")
    assert any("other-other" in row for row in expected["records"])

    bits, lake = tmp_path / "bits", tmp_path / "many"
    node(bits, "a", cut_bytes=10)
    done = run(spark, lake, bits)
    assert (done.directories, done.files, done.built.clusters) == (1, 1, 1)
    torn = content(spark, lake)
    assert gaps_of(Lake.open(str(lake)), TORN_TAIL) == 1
    assert any("torn-tail" in row for row in torn["gaps"])
    node(bits, "a")
    node(bits, "b")
    done = run(spark, lake, bits, bits / "a")
    assert (done.directories, done.changed_directories) == (2, 2)
    assert not any("torn-tail" in row for row in content(spark, lake)["gaps"])
    node(bits, "other", cluster_id="other-other-other-othe")
    before = files(lake / "records" / f"cluster_id={CLUSTER}")
    assert run(spark, lake, bits).built.clusters == 1
    assert files(lake / "records" / f"cluster_id={CLUSTER}") == before, "a cluster without news is left alone"
    assert content(spark, lake) == expected

    before = files(lake)
    done = run(spark, lake, bits)
    assert (done.files, done.built.tables) == (0, ())
    assert files(lake) == before, "nothing new, nothing written"

    with Lake.writing(str(lake)) as found:
        merged = compact(spark, found, Steps())
    assert merged.after < merged.before
    assert len(list((lake / "_lake" / "rows" / f"cluster_id={CLUSTER}").glob("*.parquet"))) == 1
    # Tables that are built again are the same, without gaps that are void.
    ingest_into(spark, lake, bits, tables=TABLES, everything=True)
    found = Lake.open(str(lake))
    assert gaps_of(found, TORN_TAIL) == 0
    assert count_rows(found, "records") == len(expected["records"])
    assert content(spark, lake) == expected


def test_a_lake_of_delta_says_what_one_of_parquet_says(spark: SparkSession, tmp_path: Path) -> None:
    bits, lake = tmp_path / "bits", tmp_path / "delta"
    node(bits, "a", cut_bytes=10)
    run(spark, lake, bits, kind="delta", tables=DELTA_TABLES)
    node(bits, "a")
    node(bits, "other", cluster_id="other-other-other-othe")
    assert run(spark, lake, bits, tables=DELTA_TABLES).built.clusters == 2
    run(spark, tmp_path / "parquet", bits, tables=DELTA_TABLES)
    expected = parquet_rows(spark, tmp_path / "parquet")
    assert {name for name, rows in expected.items() if rows} >= {"records", "controller_registrations"}
    assert delta_rows(lake) == expected

    before = files(lake)
    assert run(spark, lake, bits, tables=DELTA_TABLES).built.tables == ()
    assert files(lake) == before, "nothing new, nothing written"
    with Lake.writing(str(lake)) as found:
        merged = compact(spark, found, Steps())
    assert merged.after < merged.before
    assert delta_rows(lake) == expected
    ingest_into(spark, lake, bits, tables=DELTA_TABLES, everything=True)
    assert delta_rows(lake) == expected


def parquet_rows(spark: SparkSession, lake: Path) -> dict[str, list[str]]:
    """The rows of a lake of Parquet, payloads as JSON."""
    rows = {}
    for name in DELTA_TABLES.split(","):
        frame = spark.read.parquet(str(lake / name)).drop("day")
        if name == "records":
            frame = frame.withColumn("payload", f.to_json("payload"))
        rows[name] = comparable(frame.toArrow())
    return rows


def delta_rows(lake: Path) -> dict[str, list[str]]:
    """The rows as readers of Delta see them."""
    tables = {name: DeltaTable(str(lake / name)) for name in DELTA_TABLES.split(",")}
    return {
        name: comparable(table.to_pyarrow_table().drop_columns(["day"])) for name, table in tables.items()
    }


def comparable(table: pa.Table) -> list[str]:
    """Rows whatever their order, and that of their columns and of a payload's fields."""
    found = table.to_pylist()
    for row in found:
        if "payload" in row:
            # A VARIANT has 2 where the text has 2.0.
            row["payload"] = json.dumps(json.loads(row["payload"], parse_int=float), sort_keys=True)
    return sorted(repr(sorted(row.items())) for row in found)


def test_an_ingest_that_is_killed_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    source = node(tmp_path / "source", "a")
    run(spark, tmp_path / "undisturbed", source)
    lake = tmp_path / "killed"
    for number, staged in enumerate(("rows", "tables"), start=1):
        kill_before_commit(lake, source, number)
        assert list((lake / STAGING).glob(f"*/{staged}"))
        assert not (lake / "gaps").exists()
    run(spark, lake, source)
    assert content(spark, lake) == content(spark, tmp_path / "undisturbed")
    assert not (lake / STAGING).exists()


WAITS_AT_COMMIT = """
import os, sys, time
from pathlib import Path

left = int(os.environ["COMMITS"])

def hook(event, arguments):
    global left
    if event == "open" and str(arguments[0]).endswith("/_lake/commit.draft"):
        left -= 1
        if not left:
            Path(os.environ["WAITING"]).touch()
            time.sleep(3600)

sys.addaudithook(hook)
"""
"""A commit begins by describing what is staged."""


def kill_before_commit(lake: Path, source: Path, number: int) -> None:
    """Run an ingest in a process of its own, and kill it and its JVM when all files of its n-th commit are staged."""
    command = [*DIE_WITH_PARENT, *QUORATE, "lake", "ingest", str(source), "--to", str(lake)]
    command += ["--tables", TABLES, *QUICK_JOB]
    log, waiting = lake.with_name(f"{number}.log"), lake.with_name(f"{number}.waiting")
    lake.with_name("sitecustomize.py").write_text(WAITS_AT_COMMIT)
    reported = {"PYTHONPATH": str(lake.parent), "COMMITS": str(number), "WAITING": str(waiting)}
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env={**os.environ, **reported}, stdout=output, stderr=output, start_new_session=True
        )
    try:
        eventually(
            lambda: waiting.exists() or process.poll() is not None,
            START_TIMEOUT_S,
            f"commit {number}",
            log.read_text,
        )
        assert process.poll() is None, log.read_text()
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_a_file_of_another_writer_among_the_rows_is_named(spark: SparkSession, tmp_path: Path) -> None:
    """Before anything is stored: the histories of the lake are compared with that of the new rows."""
    run(spark, tmp_path / "lake", node(tmp_path, "first"))
    (folder,) = Lake.open(str(tmp_path / "lake")).rows.iterdir()
    foreign = folder / "foreign.parquet"
    pq.write_table(pa.table({"offset": [1]}), foreign)
    text = f"{foreign} is not a file that a lake wrote: its footer has no"
    with pytest.raises(LakeError, match=re.escape(text)):
        run(spark, tmp_path / "lake", node(tmp_path, "second"))


def test_without_java_one_line_says_what_is_missing(tmp_path: Path) -> None:
    lake = [*QUORATE, "lake", "ingest", str(tmp_path), "--to", str(tmp_path / "lake")]
    environment = {key: value for key, value in os.environ.items() if key != "JAVA_HOME"}
    ran = subprocess.run(
        lake, env={**environment, "PATH": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr.startswith("error: Java is missing")
    assert len(ran.stderr.splitlines()) == 1
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['pyspark'] = None\n")
    ran = subprocess.run(
        lake, env={**environment, "PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stderr) == (1, "error: pyspark is missing: pip install 'quorate[lake]'\n")
    assert not (tmp_path / "lake").exists()
