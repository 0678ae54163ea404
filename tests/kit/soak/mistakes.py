"""`python -m kit.soak.mistakes NAME ...`: the command `quorate` with a mistake in its controller.

A soak of such controllers has to fail: that shows that its checker can. Mistakes that need a loss of power or luck to
be seen are left to the simulation (tests/simulation/test_planted_bugs.py).
"""

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Final

from quorate.main import main
from quorate_controller.raft import progress


def _commit_alone() -> None:
    """The high watermark is the leader's own log end."""

    def highest(end_offsets: Iterable[int | None]) -> int | None:
        return max((offset for offset in end_offsets if offset is not None), default=None)

    progress.majority_offset = highest


def _ignore_failed_fsync() -> None:
    """A failed fdatasync is taken for a good one."""
    fdatasync = os.fdatasync

    def sync(descriptor: int) -> None:
        with suppress(OSError):
            fdatasync(descriptor)

    os.fdatasync = sync


MISTAKES: Final[Mapping[str, Callable[[], None]]] = {
    "commits-alone": _commit_alone,
    "ignores-failed-fsync": _ignore_failed_fsync,
}


if __name__ == "__main__":
    MISTAKES[sys.argv.pop(1)]()
    sys.exit(main())
