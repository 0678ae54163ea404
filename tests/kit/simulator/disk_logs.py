"""The simulator's own reading of what is on a disk: batches of the metadata log, and the voters that they name.

Nothing here asks the code under test, which may believe anything of its log: the files of `SimulatedDisk` count.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from quorate_protocol.records.batch import CRC_COVERS_FROM, HEADER_SIZE_BYTES, decode_batches
from quorate_protocol.records.checksum import crc32c
from quorate_protocol.records.control import VotersRecord, decode_control

if TYPE_CHECKING:
    from pathlib import Path

    from kit.simulator.disk import Inode, SimulatedDisk

_HEADER: Final = struct.Struct(">qiibIhi")
"""Base offset, length, epoch, magic, CRC, attributes, last offset delta."""
_LENGTH_COUNTS_FROM: Final = 12
_CONTROL: Final = 0x20

Voters = frozenset[tuple[int, int]]
"""Node id and directory id of each voter."""
ANY_DIRECTORY: Final = 0
"""The directory id of a static voter, which counts on any disk (kraft.version 0)."""


def voters_of(record: VotersRecord) -> Voters:
    """The voters that a VotersRecord names."""
    return frozenset(
        (voter.voter_id, voter.voter_directory_id.int if voter.voter_directory_id else ANY_DIRECTORY)
        for voter in record.voters
    )


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch in a file."""

    base_offset: int
    last_offset: int
    epoch: int
    start: int
    end: int
    """Positions in the file."""
    voters: Voters | None
    """Those of the last VotersRecord in it."""


@dataclass(slots=True)
class _Scan:
    """The batches of one file, as far as it was read."""

    generation: int = -1
    position: int = 0
    batches: list[Batch] = field(default_factory=list)


class DiskLog:
    """The metadata log of one disk."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self._disk = disk
        self._scans: dict[Path, tuple[Inode, _Scan]] = {}
        self._latest: tuple[int, int, Voters | None] | None = None

    def last(self) -> tuple[int, int]:
        """Epoch of the last record and end offset, of the log or of a checkpoint that replaces it."""
        files = self._disk.metadata()
        last = max(files.checkpoints, default=(0, 0))
        for _, path, inode in reversed(files.logs):
            batches = self._batches(path, inode)
            if batches:
                return max(last, (batches[-1].epoch, batches[-1].last_offset + 1))
        return last

    @property
    def start_offset(self) -> int:
        """Where the log begins."""
        logs = self._disk.metadata().logs
        return logs[0][0] if logs else 0

    def has(self, last_offset: int, data: bytes) -> bool:
        """Whether a power failure leaves the batch that ends with `last_offset` as `data`, or a later checkpoint."""
        files = self._disk.metadata()
        for base_offset, path, inode in reversed(files.durable_logs):
            if base_offset > last_offset:
                continue
            for batch in reversed(self._batches(path, inode)):
                if batch.last_offset == last_offset and inode.is_durable(batch.start, batch.end):
                    return inode.data[batch.start : batch.end] == data
            break
        return any(end_offset > last_offset for _, end_offset in files.durable_checkpoints)

    def voters(self, start_offset: int = 0) -> Voters | None:
        """The voters of the last VotersRecord in the log, durable or not; None if it has none from an offset on."""
        key = (self._disk.changes, start_offset)
        if self._latest is None or self._latest[:2] != key:
            self._latest = (*key, self._find_voters(start_offset))
        return self._latest[2]

    def _find_voters(self, start_offset: int) -> Voters | None:
        for _, path, inode in reversed(self._disk.metadata().logs):
            for batch in reversed(self._batches(path, inode)):
                if batch.base_offset < start_offset:
                    return None
                if batch.voters is not None:
                    return batch.voters
        return None

    def _batches(self, path: Path, inode: Inode) -> list[Batch]:
        known = self._scans.get(path)
        if known is None or known[0] is not inode or known[1].generation != inode.generation:
            known = self._scans[path] = (inode, _Scan(inode.generation))
        scan = known[1]
        while scan.position + HEADER_SIZE_BYTES <= len(inode.data):
            base_offset, length, epoch, _, crc, attributes, delta = _HEADER.unpack_from(
                inode.data, scan.position
            )
            end = scan.position + _LENGTH_COUNTS_FROM + length
            if length <= 0 or end > len(inode.data):
                break
            if crc32c(bytes(inode.data[scan.position + CRC_COVERS_FROM : end])) != crc:
                break
            voters = _voters_in(bytes(inode.data[scan.position : end])) if attributes & _CONTROL else None
            scan.batches.append(Batch(base_offset, base_offset + delta, epoch, scan.position, end, voters))
            scan.position = end
        return scan.batches


def _voters_in(data: bytes) -> Voters | None:
    (batch,) = decode_batches(data)
    found = [record for record in map(decode_control, batch.records) if isinstance(record, VotersRecord)]
    return voters_of(found[-1]) if found else None
