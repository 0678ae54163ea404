"""A streaming job and the controllers that it follows are killed in the middle; what it wrote is what there was."""

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest
from kit.cluster import DIE_WITH_PARENT, Cluster
from kit.metadata import start_offset
from kit.requirements import missing
from kit.spark import JVM
from kit.temporary import jvm_temporary
from kit.waiting import eventually
from pyspark_quorate.source.options import parse_options
from pyspark_quorate.source.reader import MetadataLogReader
from pyspark_quorate.source.record_decoder import ARROW_SCHEMA

pytestmark = pytest.mark.timeout(1800)

NewQuorum = Callable[..., Cluster]
Rows = Counter[tuple[object, ...]]
"""Rows of the columns below, and how often each is there."""

JOB_TIMEOUT_S = 480
COLUMNS = ("cluster_id", "kind", "offset", "ordinal", "epoch", "time", "type", "version", "payload")
KIND = COLUMNS.index("kind")
PASSWORD = "a-secret-that-nobody-may-see"

SMALL_LOG = {
    "internal.metadata.log.segment.bytes": "2000",
    "metadata.log.max.record.bytes.between.snapshots": "3000",
    "metadata.max.retention.bytes": "5000",
    "metadata.max.idle.interval.ms": "0",
}

JOB = """
import json, sys
from pyspark.sql import SparkSession

options, place, trigger = json.loads(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.memory", "512m")
    .config("spark.sql.session.timeZone", "UTC")
    .config("spark.local.dir", f"{place}/local")
    .config("spark.sql.warehouse.dir", f"{place}/warehouse")
    .getOrCreate()
)
rows = spark.readStream.format("quorate").options(**options).load()
writer = rows.writeStream.format("parquet").option("checkpointLocation", f"{place}/checkpoint")
writer.trigger(**trigger).start(f"{place}/rows").awaitTermination()
"""


class Job:
    """A streaming query in processes of its own, from a quorum to Parquet files and a checkpoint below `place`."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self._process: subprocess.Popen[bytes] | None = None
        place.mkdir()

    def start(self, options: dict[str, str], trigger: dict[str, Any]) -> None:
        """Run it, from the checkpoint if there is one."""
        arguments = [sys.executable, "-c", JOB, json.dumps(options), str(self.place), json.dumps(trigger)]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*DIE_WITH_PARENT, *arguments],
                stdout=log,
                stderr=subprocess.STDOUT,
                env={
                    **os.environ,
                    "PYSPARK_PYTHON": sys.executable,
                    "SPARK_LOCAL_IP": "127.0.0.1",
                    "JAVA_TOOL_OPTIONS": " ".join((*JVM, jvm_temporary())),
                },
            )

    def finish(self) -> int:
        """Wait for its end; its exit status."""
        assert self._process is not None
        return self._process.wait(timeout=JOB_TIMEOUT_S)

    def kill(self) -> None:
        """SIGKILL to the job, its JVM and their workers."""
        if self._process is None:
            return
        with suppress(psutil.NoSuchProcess):
            root = psutil.Process(self._process.pid)
            processes = [root, *root.children(recursive=True)]
            for process in processes:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            psutil.wait_procs(processes, timeout=JOB_TIMEOUT_S)
        self._process.wait(timeout=JOB_TIMEOUT_S)

    @property
    def log(self) -> Path:
        """What it printed."""
        return self.place / "job.log"

    def batches(self, folder: str) -> int:
        """How many micro-batches are planned (`offsets`) or done (`commits`)."""
        numbers = [int(path.name) for path in (self.place / "checkpoint" / folder).glob("[0-9]*")]
        return max(numbers, default=-1) + 1

    def await_batch(self, count: int) -> None:
        """Wait until `count` micro-batches are done."""
        self._await(lambda: self.batches("commits") >= count, f"{count} batches")

    def kill_in_a_batch(self) -> None:
        """Kill it while a micro-batch is planned and not done."""
        self._await(lambda: self.batches("offsets") > self.batches("commits"), "a batch")
        self.kill()

    def end_offset(self) -> int:
        """Where the last micro-batch that was planned ends."""
        file = self.place / "checkpoint" / "offsets" / str(self.batches("offsets") - 1)
        return int(json.loads(file.read_text().splitlines()[-1])["offset"])

    def rows(self) -> Rows:
        """What it wrote: the files that Spark's sink has committed."""
        files = set()
        for log in (self.place / "rows" / "_spark_metadata").glob("[0-9]*"):
            for line in log.read_text().splitlines()[1:]:  # the first is the version of the format
                entry = json.loads(line)
                assert entry["action"] == "add"
                files.add(Path(entry["path"].removeprefix("file://")))
        tables = (pq.read_table(file, coerce_int96_timestamp_unit="us") for file in sorted(files))
        return counted(row for table in tables for row in table.cast(ARROW_SCHEMA).to_pylist())

    def _await(self, look: Callable[[], bool], what: str) -> None:
        def look_at_it() -> bool:
            assert self._process is not None
            assert self._process.poll() is None, f"the job ended: {self.last_lines()}"
            return look()

        eventually(look_at_it, JOB_TIMEOUT_S, what, self.last_lines)

    def last_lines(self) -> str:
        """The end of what it printed."""
        return self.log.read_text(errors="replace")[-4000:]


