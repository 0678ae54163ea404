"""A disk that forgets what was not synced, tears what was being written, and fails at any operation.

It implements the `FileSystem` port of `quorate_controller.storage`. File content is durable up to the last `sync`
of the file, names up to the last `sync_directory`; `crash` keeps a random part of the rest.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

from quorate_controller.storage.errors import DirectoryInUseError, FileMissingError, StorageError
from quorate_protocol.errors import ProtocolError
from quorate_protocol.records.batch import scan_batches

if TYPE_CHECKING:
    from random import Random


LOG: Final = ".log"
CHECKPOINT: Final = ".checkpoint"
EPOCH_ROTS: Final = 0.3
"""How often a bit that turns in a log is one of an epoch: no checksum covers it, and it decides elections."""
EPOCH_POSITION: Final = 12
"""The position of the epoch within a batch."""


class PowerLoss(Exception):  # noqa: N818 - an event of the world, not a fault of the code under test
    """Raised out of a disk operation: the process that called it is gone."""


class DiskError(StorageError):
    """Raised out of a disk operation, which was not done, or not wholly: the process has to end."""


@dataclass(slots=True, eq=False)
class Inode:
    """One file: what a reader sees, and what a crash leaves."""

    data: bytearray = field(default_factory=bytearray)
    durable_bytes: int = 0
    generation: int = 0
    """Counts the changes of what was written before."""
    cut_off: bytes = b""
    """Durable content that a truncation removed and no sync has confirmed yet."""
    lost: list[tuple[int, int]] = field(default_factory=list)
    """Ranges that a sync has failed to write. Readers see them, and a later sync writes them only if they are written
    again before it (fsyncgate).
    """
    rewritten_from: int | None = None

    def sync(self) -> None:
        self.durable_bytes = len(self.data)
        self.cut_off = b""
        if self.rewritten_from is not None:
            self._forget_lost_from(self.rewritten_from)
            self.rewritten_from = None

    def _forget_lost_from(self, position: int) -> None:
        self.lost = [(first, min(last, position)) for first, last in self.lost if first < position]

    def fail_to_sync(self) -> None:
        """Nothing gets to the disk, though the operating system takes it for written from now on."""
        self.lost.append((self.durable_bytes, len(self.data)))
        self.rewritten_from = None
        self.sync()

    def is_durable(self, start: int, end: int) -> bool:
        """Whether a power failure leaves a range of the file."""
        return end <= self.durable_bytes and all(end <= first or last <= start for first, last in self.lost)

    def truncate(self, size_bytes: int) -> None:
        if size_bytes < self.durable_bytes:
            self.cut_off = bytes(self.data[size_bytes : self.durable_bytes]) + self.cut_off
            self.durable_bytes = size_bytes
        self._forget_lost_from(size_bytes)
        del self.data[size_bytes:]
        self.generation += 1

    def crash(self, rng: Random) -> bool:
        """Keep what is durable and a random part of the rest. Returns whether a write was torn."""
        is_torn = False
        for first, last in self.lost:
            self.data[first:last] = bytes(last - first)
        self.lost.clear()
        self.rewritten_from = None
        if self.cut_off and rng.random() < 0.5:
            self.data[self.durable_bytes :] = self.cut_off
        else:
            unsynced = len(self.data) - self.durable_bytes
            kept = rng.choice((0, unsynced, rng.randint(0, unsynced)))
            torn = bytes(unsynced - kept) if rng.random() < 0.2 else b""
            is_torn = kept < unsynced and bool(kept or torn)
            self.data[self.durable_bytes + kept :] = torn
        self.sync()
        self.generation += 1
        return is_torn


LogFile = tuple[int, Path, Inode]
"""Base offset, name and content of a segment."""


@dataclass(frozen=True, slots=True)
class MetadataFiles:
    """Segments in ascending order, and epoch and end offset of each checkpoint."""

    logs: list[LogFile]
    checkpoints: list[tuple[int, int]]
    durable_logs: list[LogFile]
    durable_checkpoints: list[tuple[int, int]]


def _is_checkpoint(path: Path) -> bool:
    """Whether it is one of the metadata log, unlike `bootstrap.checkpoint`."""
    return path.suffix == CHECKPOINT and "-" in path.stem


def _metadata_files(names: dict[Path, Inode]) -> tuple[list[LogFile], list[tuple[int, int]]]:
    logs, checkpoints = [], []
    for path, inode in names.items():
        if path.suffix == LOG:
            logs.append((int(path.stem), path, inode))
        elif _is_checkpoint(path):
            offset, epoch = map(int, path.stem.split("-"))
            checkpoints.append((epoch, offset))
    return sorted(logs, key=lambda log: log[0]), checkpoints


@dataclass(frozen=True, slots=True)
class Rot:
    """One bit of a file that is not what was written."""

    path: Path
    inode: Inode
    position: int
    bit: int

    def turn(self) -> None:
        """Flip the bit: it rots, or is as it was."""
        if self.position < len(self.inode.data):
            self.inode.data[self.position] ^= 1 << self.bit
            self.inode.generation += 1

    def __str__(self) -> str:
        return f"{self.path.name} at byte {self.position}, bit {self.bit}"


def _position_of_epoch(rng: Random, data: bytes) -> int | None:
    """A byte of some batch's epoch, which no checksum covers; None for a file without whole batches."""
    try:
        headers = list(scan_batches(data))
    except ProtocolError:
        return None
    if not headers:
        return None
    # Between two others most epochs are impossible; at an end of the log any may be right.
    header = rng.choice((headers[0], headers[-1], rng.choice(headers)))
    return header.position + EPOCH_POSITION + rng.randrange(4)


