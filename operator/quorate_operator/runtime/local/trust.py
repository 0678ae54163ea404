"""Whether the directory of a played cluster can be trusted: nobody else owns or may write any of it.

What is in it decides which files are written and which addresses are opened. Nothing in it decides which program
runs: Java and Kafka's jars are found anew each time.
"""

import os
import socket
import stat
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from quorate_operator.runtime.local.errors import PlayError

_OTHERS_MAY_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
_OTHERS_MAY_ENTER: Final = stat.S_IXGRP | stat.S_IXOTH


class UntrustedError(PlayError):
    """Somebody else could have changed the directory."""


def check_directory(path: Path) -> None:
    """Refuses a directory that somebody else owns or may write; one that does not exist is fine. Raises PlayError."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise PlayError(f"{path} can't be read: {error.strerror}") from error
    _check(path, found, may_be_written=False)


def check_content(path: Path) -> None:
    """Refuses a directory with a file that somebody else owns or may write, or with a symbolic link.

    A link would lead writes of the cluster, and of Kafka, to another file. Raises PlayError.
    """
    check_directory(path)
    try:
        is_closed = not path.stat().st_mode & _OTHERS_MAY_ENTER
        for entry in _entries(path):
            found = entry.stat(follow_symlinks=False)
            if stat.S_ISLNK(found.st_mode):
                raise UntrustedError(
                    f"{entry.path} is a symbolic link, which `quorate play` never makes; remove it, or choose "
                    "another directory with --dir"
                )
            _check(Path(entry.path), found, may_be_written=is_closed)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise PlayError(f"{error.filename} can't be read: {error.strerror}") from error


def check_peer(connected: socket.socket, path: Path) -> None:
    """Refuses the other end of a Unix socket at `path` if another user runs it. Raises PlayError."""
    credentials = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, uid, _ = struct.unpack("3i", credentials)
    if uid not in (os.geteuid(), 0):
        raise UntrustedError(
            f"{path}: the other end runs as uid {uid}, and this process as uid {os.geteuid()}"
        )


def _entries(path: Path) -> Iterator[os.DirEntry[str]]:
    with os.scandir(path) as found:
        for entry in found:
            yield entry
            if entry.is_dir(follow_symlinks=False):
                yield from _entries(Path(entry.path))


def _check(path: Path, found: os.stat_result, *, may_be_written: bool) -> None:
    facts = f"{path} belongs to uid {found.st_uid}, mode {stat.S_IMODE(found.st_mode):o}"
    if found.st_uid != os.geteuid():
        raise UntrustedError(
            f"{facts}, and this process runs as uid {os.geteuid()}: a cluster is played only from a directory of the "
            f"same user, because what is in it decides which files are written. Run as that user, choose another "
            f"directory with --dir, or take it over with `chown -R` if you trust what is in it"
        )
    if found.st_mode & _OTHERS_MAY_WRITE and not may_be_written:
        raise UntrustedError(
            f"{facts}: other users may write it, so what is in it can't be trusted. If you trust it, "
            f"`chmod -R go-w {path}`; otherwise choose another directory with --dir"
        )
