"""What goes wrong on a disk, said so that a person can act on it."""

from pathlib import Path


class StorageError(Exception):
    """A file or directory cannot be used.

    `str()` of it is one line for people: what was tried, on which path, what failed, what helps.
    A controller that meets one while it runs has to stop: it can no longer promise durability.
    """

    def __init__(self, path: Path, problem: str, *, advice: str = "") -> None:
        super().__init__(f"{path}: {problem}" + (f". {advice}" if advice else ""))
        self.path = path
        self.problem = problem
        self.advice = advice


class FileMissingError(StorageError):
    """The file or directory is not there."""


class CorruptFileError(StorageError):
    """The file is there, but its content is not what Kafka or we would have written."""


class DirectoryInUseError(StorageError):
    """Another process holds the lock of the directory."""
