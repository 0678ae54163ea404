"""What `quorate lake ingest` of a small cluster costs: time, processor time and memory of all its processes.

`python -m benchmarks.ingest` writes the directories of three controllers with the same log, starts the command on
them, and prints a line of JSON. Processor time is the sum over the processes that were seen; one that lives shorter
than a sample is missed.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

import psutil

from benchmarks.history import write_history

CONTROLLERS: Final = 3
RECORDS: Final = 30_000
TOPICS: Final = 200
SEGMENT_BYTES: Final = 64 * 1024 * 1024
SAMPLE_SECONDS: Final = 0.05


class Tree:
    """Watches a process and all that it starts."""

    def __init__(self, pid: int) -> None:
        self.resident_bytes_max = 0
        self._cpu: dict[tuple[int, float], tuple[str, float]] = {}
        self._process = psutil.Process(pid)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> dict[str, float]:
        """End the watch. Returns seconds of processor time, by the name of the program."""
        self._stopped.set()
        self._thread.join()
        found: dict[str, float] = {}
        for name, seconds in self._cpu.values():
            found[name] = found.get(name, 0.0) + seconds
        return found

    def _watch(self) -> None:
        while not self._stopped.wait(SAMPLE_SECONDS):
            resident_bytes = 0
            with suppress(psutil.Error):
                for each in (self._process, *self._process.children(recursive=True)):
                    with suppress(psutil.Error), each.oneshot():
                        used = sum(each.cpu_times()[:2])
                        self._cpu[each.pid, each.create_time()] = (each.name(), used)
                        resident_bytes += each.memory_info().rss
            self.resident_bytes_max = max(self.resident_bytes_max, resident_bytes)


def write_controllers(directory: Path, records: int, topics: int) -> None:
    """The directories of controllers that have the same log."""
    first = directory / "0"
    write_history(
        first, cluster_id="small", records=records, segment_bytes=SEGMENT_BYTES, seed=1, topics=topics
    )
    for number in range(1, CONTROLLERS):
        shutil.copytree(first, directory / str(number))


def measure(source: Path, lake: Path, options: list[str]) -> dict[str, object]:
    """One ingest, as a process of its own. Raises RuntimeError if it fails."""
    command = [sys.executable, "-m", "quorate", "lake", "ingest", str(source), "--to", str(lake), *options]
    started = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        tree = Tree(process.pid)
        output, errors = process.communicate()
    seconds = time.perf_counter() - started
    by_program = tree.stop()
    if process.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}: {errors or output}")
    return {
        "seconds": round(seconds, 1),
        "cpu_seconds": round(sum(by_program.values()), 1),
        "cpu_seconds_by_program": {name: round(used, 1) for name, used in sorted(by_program.items())},
        "resident_mib_max": tree.resident_bytes_max // 1024**2,
    }


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(prog="benchmarks.ingest", description=__doc__)
    parser.add_argument("--records", type=int, default=RECORDS, help="records of the log")
    parser.add_argument("--topics", type=int, default=TOPICS, help="topics that exist at once")
    parser.add_argument("--runs", type=int, default=1, help="ingests, each into a new lake")
    parser.add_argument("options", nargs="*", help="options of `quorate lake ingest`, after --")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch) / "source"
        write_controllers(source, given.records, given.topics)
        for number in range(given.runs):
            print(json.dumps(measure(source, Path(scratch) / f"lake-{number}", given.options)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
