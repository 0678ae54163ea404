"""Errors of the disk, with what to do about them."""

from pathlib import Path


class StorageError(Exception):
    """A file or directory cannot be used.

    `str()` of it is one line for people: the path, the problem and the advice. A running controller has to stop on
    it, because it can no longer promise durability.
    """

    def __init__(self, path: Path, problem: str, *, advice: str = "") -> None:
        super().__init__(f"{path}: {problem}" + (f". {advice}" if advice else ""))
        self.path = path
        self.problem = problem
        self.advice = advice


class FileMissingError(StorageError):
    """The file or directory is not there."""


class CorruptFileError(StorageError):
    """The file exists, but neither Kafka nor Quorate would write this content."""


class DirectoryInUseError(StorageError):
    """Another process holds the lock of the directory."""
