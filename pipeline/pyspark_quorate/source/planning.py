"""Which pieces are to be read of what was found, and which gaps are known before anything is read (PURE)."""

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Final

from pyspark_quorate.rows import GAP, LOG, MISSING_OFFSETS, SNAPSHOT, UNREADABLE_FILE
from pyspark_quorate.source.decoding import Origin
from pyspark_quorate.source.layout import CheckpointFile, MetadataDirectory, UnreadablePlace
from pyspark_quorate.source.options import ALL, NEWEST
from pyspark_quorate.source.packing import Piece
from pyspark_quorate.source.scanning import Gap
from pyspark_quorate.source.selection import Selection

_NO_END: Final = 2**63 - 1


def plan_pieces(
    place: MetadataDirectory | UnreadablePlace, selection: Selection, snapshots: str
) -> Iterator[Piece]:
    """The pieces of one directory that may have rows of the selection."""
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
    """What retention removed; a checkpoint has the state, but not how it came about."""
    newest = place.checkpoints[-1].end_offset if place.checkpoints else 0
    start = place.segments[0].base_offset if place.segments else newest
    if start == 0:
        return None
    has_state = any(checkpoint.end_offset >= start for checkpoint in place.checkpoints)
    state = "the state there is in a checkpoint" if has_state else "no checkpoint has the state there"
    detail = f"the log begins at offset {start}; {state}"
    return Gap(reason=MISSING_OFFSETS, offset=0, end_offset=start, detail=detail)
