"""What Spark calls: the data source `quorate`, and its reader for batch queries."""

from collections.abc import Iterable, Iterator
from typing import ClassVar

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    Filter,
    InputPartition,
)
from pyspark.sql.types import StructType

from pyspark_quorate import rows
from pyspark_quorate.source.batches import find_boundaries, read_piece
from pyspark_quorate.source.layout import METADATA_DIRECTORY, LayoutError, find_directories, open_root
from pyspark_quorate.source.options import Options, parse_options
from pyspark_quorate.source.packing import Piece, cut, pack
from pyspark_quorate.source.planning import plan_pieces
from pyspark_quorate.source.selection import Selection, narrow, select


class PiecesPartition(InputPartition):
    """Some pieces, of one cluster or of many."""

    def __init__(self, pieces: tuple[Piece, ...]) -> None:
        super().__init__(None)
        self.pieces = pieces


class MetadataLogReader(DataSourceReader):
    """Reads directories and object stores."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._selection: Selection = select(options)

    def partitions(self) -> list[InputPartition]:
        """Looks for files, on the driver. Raises LayoutError when there is nothing."""
        pieces = list(self._pieces())
        packed = pack(pieces, self._options.partition_bytes)
        # An empty list would become one partition of None.
        return [PiecesPartition(each) for each in packed] or [PiecesPartition(())]

    def _pieces(self) -> Iterator[Piece]:
        options = self._options
        found = False
        for address in options.paths:
            for place in find_directories(open_root(address), options.cluster_id):
                found = True
                for piece in plan_pieces(place, self._selection, options.snapshots):
                    yield from self._cut(piece)
        if not found:
            raise LayoutError(
                f"option path: {', '.join(options.paths)}: no {METADATA_DIRECTORY} below it, and no file of one in it"
            )

    def _cut(self, piece: Piece) -> list[Piece]:
        limit = self._options.partition_bytes
        if piece.origin.snapshot is not None or piece.size_bytes < 2 * limit:
            return [piece]
        return cut(piece, find_boundaries(piece.origin.source, limit))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a partition."""
        assert isinstance(partition, PiecesPartition)
        for piece in partition.pieces:
            yield from read_piece(piece, self._selection)


class FilteringReader(MetadataLogReader):
    """Takes filters too. Spark refuses such a reader while spark.sql.python.filterPushdown.enabled is off."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Takes what it applies exactly; returns the others."""
        self._selection, others = narrow(self._selection, filters)
        return others


class QuorateDataSource(DataSource):
    """`spark.read.format("quorate")`; :mod:`pyspark_quorate.source.options` has the options."""

    takes_filters: ClassVar[bool] = False

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
        takes_filters = self.takes_filters or options.push_filters
        return FilteringReader(options) if takes_filters else MetadataLogReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802 - Spark's interface
        """For a stream from a living quorum, whose options are in :mod:`pyspark_quorate.source.stream_options`."""
        from pyspark_quorate.source.stream import QuorumStreamReader  # noqa: PLC0415 - brings the network client

        return QuorumStreamReader(dict(self.options))


class FilteringDataSource(QuorateDataSource):
    """For a session where filters are pushed down: :func:`pyspark_quorate.register` turns that on."""

    takes_filters = True
