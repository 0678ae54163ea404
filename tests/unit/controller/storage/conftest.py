"""What the storage tests share: batches, and a disk in memory that can lose power at any operation."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest
from kit.storage_parts import SMALL, prepare
from quorate_controller.storage.controller_storage import ControllerStorage, StorageConfig
from quorate_controller.storage.errors import (
    CorruptFileError,
    DirectoryInUseError,
    FileMissingError,
    StorageError,
)
from quorate_controller.storage.os_filesystem import OsFileSystem
from quorate_protocol.records.batch import build_batch


class PowerLossError(Exception):
    """The machine stopped in the middle of an operation."""


@dataclass
class _Content:
    """Bytes of one file; those past `durable` are in the page cache alone."""

    data: bytearray = field(default_factory=bytearray)
    durable: bytes = b""


class _CrashFile:
    def __init__(
        self, disk: "CrashDisk", path: Path, content: _Content, *, is_read_only: bool = False
    ) -> None:
        self._disk = disk
        self._path = path
        self._content = content
        self._is_read_only = is_read_only
        self._is_open = True

    @property
    def size_bytes(self) -> int:
        return len(self._content.data)

    def append(self, data: bytes) -> None:
        self._check(is_write=True)
        self._disk.tick()
        self._content.data += data

    def read_at(self, position: int, size_bytes: int) -> bytes:
        self._check(is_write=False)
        return bytes(self._content.data[position : position + size_bytes])

    def truncate(self, size_bytes: int) -> None:
        self._check(is_write=True)
        assert size_bytes <= self.size_bytes, (size_bytes, self.size_bytes)
        self._disk.tick()
        del self._content.data[size_bytes:]

    def rewrite_from(self, position: int) -> None:  # noqa: ARG002 - its syncs never fail
        self._check(is_write=True)
        self._disk.tick()

    def sync(self) -> None:
        self._check(is_write=False)
        self._disk.tick()
        self._content.durable = bytes(self._content.data)

    def close(self) -> None:
        self._is_open = False

    def _check(self, *, is_write: bool) -> None:
        if not self._is_open or (is_write and self._is_read_only):
            raise StorageError(self._path, "the handle is closed, or for reading")


class _CrashLock:
    def __init__(self, disk: "CrashDisk", path: Path) -> None:
        self._disk = disk
        self._path = path

    def release(self) -> None:
        self._disk.locked.discard(self._path)


class CrashDisk:
    """FileSystem in memory. `power_loss_in` counts operations.

    `restart` keeps what is durable and, of the rest, a random part: of a file a prefix of what was appended,
    perhaps followed by zeros; of names a prefix of the changes.
    """

    def __init__(self) -> None:
        self.power_loss_in: int | None = None
        self.locked: set[Path] = set()
        self._names: dict[Path, _Content] = {}
        self._durable_names: dict[Path, _Content] = {}
        self._changes: list[tuple[Path, _Content | None]] = []
        self._directories: set[Path] = set()

    def tick(self) -> None:
        if self.power_loss_in is not None:
            self.power_loss_in -= 1
            if self.power_loss_in < 0:
                raise PowerLossError

    def restart(self, rng: Random) -> None:
        """Power is back."""
        self.power_loss_in = None
        self.locked.clear()
        for path, content in self._changes[: rng.randint(0, len(self._changes))]:
            self._apply(self._durable_names, path, content)
        self._changes.clear()
        self._names = dict(self._durable_names)
        for content in self._names.values():
            if content.data.startswith(content.durable):
                kept = rng.randint(len(content.durable), len(content.data))
                zeros = rng.choice((0, len(content.data) - kept))
                content.data[kept:] = bytes(zeros)
            else:
                content.data[:] = rng.choice((content.durable, bytes(content.data)))
            content.durable = bytes(content.data)

    def open_file(self, path: Path, *, read_only: bool = False) -> _CrashFile:
        return _CrashFile(self, path, self._content(path), is_read_only=read_only)

    def create_file(self, path: Path) -> _CrashFile:
        self._require_directory(path.parent)
        content = _Content()
        self._change(path, content)
        return _CrashFile(self, path, content)

    def read_file(self, path: Path, size_bytes_max: int) -> bytes:
        data = bytes(self._content(path).data)
        if len(data) > size_bytes_max:
            raise CorruptFileError(path, "is too long")
        return data

    def exists(self, path: Path) -> bool:
        return path in self._names or path in self._directories

    def size(self, path: Path) -> int:
        return len(self._content(path).data)

    def list_directory(self, path: Path) -> list[str]:
        self._require_directory(path)
        return sorted(name.name for name in (*self._names, *self._directories) if name.parent == path)

    def make_directory(self, path: Path) -> None:
        self._directories.update((path, *path.parents))

    def rename(self, source: Path, target: Path) -> None:
        content = self._content(source)
        self._change(target, content)
        self._change(source, None)

    def remove(self, path: Path) -> None:
        if path in self._names:
            self._change(path, None)

    def set_read_only(self, path: Path) -> None:
        self._content(path)

    def sync_directory(self, path: Path) -> None:
        self._require_directory(path)
        self.tick()
        for changed, content in [change for change in self._changes if change[0].parent == path]:
            self._apply(self._durable_names, changed, content)
        self._changes = [change for change in self._changes if change[0].parent != path]

    def lock(self, path: Path) -> _CrashLock:
        if path in self.locked:
            raise DirectoryInUseError(path, "in use")
        self._require_directory(path.parent)
        if path not in self._names:
            self._apply(self._names, path, _Content())
        self.locked.add(path)
        return _CrashLock(self, path)

    def _require_directory(self, path: Path) -> None:
        if path not in self._directories:
            raise FileMissingError(path, "is missing")

    def _content(self, path: Path) -> _Content:
        if path not in self._names:
            raise FileMissingError(path, "is missing")
        return self._names[path]

    def _change(self, path: Path, content: _Content | None) -> None:
        self.tick()
        self._changes.append((path, content))
        self._apply(self._names, path, content)

    @staticmethod
    def _apply(names: dict[Path, _Content], path: Path, content: _Content | None) -> None:
        if content is None:
            names.pop(path, None)
        else:
            names[path] = content


MakeBatches = Callable[..., bytes]


@pytest.fixture(scope="session")
def new_crash_disk() -> Callable[[], CrashDisk]:
    """Make a disk that can lose power."""
    return CrashDisk


@pytest.fixture(scope="session")
def power_loss() -> type[PowerLossError]:
    """What a crash disk raises when it loses power."""
    return PowerLossError


@pytest.fixture
def os_files() -> OsFileSystem:
    """The machine's file system."""
    return OsFileSystem()


@pytest.fixture(scope="session")
def make_batches() -> MakeBatches:
    """`make_batches(start, count, epoch=…, records=…, size_bytes=…, timestamp_ms=…)`: consecutive batches."""

    def make(
        start: int,
        count: int,
        *,
        epoch: int = 1,
        records: int = 1,
        size_bytes: int = 20,
        timestamp_ms: int = 1000,
    ) -> bytes:
        return b"".join(
            build_batch(
                [bytes([index % 256]) * size_bytes] * records,
                start + index * records,
                epoch,
                timestamp_ms + index,
            )
            for index in range(count)
        )

    return make


@pytest.fixture
def open_storage(os_files: OsFileSystem, tmp_path: Path) -> Callable[..., ControllerStorage]:
    """`open_storage(**config)` opens the node's directory, which is formatted by then."""
    prepare(os_files, tmp_path / "meta")

    def open_it(**changes: object) -> ControllerStorage:
        config = {"node_id": 1, "metadata_log_dir": tmp_path / "meta", "log": SMALL} | changes
        return ControllerStorage.open(os_files, StorageConfig(**config))  # type: ignore[arg-type]

    return open_it