class SimulatedFile:
    """An open file. See the `File` port."""

    def __init__(self, disk: SimulatedDisk, path: Path, inode: Inode, *, is_read_only: bool = False) -> None:
        self._disk = disk
        self._path = path
        self._inode = inode
        self._is_read_only = is_read_only
        self._is_open = True

    @property
    def size_bytes(self) -> int:
        return len(self._inode.data)

    def append(self, data: bytes) -> None:
        self._check(is_write=True)
        # Fails, if it does, with the data half written.
        half = len(data) // 2
        self._disk.changes += 1
        self._disk.moved_bytes += len(data)
        self._inode.data += data[:half]
        self._disk.take_space()
        self._disk.operation()
        self._inode.data += data[half:]

    def read_at(self, position: int, size_bytes: int) -> bytes:
        self._check(is_write=False)
        data = bytes(self._inode.data[position : position + size_bytes])
        self._disk.moved_bytes += len(data)
        return data

    def truncate(self, size_bytes: int) -> None:
        self._check(is_write=True)
        assert size_bytes <= len(self._inode.data), (size_bytes, len(self._inode.data))
        self._disk.changes += 1
        self._inode.truncate(size_bytes)
        self._disk.operation()

    def rewrite_from(self, position: int) -> None:
        self._check(is_write=True)
        known = self._inode.rewritten_from
        self._inode.rewritten_from = position if known is None else min(position, known)
        self._disk.operation()

    def sync(self) -> None:
        self._check(is_write=False)
        self._disk.operation()
        if self._disk.fails_to_sync:
            self._disk.fails_to_sync = False
            self._inode.fail_to_sync()
            raise DiskError(Path("/simulated"), "input/output error of fsync")
        self._inode.sync()

    def close(self) -> None:
        self._is_open = False

    def _check(self, *, is_write: bool) -> None:
        if not self._is_open or (is_write and self._is_read_only):
            raise StorageError(
                self._path, "the handle is closed" if not self._is_open else "is open for reading"
            )


class SimulatedLock:
    """Held until released or until the process dies."""

    def __init__(self, disk: SimulatedDisk, path: Path) -> None:
        self._disk = disk
        self._path = path

    def release(self) -> None:
        self._disk.locks.discard(self._path)


