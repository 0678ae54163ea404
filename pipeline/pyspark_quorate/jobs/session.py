"""The Spark session of a job: local by default, quiet, and with our interpreter on its workers."""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark_quorate.jobs.state import LakeError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL_MASTER: Final = "local[*]"
SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"
"""Set by spark-submit, whose master and memory are kept."""
ARROW_OPENS: Final = "--add-opens=java.base/java.nio=ALL-UNNAMED"
HOW_TO_GET: Final = {
    "pyspark": "Spark is missing: pip install 'quorate[lake]'",
    "java": "Java is missing, which Spark needs: version 17 or 21 on the PATH or in JAVA_HOME; "
    "on Debian: apt-get install openjdk-17-jre-headless",
}


@contextmanager
def spark_session(
    name: str, scratch: Path, master: str | None = None, settings: Mapping[str, str] | None = None
) -> Iterator["SparkSession"]:
    """A session for one job. What Spark needs on disk is below `scratch`, a directory of this job.

    `master` None: what spark-submit says, else all cores of this machine. Raises LakeError when Spark or Java
    is missing.
    """
    _check_installed()
    from pyspark.sql import SparkSession  # noqa: PLC0415 - half a second, and an extra

    is_submitted = SUBMITTED in os.environ
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.appName(name)
    chosen = master or (None if is_submitted else LOCAL_MASTER)
    if chosen is not None:
        builder = builder.master(chosen)
    for key, value in {**_defaults(chosen, scratch), **(settings or {})}.items():
        builder = builder.config(key, value)
    with _java_quiet(is_submitted):
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    try:
        yield session
    finally:
        session.stop()


def _defaults(master: str | None, scratch: Path) -> dict[str, str]:
    settings = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.parquet.compression.codec": "zstd",
        # A rerun has to write the same files whatever the size of the shuffle was.
        "spark.sql.sources.partitionOverwriteMode": "dynamic",
    }
    if master is not None:
        settings |= {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
    if master is not None and master.startswith("local"):
        settings |= {
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.sql.shuffle.partitions": str(2 * _cores(master)),
            "spark.local.dir": str(scratch / "spark"),
            "spark.sql.warehouse.dir": str(scratch / "warehouse"),
            "spark.driver.memory": os.environ.get("QUORATE_LAKE_MEMORY", "2g"),
        }
    return settings


def _cores(master: str) -> int:
    count = master.removeprefix("local").strip("[]").partition(",")[0]
    return int(count) if count.isdigit() else os.cpu_count() or 1


def _check_installed() -> None:
    from importlib.util import find_spec  # noqa: PLC0415 - beside the check that needs it
    from shutil import which  # noqa: PLC0415

    if find_spec("pyspark") is None:
        raise LakeError(HOW_TO_GET["pyspark"])
    home = os.environ.get("JAVA_HOME")
    if which("java") is None and not (home and (Path(home) / "bin" / "java").exists()):
        raise LakeError(HOW_TO_GET["java"])


@contextmanager
def _java_quiet(is_submitted: bool) -> Iterator[None]:
    """Spark's launcher says on stderr which log configuration it takes; what matters comes as exceptions."""
    if is_submitted:
        yield
        return
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with open(os.devnull, "w") as nowhere:  # noqa: PTH123 - a descriptor is what is needed
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
