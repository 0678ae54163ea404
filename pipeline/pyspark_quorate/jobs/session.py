"""The Spark session of a job: local by default, without logs, with this Python on its workers."""

import logging
import os
import re
import subprocess
import sys
import threading
import warnings
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark_quorate.errors import LakeError
from pyspark_quorate.jobs.class_archive import ClassArchive, class_archive
from pyspark_quorate.jobs.progress import Steps

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

SPARK_MIN: Final = (4, 2)
"""The first version whose Python sources of streams can limit a micro-batch."""
LOCAL_JVM: Final = "-XX:TieredStopAtLevel=1 -Xms48m"
"""Options of a local job's JVM. It distributes tasks and starts workers in Python, for which a second compiler and
a large heap cost more than they bring.
"""
COLLECTOR: Final = "-XX:+UseSerialGC"
"""For the same reason a garbage collector without threads, unless the user chose one: a JVM refuses two."""
OWN_COLLECTOR: Final = re.compile(r"-XX:\+Use\w+GC\b")
LOCAL_MASTER: Final = "local[*]"
SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"
"""Set by spark-submit, whose master and memory settings are kept."""
NO_JAVA: Final = "JAVA_GATEWAY_EXITED"
"""Part of PySpark's message when no JVM started."""
JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
LAUNCHER_COMPLAINS: Final = ("Error", "Exception", "Invalid", "Unrecognized")
LAUNCHER_LINES_MAX: Final = 200
LAUNCHER_ENDS_WITHIN_S: Final = 2
OF_A_TASK: Final = f"{LakeError.__module__}.{LakeError.__qualname__}: "
"""The beginning of the line with the message, in the traceback that Spark reports of a task."""
JVM_ENDS_WITHIN_S: Final = 60
HOW_TO_GET: Final = {
    "pyspark": "pyspark is missing: pip install 'quorate[lake]'",
    "java": "Java is missing, which Spark needs: version 17 or 21, on the PATH or in JAVA_HOME; "
    "on Debian: apt-get install openjdk-17-jre-headless",
}


@contextmanager
def spark_session(
    name: str,
    scratch: Path,
    steps: Steps,
    master: str | None = None,
    settings: Mapping[str, str] | None = None,
) -> Iterator["SparkSession"]:
    """A session for one job, and for one process. Spark's files on disk are below `scratch`, a directory of this job.

    `master` None: that of spark-submit, otherwise all cores of this machine.

    Raises:
        LakeError: if Spark or Java is missing, or if Spark does not start with these settings.
    """
    check_installed()
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # noqa: PLC0415 - comes with Spark
    from pyspark.errors import PySparkException  # noqa: PLC0415
    from pyspark.sql import SparkSession  # noqa: PLC0415 - half a second, and an extra

    is_submitted = SUBMITTED in os.environ
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.appName(name)
    chosen = master or (None if is_submitted else LOCAL_MASTER)
    if chosen is not None:
        builder = builder.master(chosen)
    given = settings or {}
    archive = None
    if not is_submitted and chosen is not None and _is_local(chosen):
        archive = class_archive(os.environ, scratch, given.get(JAVA_OPTIONS, ""))
    makes_archive = archive is not None and archive.cached is None
    for key, value in _with_defaults(given, chosen, scratch, archive).items():
        builder = builder.config(key, value)
    launcher = _Launcher()
    try:
        with launcher.heard(is_submitted):
            session = builder.getOrCreate()
    except (PySparkException, Py4JError) as error:
        # Only keys: values may be secrets.
        reported = [f"--master {chosen}"] if chosen is not None else []
        reported += [f"--conf {key}" for key in given]
        with_these = f" with {' '.join(reported)}" if reported else ""
        is_without_java = NO_JAVA in str(error)
        reason = (is_without_java and launcher.reason()) or spark_reason(error)
        raise LakeError(f"Spark did not start{with_these}: {reason}") from error
    session.sparkContext.setLogLevel("ERROR")
    # A signal may interrupt a call to the JVM: py4j would log tracebacks, some through the root logger.
    logging.getLogger().addHandler(logging.NullHandler())
    context = session.sparkContext
    try:
        yield session
    finally:
        # A signal to the process group ends the JVM too.
        with suppress(Py4JError, OSError), warnings.catch_warnings(action="ignore"):
            session.stop()
    if archive is not None and makes_archive:
        steps.begin("keeping Spark's classes, so that later jobs start faster")
        if _ends(context):
            archive.cache()


