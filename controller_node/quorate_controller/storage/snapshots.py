"""Checkpoint files of the metadata partition (KIP-630): `%020d-%010d.checkpoint`, end offset and epoch.

A checkpoint gets its name only when it is complete and durable. Unfinished (`.part`) and deleted (`.deleted`)
checkpoints that a crash left are removed at the next start. The bootstrap checkpoint 0-0, which formatting writes,
is listed like any other; raft never serves it to peers, and the node never loads it.
"""

import logging
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from quorate_protocol.errors import ProtocolError

from quorate_controller.raft.model import SnapshotId
from quorate_controller.storage.errors import CorruptFileError, FileMissingError, unreadable_content
from quorate_controller.storage.filesystem import FileSystem

_logger = logging.getLogger(__name__)

_NAME = re.compile(r"(\d{20})-(\d{10}).*?\.checkpoint(\.part|\.deleted)?")


_CHUNK_BYTES = 1024 * 1024


def chunks_of(read: Callable[[int, int], bytes], size_bytes: int) -> Iterator[bytes]:
    """A file in parts; `read` takes a position and a number of bytes."""
    for position in range(0, size_bytes, _CHUNK_BYTES):
        yield read(position, _CHUNK_BYTES)


def snapshot_file_name(snapshot_id: SnapshotId) -> str:
    """Kafka's name of a complete checkpoint."""
    return f"{snapshot_id.offset:020d}-{snapshot_id.epoch:010d}.checkpoint"


class SnapshotWriter:
    """An unfinished checkpoint."""

    def __init__(self, store: "SnapshotStore", path: Path, snapshot_id: SnapshotId) -> None:
        self.snapshot_id = snapshot_id
        self._store = store
        self._path = path
        self._file = store.file_system.create_file(path)

    @property
    def size_bytes(self) -> int:
        """Bytes written so far; the position of the next chunk of a download."""
        return self._file.size_bytes

    def append(self, data: bytes) -> None:
        """Write at the end."""
        self._file.append(data)

    def read(self, position: int, size_bytes_max: int) -> bytes:
        """Return a part of the written bytes."""
        return self._file.read_at(position, size_bytes_max)

    def freeze(self) -> None:
        """Make it durable and give it its name; from then on it is listed and readable."""
        file_system = self._store.file_system
        self._file.sync()
        self._file.close()
        file_system.set_read_only(self._path)
        file_system.rename(self._path, self._path.with_name(snapshot_file_name(self.snapshot_id)))
        file_system.sync_directory(self._path.parent)
        self._store.add(self.snapshot_id, self._file.size_bytes)

    def abort(self) -> None:
        """Remove it."""
        self._file.close()
        self._store.file_system.remove(self._path)


class SnapshotStore:
    """The checkpoints of one partition directory."""

    def __init__(self, file_system: FileSystem, directory: Path) -> None:
        self.file_system = file_system
        self._directory = directory
        self._sizes: dict[SnapshotId, int] = {}
        self._unreadable: set[SnapshotId] = set()

    @classmethod
    def open(cls, file_system: FileSystem, directory: Path) -> "SnapshotStore":
        """List the directory and remove left-overs."""
        store = cls(file_system, directory)
        for name in file_system.list_directory(directory):
            parsed = _NAME.fullmatch(name)
            if parsed is None:
                continue
            path = directory / name
            if parsed[3]:
                _logger.info("left_over_file_removed", extra={"facts": {"file": name}})
                file_system.remove(path)
            else:
                snapshot_id = SnapshotId(offset=int(parsed[1]), epoch=int(parsed[2]))
                store.add(snapshot_id, file_system.size(path))
        return store

    @property
    def ids(self) -> tuple[SnapshotId, ...]:
        """All complete checkpoints, ascending."""
        return tuple(sorted(self._sizes))

    @property
    def latest(self) -> SnapshotId | None:
        """The last of `ids`."""
        return max(self._sizes, default=None)

    @property
    def unreadable_ids(self) -> tuple[SnapshotId, ...]:
        """The checkpoints among `ids` that were found damaged."""
        return tuple(sorted(self._unreadable))

    def serves(self, snapshot_id: SnapshotId) -> bool:
        """Whether other replicas may fetch this checkpoint. They verify it."""
        return snapshot_id in self._sizes and snapshot_id not in self._unreadable

    def set_aside(self, snapshot_id: SnapshotId) -> None:
        """Stop serving a damaged checkpoint. It stays until retention removes it."""
        self._unreadable.add(snapshot_id)

    @property
    def size_bytes(self) -> int:
        """Sum of the lengths of all complete checkpoints."""
        return sum(self._sizes.values())

    def add(self, snapshot_id: SnapshotId, size_bytes: int) -> None:
        """List a checkpoint that has just become complete."""
        self._sizes[snapshot_id] = size_bytes

    def create(self, snapshot_id: SnapshotId) -> SnapshotWriter:
        """Begin a checkpoint whose id has no complete one yet."""
        assert snapshot_id not in self._sizes, snapshot_id
        path = self._directory / f"{snapshot_file_name(snapshot_id)}.part"
        return SnapshotWriter(self, path, snapshot_id)

    def size(self, snapshot_id: SnapshotId) -> int:
        """Return the size of a checkpoint in bytes.

        Raises:
            FileMissingError: there is no such checkpoint.
        """
        size_bytes = self._sizes.get(snapshot_id)
        if size_bytes is None:
            raise FileMissingError(
                self._directory / snapshot_file_name(snapshot_id), "there is no such snapshot"
            )
        return size_bytes

    def read(self, snapshot_id: SnapshotId, position: int, size_bytes_max: int) -> bytes:
        """Return a chunk, shorter only at the end.

        Raises:
            FileMissingError: there is no such checkpoint.
        """
        self.size(snapshot_id)
        path = self._directory / snapshot_file_name(snapshot_id)
        file = self.file_system.open_file(path, read_only=True)
        try:
            return file.read_at(position, size_bytes_max)
        finally:
            file.close()

    def chunks(self, snapshot_id: SnapshotId) -> Iterator[bytes]:
        """The whole checkpoint, in parts."""
        return chunks_of(partial(self.read, snapshot_id), self.size(snapshot_id))

    def unreadable(self, snapshot_id: SnapshotId, error: ProtocolError) -> CorruptFileError:
        """The error for a checkpoint that cannot be loaded."""
        path = self._directory / snapshot_file_name(snapshot_id)
        return unreadable_content(path, "the checkpoint", error)

    def read_all(self, snapshot_id: SnapshotId) -> bytes:
        """The whole checkpoint."""
        return self.read(snapshot_id, 0, self.size(snapshot_id))

    def remove_before(self, snapshot_id: SnapshotId) -> tuple[SnapshotId, ...]:
        """Delete the checkpoints that precede `snapshot_id`. Returns the deleted ones."""
        removed = tuple(known for known in self.ids if known < snapshot_id)
        for known in removed:
            self.remove(known)
        return removed

    def remove(self, snapshot_id: SnapshotId) -> None:
        """Delete one checkpoint."""
        self.file_system.remove(self._directory / snapshot_file_name(snapshot_id))
        del self._sizes[snapshot_id]
        self._unreadable.discard(snapshot_id)
