"""A lake on disk: its files, its single writer, and atomic commits (ADR 34).

    LAKE/<table>/_common_metadata                             the columns, for every reader
    LAKE/<table>/cluster_id=<id>/day=<YYYY-MM-DD>/*.parquet
    LAKE/_lake/state.json                                     files read, tables built
    LAKE/_lake/rows/cluster_id=<id>/*.parquet                 every row read, once
    LAKE/_lake/staging/<job>/                                 files of the next commit; ignored by readers
    LAKE/_lake/commit.json                                    the commit in progress; it will be completed
    LAKE/_lake/trash/                                         replaced files, about to be deleted

A commit is prepared in staging, recorded in commit.json, applied by renames, and then removed from commit.json.
Opening the lake for writing completes a recorded commit, and deletes files that are only staged.
"""

import fcntl
import json
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Self

from pyspark_quorate.errors import LakeError
from pyspark_quorate.jobs.state import LakeState
from pyspark_quorate.stored.durable import flush

FORMATS: Final = ("parquet", "delta")
PRIVATE: Final = "_lake"
ROWS: Final = f"{PRIVATE}/rows"
STAGING: Final = f"{PRIVATE}/staging"
TRASH: Final = f"{PRIVATE}/trash"
STATE: Final = f"{PRIVATE}/state.json"
COMMIT: Final = f"{PRIVATE}/commit.json"
LOCK: Final = f"{PRIVATE}/lock"
STREAMS: Final = f"{PRIVATE}/streams"
NOT_SHARED: Final = (
    "all executors and the driver need the same directory of the lake, on a disk that they share"
)


@dataclass(frozen=True, slots=True)
class Change:
    """Renames of one commit; paths are relative to the lake.

    `place`: pairs of a staged path and its target, which is replaced. `remove`: paths to delete. `written`: staged
    files that tasks wrote, with their sizes in bytes.
    """

    place: Sequence[tuple[str, str]] = ()
    remove: Sequence[str] = ()
    written: Iterable[tuple[str, int]] = ()
    deltas: Sequence["DeltaWrite"] = field(default=())


@dataclass(frozen=True, slots=True)
class DeltaWrite:
    """Replaces the rows of some clusters in a Delta table by staged rows."""

    table: str
    staged: str
    clusters: Sequence[str]


class Lake:
    """An existing lake. It may be changed only within `writing`."""

    def __init__(self, path: Path, state: LakeState) -> None:
        self.path = path
        self.state = state
        self._job = uuid.uuid4().hex

    @classmethod
    def open(cls, location: str) -> Self:
        """Open the lake at a path for reading. Raises LakeError if the path is not a lake."""
        path = _directory(location)
        file = path / STATE
        if not file.exists():
            raise LakeError(f"{path} is not a lake: {file} is missing; `quorate lake ingest` creates one")
        return cls(path, _read_state(file))

    @classmethod
    @contextmanager
    def writing(cls, location: str, kind: str | None = None) -> Iterator[Self]:
        """Open the lake at a path for writing, create it if needed, and complete an interrupted commit.

        `kind` is parquet or delta; None: the lake's format, or parquet for a new lake. Raises LakeError, also
        while another process writes.
        """
        path = _lake_directory(location)
        (path / PRIVATE).mkdir(parents=True, exist_ok=True)
        with _locked(path):
            if not (path / STATE).exists() and not (path / COMMIT).exists():
                _write_json(path / STATE, LakeState(format=kind or FORMATS[0]).as_json())
            lake = cls(path, LakeState(format=FORMATS[0]))
            lake._recover()
            _check_format(path, lake.state, kind)
            yield lake

    @staticmethod
    def check(location: str, kind: str | None = None) -> None:
        """Check the arguments as `writing` does, without creating anything. Raises LakeError."""
        path = _lake_directory(location)
        if (path / LOCK).exists():
            with _locked(path):
                if (path / STATE).exists():
                    _check_format(path, _read_state(path / STATE), kind)

    def table(self, name: str) -> Path:
        """The directory of a table."""
        return self.path / name

    @property
    def rows(self) -> Path:
        """The directory of the rows read."""
        return self.path / ROWS

    @property
    def staging(self) -> Path:
        """The directory where this job prepares its next commit.

        No other job and no earlier commit ever used it: a task of a killed job that still runs finds no directory.
        """
        return self.path / STAGING / self._job

    def stream(self, name: str) -> Path:
        """The directory of a stream's checkpoint."""
        return self.path / STREAMS / name

    def commit(self, change: Change, state: LakeState) -> None:
        """Apply a staged change together with the new state, whose commit number is one higher. Atomic.

        Raises:
            LakeError: if a staged file is missing or has another size than its task wrote. Nothing is changed then.
        """
        following = replace(state, commit=self.state.commit + 1)
        self.check_staged(change)
        # Tasks flushed their files. What the driver staged may still be in the page cache only, and commit.json
        # refers to it.
        flush(self.path)
        entry = {
            "place": [list(pair) for pair in change.place],
            "remove": list(change.remove),
            "deltas": [[write.table, write.staged, list(write.clusters)] for write in change.deltas],
            "state": following.as_json(),
        }
        _write_json(self.path / COMMIT, entry)
        self._recover()

    def discard_staged(self) -> None:
        """Delete what is staged and will not be committed."""
        shutil.rmtree(self.path / STAGING, ignore_errors=True)
        self._job = uuid.uuid4().hex

    def check_staged(self, change: Change) -> None:
        """Compare what is staged with what tasks returned. Raises LakeError."""
        staged = [*(path for path, _ in change.place), *(write.staged for write in change.deltas)]
        missing = next((path for path in staged if not (self.path / path).exists()), None)
        for path, size_bytes in change.written:
            try:
                found_bytes = (self.path / path).stat().st_size
            except FileNotFoundError:
                missing = path
                break
            if found_bytes != size_bytes:
                raise LakeError(
                    f"{self.path / path} has {found_bytes} bytes, but its task wrote {size_bytes}: {NOT_SHARED}"
                )
        if missing is not None:
            raise LakeError(f"{self.path / missing} is missing, although a task wrote it: {NOT_SHARED}")

    def _recover(self) -> None:
        """Complete the recorded commit, if there is one. Every step can be repeated."""
        file = self.path / COMMIT
        if file.exists():
            change, state = _read_commit(file)
            for staged, place in change.place:
                self._place(self.path / staged, self.path / place)
            for place in change.remove:
                self._discard(self.path / place)
            if change.deltas:
                self._write_deltas(change.deltas, state)
            # A crash of the machine must not keep the state and lose the renames before it.
            flush(self.path)
            _write_json(self.path / STATE, state.as_json())
            file.unlink()
        self.discard_staged()
        shutil.rmtree(self.path / TRASH, ignore_errors=True)
        self.state = _read_state(self.path / STATE)

    def _place(self, staged: Path, place: Path) -> None:
        if staged.exists():
            self._discard(place)
            place.parent.mkdir(parents=True, exist_ok=True)
            staged.rename(place)
        elif not place.exists():
            raise LakeError(
                f"the commit in {self.path / COMMIT} can't be completed: {staged} is missing, and so is its target "
                f"{place}: restore one of them from a copy"
            )

    def _discard(self, place: Path) -> None:
        if place.exists():
            trash = self.path / TRASH
            trash.mkdir(exist_ok=True)
            place.rename(trash / uuid.uuid4().hex)

    def _write_deltas(self, writes: Sequence[DeltaWrite], state: LakeState) -> None:
        from pyspark_quorate.jobs import delta  # noqa: PLC0415 - an extra, for lakes in that format

        for write in writes:
            delta.replace_clusters(
                self.table(write.table), self.path / write.staged, write.clusters, state.commit
            )


