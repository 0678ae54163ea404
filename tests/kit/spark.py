"""One Spark for all tests of a process, with two cores and little memory; and the JVM of jobs that tests start."""

import os
import shutil
import sys
from collections.abc import Iterator

import pytest
from kit.requirements import missing
from kit.temporary import jvm_temporary
from pyspark.sql import SparkSession

JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData")
"""For frames of tests, which are small: no second compiler, no threads beside."""
QUICK_JOB = (
    *("--master", "local[2]"),
    *("--conf", f"spark.driver.extraJavaOptions={' '.join(JVM)}"),
    *("--conf", "spark.sql.adaptive.enabled=false"),
)
"""Options of `quorate lake` for a job in a process of its own."""


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local Spark. Skips without Java."""
    if shutil.which("java") is None:
        missing("spark", "java is missing; on Debian: apt-get install openjdk-17-jre-headless")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    directory = tmp_path_factory.mktemp("spark")
    session = (
        SparkSession.builder.master("local[2]")
        .appName("tests")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        # Frames of tests are small: planning them again after each stage and compiling them costs more.
        .config("spark.sql.adaptive.enabled", "false")
        .config("spark.sql.codegen.wholeStage", "false")
        .config("spark.python.sql.dataFrameDebugging.enabled", "false")
        .config("spark.driver.extraJavaOptions", " ".join((*JVM, jvm_temporary())))
        .config("spark.sql.warehouse.dir", f"{directory}/warehouse")
        .config("spark.local.dir", f"{directory}/local")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
