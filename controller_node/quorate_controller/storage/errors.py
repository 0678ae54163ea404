"""Errors of the disk, with advice for the administrator."""

from pathlib import Path

from quorate_protocol.errors import ProtocolError, UnknownRecord

DAMAGE_ADVICE = (
    "If the other voters are healthy, remove this node from the voter set, format an empty directory and add "
    "it again; else restore the file from a backup"
)
_NEWER_ADVICE = "A newer version wrote it: run at least that version"


class StorageError(Exception):
    """A file or directory cannot be used.

    `str()` of it is one line: the path, the problem and the advice. A running controller has to stop on
    it, because it can no longer promise durability.
    """

    def __init__(self, path: Path, problem: str, *, advice: str = "") -> None:
        super().__init__(f"{path}: {problem}" + (f". {advice}" if advice else ""))
        self.path = path
        self.problem = problem
        self.advice = advice


class FileMissingError(StorageError):
    """The file or directory does not exist."""


class CorruptFileError(StorageError):
    """The file exists, but neither Kafka nor Quorate would write this content."""


def unreadable_content(path: Path, what: str, error: ProtocolError) -> CorruptFileError:
    """The error for content whose checksums are right, but that cannot be read; `what` names the part."""
    advice = _NEWER_ADVICE if isinstance(error, UnknownRecord) else DAMAGE_ADVICE
    return CorruptFileError(path, f"{what} cannot be read ({error.message})", advice=advice)


class DirectoryInUseError(StorageError):
    """Another process holds the lock of the directory."""
