"""What the command line says of Spark reaches Spark, or is named when Spark can't do with it."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from kit.cluster import DIE_WITH_PARENT
from kit.lake.directories import CLUSTER
from kit.spark import JVM
from quorate_operator.runtime.local.layout import QUORATE

pytestmark = pytest.mark.timeout(600)

GOLDEN = Path(__file__).parents[2] / "golden" / "data" / "current"
JOB_TIMEOUT_S = 300


def ingest(where: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """`quorate lake ingest` of a log that stock Kafka wrote, to its end."""
    command = [*DIE_WITH_PARENT, *QUORATE, "lake", "ingest", str(GOLDEN), "--to", str(where / "lake")]
    command += ["--cluster-id", CLUSTER, "--tables", "leadership", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=JOB_TIMEOUT_S, check=False)


def test_master_and_conf_reach_spark(tmp_path: Path) -> None:
    """`--master` and `--conf` are not only accepted, and the JVM's temporary files are those of the job."""
    events = tmp_path / "events"
    events.mkdir()
    settings = {
        "spark.default.parallelism": "3",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": events.as_uri(),
    }
    given = {**settings, "spark.driver.extraJavaOptions": " ".join(JVM)}
    confs = [part for key, value in given.items() for part in ("--conf", f"{key}={value}")]
    ran = ingest(tmp_path, "--master", "local[1]", *confs)
    assert (ran.returncode, ran.stderr) == (0, "")
    written: list[dict[str, Any]] = [
        json.loads(line)
        for file in events.rglob("*")
        if file.is_file() and not file.name.startswith(".")
        for line in file.read_text().splitlines()
    ]
    (environment,) = [event for event in written if event["Event"] == "SparkListenerEnvironmentUpdate"]
    assert environment["Spark Properties"].items() >= {**settings, "spark.master": "local[1]"}.items()
    options = environment["Spark Properties"]["spark.driver.extraJavaOptions"]
    assert all(option in options for option in JVM)
    assert Path(environment["System Properties"]["java.io.tmpdir"]).name.startswith("quorate-lake-")
    (executor,) = [event for event in written if event["Event"] == "SparkListenerExecutorAdded"]
    assert executor["Executor Info"]["Total Cores"] == 1
    assert sum(event["Event"] == "SparkListenerJobEnd" for event in written) == 2, "rows, then tables"


def test_a_collector_that_the_user_chooses_replaces_ours(tmp_path: Path) -> None:
    """Options of the user win, also where a JVM takes only one of a kind."""
    log = tmp_path / "gc.log"
    chosen = f"-XX:+UseParallelGC -Xlog:gc:file={log}"
    ran = ingest(tmp_path, "--master", "local[1]", "--conf", f"spark.driver.extraJavaOptions={chosen}")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "Using Parallel" in log.read_text()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--master", "nonsense"), ("Spark did not start with --master nonsense: ", "Master must ")),
        (("--master", "local[0]"), ("Spark did not start with --master local[0]: ", " 0 threads")),
        (
            ("--conf", "spark.driver.memory=plenty"),
            ("Spark did not start with --master local[*] --conf spark.driver.memory: ", "-Xmxplenty"),
        ),
        (("--conf", "spark.speculation=abc"), ("--conf spark.speculation: ", "'abc'", "'boolean'")),
        (("--conf", "no-value"), ("--conf no-value: must be KEY=VALUE",)),
    ],
)
def test_what_spark_can_not_do_with_is_named(
    tmp_path: Path, options: tuple[str, ...], named: tuple[str, ...]
) -> None:
    ran = ingest(tmp_path, *options)
    assert (ran.returncode, ran.stdout) == (1, "")
    (line,) = ran.stderr.splitlines()
    assert line.startswith("error: ")
    for words in named:
        assert words in line


def test_without_news_spark_is_not_started(tmp_path: Path) -> None:
    first = ingest(tmp_path, "--master", "local[1]", "-o", "json")
    again = ingest(tmp_path, "--master", "nonsense", "-o", "json")
    assert (again.returncode, again.stderr) == (0, "")
    nothing = {"changedDirectories": 0, "filesRead": 0, "bytesRead": 0, "clustersBuilt": 0}
    assert json.loads(again.stdout) == json.loads(first.stdout) | nothing
    rebuilt = ingest(tmp_path, "--master", "nonsense", "--rebuild")
    assert rebuilt.returncode == 1


def test_rows_are_stored_without_tables(tmp_path: Path) -> None:
    """Sources that will be deleted can be read at once, and made into tables later."""
    command = [*DIE_WITH_PARENT, *QUORATE, "lake", "ingest", str(GOLDEN), "--to", str(tmp_path / "lake")]
    command += ["--cluster-id", CLUSTER, "--master", "local[1]", "-o", "json"]
    reported = []
    for tables in ("", "leadership"):
        ran = subprocess.run(
            [*command, "--tables", tables], capture_output=True, text=True, timeout=JOB_TIMEOUT_S, check=False
        )
        assert (ran.returncode, ran.stderr) == (0, "")
        reported.append(json.loads(ran.stdout))
    rows, built = reported
    assert rows["filesRead"] > 0
    assert rows["tables"] == {}
    assert built["filesRead"] == 0
    assert built["tables"]["leadership"] > 0
