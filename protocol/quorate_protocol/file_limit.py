"""How many file descriptors the process may have."""

from __future__ import annotations

import resource


def raise_file_limit() -> int:
    """Let the process open as many files as it may, as Java does; return how many, `RLIM_INFINITY` for any number."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):
            return soft
    return hard
