"""What the command line says of Spark is named when Spark can't do with it."""

import subprocess
from pathlib import Path

import pytest
from quorate_operator.runtime.layout import QUORATE
from support.cluster import DIE_WITH_PARENT

pytestmark = pytest.mark.timeout(600)

GOLDEN = Path(__file__).parents[2] / "golden" / "data" / "current"
JOB_TIMEOUT_S = 300
CLUSTER = "4L6g3nShT-eMCtK--X86sw"


def ingest(where: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """`quorate lake ingest` of a log that stock Kafka wrote, to its end."""
    command = [*DIE_WITH_PARENT, *QUORATE, "lake", "ingest", str(GOLDEN), "--to", str(where / "lake")]
    command += ["--cluster-id", CLUSTER, "--tables", "leadership", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=JOB_TIMEOUT_S, check=False)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--master", "nonsense"), ("Spark did not start with --master nonsense: ", "Master must ")),
        (("--master", "local[0]"), ("Spark did not start with --master local[0]: ", " 0 threads")),
        (
            ("--conf", "spark.driver.memory=plenty"),
            ("Spark did not start with --master local[*] --conf spark.driver.memory: ", "-Xmxplenty"),
        ),
        (("--conf", "spark.sql.shuffle.partitions=abc"), ("'abc'", "spark.sql.shuffle.partitions")),
        (("--conf", "no-value"), ("--conf no-value: it must be KEY=VALUE",)),
    ],
)
def test_what_spark_can_not_do_with_is_named(
    tmp_path: Path, options: tuple[str, ...], named: tuple[str, ...]
) -> None:
    """Goal: no traceback for a slip of the pen. Method: wrong masters and properties; one line names each."""
    ran = ingest(tmp_path, *options)
    assert (ran.returncode, ran.stdout) == (1, "")
    (line,) = ran.stderr.splitlines()
    assert line.startswith("error: ")
    for words in named:
        assert words in line
