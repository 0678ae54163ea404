"""Reads a piece of a file to Arrow record batches; the input and output of the source."""

import struct
from collections.abc import Iterator
from typing import Final

import pyarrow as pa
from pyarrow import fs
from quorate_protocol.records.batch import HEADER_SIZE_BYTES

from pyspark_quorate.rows import UNREADABLE_FILE
from pyspark_quorate.source.decoding import RowReader, gap_rows
from pyspark_quorate.source.layout import LayoutError, open_file, open_root
from pyspark_quorate.source.packing import Piece
from pyspark_quorate.source.scanning import BatchScanner, Gap
from pyspark_quorate.source.selection import Selection

BLOCK_BYTES: Final = 8 * 1024 * 1024
"""What is read at once. With a batch that ends behind it, as much again and a batch's size are in memory."""

_OFFSET_AND_LENGTH: Final = struct.Struct(">qi")


def read_piece(piece: Piece, selection: Selection) -> Iterator[pa.RecordBatch]:
    """The rows of a piece. What goes wrong becomes a row."""
    origin = piece.origin
    if piece.gaps:
        wanted = [gap for gap in piece.gaps if selection.wants_gap(gap)]
        if wanted:
            yield gap_rows(origin.cluster_id, origin.source, wanted)
        return
    scanner = BatchScanner(position=piece.start, first_offset=piece.first_offset, end_offset=piece.end_offset)
    reader = RowReader(origin, selection, scanner)
    try:
        file_system, path = open_file(origin.source)
        with file_system.open_input_file(path) as file:
            yield from _read_file(file, piece, reader)
    except (OSError, pa.ArrowException, LayoutError) as error:
        is_log = origin.snapshot is None
        gap = Gap(
            reason=UNREADABLE_FILE,
            offset=scanner.next_offset if is_log else None,
            end_offset=piece.end_offset,
            detail=f"can't be read: {error}",
        )
        if selection.wants_gap(gap):
            yield gap_rows(origin.cluster_id, origin.source, [gap])


def _read_file(file: pa.NativeFile, piece: Piece, reader: RowReader) -> Iterator[pa.RecordBatch]:
    file.seek(piece.start)
    left = file.size() - piece.start if piece.end is None else piece.end - piece.start
    rest = b""
    while True:
        block = file.read(min(BLOCK_BYTES, left))
        left -= len(block)
        is_end = not block or left <= 0
        data = rest + block
        batches, consumed = reader.read(data, is_end=is_end)
        yield from batches
        if is_end:
            return
        rest = data[consumed:]


def find_boundaries(address: str, every_bytes: int) -> list[tuple[int, int]]:
    """Where a file may be cut: (position, offset) of batches that are about `every_bytes` apart.

    Goes from header to header and stops where there is none. Only for local files: elsewhere each header costs a
    request, and nothing is found.
    """
    boundaries: list[tuple[int, int]] = []
    try:
        root = open_root(address)
        if not isinstance(root.file_system, fs.LocalFileSystem):
            return []
        with pa.memory_map(root.path) as file:
            data = memoryview(file.read_buffer())
    except (OSError, pa.ArrowException, LayoutError):
        return []
    at = previous = 0
    while at + HEADER_SIZE_BYTES <= len(data):
        base_offset, length = _OFFSET_AND_LENGTH.unpack_from(data, at)
        if length < HEADER_SIZE_BYTES - _OFFSET_AND_LENGTH.size or base_offset < 0:
            break
        if at - previous >= every_bytes:
            if boundaries and base_offset <= boundaries[-1][1]:
                break
            boundaries.append((at, base_offset))
            previous = at
        at += _OFFSET_AND_LENGTH.size + length
    return boundaries
