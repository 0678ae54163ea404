"""What is to be read, cut into pieces and packed into partitions of about the same size."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark_quorate.source.decoding import Origin
from pyspark_quorate.source.scanning import Gap

FILE_COST_BYTES: Final = 64 * 1024
"""What opening a file costs, in bytes that could be read instead: so that a partition gets no thousands of files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A file, or a stretch of one that begins and ends between batches; or gaps that were found without reading."""

    origin: Origin
    start: int = 0
    end: int | None = None
    """In bytes; None: to the end of the file, whatever it is when it is read."""
    size_bytes: int = 0
    first_offset: int | None = None
    end_offset: int | None = None
    """Of the records in it; exclusive, None: not known."""
    gaps: tuple[Gap, ...] = ()
    """If there are any, nothing is read."""

    @property
    def cost_bytes(self) -> int:
        """What reading it costs."""
        return FILE_COST_BYTES + self.size_bytes


def pack(pieces: Iterable[Piece], partition_bytes: int) -> list[tuple[Piece, ...]]:
    """Pieces in partitions of at most `partition_bytes`, unless one piece has more.

    First fit of the largest first: at most 1.7 times as many partitions as are needed. Pieces stay in their order.
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
        # Nothing fits into these any more: many small pieces do not look at all of them again.
        while first_open < len(partitions) and free_bytes[first_open] < FILE_COST_BYTES:
            first_open += 1
    return [tuple(piece for _, piece in sorted(each, key=_number)) for each in partitions]


def _number(numbered: tuple[int, Piece]) -> int:
    return numbered[0]


def cut(piece: Piece, boundaries: Sequence[tuple[int, int]]) -> list[Piece]:
    """A file cut at (position, offset of the batch that begins there)."""
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
