"""A lake on a disk: where things are, who writes, and how a change takes place as a whole (ADR 14).

    LAKE/<table>/_common_metadata                             the columns, for every reader
    LAKE/<table>/cluster_id=<id>/day=<YYYY-MM-DD>/*.parquet
    LAKE/_lake/state.json                                     what was read, what was made
    LAKE/_lake/rows/cluster_id=<id>/*.parquet                 every row that was ever read, once
    LAKE/_lake/staging/                                       what is being made; nobody reads it
    LAKE/_lake/commit.json                                    a change that takes place: it will be finished
    LAKE/_lake/trash/                                         what was replaced, about to be deleted

A change is prepared in staging, then written down in commit.json, then made by renames, then forgotten. Whoever
opens the lake for writing finishes what is written down, and throws away what is only staged.
"""

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Self

from pyspark_quorate.jobs.state import LakeError, State

FORMATS: Final = ("parquet", "delta")
PRIVATE: Final = "_lake"
ROWS: Final = f"{PRIVATE}/rows"
STAGING: Final = f"{PRIVATE}/staging"
TRASH: Final = f"{PRIVATE}/trash"
STATE: Final = f"{PRIVATE}/state.json"
COMMIT: Final = f"{PRIVATE}/commit.json"
LOCK: Final = f"{PRIVATE}/lock"
STREAMS: Final = f"{PRIVATE}/streams"


@dataclass(frozen=True, slots=True)
class Change:
    """Renames that take place together, of paths below the lake.

    `place`: from staging to where they belong, in place of what is there. `remove`: what is no longer there.
    """

    place: Sequence[tuple[str, str]] = ()
    remove: Sequence[str] = ()
    deltas: Sequence["DeltaWrite"] = field(default=())


@dataclass(frozen=True, slots=True)
class DeltaWrite:
    """The part of some clusters of a Delta table, replaced by what is staged."""

    table: str
    staged: str
    clusters: Sequence[str]


class Lake:
    """A lake that exists. Only within `writing` may it be changed."""

    def __init__(self, path: Path, state: State) -> None:
        self.path = path
        self.state = state

    @classmethod
    def open(cls, location: str) -> Self:
        """The lake at a path, to be read. Raises LakeError when there is none."""
        path = _directory(location)
        file = path / STATE
        if not file.exists():
            raise LakeError(f"{path} is no lake: {file} is missing; `quorate lake ingest` makes one")
        return cls(path, _read_state(file))

    @classmethod
    @contextmanager
    def writing(cls, location: str, kind: str | None = None) -> Iterator[Self]:
        """The lake at a path, made if need be, for one writer at a time, after what was begun is finished.

        `kind` is parquet or delta; None takes what the lake is, or parquet.
        """
        path = _directory(location)
        if path.is_dir() and any(path.iterdir()) and not (path / PRIVATE).is_dir():
            raise LakeError(f"{path} has other files in it and is no lake: use an empty or new directory")
        (path / PRIVATE).mkdir(parents=True, exist_ok=True)
        with (path / LOCK).open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise LakeError(f"another process writes to the lake {path}: wait until it is done") from None
            if not (path / STATE).exists() and not (path / COMMIT).exists():
                _write_json(path / STATE, State(format=kind or FORMATS[0]).as_json())
            lake = cls(path, State(format=FORMATS[0]))
            lake._recover()
            if kind is not None and lake.state.format != kind:
                raise LakeError(f"--format {kind}: the lake {path} is of {lake.state.format}")
            yield lake

    def table(self, name: str) -> Path:
        """Where a table is."""
        return self.path / name

    @property
    def rows(self) -> Path:
        """Where the rows are that were read."""
        return self.path / ROWS

    @property
    def staging(self) -> Path:
        """Where a change is prepared."""
        return self.path / STAGING

    def stream(self, name: str) -> Path:
        """Where Spark keeps the checkpoint of a stream."""
        return self.path / STREAMS / name

    def commit(self, change: Change, state: State) -> None:
        """Make a change that was staged, and remember the state with it. The commit's number goes up."""
        following = replace(state, commit=self.state.commit + 1)
        # What Spark wrote may still be in the page cache, and commit.json promises that it is there.
        os.sync()
        entry = {
            "place": [list(pair) for pair in change.place],
            "remove": list(change.remove),
            "deltas": [[one.table, one.staged, list(one.clusters)] for one in change.deltas],
            "state": following.as_json(),
        }
        _write_json(self.path / COMMIT, entry)
        self._recover()

    def _recover(self) -> None:
        """Finish the change that is written down, if one is; each step may have been taken before."""
        file = self.path / COMMIT
        if file.exists():
            entry = json.loads(file.read_text())
            state = State.from_json(entry["state"], str(self.path))
            for staged, place in entry["place"]:
                self._place(self.path / staged, self.path / place)
            for place in entry["remove"]:
                self._discard(self.path / place)
            if entry["deltas"]:
                self._write_deltas([DeltaWrite(*one) for one in entry["deltas"]], state)
            _write_json(self.path / STATE, state.as_json())
            file.unlink()
        shutil.rmtree(self.path / STAGING, ignore_errors=True)
        shutil.rmtree(self.path / TRASH, ignore_errors=True)
        self.state = _read_state(self.path / STATE)

    def _place(self, staged: Path, place: Path) -> None:
        if staged.exists():
            self._discard(place)
            place.parent.mkdir(parents=True, exist_ok=True)
            staged.rename(place)

    def _discard(self, place: Path) -> None:
        if place.exists():
            trash = self.path / TRASH
            trash.mkdir(exist_ok=True)
            place.rename(trash / str(sum(1 for _ in trash.iterdir())))

    def _write_deltas(self, writes: Sequence[DeltaWrite], state: State) -> None:
        from pyspark_quorate.jobs import delta  # noqa: PLC0415 - an extra, for lakes that are of it

        for write in writes:
            delta.replace_clusters(
                self.table(write.table), self.path / write.staged, write.clusters, state.commit
            )


def _directory(location: str) -> Path:
    scheme, separator, rest = location.partition("://")
    if separator and scheme != "file":
        raise LakeError(
            f"{location}: a lake is a directory, because its changes are renames; mount the store, "
            "or copy the lake there when it is made"
        )
    path = Path(rest if separator else location).absolute()
    if path.exists() and not path.is_dir():
        raise LakeError(f"{path} is no directory")
    return path


def _read_state(file: Path) -> State:
    try:
        return State.from_json(json.loads(file.read_text()), str(file.parent.parent))
    except (KeyError, TypeError, ValueError) as error:
        raise LakeError(f"{file} can't be read as the state of a lake: {error}") from error


def _write_json(file: Path, content: object) -> None:
    """Write a file whole: a crash leaves the old one or the new one."""
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
