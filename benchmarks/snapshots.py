"""Watches from outside when a controller writes a snapshot, by its unfinished file."""

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

    begun: float
    ended: float
    processor_seconds: float
    """That the process used meanwhile, for whatever it did."""

    @property
    def seconds(self) -> float:
        return self.ended - self.begun

    def overlaps(self, begun: float, duration: float) -> bool:
        """Whether something of that time was in it."""
        return begun <= self.ended and begun + duration >= self.begun


class SnapshotWatch:
    """Looks at the directory of one controller from its own thread while it is entered, until a snapshot is there."""

    def __init__(self, quorum: Quorum, node_id: int) -> None:
        self._quorum = quorum
        self._node_id = node_id
        self._stop = threading.Event()
        self.has_begun = threading.Event()
        self.window: Window | None = None
        """That of the first snapshot, once it is complete."""
        self._thread = threading.Thread(target=self._run, name="snapshots", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        directory = self._quorum.log_directory(self._node_id)
        while not _has_unfinished(directory):
            if self._stop.wait(WATCH_SECONDS):
                return
        begun, used = time.monotonic(), self._quorum.processor_seconds(self._node_id)
        self.has_begun.set()
        while _has_unfinished(directory):
            if self._stop.wait(WATCH_SECONDS):
                return
        used = self._quorum.processor_seconds(self._node_id) - used
        self.window = Window(begun=begun, ended=time.monotonic(), processor_seconds=used)


def _has_unfinished(directory: Path) -> bool:
    return any(path.name.endswith(".checkpoint.part") for path in directory.iterdir())
