"""The port through which all storage code reaches a disk.

Everything is synchronous. A crash may lose appends, renames, creations and removals that were not
synced: file content by `File.sync`, names by `FileSystem.sync_directory`. The simulation has its own adapter,
which loses exactly that. Paths are absolute `pathlib.Path`s, used only as names.
"""

from pathlib import Path
from typing import Protocol


class File(Protocol):
    """An open file, read at positions and written at its end."""

    @property
    def size_bytes(self) -> int:
        """Current length."""

    def append(self, data: bytes) -> None:
        """Write all of `data` at the end."""

    def read_at(self, position: int, size_bytes: int) -> bytes:
        """Up to `size_bytes` from `position`; shorter only at the end of the file."""

    def truncate(self, size_bytes: int) -> None:
        """Cut the file to `size_bytes`, which is at most its length."""

    def rewrite_from(self, position: int) -> None:
        """Write the content from `position` on again, so that the next `sync` writes it after a failed one."""

    def sync(self) -> None:
        """Return when content and length are durable."""

    def close(self) -> None:
        """Close the file; does not sync."""


class Lock(Protocol):
    """An exclusive lock of a directory."""

    def release(self) -> None:
        """Release the lock. The file stays: if it was removed, a third process could lock the removed file."""


class FileSystem(Protocol):
    """Files and directories. Each method raises StorageError (FileMissingError for a missing file)."""

    def open_file(self, path: Path, *, read_only: bool = False) -> File:
        """Open an existing file, for appending too unless `read_only`."""

    def create_file(self, path: Path) -> File:
        """Create an empty file, replacing a file of that name, open for reading and appending."""

    def read_file(self, path: Path, size_bytes_max: int) -> bytes:
        """The whole content; CorruptFileError if it is longer than `size_bytes_max`."""

    def exists(self, path: Path) -> bool:
        """Whether there is a file or directory of that name."""

    def size(self, path: Path) -> int:
        """Length of a file in bytes."""

    def list_directory(self, path: Path) -> list[str]:
        """Return the names in a directory, sorted."""

    def make_directory(self, path: Path) -> None:
        """Create the directory and its parents where missing, durably."""

    def rename(self, source: Path, target: Path) -> None:
        """Atomically rename `source` to `target`, replacing a file of that name."""

    def remove(self, path: Path) -> None:
        """Remove a file if it exists."""

    def set_read_only(self, path: Path) -> None:
        """Make a complete file read-only, for its owner alone."""

    def sync_directory(self, path: Path) -> None:
        """Return when the names in the directory are durable."""

    def lock(self, path: Path) -> Lock:
        """Create the lock file if needed and lock it; DirectoryInUseError if another process holds the lock."""


def write_atomically(file_system: FileSystem, path: Path, data: bytes) -> None:
    """Replace `path` by `data`, durably; a crash in between leaves the old or the new content."""
    temporary = path.with_name(path.name + ".tmp")
    file = file_system.create_file(temporary)
    try:
        file.append(data)
        file.sync()
    finally:
        file.close()
    file_system.rename(temporary, path)
    file_system.sync_directory(path.parent)
