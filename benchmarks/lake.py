"""Measures how fast the lake's data source reads, beside Kafka's DumpLogSegments on the same segments.

Each measurement is a process of its own, `python -m benchmarks.lake DIR --cores 2`. It starts Spark, reads a small
directory to warm up, then reads DIR and drops the rows; it prints the time of the query without the start. A job is
measured as a whole, without the warm-up. DumpLogSegments prints to a file.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psutil

from benchmarks.history import write_history
from benchmarks.ingest import Ingest, measure
from benchmarks.usage import ProcessUsage

if TYPE_CHECKING:
    from collections.abc import Callable

    from quorate_operator.runtime.local.stock_kafka import Kafka

RECORDS: Final = 2_000_000
SEGMENT_BYTES: Final = 64 * 1024 * 1024
SMALL_CLUSTERS: Final = 1_000
SMALL_RECORDS: Final = 300
IDLE_RECORDS: Final = 200_000
PROCESS_SECONDS_MAX: Final = 3_600.0
ROWS_ALONE: Final = ("--tables", "")
DUMP: Final = "org.apache.kafka.tools.DumpLogSegments"

ESTIMATE_CLUSTERS: Final = 10_000
SECONDS_PER_YEAR: Final = 365 * 86_400
NO_OPS_PER_SECOND: Final = 2
"""metadata.max.idle.interval.ms is 500."""
CHANGES_PER_DAY: Final = 10_000
"""Changes of a cluster per day, a high guess: 10 rolls of 30 brokers with 100 partitions each would be 6,000."""
NO_OP_BATCH_BYTES: Final = 72
"""A batch of one NoOpRecord: 61 bytes of header, 11 of the record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One reading of one directory."""

    seconds: float
    """From the start of the process to its end."""
    read_seconds: float
    """The time of the query alone; for DumpLogSegments of the whole process."""
    cpu_seconds: float
    """The processor time of all processes during the query; for DumpLogSegments of the whole process."""
    memory_bytes_max: int
    """The maximum of all processes together; shared pages count once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeMeasurements:
    """What was read, and how fast."""

    records: int
    segment_bytes: int
    stored: Ingest
    """Rows alone, into a new lake, from the start of the process to its end."""
    whole: Run
    """On two cores, without a warm-up: what a query takes that reads once."""
    two_cores: Run
    one_core: Run
    dump: Run
    small_clusters: int
    small_records: int
    small: Run
    idle_records: int
    idle: Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """On paper: what to read a year of many clusters costs, whatever the number of machines."""

    clusters: int
    records: float
    log_bytes: float
    core_hours: float


def measure_lake(
    python: str, kafka: Kafka, scratch: Path, *, records: int, progress: Callable[[str], None]
) -> LakeMeasurements:
    """Write logs, and read them in turn. No process is left. Raises RuntimeError when a process fails."""
    large, small, idle = scratch / "large", scratch / "small", scratch / "idle"
    progress(f"a log of {records} records is written")
    write_history(large, cluster_id="large", records=records, segment_bytes=SEGMENT_BYTES, seed=1)
    write_history(
        idle, cluster_id="idle", records=IDLE_RECORDS, segment_bytes=SEGMENT_BYTES, seed=2, no_op_share=1.0
    )
    for number in range(SMALL_CLUSTERS):
        progress(f"small cluster {number + 1} of {SMALL_CLUSTERS}")
        write_history(
            small / f"{number:04d}",
            cluster_id=f"small-{number:04d}",
            records=SMALL_RECORDS,
            segment_bytes=SEGMENT_BYTES,
            seed=number,
            topics=10,
        )
    runs = {}
    warm_up = small / "0000"
    progress("Quorate stores the rows of large")
    # The first job on a machine keeps an archive of Spark's classes.
    stored = [
        measure(python, logs, scratch / f"lake-of-{logs.name}", ROWS_ALONE) for logs in (warm_up, large)
    ]
    for name, directory, cores, before in (
        ("whole", large, 2, None),
        ("two_cores", large, 2, warm_up),
        ("one_core", large, 1, warm_up),
        ("small", small, 2, warm_up),
        ("idle", idle, 1, warm_up),
    ):
        progress(f"Quorate reads {directory.name} with {cores} core(s)")
        runs[name] = _run_spark(python, directory, before, cores)
    progress("DumpLogSegments reads large")
    segments = sorted((large / "__cluster_metadata-0").glob("*.log"))
    return LakeMeasurements(
        records=records,
        segment_bytes=sum(path.stat().st_size for path in segments),
        dump=_run_dump(kafka, segments, scratch / "dump.txt"),
        stored=stored[-1],
        small_clusters=SMALL_CLUSTERS,
        small_records=SMALL_RECORDS,
        idle_records=IDLE_RECORDS,
        **runs,
    )