@pytest.fixture
def new_job(tmp_path: Path) -> Iterator[Callable[[], Job]]:
    """Make a job, which ends with the test."""
    if shutil.which("java") is None:
        missing("spark", "java is missing; on Debian: apt-get install openjdk-17-jre-headless")
    with ExitStack() as closing:

        def make() -> Job:
            job = Job(tmp_path / "job")
            closing.callback(job.kill)
            return job

        yield make


def counted(rows: Iterable[dict[str, Any]]) -> Rows:
    """Rows without the name of their source."""
    return Counter(tuple(row[name] for name in COLUMNS) for row in rows)


def log_of(cluster: Cluster, begin: int, end: int) -> Rows:
    """The records from one offset up to another in the directories of all controllers, each once."""
    options = {
        "paths": json.dumps([str(cluster.data(controller)) for controller in cluster.controllers]),
        "noOps": "true",
    }
    options |= {"startOffset": str(begin), "endOffset": str(end), "snapshots": "none"}
    reader = MetadataLogReader(parse_options(options))
    batches = [batch for partition in reader.partitions() for batch in reader.read(partition)]
    rows = counted(row for batch in batches for row in batch.to_pylist() if row["kind"] == "log")
    return Counter(rows.keys())


def of_kind(rows: Rows, kind: str) -> Rows:
    """The rows of one kind."""
    return Counter({row: times for row, times in rows.items() if row[KIND] == kind})


def assert_same(found: Rows, expected: Rows) -> None:
    """The same rows, each as often."""
    assert list(found - expected)[:3] == []
    assert list(expected - found)[:3] == []


def test_a_killed_job_and_a_killed_controller_lose_and_double_nothing(
    new_quorum: NewQuorum,
    new_job: Callable[[], Job],
    changing: Callable[[Cluster], Any],
    change: Callable[[Cluster, int], None],
) -> None:
    """The output of a stream equals that of a batch, whatever is killed; a deleted log start is a gap."""
    quorum = new_quorum(controllers=3)
    job = new_job()
    options = {
        "bootstrapControllers": quorum.bootstrap_controllers,
        "noOps": "true",
        "maxRecordsPerTrigger": "100",
    }
    job.start(options, {"processingTime": "0 seconds"})
    with changing(quorum) as changes:
        job.await_batch(3)
        leader = quorum.await_leader()
        quorum.kill(leader)
        quorum.await_leader(other_than=leader)
        job.await_batch(job.batches("commits") + 3)
        job.kill_in_a_batch()
    quorum.start(leader)
    quorum.await_quorum()
    job.start(options, {"availableNow": True})
    assert job.finish() == 0, job.last_lines()
    end = job.end_offset()
    first = job.rows()
    assert_same(first, log_of(quorum, 0, end))
    assert first.total() == end > changes.acknowledged > 0

    for controller in quorum.controllers:
        quorum.configure(controller, SMALL_LOG)
        quorum.terminate(controller)
        quorum.start(controller)
        quorum.await_quorum()

    def is_deleted() -> bool:
        change(quorum, 40)
        return all(start_offset(quorum.metadata(node)) > end for node in quorum.controllers)

    eventually(is_deleted, JOB_TIMEOUT_S, f"logs without {end}")
    job.start(options, {"availableNow": True})
    assert job.finish() == 0, job.last_lines()
    new = job.rows() - first
    (gap,) = of_kind(new, "gap")
    named = dict(zip(COLUMNS, gap, strict=True))
    assert (named["type"], named["offset"]) == ("missing-offsets", end)
    begin = json.loads(str(named["payload"]))["endOffset"]
    snapshot = of_kind(new, "snapshot")
    assert {dict(zip(COLUMNS, row, strict=True))["offset"] for row in snapshot} == {begin}
    assert sorted(dict(zip(COLUMNS, row, strict=True))["ordinal"] for row in snapshot) == [
        *range(len(snapshot))
    ]
    assert_same(of_kind(new, "log"), log_of(quorum, begin, job.end_offset()))
    assert new.total() == 1 + len(snapshot) + job.end_offset() - begin


def test_a_job_that_cannot_go_on_says_why_and_tells_no_secret(
    new_quorum: NewQuorum, new_job: Callable[[], Job]
) -> None:
    """A query ends with a message for people, and passwords are nowhere."""
    quorum = new_quorum()
    quorum.kill(3000)
    job = new_job()
    login = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="{PASSWORD}";'
    job.start(
        {
            "bootstrapControllers": quorum.bootstrap_controllers,
            "config.security.protocol": "SASL_PLAINTEXT",
            "config.sasl.mechanism": "PLAIN",
            "config.sasl.jaas.config": login,
            "config.request.timeout.ms": "1000",
            "config.default.api.timeout.ms": "2000",
        },
        {"availableNow": True},
    )
    assert job.finish() != 0
    printed = job.log.read_text()
    assert f"FollowError: controllers {quorum.bootstrap_controllers}: " in printed
    leaks = [
        path for path in job.place.rglob("*") if path.is_file() and PASSWORD.encode() in path.read_bytes()
    ]
    assert leaks == []
