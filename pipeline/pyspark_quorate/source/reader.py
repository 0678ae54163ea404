"""The data source `quorate` as Spark calls it, and its reader for batch queries: where files are opened and read."""

from collections.abc import Iterable, Iterator
from typing import ClassVar, Final, NamedTuple

import pyarrow as pa
from pyarrow import fs
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    Filter,
    InputPartition,
)
from pyspark.sql.types import StructType
from quorate_protocol.kafka.metadata_log import METADATA_DIRECTORY
from quorate_protocol.records.batch import HEADER_SIZE_BYTES, PREFIX
from quorate_protocol.wire.codec.native import extension

from pyspark_quorate import rows
from pyspark_quorate.rows import UNREADABLE_FILE
from pyspark_quorate.source.batch_scanner import BatchScanner, Gap
from pyspark_quorate.source.layout import LayoutError, find_directories, in_one_line, open_root
from pyspark_quorate.source.options import Options, parse_options
from pyspark_quorate.source.pieces import Piece, cut, pack, plan_pieces
from pyspark_quorate.source.record_decoder import RowReader, gap_rows
from pyspark_quorate.source.selection import Selection, narrow, select

BLOCK_BYTES: Final = 4 * 1024 * 1024
"""The size of one read: a request each, in an object store."""
WINDOW_BYTES: Final = BLOCK_BYTES if extension is None else 1024 * 1024
"""Decoded at once, with what a batch has of the window before. Many records at once are faster in numpy; the
extension is as fast with few, which take less memory: a window's rows are seven times as large."""


class Failure(NamedTuple):
    """A file that could not be read, now; it may be readable later."""

    source: str
    detail: str


class PiecesPartition(InputPartition):
    """Pieces of one or more clusters."""

    def __init__(self, pieces: tuple[Piece, ...]) -> None:
        super().__init__(None)
        self.pieces = pieces


class MetadataLogReader(DataSourceReader):
    """Reads directories and object stores."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._selection: Selection = select(options)

    def partitions(self) -> list[InputPartition]:
        """List the files, on the driver. Raises LayoutError without any."""
        pieces = list(self._pieces())
        packed = pack(pieces, self._options.partition_bytes)
        # Spark turns an empty list into one partition, None.
        return [PiecesPartition(each) for each in packed] or [PiecesPartition(())]

    def _pieces(self) -> Iterator[Piece]:
        options = self._options
        found = False
        for address in options.paths:
            for place in find_directories(open_root(address), options.cluster_id):
                found = True
                for piece in plan_pieces(place, self._selection, options.snapshots):
                    yield from cut_large(piece, options.partition_bytes)
        if not found:
            raise LayoutError(
                f"option path: {', '.join(options.paths)}: contains no {METADATA_DIRECTORY} and no files of one"
            )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a partition, on an executor."""
        assert isinstance(partition, PiecesPartition)
        for piece in partition.pieces:
            yield from read_piece(piece, self._selection)


class FilteringReader(MetadataLogReader):
    """Accepts filters. Spark refuses such a reader while spark.sql.python.filterPushdown.enabled is off."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Accept filters that can be applied exactly; return the others."""
        self._selection, others = narrow(self._selection, filters)
        return others


class QuorateDataSource(DataSource):
    """`spark.read.format("quorate")`; :mod:`pyspark_quorate.source.options` has the options."""

    accepts_filters: ClassVar[bool] = False

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "quorate"

    def schema(self) -> StructType:
        """Always the same."""
        return rows.SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - Spark's interface
        """For a batch query. Raises OptionError."""
        options = parse_options(dict(self.options))
        accepts_filters = self.accepts_filters or options.push_filters
        return FilteringReader(options) if accepts_filters else MetadataLogReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802 - Spark's interface
        """For a stream of a running quorum; its options are in :mod:`pyspark_quorate.source.stream_options`."""
        from pyspark_quorate.source.stream import QuorumStreamReader  # noqa: PLC0415 - brings the network client

        return QuorumStreamReader(dict(self.options))


class FilteringDataSource(QuorateDataSource):
    """The source for sessions with filter pushdown, which :func:`pyspark_quorate.register` turns on."""

    accepts_filters = True


# Input


def read_piece(
    piece: Piece, selection: Selection, failures: list[Failure] | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of a piece. Errors become rows too, and are added to `failures`."""
    origin = piece.origin
    if piece.gaps:
        yield from gap_rows(origin, filter(selection.wants_gap, piece.gaps))
        return
    scanner = BatchScanner(position=piece.start, first_offset=piece.first_offset, end_offset=piece.end_offset)
    reader = RowReader(origin, selection, scanner)
    try:
        root = open_root(origin.source)
        with root.file_system.open_input_file(root.path) as file:
            yield from _read_file(file, piece, reader)
    except (OSError, pa.ArrowException, LayoutError) as error:
        is_log = origin.snapshot is None
        detail = f"can't be read: {in_one_line(error)}"
        if failures is not None:
            failures.append(Failure(origin.source, detail))
        gap = Gap(
            reason=UNREADABLE_FILE,
            offset=scanner.next_offset if is_log else None,
            end_offset=piece.end_offset,
            detail=detail,
        )
        yield from gap_rows(origin, filter(selection.wants_gap, [gap]))


def _read_file(file: pa.NativeFile, piece: Piece, reader: RowReader) -> Iterator[pa.RecordBatch]:
    file.seek(piece.start)
    left = file.size() - piece.start if piece.end is None else piece.end - piece.start
    rest = b""
    while True:
        block = file.read(min(BLOCK_BYTES, left))
        left -= len(block)
        is_last = not block or left <= 0
        for start in range(0, max(len(block), 1), WINDOW_BYTES):
            data = rest + block[start : start + WINDOW_BYTES]
            batches, consumed = reader.read(data, is_end=is_last and start + WINDOW_BYTES >= len(block))
            yield from batches
            rest = data[consumed:]
        if is_last:
            return


def cut_large(piece: Piece, limit_bytes: int) -> list[Piece]:
    """Cut a piece into parts of about `limit_bytes`, if it is at least twice as large and a part of a log."""
    if piece.origin.snapshot is not None or piece.size_bytes < 2 * limit_bytes:
        return [piece]
    return cut(piece, find_boundaries(piece.origin.source, limit_bytes))


def find_boundaries(address: str, every_bytes: int) -> list[tuple[int, int]]:
    """Positions where a file can be cut: (position, offset) of batches about `every_bytes` apart.

    Follows the headers and stops at the first damaged one. Returns nothing for remote files, where each header would
    cost a request.
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
        base_offset, length = PREFIX.unpack_from(data, at)
        if length < HEADER_SIZE_BYTES - PREFIX.size or base_offset < 0:
            break
        if at - previous >= every_bytes:
            if boundaries and base_offset <= boundaries[-1][1]:
                break
            boundaries.append((at, base_offset))
            previous = at
        at += PREFIX.size + length
    return boundaries
