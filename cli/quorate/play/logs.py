"""Prints the logs of a played cluster's nodes, and follows them as they grow."""

import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

FOLLOW_EVERY_S = 0.2
TAIL_BYTES_MAX = 1024 * 1024

Write = Callable[[str], None]


def print_tail(logs: Mapping[str, Path], lines: int, write: Write) -> None:
    """The last lines of each log, with the node's name in front where there are several."""
    for label, log in logs.items():
        for line in tail(log, lines):
            write(f"{_prefix(label, logs)}{line}\n")


def follow(logs: Mapping[str, Path], lines: int, write: Write) -> None:
    """The last lines of each log and then what is added, until interrupted."""
    with ExitStack() as files:
        followed = {label: _Followed(log, files) for label, log in logs.items()}
        print_tail(logs, lines, write)
        while True:
            for label, log in followed.items():
                for line in log.new_lines():
                    write(f"{_prefix(label, logs)}{line}\n")
            time.sleep(FOLLOW_EVERY_S)


def tail(log: Path, lines: int) -> list[str]:
    """The last lines of a log; none if it is not there."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - TAIL_BYTES_MAX))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return []
    return list(deque(text.splitlines(), maxlen=lines))


class _Followed:
    """A log that is read to its end again and again; from its start, if it was truncated."""

    def __init__(self, log: Path, files: ExitStack) -> None:
        self._log = log
        self._files = files
        self._file: BinaryIO | None = None
        self._rest = b""
        self._open(at_end=True)

    def new_lines(self) -> list[str]:
        """Returns the complete lines that were added since the last call."""
        if self._file is None:
            self._open(at_end=False)
        if self._file is None:
            return []
        if self._log.exists() and self._log.stat().st_size < self._file.tell():
            self._file.seek(0)
        *whole, self._rest = (self._rest + self._file.read()).split(b"\n")
        return [line.decode(errors="replace") for line in whole]

    def _open(self, *, at_end: bool) -> None:
        if self._log.exists():
            self._file = self._files.enter_context(self._log.open("rb"))
            if at_end:
                self._file.seek(0, 2)


def _prefix(label: str, logs: Mapping[str, Path]) -> str:
    return f"{label} | " if len(logs) > 1 else ""