def estimate(measured: LakeMeasurements) -> Estimate:
    """Estimate from one core's rates: idle clusters write NoOpRecords, changes are as in the large log."""
    no_ops = float(NO_OPS_PER_SECOND * SECONDS_PER_YEAR)
    changes = CHANGES_PER_DAY * 365.0
    no_op_seconds = measured.idle.cpu_seconds / measured.idle_records
    change_seconds = measured.one_core.cpu_seconds / measured.records
    bytes_of_change = measured.segment_bytes / measured.records
    return Estimate(
        clusters=ESTIMATE_CLUSTERS,
        records=ESTIMATE_CLUSTERS * (no_ops + changes),
        log_bytes=ESTIMATE_CLUSTERS * (no_ops * NO_OP_BATCH_BYTES + changes * bytes_of_change),
        core_hours=ESTIMATE_CLUSTERS * (no_ops * no_op_seconds + changes * change_seconds) / 3600,
    )


# Processes


def _run_spark(python: str, directory: Path, warm_up: Path | None, cores: int) -> Run:
    command = [python, "-m", "benchmarks.lake", str(directory), "--cores", str(cores)]
    if warm_up is not None:
        command += ["--warm-up", str(warm_up)]
    started = time.perf_counter()
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[1],
    ) as process:
        watch = ProcessUsage(process.pid)
        output, errors = _wait(process, watch)
    report = json.loads(output.splitlines()[-1]) if process.returncode == 0 else None
    if report is None:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}: {errors[-2000:]}")
    return Run(seconds=time.perf_counter() - started, memory_bytes_max=watch.memory_bytes_max, **report)


def _run_dump(kafka: Kafka, segments: list[Path], output: Path) -> Run:
    command = kafka.command(DUMP, "--cluster-metadata-decoder", jvm=("-Xmx1g",))
    started = time.perf_counter()
    with (
        output.open("w") as text,
        subprocess.Popen(
            [*command, "--files", ",".join(map(str, segments))],
            stdout=text,
            stderr=subprocess.PIPE,
            text=True,
        ) as process,
    ):
        watch = ProcessUsage(process.pid)
        _, errors = _wait(process, watch)
    seconds = time.perf_counter() - started
    output.unlink()
    if process.returncode != 0:
        raise RuntimeError(f"{DUMP} ended with {process.returncode}: {errors[-2000:]}")
    return Run(
        seconds=seconds,
        read_seconds=seconds,
        cpu_seconds=watch.cpu_seconds,
        memory_bytes_max=watch.memory_bytes_max,
    )


def _wait(process: subprocess.Popen[str], watch: ProcessUsage) -> tuple[str, str]:
    """What it printed; kills it, and what it started, if it takes too long."""
    try:
        return process.communicate(timeout=PROCESS_SECONDS_MAX)
    except BaseException:
        for each in [*psutil.Process(process.pid).children(recursive=True), process]:
            each.kill()
        raise
    finally:
        watch.stop()


def _cpu_seconds(process: psutil.Process) -> float:
    """The processor time of a process and its children, without children that have just ended."""
    total = 0.0
    with suppress(psutil.Error):
        for each in (process, *process.children(recursive=True)):
            with suppress(psutil.Error):
                total += sum(each.cpu_times()[:2])
    return total


def main() -> int:
    """Read a directory with Spark and print what it took, as a line of JSON."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 - only the process that is measured needs Spark

    parser = argparse.ArgumentParser(prog="benchmarks.lake", description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--warm-up", type=Path, help="a small directory that is read first")
    parser.add_argument("--cores", type=int, default=2)
    options = parser.parse_args()
    # Of local[1], Python and the JVM would otherwise run side by side, on two cores.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.cores])
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master(f"local[{options.cores}]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        # Rows go from Python to the JVM with less copying than through TCP.
        .config("spark.python.unix.domain.socket.enabled", "true")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")

    def read(directory: Path) -> None:
        spark.read.format("quorate").load(str(directory)).write.format("noop").mode("overwrite").save()

    if options.warm_up is not None:
        read(options.warm_up)
    # Python workers stay: their time before the query counts once and is subtracted.
    process = psutil.Process()
    cpu, started = _cpu_seconds(process), time.perf_counter()
    read(options.directory)
    report = {"read_seconds": time.perf_counter() - started, "cpu_seconds": _cpu_seconds(process) - cpu}
    spark.stop()
    print(json.dumps(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
