"""The pieces that are read: chosen from what was found, cut, and packed into partitions of similar size (PURE).

Gaps that are known before anything is read become pieces too.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final

from pyspark_quorate.rows import GAP, LOG, MISSING_OFFSETS, SNAPSHOT, UNREADABLE_FILE
from pyspark_quorate.source.batch_scanner import Gap
from pyspark_quorate.source.layout import CheckpointFile, MetadataDirectory, UnreadablePlace
from pyspark_quorate.source.options import ALL, NEWEST
from pyspark_quorate.source.record_decoder import Origin
from pyspark_quorate.source.selection import Selection

FILE_COST_BYTES: Final = 64 * 1024
"""The cost of opening a file, in bytes of reading: it limits the number of files per partition."""
_NO_END: Final = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A file, or a part of one between two batches; or gaps that are known without reading."""

    origin: Origin
    start: int = 0
    end: int | None = None
    """In bytes; None: to the end of the file at the time of reading."""
    size_bytes: int = 0
    first_offset: int | None = None
    end_offset: int | None = None
    """Of its records; exclusive; None: unknown."""
    gaps: tuple[Gap, ...] = ()
    """If not empty, nothing is read."""

    @property
    def cost_bytes(self) -> int:
        """The cost of reading it."""
        return FILE_COST_BYTES + self.size_bytes


# What is read


def plan_pieces(
    place: MetadataDirectory | UnreadablePlace, selection: Selection, snapshots: str
) -> Iterator[Piece]:
    """The pieces of one directory that can contain selected rows."""
    if isinstance(place, UnreadablePlace):
        gap = Gap(reason=UNREADABLE_FILE, detail=place.detail)
        if selection.wants_cluster(place.cluster_id) or not place.cluster_id:
            yield Piece(origin=Origin(cluster_id=place.cluster_id, source=place.address), gaps=(gap,))
        return
    if not selection.wants_cluster(place.cluster_id):
        return
    before = _gap_before_the_log(place)
    if before is not None:
        yield Piece(origin=Origin(cluster_id=place.cluster_id, source=place.address), gaps=(before,))
    if selection.wants_kind(SNAPSHOT) or selection.wants_kind(GAP):
        yield from _checkpoint_pieces(place, selection, snapshots)
    if selection.wants_kind(LOG) or selection.wants_kind(GAP):
        yield from _segment_pieces(place, selection)


def _checkpoint_pieces(place: MetadataDirectory, selection: Selection, snapshots: str) -> Iterator[Piece]:
    low, high = selection.offset_range
    checkpoints: Sequence[CheckpointFile] = ()
    if snapshots == ALL:
        checkpoints = place.checkpoints
    elif snapshots == NEWEST:
        checkpoints = place.checkpoints[-1:]
    for checkpoint in checkpoints:
        if low <= checkpoint.end_offset < high:
            snapshot = (checkpoint.end_offset, checkpoint.epoch)
            yield Piece(
                origin=Origin(cluster_id=place.cluster_id, source=checkpoint.address, snapshot=snapshot),
                size_bytes=checkpoint.size_bytes,
                first_offset=0,
            )


def _segment_pieces(place: MetadataDirectory, selection: Selection) -> Iterator[Piece]:
    low, high = selection.offset_range
    for segment, following in zip_longest(place.segments, place.segments[1:]):
        end_offset = None if following is None else following.base_offset
        if segment.base_offset < high and (end_offset or _NO_END) > low:
            yield Piece(
                origin=Origin(cluster_id=place.cluster_id, source=segment.address),
                size_bytes=segment.size_bytes,
                first_offset=segment.base_offset,
                end_offset=end_offset,
            )


def _gap_before_the_log(place: MetadataDirectory) -> Gap | None:
    """The gap of segments that retention deleted. A checkpoint has their final state, but not the changes."""
    newest = place.checkpoints[-1].end_offset if place.checkpoints else 0
    start = place.segments[0].base_offset if place.segments else newest
    if start == 0:
        return None
    has_state = any(checkpoint.end_offset >= start for checkpoint in place.checkpoints)
    state = "a checkpoint has the state there" if has_state else "no checkpoint has the state there"
    detail = f"the log starts at offset {start}; {state}"
    return Gap(reason=MISSING_OFFSETS, offset=0, end_offset=start, detail=detail)


# How it is divided


def pack(pieces: Iterable[Piece], partition_bytes: int) -> list[tuple[Piece, ...]]:
    """Pack pieces into partitions of at most `partition_bytes`, except for larger pieces.

    First fit, largest first: at most 1.7 times the optimal number of partitions. Pieces keep their order.
    """
    order = sorted(enumerate(pieces), key=lambda each: -each[1].cost_bytes)
    partitions: list[list[tuple[int, Piece]]] = []
    free_bytes: list[int] = []
    first_open = 0
    for number, piece in order:
        place = next(
            (at for at in range(first_open, len(partitions)) if free_bytes[at] >= piece.cost_bytes), None
        )
        if place is None:
            place = len(partitions)
            partitions.append([])
            free_bytes.append(partition_bytes)
        partitions[place].append((number, piece))
        free_bytes[place] -= piece.cost_bytes
        # Nothing fits into these any more. Skipping them keeps many small pieces linear.
        while first_open < len(partitions) and free_bytes[first_open] < FILE_COST_BYTES:
            first_open += 1
    return [tuple(piece for _, piece in sorted(each, key=_number)) for each in partitions]


def _number(numbered: tuple[int, Piece]) -> int:
    return numbered[0]


def cut(piece: Piece, boundaries: Sequence[tuple[int, int]]) -> list[Piece]:
    """Cut a file at boundaries: (position, offset of the batch that starts there)."""
    starts = [(piece.start, piece.first_offset), *boundaries]
    ends = [*boundaries, (piece.end, piece.end_offset)]
    return [
        Piece(
            origin=piece.origin,
            start=start,
            end=end,
            size_bytes=(end if end is not None else piece.start + piece.size_bytes) - start,
            first_offset=first_offset,
            end_offset=end_offset,
        )
        for (start, first_offset), (end, end_offset) in zip(starts, ends, strict=True)
    ]
