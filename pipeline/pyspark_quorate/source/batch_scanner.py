"""Splits the bytes of a file into record batches, and reports damaged and missing ones as gaps.

Bytes arrive in pieces; an incomplete batch at the end of a piece is left for the next one. After damage, the scanner
searches the next batch: first at the end of the damaged one by its length, then byte by byte. A candidate is accepted
if its checksum is correct and its offsets can follow.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

from quorate_protocol.records.batch import (
    COMPRESSION_MASK,
    CONTROL,
    CRC_COVERS_FROM,
    HEADER,
    HEADER_SIZE_BYTES,
    LENGTH_COUNTS_FROM,
    MAGIC,
    MAGIC_POSITION,
    PREFIX,
    RECORD_SIZE_BYTES_MIN,
    header_struct,
)
from quorate_protocol.records.checksum import crc32c

from pyspark_quorate.rows import CORRUPT_BATCH, MISSING_OFFSETS, TORN_TAIL
from pyspark_quorate.source.runs import BATCH_SIZE_BYTES_MAX, Batch, Batches, read_usual_batches

_OFFSET_LENGTH_EPOCH: Final = header_struct(slice(3))
_RUN_MIN, _RUN_MAX = 8, 4096
"""Batches checked at once: doubled after each full run, reset to the minimum after an unusual batch."""


class UnknownRecord(NamedTuple):
    """A record that this version can't decode; a later one may."""

    key: str | None
    """Base64; None for a metadata record, which has none."""
    value: str
    """Base64."""
    time_us: int | None
    ordinal: int
    """In a snapshot: the record's index; otherwise 0."""
    snapshot: tuple[int, int] | None
    """End offset and epoch of the snapshot that has the record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Missing or unreadable records. `end_offset` is exclusive; None: unknown."""

    reason: str
    detail: str
    offset: int | None = None
    end_offset: int | None = None
    epoch: int | None = None
    record: "UnknownRecord | None" = None
    """The record that can't be decoded, if its bytes may be kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scanned:
    """The result of a scan."""

    batches: Batches
    gaps: list[Gap]
    consumed_bytes: int
    """Bytes that are processed; the next scan starts with the others."""


class BatchScanner:
    """Scans one file, or a part of it between two batches."""

    def __init__(
        self, *, position: int = 0, first_offset: int | None = None, end_offset: int | None = None
    ) -> None:
        """`position`: of the first byte in the file; `first_offset`, `end_offset`: of the records, if known."""
        self._position = position
        self._next_offset = first_offset
        self._end_offset = end_offset
        self._damage: tuple[int, str, bool] | None = None
        """Its position in the file, a description, and whether a batch is truncated there."""
        self._epoch = 0
        self._run_max = _RUN_MIN

    @property
    def next_offset(self) -> int | None:
        """The next expected offset, if known."""
        return self._next_offset

    def scan(self, data: bytes, *, is_end: bool) -> Scanned:
        """Scan `data`; unprocessed bytes must be passed again. `is_end`: no bytes follow `data`."""
        found: list[Batch | Batches | Gap] = []
        at = 0
        while at < len(data):
            if self._damage is not None:
                at, is_found = self._resynchronise(data, at, found, is_end=is_end)
                if not is_found:
                    break
            at = self._read_run(data, at, found)
            fault = self._check(data, at, found, is_end=is_end) if at < len(data) else at
            if isinstance(fault, int):
                if fault == at:
                    break
                at = fault
            else:
                self._damage = (self._position + at, fault[0], fault[1])
        if is_end:
            found += self._finish()
        self._position += at
        return Scanned(
            batches=Batches.join(each for each in found if not isinstance(each, Gap)),
            gaps=[each for each in found if isinstance(each, Gap)],
            consumed_bytes=at,
        )

    def _read_run(self, data: bytes, at: int, found: list[Batch | Batches | Gap]) -> int:
        """Read batches up to the first that is not exactly as expected. Returns the position of that one."""
        while self._next_offset is not None:
            asked = self._run_max
            run = read_usual_batches(
                data, at, next_offset=self._next_offset, epoch=self._epoch, count_max=asked
            )
            if len(run):
                found.append(run)
                last = run[-1]
                at, self._next_offset = last.end, last.base_offset + last.record_count
            self._run_max = min(2 * asked, _RUN_MAX) if len(run) == asked else _RUN_MIN
            if len(run) < asked:
                break
        return at

    def _check(
        self, data: bytes, at: int, found: list[Batch | Batches | Gap], *, is_end: bool
    ) -> int | tuple[str, bool]:
        """Read the batch at `at`. Returns the position of the next one, `at` if bytes are missing, or the fault."""
        left = len(data) - at
        if left < HEADER_SIZE_BYTES:
            return (f"a batch is truncated: {left} bytes", True) if is_end else at
        header: tuple[int, ...] = HEADER.unpack_from(data, at)
        base_offset, length, epoch, magic, crc, attributes, last_delta, base_timestamp_ms, *_, count = header
        size_bytes = length + LENGTH_COUNTS_FROM
        if magic != MAGIC or base_offset < 0 or not HEADER_SIZE_BYTES < size_bytes <= BATCH_SIZE_BYTES_MAX:
            is_blank = not any(
                data[at : at + HEADER_SIZE_BYTES]
            )  # a file that was extended before its bytes were written
            return f"not a batch: offset {base_offset}, {size_bytes} bytes, magic {magic}", is_blank
        if size_bytes > left:
            text = f"the batch at offset {base_offset} of {size_bytes} bytes is truncated: {left} bytes"
            return (text, True) if is_end else at
        end = at + size_bytes
        if crc32c(memoryview(data)[at + CRC_COVERS_FROM : end]) != crc:
            return f"the batch at offset {base_offset} of {size_bytes} bytes has a wrong checksum", False
        is_usual = attributes in (0, CONTROL) and last_delta == count - 1
        if not is_usual or not 0 < count <= size_bytes // RECORD_SIZE_BYTES_MIN:
            what = (
                f"attributes {attributes:#x}{', compressed' if attributes & COMPRESSION_MASK else ''}, "
                f"{count} records and last offset delta {last_delta}"
            )
            return (
                f"the batch at offset {base_offset} of {size_bytes} bytes has {what}: not what KRaft writes",
                False,
            )
        is_control = attributes == CONTROL
        batch = Batch(at + HEADER_SIZE_BYTES, end, base_offset, count, epoch, is_control, base_timestamp_ms)
        if len(data) - end <= MAGIC_POSITION and not is_end:
            return at
        following = _peek(data, end)
        if following is not None and following.epoch < batch.epoch and self._epoch < batch.epoch:
            # Either epoch is wrong. The batch after them decides which.
            behind = end + following.size_bytes
            if len(data) - behind <= MAGIC_POSITION and not is_end:
                return at
            witness = _peek(data, behind)
            if witness is not None and witness.epoch >= batch.epoch:
                following = None
        found += self._place(batch, following)
        return end

    def _place(self, batch: Batch, following: "_Glimpse | None") -> list[Batch | Gap]:
        """The batch, preceded by a gap if offsets are missing before it.

        Its offset and epoch are not covered by the checksum: they are checked against its neighbours. `following`:
        the header that seems to be the next batch's, if its epoch is plausible.
        """
        expected, end = self._next_offset, batch.base_offset + batch.record_count
        fault = self._misplacement(batch, following)
        if fault is not None:
            gap_end = None
            if expected is not None and following is not None and following.base_offset >= expected:
                gap_end = self._next_offset = following.base_offset
            is_known = gap_end is not None
            return [
                Gap(
                    reason=CORRUPT_BATCH,
                    offset=expected if is_known else None,
                    end_offset=gap_end,
                    detail=f"the batch at offset {batch.base_offset}, leader epoch {batch.epoch}: {fault}",
                )
            ]
        self._next_offset, self._epoch = end, batch.epoch
        if expected is None or batch.base_offset == expected:
            return [batch]
        detail = f"the batch before ends at offset {expected}, the next begins at {batch.base_offset}"
        gap = Gap(reason=MISSING_OFFSETS, offset=expected, end_offset=batch.base_offset, detail=detail)
        return [gap, batch]

    def _misplacement(self, batch: Batch, following: "_Glimpse | None") -> str | None:
        """The fault of the batch's offset or epoch, if any."""
        expected, end = self._next_offset, batch.base_offset + batch.record_count
        if batch.epoch < self._epoch:
            return f"its epoch is behind {self._epoch}"
        if following is not None and following.epoch < batch.epoch and batch.epoch > self._epoch:
            return f"its epoch is beyond {following.epoch}, that of the next batch"
        if expected is None or batch.base_offset == expected:
            return None
        if batch.base_offset < expected:
            return f"its offset is behind {expected}"
        if following is not None and expected <= following.base_offset < end:
            return f"its offset is beyond {following.base_offset}, that of the next batch"
        if self._end_offset is not None and end > self._end_offset:
            return f"its offset is beyond {self._end_offset}, that of the next file"
        return None

    # After damage

    def _resynchronise(
        self, data: bytes, at: int, found: list[Batch | Batches | Gap], *, is_end: bool
    ) -> tuple[int, bool]:
        """The position of the next batch and True; or the position from which more bytes are needed and False."""
        assert self._damage is not None
        began, text, _ = self._damage
        candidate, is_whole = self._find(data, at, began - self._position, is_end=is_end)
        if not is_whole:
            return candidate, False
        base_offset, _ = PREFIX.unpack_from(data, candidate)
        found.append(
            Gap(
                reason=CORRUPT_BATCH,
                offset=self._next_offset,
                end_offset=base_offset,
                detail=f"at byte {began}: {text}; read on at byte {self._position + candidate}",
            )
        )
        self._damage = None
        self._next_offset = base_offset
        return candidate, True

    def _find(self, data: bytes, at: int, began: int, *, is_end: bool) -> tuple[int, bool]:
        if began == at and len(data) - at >= LENGTH_COUNTS_FROM:
            _, length = PREFIX.unpack_from(data, at)
            size_bytes = length + LENGTH_COUNTS_FROM
            if HEADER_SIZE_BYTES < size_bytes <= BATCH_SIZE_BYTES_MAX:
                follows = self._is_batch(data, at + size_bytes, is_end=is_end)
                if follows is None:
                    return at, False
                if follows:
                    return at + size_bytes, True
        search_from = at + MAGIC_POSITION + (1 if began == at else 0)
        while True:
            magic_at = data.find(MAGIC, search_from)
            if magic_at < 0:
                # The magic may be among the next bytes: the batch would start up to that many bytes earlier.
                return len(data) if is_end else max(at, len(data) - MAGIC_POSITION), False
            candidate = magic_at - MAGIC_POSITION
            verdict = self._is_batch(data, candidate, is_end=is_end)
            if verdict:
                return candidate, True
            if verdict is None:
                return candidate, False
            search_from = magic_at + 1

    def _is_batch(self, data: bytes, at: int, *, is_end: bool) -> bool | None:
        """Whether a batch starts at `at` that can follow; None: more bytes are needed to decide."""
        left = len(data) - at
        if left < HEADER_SIZE_BYTES:
            return False if is_end else None
        base_offset, length, _, magic, crc, attributes, last_delta, *_, count = HEADER.unpack_from(data, at)
        size_bytes = length + LENGTH_COUNTS_FROM
        is_plausible = (
            magic == MAGIC
            and attributes in (0, CONTROL)
            and last_delta == count - 1
            and 0 < count <= size_bytes // RECORD_SIZE_BYTES_MIN
            and HEADER_SIZE_BYTES < size_bytes <= BATCH_SIZE_BYTES_MAX
            and base_offset >= (self._next_offset or 0)
            and (self._end_offset is None or base_offset + count <= self._end_offset)
        )
        if not is_plausible:
            return False
        if size_bytes > left:
            return False if is_end else None
        return bool(crc32c(memoryview(data)[at + CRC_COVERS_FROM : at + size_bytes]) == crc)

    def _finish(self) -> list[Batch | Gap]:
        offset, end_offset = self._next_offset, self._end_offset
        if self._damage is not None:
            began, text, is_cut = self._damage
            return [
                Gap(
                    reason=TORN_TAIL if is_cut else CORRUPT_BATCH,
                    offset=offset,
                    end_offset=end_offset,
                    detail=f"at byte {began}: {text}; nothing readable follows",
                )
            ]
        if end_offset is not None and offset is not None and offset < end_offset:
            detail = f"the file ends at offset {offset}, what follows begins at {end_offset}"
            return [Gap(reason=MISSING_OFFSETS, offset=offset, end_offset=end_offset, detail=detail)]
        return []


class _Glimpse(NamedTuple):
    """The first fields of a batch."""

    base_offset: int
    epoch: int
    size_bytes: int


def _peek(data: bytes, at: int) -> _Glimpse | None:
    """The first fields of the bytes at `at`, if they look like a batch."""
    if len(data) - at <= MAGIC_POSITION or data[at + MAGIC_POSITION] != MAGIC:
        return None
    base_offset, length, epoch = _OFFSET_LENGTH_EPOCH.unpack_from(data, at)
    size_bytes = length + LENGTH_COUNTS_FROM
    if not HEADER_SIZE_BYTES < size_bytes <= BATCH_SIZE_BYTES_MAX:
        return None
    return _Glimpse(base_offset, epoch, size_bytes)
