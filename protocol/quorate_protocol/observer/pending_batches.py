"""Batches that are fetched and not committed yet."""

from collections import deque
from typing import NamedTuple

from quorate_protocol.errors import ProtocolError
from quorate_protocol.observer.events import Position
from quorate_protocol.records.batch import RecordBatch, decode_batches, scan_batches


class _Held(NamedTuple):
    last_offset: int
    epoch: int
    data: bytes


class PendingBatches:
    """Batches after `start`, in order and without gaps; kept as bytes until they are committed."""

    def __init__(self, start: Position) -> None:
        self.start = start
        """The end of the committed batches that were returned."""
        self.size_bytes = 0
        self._held: deque[_Held] = deque()

    @property
    def end(self) -> Position:
        """The end of the fetched batches: the next fetch position."""
        if not self._held:
            return self.start
        return Position(self._held[-1].last_offset + 1, self._held[-1].epoch)

    def append(self, records: bytes, leader_epoch: int) -> str | None:
        """Append the next batches. Return the fault of the first bad one, or None.

        It checks checksums, contiguous offsets, and epochs, which never decrease and are not above the leader's.
        A truncated last batch is no fault: the size of a response is limited (KIP-74).
        """
        try:
            for header in scan_batches(records, check_crc=True, allow_partial_tail=True):
                end, epoch = self.end, header.partition_leader_epoch
                if header.base_offset != end.offset:
                    return f"base offset {header.base_offset} instead of {end.offset}"
                if not end.epoch <= epoch <= leader_epoch:
                    return f"epoch {epoch} outside of {end.epoch} to {leader_epoch}"
                data = records[header.position : header.position + header.size_bytes]
                self._held.append(_Held(header.last_offset, epoch, data))
                self.size_bytes += header.size_bytes
        except ProtocolError as error:
            return error.message
        return None

    def take_below(self, high_watermark: int) -> tuple[RecordBatch, ...]:
        """Remove and return the batches that are completely below the high watermark.

        Raises:
            ProtocolError: a batch can't be decoded.
        """
        ready = [held for held in self._held if held.last_offset < high_watermark]
        taken = tuple(batch for held in ready for batch in decode_batches(held.data))
        for held in ready:
            self._held.popleft()
            self.size_bytes -= len(held.data)
            self.start = Position(held.last_offset + 1, held.epoch)
        return taken

    def truncate(self, leader_end: Position) -> int:
        """Drop the records that are not in a log with this epoch up to this offset; return their number."""
        before = self.end.offset
        while self._held and (
            self._held[-1].epoch > leader_end.epoch or self._held[-1].last_offset >= leader_end.offset
        ):
            self.size_bytes -= len(self._held.pop().data)
        return before - self.end.offset

    def clear(self) -> int:
        """Drop all fetched records; return their number."""
        before = self.end.offset
        self._held.clear()
        self.size_bytes = 0
        return before - self.start.offset