def _ends(context: "SparkContext") -> bool:
    """End the JVM of a stopped context, and wait for it. Returns whether it ended in time, and as it should."""
    process = context._gateway.proc  # type: ignore[union-attr]  # noqa: SLF001 - PySpark has no other way to it
    process.stdin.close()  # the JVM ends with its standard input
    try:
        return bool(process.wait(JVM_ENDS_WITHIN_S) == 0)
    except subprocess.TimeoutExpired:
        return False


def spark_reason(error: Exception) -> str:
    """The LakeError of a task, or the first line of a failure of Spark, without plans and JVM frames."""
    cause = getattr(error, "java_exception", None)
    text = str(error) if cause is None else str(cause.toString())
    lines = text.strip().splitlines()
    return next((line.removeprefix(OF_A_TASK) for line in lines if line.startswith(OF_A_TASK)), lines[0])


def _is_local(master: str) -> bool:
    return master.startswith("local")


def _with_defaults(
    given: Mapping[str, str], master: str | None, scratch: Path, archive: ClassArchive | None
) -> dict[str, str]:
    settings = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.parquet.compression.codec": "zstd",
        # A rerun must write the same files whatever the size of the shuffle.
        "spark.sql.sources.partitionOverwriteMode": "dynamic",
        # PySpark would send the JVM our source line with each operation: several calls instead of one.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
    }
    if master is not None:
        settings |= {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
    is_local = master is not None and _is_local(master)
    if master is not None and is_local:
        settings |= {
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.sql.shuffle.partitions": str(2 * _cores(master)),
            "spark.local.dir": str(scratch / "spark"),
            "spark.sql.warehouse.dir": str(scratch / "warehouse"),
            # A query only passes on rows of a stream: planning it again or compiling it costs more than it saves.
            "spark.sql.adaptive.enabled": "false",
            "spark.sql.codegen.wholeStage": "false",
            "spark.driver.memory": os.environ.get("QUORATE_LAKE_MEMORY", "1g"),
        }
    settings |= given
    if is_local:
        # Libraries unpack native code there, and a JVM that is killed leaves it.
        chosen = given.get(JAVA_OPTIONS, "")
        options = [f'"-Djava.io.tmpdir={scratch}"', LOCAL_JVM]
        options += [] if OWN_COLLECTOR.search(chosen) else [COLLECTOR]
        options += [archive.options] if archive is not None else []
        settings[JAVA_OPTIONS] = " ".join([*options, chosen]).strip()
    return settings


def _cores(master: str) -> int:
    count = master.removeprefix("local").strip("[]").partition(",")[0]
    return int(count) if count.isdigit() else os.cpu_count() or 1


def check_installed() -> None:
    """Raise LakeError if Spark or Java is missing, or if Spark is too old."""
    from importlib.util import find_spec  # noqa: PLC0415 - beside the check that needs it
    from shutil import which  # noqa: PLC0415

    if find_spec("pyspark") is None:
        raise LakeError(HOW_TO_GET["pyspark"])
    from pyspark.version import __version__ as version  # noqa: PLC0415 - an extra

    if tuple(map(int, version.split(".")[:2])) < SPARK_MIN:
        raise LakeError(
            f"Spark {version} is too old: {'.'.join(map(str, SPARK_MIN))} or newer is needed: "
            "pip install --upgrade 'quorate[lake]'"
        )
    home = os.environ.get("JAVA_HOME")
    if which("java") is None and not (home and (Path(home) / "bin" / "java").exists()):
        raise LakeError(HOW_TO_GET["java"])


class _Launcher:
    """Captures the stderr of Spark's launcher and the JVM, which is needed only if Spark does not start."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=LAUNCHER_LINES_MAX)
        self._reader: threading.Thread | None = None

    @contextmanager
    def heard(self, is_submitted: bool) -> Iterator[None]:
        """Start the JVM within this context. A JVM that spark-submit started keeps its stderr."""
        if is_submitted:
            yield
            return
        sys.stderr.flush()
        kept = os.dup(2)
        end, begin = os.pipe()
        os.dup2(begin, 2)
        os.close(begin)
        self._reader = threading.Thread(target=self._read_lines, args=(end,), daemon=True)
        self._reader.start()
        try:
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)

    def reason(self) -> str | None:
        """The line with the reason why the JVM did not start."""
        if self._reader is not None:
            self._reader.join(LAUNCHER_ENDS_WITHIN_S)
        errors = [line for line in self._lines.copy() if any(word in line for word in LAUNCHER_COMPLAINS)]
        return (
            errors[0].removeprefix('Exception in thread "main" ').removeprefix("Error: ") if errors else None
        )

    def _read_lines(self, end: int) -> None:
        """Read until the JVM ends, so that it never blocks on a full pipe."""
        with open(end, encoding="utf-8", errors="replace") as lines:
            self._lines.extend(line.strip() for line in lines)
