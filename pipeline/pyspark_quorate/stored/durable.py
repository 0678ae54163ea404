"""Files that tasks write: durable before a task returns them, and only in a directory that the driver made."""

import ctypes
import os
import socket
from pathlib import Path
from typing import NamedTuple

from pyspark_quorate.errors import LakeError


class Written(NamedTuple):
    """A file that a task wrote."""

    cluster_id: str
    path: str
    size_bytes: int


def flush(directory: Path) -> None:
    """Write everything that the page cache has of this directory's file system to the disk.

    One call, whatever the number of files; other file systems are left alone where the platform allows it.
    """
    syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if syncfs is None:
        os.sync()
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        if syncfs(descriptor) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(directory))
    finally:
        os.close(descriptor)


def check_shared(staging: Path) -> None:
    """Check in a task that its host has the directory that the driver made. Raises LakeError."""
    if not staging.is_dir():
        raise LakeError(
            f"{socket.gethostname()} has no {staging}: executors need the directory of the lake, on a disk that they "
            "share with the driver; or the job of this task has ended"
        )