def _directory(location: str) -> Path:
    scheme, separator, rest = location.partition("://")
    if separator and scheme != "file":
        raise LakeError(
            f"{location}: a lake is a directory, because commits are renames; mount the store, "
            "or copy the lake there afterwards"
        )
    path = Path(rest if separator else location).absolute()
    if path.exists() and not path.is_dir():
        raise LakeError(f"{path} is not a directory")
    return path


def _lake_directory(location: str) -> Path:
    """The directory of a lake, or one that can become a lake. Raises LakeError."""
    path = _directory(location)
    if path.is_dir() and any(path.iterdir()) and not (path / PRIVATE).is_dir():
        raise LakeError(f"{path} is not a lake and has other files: use an empty or new directory")
    return path


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with (path / LOCK).open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LakeError(f"another process writes to the lake {path}: wait until it is done") from None
        yield


def _check_format(path: Path, state: LakeState, kind: str | None) -> None:
    if kind is not None and state.format != kind:
        raise LakeError(f"--format {kind}: the lake {path} has the format {state.format}")


def _read_state(file: Path) -> LakeState:
    try:
        return LakeState.from_json(_read_object(file), str(file.parent.parent))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise LakeError(f"{file} is not the state of a lake: {error}") from error


def _read_commit(file: Path) -> tuple[Change, LakeState]:
    try:
        entry = _read_object(file)
        change = Change(
            place=[(str(staged), str(place)) for staged, place in entry["place"]],
            remove=[str(place) for place in entry["remove"]],
            deltas=[DeltaWrite(*fields) for fields in entry["deltas"]],
        )
        return change, LakeState.from_json(entry["state"], str(file.parent.parent))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise LakeError(f"{file} is not a commit of a lake: {error}") from error


def _read_object(file: Path) -> dict[str, Any]:
    """The JSON object in a file. Raises ValueError or TypeError."""
    try:
        content = json.loads(file.read_text())
    except RecursionError as error:
        raise ValueError("its lists and objects are nested too deeply") from error
    if not isinstance(content, dict):
        raise TypeError(f"a {type(content).__name__} where an object is expected")
    return content


def _write_json(file: Path, content: object) -> None:
    """Replace a file atomically and durably."""
    draft = file.with_suffix(".draft")
    with draft.open("w") as target:
        json.dump(content, target, separators=(",", ":"), sort_keys=True)
        target.flush()
        os.fsync(target.fileno())
    draft.rename(file)
    descriptor = os.open(file.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
