"""The adapter for the machine's disk: locks, errors that say what helps."""

import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest
from quorate_controller.storage.errors import DirectoryInUseError, FileMissingError, StorageError
from quorate_controller.storage.filesystem import write_atomically
from quorate_controller.storage.os_filesystem import OsFileSystem

JAVA_LIKE_LOCK = """
import fcntl, sys
file = open(sys.argv[1], "r+b")
try:
    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    sys.exit(3)
if len(sys.argv) > 2:
    print("locked", flush=True)
    sys.stdin.read()
"""


def test_lock_keeps_two_storages_apart(os_files: OsFileSystem, tmp_path: Path):
    """A second lock, even in the same process, is refused until the first one is released."""
    lock = os_files.lock(tmp_path / ".lock")
    with pytest.raises(DirectoryInUseError, match="another process uses this directory"):
        os_files.lock(tmp_path / ".lock")
    lock.release()
    os_files.lock(tmp_path / ".lock").release()
    assert (tmp_path / ".lock").exists()


def test_lock_is_seen_by_javas_kind_of_lock(os_files: OsFileSystem, tmp_path: Path):
    """Java locks with POSIX record locks: another process that does so is refused, and refuses us."""
    command = [sys.executable, "-c", JAVA_LIKE_LOCK, str(tmp_path / ".lock")]
    lock = os_files.lock(tmp_path / ".lock")
    assert subprocess.run(command, check=False).returncode == 3
    lock.release()
    with subprocess.Popen([*command, "hold"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        with pytest.raises(DirectoryInUseError):
            os_files.lock(tmp_path / ".lock")
        holder.communicate(timeout=30)
    os_files.lock(tmp_path / ".lock").release()


def test_full_disk_is_explained(os_files: OsFileSystem):
    """Write to /dev/full: the error names the path, the reason and what helps."""
    file = os_files.open_file(Path("/dev/full"))
    with pytest.raises(StorageError, match=r"/dev/full: cannot write: No space left on device\. Free space"):
        file.append(b"x")
    file.close()


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.EACCES, r"This process runs as uid \d+; .* belongs to uid \d+, mode \d+"),
        (errno.EIO, "The disk reports an error: see the kernel's log"),
        (errno.EROFS, "mounted read-only"),
        (errno.EMFILE, "ulimit -n"),
    ],
)
def test_errors_say_what_helps(
    os_files: OsFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, advice: str
):
    """Let the system call fail with each errno that has a remedy."""

    def fail(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "open", fail)
    with pytest.raises(StorageError, match=advice):
        os_files.create_file(tmp_path / "file")


def test_failed_sync_is_an_error(os_files: OsFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """fdatasync that fails must reach the caller: nothing may be acknowledged after it."""
    file = os_files.create_file(tmp_path / "file")

    def fail(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fdatasync", fail)
    with pytest.raises(StorageError, match="cannot make durable"):
        file.sync()
    file.close()


def test_short_writes_are_completed(os_files: OsFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """pwrite may write less than asked: all bytes arrive, in order."""
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, position: real(fd, data[:3], position))
    file = os_files.create_file(tmp_path / "file")
    file.append(b"0123456789")
    assert (file.size_bytes, file.read_at(0, 100)) == (10, b"0123456789")
    file.close()


def test_missing_files_are_told_apart(os_files: OsFileSystem, tmp_path: Path):
    """FileMissingError is for missing files; exists and remove do not raise it."""
    with pytest.raises(FileMissingError):
        os_files.open_file(tmp_path / "nothing")
    with pytest.raises(FileMissingError):
        os_files.list_directory(tmp_path / "nothing")
    assert not os_files.exists(tmp_path / "nothing")
    os_files.remove(tmp_path / "nothing")
    (tmp_path / "file").write_bytes(b"x")
    assert not os_files.exists(tmp_path / "file" / "below")
    with pytest.raises(StorageError, match="A part of the path is a file"):
        os_files.list_directory(tmp_path / "file")


def test_atomic_write_replaces(os_files: OsFileSystem, tmp_path: Path):
    """Old content is replaced whole, and no temporary file stays."""
    path = tmp_path / "a" / "b" / "file"
    os_files.make_directory(path.parent)
    for content in (b"old and long", b"new"):
        write_atomically(os_files, path, content)
        assert path.read_bytes() == content
    assert [entry.name for entry in path.parent.iterdir()] == ["file"]


def test_lock_error_that_is_no_conflict_is_not_called_one(
    os_files: OsFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A file system without locks gives ENOLCK: that is another problem than a second process."""

    def fail(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "lockf", fail)
    with pytest.raises(StorageError, match="cannot lock: No locks available") as caught:
        os_files.lock(tmp_path / ".lock")
    assert not isinstance(caught.value, DirectoryInUseError)
