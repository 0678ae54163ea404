"""`python -m kit.lake.faults --runs N [--seed S]`: jobs of a lake while everything fails. Exit code 1 for violations.

A run writes the logs of a quorum in portions, and ingests each of them by jobs in processes of their own. Some of
these are disturbed: killed at a file operation, with files that can't be opened, with staged files that vanish,
beside a second writer, or with times of files that jump. After an undisturbed job, the lake has what another lake
has, whose jobs were never disturbed.
"""

import argparse
import os
import random
import signal
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from kit.lake.lakes import ingest_into
from kit.lake.quorum_logs import QuorumLogs
from kit.lake.tasks import local_tasks
from pyspark_quorate.errors import LakeError
from pyspark_quorate.jobs import compaction, fold_tasks, ingest, store_tasks
from pyspark_quorate.jobs.lake import COMMIT, STAGING, TRASH, Lake
from pyspark_quorate.jobs.progress import Steps
from pyspark_quorate.jobs.table_reader import read_table
from pyspark_quorate.source import layout, reader

TABLES: Final = ("records", "gaps", "topics", "leadership")
KINDS: Final = ("kill", "open", "vanish", "writers", "clock")
ATTEMPTS_MAX: Final = 4
"""Disturbed jobs for each portion."""
OPERATIONS: Final = ("open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "shutil.rmtree")
"""The audit events of file operations in Python."""
OPEN_FAILS: Final = 0.01
ENDED, FAILED, WRONG = 0, 3, 4
"""Exit codes of a job: ended well; failed by a fault; failed otherwise."""


@dataclass(slots=True)
class Result:
    """What happened in a run."""

    violations: list[str] = field(default_factory=list)
    endings: Counter[str] = field(default_factory=Counter)
    """Kind of the fault and how the job ended -> jobs."""


class Disturbance:
    """The fault of one job. It is installed in the process of the job, which ends with it."""

    def __init__(self, kind: str, chance: random.Random, lake: Path) -> None:
        self._kind = kind
        self._chance = chance
        self._lake = str(lake)
        self._left = chance.randrange(1, 200)
        self.did_harm = False

    def install(self) -> None:
        """Disturb this process from now on."""
        sys.addaudithook(self._operation)
        for module, name in (
            (pq, "write_table"),
            (pq, "ParquetWriter"),
            (pq, "read_metadata"),
            (pq, "ParquetFile"),
        ):
            setattr(module, name, self._opening(getattr(module, name)))
        for tasks, name in (
            (store_tasks, "_read_and_write"),
            (fold_tasks, "_fold_listed"),
            (compaction, "_merge"),
        ):
            setattr(tasks, name, self._vanishing(getattr(tasks, name)))
        for places in (reader, ingest):
            vars(places)["open_root"] = self._open_root

    def _operation(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in OPERATIONS and self._lake in str(arguments[0]):
            self._disturb(is_open=event == "open")

    def _disturb(self, *, is_open: bool) -> None:
        if self._kind == "kill":
            self._left -= 1
            if not self._left:
                os.kill(os.getpid(), signal.SIGKILL)
        if self._kind == "open" and is_open and self._chance.random() < OPEN_FAILS:
            self.did_harm = True
            raise OSError(5, "Input/output error")

    def _opening(self, function: Any) -> Any:
        def opened(*arguments: Any, **options: Any) -> Any:
            self._disturb(is_open=True)
            return function(*arguments, **options)

        return opened

    def _vanishing(self, task: Callable[..., Any]) -> Callable[..., Any]:
        """A task one of whose files may be gone, or be shorter, when it has ended."""

        def ended(*arguments: Any) -> Any:
            result = task(*arguments)
            files = result.files if isinstance(result, store_tasks.Stored) else result
            if self._kind == "vanish" and files and self._chance.random() < 0.3:
                self.did_harm = True
                file = Path(self._chance.choice(files).path)
                if self._chance.random() < 0.5:
                    file.unlink()
                else:
                    file.write_bytes(file.read_bytes()[: self._chance.randrange(file.stat().st_size)])
            return result

        return ended

    def _open_root(self, address: str) -> layout.Root:
        root = layout.open_root(address)
        return replace(root, file_system=_Files(root.file_system, self._disturb))


class _Files:
    """A file system of sources whose files can't always be opened."""

    def __init__(self, file_system: Any, disturb: Callable[..., None]) -> None:
        self._file_system, self._disturb = file_system, disturb

    def open_input_file(self, path: str) -> Any:
        self._disturb(is_open=True)
        return self._file_system.open_input_file(path)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file_system, name)


def run(seed: int, where: Path) -> Result:
    """One run, in an empty directory."""
    chance = random.Random(seed)
    logs, result = QuorumLogs(chance), Result()
    lake, calm, nodes = where / "lake", where / "calm", where / "nodes"
    for portion in range(chance.randrange(2, 5)):
        for _ in range(chance.randrange(2, 8)):
            logs.step()
        for node in chance.sample(sorted(logs.nodes), chance.randrange(1, len(logs.nodes) + 1)):
            logs.nodes[node].write(nodes / str(node))
        for _ in range(chance.randrange(1, ATTEMPTS_MAX + 1)):
            kind = chance.choice(KINDS)
            if kind == "clock":
                _jump(nodes, chance)
            jobs = [
                _start(kind, chance.randrange(2**32), lake, nodes) for _ in range(1 + (kind == "writers"))
            ]
            for job in jobs:
                _, status = os.waitpid(job, 0)
                code = os.waitstatus_to_exitcode(status)
                result.endings[f"{kind}: {_named(code)}"] += 1
                if code not in (ENDED, FAILED, -signal.SIGKILL):
                    result.violations.append(f"portion {portion}, {kind}: the job ended with {code}")
        for place in (lake, calm):
            _, status = os.waitpid(_start("none", 0, place, nodes), 0)
            if status:
                result.violations.append(f"portion {portion}: an undisturbed job ended with {status}")
        result.violations += [f"portion {portion}: {text}" for text in differences(lake, calm)]
        if result.violations:
            break
    return result


def differences(lake: Path, calm: Path) -> list[str]:
    """What a lake has in another way than one whose jobs were not disturbed."""
    found, expected = Lake.open(str(lake)), Lake.open(str(calm))
    texts = []
    for name in TABLES:
        try:
            if rows(found, name) != rows(expected, name):
                texts.append(f"table {name} differs")
        except pa.ArrowException as error:
            texts.append(f"table {name} can't be read: {error}")
    if found.state.files != expected.state.files:
        texts.append("other files count as read")
    return texts + [f"{name} is left" for name in (COMMIT, STAGING, TRASH) if (lake / name).exists()]


def rows(lake: Lake, table: str) -> list[str]:
    """The rows of a table, of `records` without payload."""
    if table == "records":
        dataset = ds.dataset(lake.table(table))
        names = [name for name in dataset.schema.names if name != "payload"]
        return sorted(map(repr, dataset.to_table(columns=names).to_pylist()))
    read = read_table(lake, table)
    return [] if read is None else sorted(map(repr, read.rows))


def _named(code: int) -> str:
    return {ENDED: "ended", FAILED: "failed", -signal.SIGKILL: "killed"}.get(code, str(code))


def _jump(nodes: Path, chance: random.Random) -> None:
    """Give some files of the sources times of the past or of the future."""
    for file in sorted(nodes.rglob("*.log")):
        if chance.random() < 0.5:
            time = chance.randrange(2**32)
            os.utime(file, (time, time))


def _start(kind: str, seed: int, lake: Path, nodes: Path) -> int:
    """Start a job in a process of its own. Returns the process id."""
    sys.stdout.flush()
    child = os.fork()
    if child:
        return child
    code = WRONG
    try:
        code = _job(kind, random.Random(seed), lake, nodes)
    finally:
        sys.stderr.flush()
        os._exit(code)


def _job(kind: str, chance: random.Random, lake: Path, nodes: Path) -> int:
    disturbance = Disturbance(kind, chance, lake)
    if kind != "none":
        disturbance.install()
    tasks = local_tasks(chance if kind != "none" else None)
    try:
        unreadable = ingest_into(tasks, lake, nodes, tables=",".join(TABLES)).unreadable
        if kind != "none" and chance.random() < 0.3:
            with Lake.writing(str(lake)) as found:
                compaction.compact(tasks, found, Steps())
    except (LakeError, OSError, pa.ArrowException):
        if disturbance.did_harm or kind == "writers":
            return FAILED
        traceback.print_exc()
        return WRONG
    except Exception:
        traceback.print_exc()
        return WRONG
    return FAILED if unreadable else ENDED


def main() -> int:
    """Make runs, and print what happened."""
    parser = argparse.ArgumentParser(prog="kit.lake.faults", description=__doc__)
    parser.add_argument("--runs", type=int, default=200, help="number of runs (default %(default)s)")
    parser.add_argument("--first", type=int, default=0, help="seed of the first run (default %(default)s)")
    parser.add_argument("--seed", type=int, help="only the run with this seed")
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.runs) if options.seed is None else [options.seed]
    endings: Counter[str] = Counter()
    failed = []
    for seed in seeds:
        with tempfile.TemporaryDirectory(prefix="quorate-lake-faults-") as where:
            result = run(seed, Path(where))
        endings += result.endings
        for violation in result.violations:
            print(f"seed {seed}: {violation}; again: make lake-faults SEED={seed}")  # noqa: T201 - its output
        failed += [seed] * bool(result.violations)
    print(f"{len(seeds)} runs, {sum(endings.values())} disturbed jobs, {len(failed)} runs with violations")  # noqa: T201
    for ending, count in sorted(endings.items()):
        print(f"  {ending}: {count}")  # noqa: T201
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
