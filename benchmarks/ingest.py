"""What `quorate lake ingest` of a small cluster costs: time, processor time and memory of all its processes.

`python -m benchmarks.ingest` writes the directories of three controllers with the same log, starts the command on
them, and prints a line of JSON for each run.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.history import write_history
from benchmarks.usage import ProcessUsage

if TYPE_CHECKING:
    from collections.abc import Sequence

CONTROLLERS: Final = 3
RECORDS: Final = 30_000
TOPICS: Final = 200
SEGMENT_BYTES: Final = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingest:
    """What one ingest took. Processor time and memory are those of all processes."""

    seconds: float
    cpu_seconds: float
    jvm_cpu_seconds: float
    memory_bytes_max: int


def write_controllers(directory: Path, records: int, topics: int) -> None:
    """The directories of controllers that have the same log."""
    first = directory / "0"
    write_history(
        first, cluster_id="small", records=records, segment_bytes=SEGMENT_BYTES, seed=1, topics=topics
    )
    for number in range(1, CONTROLLERS):
        shutil.copytree(first, directory / str(number))


def measure_ingests(
    python: str,
    scratch: Path,
    *,
    runs: int,
    records: int = RECORDS,
    topics: int = TOPICS,
    options: Sequence[str] = (),
) -> list[Ingest]:
    """Measure ingests of the same directories into new lakes. Raises RuntimeError if one fails."""
    source = scratch / "source"
    write_controllers(source, records, topics)
    # The first job on a machine keeps an archive of Spark's classes.
    return [measure(python, source, scratch / f"lake-{number}", options) for number in range(runs + 1)][1:]


def measure(python: str, source: Path, lake: Path, options: Sequence[str]) -> Ingest:
    """One ingest, as a process of its own. Raises RuntimeError if it fails."""
    command = [python, "-m", "quorate", "lake", "ingest", str(source), "--to", str(lake), *options]
    started = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        watch = ProcessUsage(process.pid)
        output, errors = process.communicate()
    seconds = time.perf_counter() - started
    watch.stop()
    if process.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}: {errors or output}")
    return Ingest(
        seconds=seconds,
        cpu_seconds=watch.cpu_seconds,
        jvm_cpu_seconds=watch.cpu_seconds_of("java"),
        memory_bytes_max=watch.memory_bytes_max,
    )


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(prog="benchmarks.ingest", description=__doc__)
    parser.add_argument("--records", type=int, default=RECORDS, help="records of the log")
    parser.add_argument("--topics", type=int, default=TOPICS, help="topics that exist at once")
    parser.add_argument(
        "--runs", type=int, default=1, help="ingests, each into a new lake, after one that is not shown"
    )
    parser.add_argument("options", nargs="*", help="options of `quorate lake ingest`, after --")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        for ingest in measure_ingests(
            sys.executable,
            Path(scratch),
            runs=given.runs,
            records=given.records,
            topics=given.topics,
            options=given.options,
        ):
            print(json.dumps(asdict(ingest)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
