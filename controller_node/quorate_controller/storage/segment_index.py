"""Where the batches of one segment lie: what Kafka's `.index` and `.timeindex` hold, and a little more.

Sparse entries, one per interval of bytes, are Kafka's: (last offset of a batch, its position) and (highest
timestamp so far, last offset of the first batch that has it). The positions of the latest batches are kept
one by one as well, because followers read the tail of the log most of the time.
"""

import struct
from array import array
from bisect import bisect_right

from quorate_protocol.records.batch import BatchHeader

from quorate_controller.storage.batch_spans import BatchSpan

_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")
_RECENT_BATCHES_MAX = 4096
_NO_TIMESTAMP = -1


class SegmentIndex:
    """Grows by one batch at a time, in the order of the file."""

    def __init__(self, base_offset: int, interval_bytes: int) -> None:
        self._base_offset = base_offset
        self._interval_bytes = interval_bytes
        self._entry_offsets = array("q")
        self._entry_positions = array("q")
        self._entry_times = array("q")
        self._entry_time_offsets = array("q")
        self._recent_offsets = array("q")
        self._recent_positions = array("q")
        self._bytes_since_entry = 0
        self._max_timestamp_ms = _NO_TIMESTAMP
        self._max_timestamp_offset = base_offset

    def add(self, header: BatchHeader | BatchSpan, position: int) -> tuple[bytes, bytes]:
        """Note the batch at `position`; returns the bytes to append to the offset and to the time index file."""
        if header.max_timestamp_ms > self._max_timestamp_ms:
            self._max_timestamp_ms = header.max_timestamp_ms
            self._max_timestamp_offset = header.last_offset
        if len(self._recent_offsets) == _RECENT_BATCHES_MAX:
            del self._recent_offsets[: _RECENT_BATCHES_MAX // 2]
            del self._recent_positions[: _RECENT_BATCHES_MAX // 2]
        self._recent_offsets.append(header.base_offset)
        self._recent_positions.append(position)
        entries = b"", b""
        if self._bytes_since_entry > self._interval_bytes:
            self._bytes_since_entry = 0
            self._entry_offsets.append(header.last_offset)
            self._entry_positions.append(position)
            entries = self._offset_entry(header.last_offset, position), self.close_time_index()
        self._bytes_since_entry += header.size_bytes
        return entries

    def close_time_index(self) -> bytes:
        """Let the time index end with the segment's highest timestamp; returns the bytes to append to its file."""
        if self._max_timestamp_ms <= (self._entry_times[-1] if self._entry_times else _NO_TIMESTAMP):
            return b""
        self._entry_times.append(self._max_timestamp_ms)
        self._entry_time_offsets.append(self._max_timestamp_offset)
        return self._time_entry(self._max_timestamp_ms, self._max_timestamp_offset)

    def truncate(self, offset: int, position: int) -> int:
        """Forget batches from `position` on, the first of which holds `offset`.

        Returns the position from which the remaining batches have to be added again, because their timestamps and
        their entries in the tail are forgotten, too.
        """
        kept = bisect_right(self._entry_positions, position - 1)
        del self._entry_offsets[kept:]
        del self._entry_positions[kept:]
        resume = self._entry_positions[-1] if kept else 0
        # A close, too, leaves time entries, past the last offset entry: their timestamps are found again when
        # the batches are.
        times = bisect_right(
            self._entry_time_offsets, self._entry_offsets[-1] if kept else self._base_offset - 1
        )
        del self._entry_times[times:]
        del self._entry_time_offsets[times:]
        assert all(entry < offset for entry in self._entry_offsets[-1:])
        del self._recent_offsets[:]
        del self._recent_positions[:]
        self._bytes_since_entry = 0
        self._max_timestamp_ms = self._entry_times[-1] if times else _NO_TIMESTAMP
        self._max_timestamp_offset = self._entry_time_offsets[-1] if times else self._base_offset
        return resume

    def position_before(self, offset: int) -> tuple[int, bool]:
        """Position of a batch at or before that which holds `offset`, and whether it is that batch itself."""
        if self._recent_offsets and offset >= self._recent_offsets[0]:
            return self._recent_positions[bisect_right(self._recent_offsets, offset) - 1], True
        found = bisect_right(self._entry_offsets, offset)
        return (self._entry_positions[found - 1] if found else 0), False

    def boundary_before(self, position: int) -> int:
        """The highest known start of a batch that is not past `position`."""
        if self._recent_positions and position >= self._recent_positions[0]:
            return self._recent_positions[bisect_right(self._recent_positions, position) - 1]
        found = bisect_right(self._entry_positions, position)
        return self._entry_positions[found - 1] if found else 0

    def offset_index(self) -> bytes:
        """The whole content of the .index file."""
        return b"".join(map(self._offset_entry, self._entry_offsets, self._entry_positions))

    def time_index(self) -> bytes:
        """The whole content of the .timeindex file."""
        return b"".join(map(self._time_entry, self._entry_times, self._entry_time_offsets))

    def _offset_entry(self, offset: int, position: int) -> bytes:
        return _OFFSET_ENTRY.pack(offset - self._base_offset, position)

    def _time_entry(self, timestamp_ms: int, offset: int) -> bytes:
        return _TIME_ENTRY.pack(timestamp_ms, offset - self._base_offset)
