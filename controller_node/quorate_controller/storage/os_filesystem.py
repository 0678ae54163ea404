"""The file system of the machine, behind the storage port."""

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from quorate_controller.storage.errors import (
    CorruptFileError,
    DirectoryInUseError,
    FileMissingError,
    StorageError,
)

_ADVICE = {
    errno.ENOSPC: "Free space on its file system, then start the node again",
    errno.EDQUOT: "Raise the disk quota or free space, then start the node again",
    errno.EROFS: "Its file system is mounted read-only: see the kernel's log for the reason",
    errno.EIO: "The disk reports an error: see the kernel's log; if the disk is lost, replace the node",
    errno.EMFILE: "Raise the limit of open files (ulimit -n)",
    errno.ENFILE: "Raise the system's limit of open files (fs.file-max)",
    errno.ENOTDIR: "A part of the path is a file where a directory is needed",
    errno.EISDIR: "It is a directory where a file is needed",
}


def _storage_error(path: Path, action: str, error: OSError) -> StorageError:
    problem = f"cannot {action}: {error.strerror or error}"
    match error.errno:
        case errno.ENOENT:
            return FileMissingError(path, problem)
        case errno.EACCES | errno.EPERM:
            return StorageError(path, problem, advice=_permission_advice(path))
        case code:
            return StorageError(path, problem, advice=_ADVICE.get(code or 0, ""))


def _permission_advice(path: Path) -> str:
    """Name the owner of the path, or of its nearest parent that can be read."""
    for candidate in (path, *path.parents):
        with contextlib.suppress(OSError):
            status = candidate.stat()
            return (
                f"This process runs as uid {os.geteuid()}; {candidate} belongs to uid {status.st_uid}, mode "
                f"{status.st_mode & 0o777:o}: give it to that user or run as its owner"
            )
    return ""


@contextlib.contextmanager
def _explained(path: Path, action: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _storage_error(path, action, error) from error


_REWRITE_BYTES = 1024 * 1024


class OsFile:
    """A file descriptor with the length in memory: no other process writes our files."""

    __slots__ = ("_descriptor", "_path", "_size_bytes")

    def __init__(self, path: Path, descriptor: int, size_bytes: int) -> None:
        self._path = path
        self._descriptor = descriptor
        self._size_bytes = size_bytes

    @property
    def size_bytes(self) -> int:
        return self._size_bytes

    def append(self, data: bytes) -> None:
        rest = memoryview(data)
        with _explained(self._path, "write"):
            while rest:
                written = os.pwrite(self._descriptor, rest, self._size_bytes)
                self._size_bytes += written
                rest = rest[written:]

    def read_at(self, position: int, size_bytes: int) -> bytes:
        with _explained(self._path, "read"):
            data = os.pread(self._descriptor, size_bytes, position)
            while len(data) < size_bytes:
                more = os.pread(self._descriptor, size_bytes - len(data), position + len(data))
                if not more:
                    break
                data += more
            return data

    def truncate(self, size_bytes: int) -> None:
        assert size_bytes <= self._size_bytes, (size_bytes, self._size_bytes)
        with _explained(self._path, "truncate"):
            os.ftruncate(self._descriptor, size_bytes)
        self._size_bytes = size_bytes

    def rewrite_from(self, position: int) -> None:
        while position < self._size_bytes:
            data = self.read_at(position, min(_REWRITE_BYTES, self._size_bytes - position))
            with _explained(self._path, "write"):
                position += os.pwrite(self._descriptor, data, position)

    def sync(self) -> None:
        # After a failed fdatasync the kernel may have dropped the dirty pages: it must never be retried, and
        # the caller has to stop on this error.
        with _explained(self._path, "make durable"):
            os.fdatasync(self._descriptor)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class OsLock:
    """Holds a lock file by both kinds of Unix lock.

    Java's FileLock is a POSIX record lock, which a process can take twice; flock keeps two storages in one
    process apart.
    """

    def __init__(self, path: Path) -> None:
        with _explained(path, "open the lock file"):
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._descriptor)
            if error.errno in (errno.EAGAIN, errno.EACCES):
                raise DirectoryInUseError(
                    path.parent,
                    "another process uses this directory",
                    advice="Stop it first, or give this node its own directory in log.dirs",
                ) from error
            raise _storage_error(path, "lock", error) from error

    def release(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class OsFileSystem:
    """FileSystem over `os`."""

    def open_file(self, path: Path, *, read_only: bool = False) -> OsFile:
        with _explained(path, "open"):
            descriptor = os.open(path, (os.O_RDONLY if read_only else os.O_RDWR) | os.O_CLOEXEC)
            return OsFile(path, descriptor, os.fstat(descriptor).st_size)

    def create_file(self, path: Path) -> OsFile:
        with _explained(path, "create"):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
            return OsFile(path, descriptor, 0)

    def read_file(self, path: Path, size_bytes_max: int) -> bytes:
        file = self.open_file(path, read_only=True)
        try:
            if file.size_bytes > size_bytes_max:
                raise CorruptFileError(
                    path, f"is {file.size_bytes} bytes long; at most {size_bytes_max} are expected"
                )
            return file.read_at(0, file.size_bytes)
        finally:
            file.close()

    def exists(self, path: Path) -> bool:
        try:
            path.stat()
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR):
                return False
            raise _storage_error(path, "look at", error) from error
        return True

    def size(self, path: Path) -> int:
        with _explained(path, "look at"):
            return path.stat().st_size

    def list_directory(self, path: Path) -> list[str]:
        with _explained(path, "list"):
            return sorted(entry.name for entry in path.iterdir())

    def make_directory(self, path: Path) -> None:
        missing = []
        while not self.exists(path):
            missing.append(path)
            path = path.parent
        for directory in reversed(missing):
            with _explained(directory, "create the directory"):
                directory.mkdir(exist_ok=True)
            self.sync_directory(directory.parent)

    def rename(self, source: Path, target: Path) -> None:
        with _explained(source, f"rename to {target.name}"):
            source.replace(target)

    def remove(self, path: Path) -> None:
        with _explained(path, "remove"):
            path.unlink(missing_ok=True)

    def set_read_only(self, path: Path) -> None:
        with _explained(path, "change the mode"):
            path.chmod(0o400)

    def sync_directory(self, path: Path) -> None:
        with _explained(path, "make the directory durable"):
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def lock(self, path: Path) -> OsLock:
        return OsLock(path)
