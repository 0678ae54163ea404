"""The arguments and environments of this machine's processes, as other processes can read them."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import psutil

LOOK_EVERY_S: Final = 0.05


@dataclass(slots=True)
class Shown:
    """What was seen, each text once."""

    arguments: set[str] = field(default_factory=set)
    """Whole command lines."""
    environments: set[str] = field(default_factory=set)
    """Values of variables."""


@contextmanager
def watching_processes() -> Iterator[Shown]:
    """Collect what processes of this machine have as arguments and environment, while the context is open."""
    seen = Shown()
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(LOOK_EVERY_S):
            for process in psutil.process_iter():
                try:
                    seen.arguments.add(" ".join(process.cmdline()))
                    seen.environments.update(process.environ().values())
                except (psutil.Error, OSError):
                    continue  # it ended meanwhile, or is another user's

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield seen
    finally:
        ended.set()
        thread.join()
