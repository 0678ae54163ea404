"""What the processes of this machine show to everybody who looks."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import psutil

LOOK_EVERY_S: Final = 0.05


@contextmanager
def watching_processes() -> Iterator[set[str]]:
    """Collects what processes of this machine have as arguments and environment, while the context is open."""
    seen: set[str] = set()
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(LOOK_EVERY_S):
            for process in psutil.process_iter():
                try:
                    seen.add(" ".join(process.cmdline()))
                    seen.update(process.environ().values())
                except (psutil.Error, OSError):
                    continue  # it ended meanwhile, or is somebody else's

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield seen
    finally:
        ended.set()
        thread.join()
