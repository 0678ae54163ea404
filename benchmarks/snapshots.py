"""Watches from outside when each controller writes a snapshot, by its unfinished file."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.quorum import Quorum

WATCH_SECONDS: Final = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The time in which one controller wrote one snapshot, of time.monotonic."""

    node_id: int
    begun: float
    ended: float
    processor_seconds: float
    """That the process used meanwhile, for whatever it did."""

    @property
    def seconds(self) -> float:
        return self.ended - self.begun


class SnapshotWatch:
    """Looks at the directories from its own thread while it is entered. Each controller counts once."""

    def __init__(self, quorum: Quorum) -> None:
        self._quorum = quorum
        self._stop = threading.Event()
        self._writing: dict[int, tuple[float, float]] = {}
        self._windows: dict[int, Window] = {}
        self._thread = threading.Thread(target=self._run, name="snapshots", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def windows(self) -> tuple[Window, ...]:
        """The snapshots that are complete."""
        return tuple(self._windows.values())

    @property
    def is_writing(self) -> bool:
        """Whether a snapshot is being written now."""
        return bool(self._writing)

    def overlaps(self, begun: float, duration: float) -> bool:
        """Whether something of that time was in one of the windows."""
        return any(begun <= one.ended and begun + duration >= one.begun for one in self.windows)

    def _run(self) -> None:
        while not self._stop.wait(WATCH_SECONDS):
            for node_id in self._quorum.addresses:
                self._look_at(node_id)

    def _look_at(self, node_id: int) -> None:
        is_writing = _has_unfinished(self._quorum.log_directory(node_id))
        begun = self._writing.get(node_id)
        if is_writing and begun is None:
            self._writing[node_id] = (time.monotonic(), self._quorum.processor_seconds(node_id))
        elif begun is not None and not is_writing:
            used = self._quorum.processor_seconds(node_id) - begun[1]
            window = Window(node_id=node_id, begun=begun[0], ended=time.monotonic(), processor_seconds=used)
            self._windows.setdefault(node_id, window)
            del self._writing[node_id]


def _has_unfinished(directory: Path) -> bool:
    return any(path.name.endswith(".checkpoint.part") for path in directory.iterdir())
