"""What storage relies on of a file system: the same of the machine's own and of the two in memory that tests use.

A disk in memory that is kinder than a real one hides mistakes: a file used after its end, a write through a handle
for reading, a directory that is not there.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kit.simulator.disk import SimulatedDisk
from quorate_controller.storage.errors import DirectoryInUseError, FileMissingError, StorageError
from quorate_controller.storage.filesystem import FileSystem, write_atomically
from quorate_controller.storage.os_filesystem import OsFileSystem

KINDS = ("machine", "simulated", "crash")


@pytest.fixture(params=KINDS)
def files(request: pytest.FixtureRequest, new_crash_disk: Callable[[], Any]) -> FileSystem:
    """Each file system."""
    made: FileSystem = {"machine": OsFileSystem, "simulated": SimulatedDisk, "crash": new_crash_disk}[
        request.param
    ]()
    return made


@pytest.fixture
def directory(files: FileSystem, tmp_path: Path) -> Path:
    """A directory in it, two levels below the last that is there."""
    path = tmp_path / "a" / "b"
    files.make_directory(path)
    return path


def written(files: FileSystem, path: Path, data: bytes) -> None:
    file = files.create_file(path)
    file.append(data)
    file.sync()
    file.close()


def test_content(files: FileSystem, directory: Path) -> None:
    path = directory / "x"
    file = files.create_file(path)
    file.append(b"0123")
    file.append(b"456789")
    assert (file.size_bytes, files.size(path)) == (10, 10)
    assert [file.read_at(position, 4) for position in (0, 8, 10, 99)] == [b"0123", b"89", b"", b""]
    file.truncate(5)
    file.rewrite_from(2)
    file.append(b"x")
    file.sync()
    assert (file.size_bytes, files.read_file(path, 6)) == (6, b"01234x")
    with pytest.raises(AssertionError):
        file.truncate(7)
    with pytest.raises(StorageError):
        files.read_file(path, 5)


def test_handles_see_each_other(files: FileSystem, directory: Path) -> None:
    path = directory / "x"
    first = files.create_file(path)
    first.append(b"old")
    second = files.open_file(path, read_only=True)
    written(files, directory / "y", b"new")
    files.rename(directory / "y", path)
    assert (files.read_file(path, 9), second.read_at(0, 9), first.read_at(0, 9)) == (b"new", b"old", b"old")
    assert not files.exists(directory / "y")
    files.create_file(path)
    assert files.size(path) == 0


@pytest.mark.parametrize("is_read_only", [True, False])
def test_a_handle_that_may_not_write(files: FileSystem, directory: Path, is_read_only: bool) -> None:
    written(files, directory / "x", b"data")
    file = files.open_file(directory / "x", read_only=is_read_only)
    if not is_read_only:
        file.close()
        with pytest.raises((StorageError, ValueError)):
            file.read_at(0, 1)
        with pytest.raises((StorageError, ValueError)):
            file.sync()
    with pytest.raises((StorageError, ValueError)):
        file.append(b"x")
    with pytest.raises((StorageError, ValueError)):
        file.truncate(0)
    with pytest.raises((StorageError, ValueError)):
        file.rewrite_from(0)
    assert files.read_file(directory / "x", 9) == b"data"


def test_names(files: FileSystem, directory: Path) -> None:
    for name in ("c", "a"):
        written(files, directory / name, b"")
    files.make_directory(directory / "b")
    files.make_directory(directory / "b")
    assert files.list_directory(directory) == ["a", "b", "c"]
    assert files.list_directory(directory.parent) == ["b"]
    assert all(files.exists(path) for path in (directory, directory.parent, directory / "a", directory / "b"))
    files.remove(directory / "a")
    files.remove(directory / "a")
    files.sync_directory(directory)
    assert files.list_directory(directory) == ["b", "c"]
    assert not files.exists(directory / "a")


def test_what_is_missing(files: FileSystem, directory: Path) -> None:
    missing, nowhere = directory / "missing", directory / "no" / "where"
    for operation in (
        lambda: files.open_file(missing),
        lambda: files.open_file(missing, read_only=True),
        lambda: files.read_file(missing, 9),
        lambda: files.size(missing),
        lambda: files.rename(missing, directory / "x"),
        lambda: files.set_read_only(missing),
        lambda: files.list_directory(missing),
        lambda: files.sync_directory(missing),
        lambda: files.create_file(nowhere),
        lambda: files.lock(nowhere),
    ):
        with pytest.raises(FileMissingError):
            operation()
    assert files.list_directory(directory) == []


def test_locks(files: FileSystem, directory: Path) -> None:
    path = directory / ".lock"
    lock = files.lock(path)
    with pytest.raises(DirectoryInUseError):
        files.lock(path)
    lock.release()
    lock.release()
    files.lock(path).release()
    assert files.list_directory(directory) == [".lock"]


def test_replacing_a_small_file(files: FileSystem, directory: Path) -> None:
    for data in (b"first", b"second"):
        write_atomically(files, directory / "x", data)
        files.set_read_only(directory / "x")
        assert files.read_file(directory / "x", 9) == data
    assert files.list_directory(directory) == ["x"]