class SimulatedDisk:
    """One node's disk. `fail_after` makes one of its next operations fail."""

    def __init__(self) -> None:
        self._names: dict[Path, Inode] = {}
        self._durable_names: dict[Path, Inode] = {}
        self._directories: set[Path] = set()
        self.locks: set[Path] = set()
        self.changes = 0
        """Counts the changes of files and names."""
        self.moved_bytes = 0
        """Bytes that were written to or read from files so far."""
        self.renamed_checkpoints: list[tuple[str, bytes]] = []
        """Name and content of each completed checkpoint, until they are read."""
        self._metadata: MetadataFiles | None = None
        self.is_full = False
        """Whether nothing more can be written."""
        self.fails_to_sync = False
        """Whether the next sync fails, and what it should have written is lost."""
        self._operations_left = 0
        self._failure: PowerLoss | DiskError | None = None

    def fail_after(self, operations: int, failure: PowerLoss | DiskError) -> None:
        """Raise `failure` out of a write, sync, rename or removal: that many from now."""
        self._operations_left, self._failure = operations, failure

    def recover(self) -> None:
        """Nothing fails any more."""
        self._failure = None
        self.fails_to_sync = False

    def take_space(self) -> None:
        """Raise DiskError while the disk is full."""
        if self.is_full:
            raise DiskError(Path("/simulated"), "no space left on device")

    def operation(self) -> None:
        """Count a write. Raises the failure when its time has come."""
        if self._failure is None:
            return
        self._operations_left -= 1
        if self._operations_left <= 0:
            failure, self._failure = self._failure, None
            raise failure

    def end_process(self) -> None:
        """The process died and the machine did not: what it wrote is there, durable or not."""
        self.locks.clear()
        self.recover()

    def crash(self, rng: Random) -> int:
        """The process died with the machine: unsynced content and names survive at random.

        Returns how many files have a torn end.
        """
        changed = sorted(
            path
            for path in self._names.keys() | self._durable_names.keys()
            if self._names.get(path) is not self._durable_names.get(path)
        )
        # A rename shows as two changes; a journaling file system commits names in order, so that a crash keeps a
        # prefix of them. All or nothing is the coarsest such prefix.
        if changed and rng.random() < 0.5:
            self._names = dict(self._durable_names)
        inodes = {id(inode): inode for inode in self._names.values()}.values()
        torn = sum(inode.crash(rng) for inode in inodes)
        self.changes += 1
        self._names_changed()
        self._durable_names = dict(self._names)
        self.end_process()
        return torn

    def rot(self, rng: Random, suffixes: tuple[str, ...]) -> Rot | None:
        """Turn one bit of a file with one of these suffixes; None if there is no such file that has content."""
        paths = sorted(path for path, inode in self._names.items() if path.suffix in suffixes and inode.data)
        if not paths:
            return None
        path = rng.choice(paths)
        inode = self._names[path]
        position = rng.randrange(len(inode.data))
        if path.suffix == ".log" and rng.random() < EPOCH_ROTS:
            position = _position_of_epoch(rng, bytes(inode.data)) or position
        found = Rot(path, inode, position, rng.randrange(8))
        found.turn()
        return found

    # -------------------------------------------------------------------------- what is on it, for judges

    def metadata(self) -> MetadataFiles:
        """The files of the metadata log, as far as their names are there, and as far as they are durable."""
        if self._metadata is None:
            self._metadata = MetadataFiles(
                *_metadata_files(self._names), *_metadata_files(self._durable_names)
            )
        return self._metadata

    def _names_changed(self) -> None:
        self.changes += 1
        self._metadata = None

    # ------------------------------------------------------------------------------ the FileSystem port

    def open_file(self, path: Path, *, read_only: bool = False) -> SimulatedFile:
        return SimulatedFile(self, path, self._inode(path), is_read_only=read_only)

    def create_file(self, path: Path) -> SimulatedFile:
        self._require_directory(path)
        self.take_space()
        inode = Inode()
        self._names[path] = inode
        self._names_changed()
        self.operation()
        return SimulatedFile(self, path, inode)

    def read_file(self, path: Path, size_bytes_max: int) -> bytes:
        data = bytes(self._inode(path).data)
        if len(data) > size_bytes_max:
            raise StorageError(path, f"is longer than {size_bytes_max} bytes")
        return data

    def exists(self, path: Path) -> bool:
        return path in self._names or path in self._directories

    def size(self, path: Path) -> int:
        return len(self._inode(path).data)

    def list_directory(self, path: Path) -> list[str]:
        if path not in self._directories:
            raise FileMissingError(path, "does not exist")
        children = {name.name for name in self._names if name.parent == path}
        return sorted(
            children | {name.name for name in self._directories if name.parent == path and name != path}
        )

    def make_directory(self, path: Path) -> None:
        self._directories.update({path, *(Path(parent) for parent in PurePosixPath(path).parents)})

    def rename(self, source: Path, target: Path) -> None:
        inode = self._names[target] = self._inode(source)
        del self._names[source]
        self._names_changed()
        if _is_checkpoint(target):
            self.renamed_checkpoints.append((target.name, bytes(inode.data)))
        self.operation()

    def remove(self, path: Path) -> None:
        self._names.pop(path, None)
        self._names_changed()
        self.operation()

    def set_read_only(self, path: Path) -> None:
        self._inode(path)

    def sync_directory(self, path: Path) -> None:
        if path not in self._directories:
            raise FileMissingError(path, "does not exist")
        self.operation()
        self._names_changed()
        for names in (self._durable_names, self._names):
            for name in [name for name in names if name.parent == path]:
                if name in self._names:
                    self._durable_names[name] = self._names[name]
                else:
                    del self._durable_names[name]

    def lock(self, path: Path) -> SimulatedLock:
        if path in self.locks:
            raise DirectoryInUseError(path, "is in use by another process")
        self._require_directory(path)
        if path not in self._names:
            self._names[path] = Inode()
            self._names_changed()
        self.locks.add(path)
        return SimulatedLock(self, path)

    def _inode(self, path: Path) -> Inode:
        try:
            return self._names[path]
        except KeyError:
            raise FileMissingError(path, "does not exist") from None

    def _require_directory(self, path: Path) -> None:
        if path.parent not in self._directories:
            raise FileMissingError(path.parent, "does not exist")
