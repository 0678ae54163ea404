"""`spark.readStream.format("quorate")`: the metadata log of a running quorum as a stream of rows.

:mod:`pyspark_quorate.source.stream_options` has the options. On the driver, Spark requests the end of the next
micro-batch and stores it; an executor reads the micro-batch, with the same result after a failure, whichever
controller leads then. :mod:`pyspark_quorate.source.follow` describes what is read if the log no longer has it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxBytes, ReadMaxRows, SupportsTriggerAvailableNow
from quorate_protocol.observer import BEGINNING, HistoryLostError, Position
from quorate_protocol.records.batch import encode_batch

from pyspark_quorate.source.batch_scanner import BatchScanner
from pyspark_quorate.source.follow import (
    Item,
    Limit,
    LogBatches,
    Mark,
    OpenFeed,
    Planner,
    Snapshot,
    parted,
    read_stretch,
)
from pyspark_quorate.source.follow_feed import QuorumFeed, fetch_cluster_id, fetch_committed_end
from pyspark_quorate.source.payload import NO_OP, RECORD_NAMES
from pyspark_quorate.source.record_decoder import Origin, RowReader, gap_rows
from pyspark_quorate.source.selection import Selection
from pyspark_quorate.source.stream_options import InitialOffset, StreamOptions

_BEGINNING: Final = Mark(BEGINNING, BEGINNING.epoch)
_SNAPSHOT_WINDOW_BYTES: Final = 16 * 1024 * 1024
_INT32_MAX: Final = 2**31 - 1
_INT64_MAX: Final = 2**63 - 1


# Offsets: what Spark keeps in a checkpoint and passes back after a restart


class OffsetError(ValueError):
    """The content of a checkpoint is not an offset of this source."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOffset:
    """A position in the metadata log of one cluster. Its JSON is stored in checkpoints and has no secrets."""

    cluster_id: str
    mark: Mark
    parted_at: Position | None = None
    """Set if the log contradicted what was read before, and is read again: the end of their common part."""

    def to_json(self) -> dict[str, Any]:
        """The JSON that Spark stores; equal offsets have equal JSON."""
        where: dict[str, Any] = {
            "clusterId": self.cluster_id,
            **_to_json(self.mark.position),
            "leaderEpoch": self.mark.leader_epoch,
        }
        if self.parted_at is not None:
            where["partedAt"] = _to_json(self.parted_at)
        return where

    @classmethod
    def from_json(cls, where: Mapping[str, Any]) -> Self:
        """Parse an offset. Raises OffsetError, which names the field, its value and the allowed values."""
        cluster_id, parted_at = where.get("clusterId"), where.get("partedAt")
        if not isinstance(cluster_id, str) or not cluster_id:
            raise OffsetError(f"an offset has clusterId={cluster_id!r}: allowed is a Kafka cluster id")
        return cls(
            cluster_id=cluster_id,
            mark=Mark(_from_json(where), _number(where, "leaderEpoch", _INT32_MAX)),
            parted_at=None if parted_at is None else _from_json(parted_at),
        )


def _to_json(position: Position) -> dict[str, Any]:
    return {"offset": position.offset, "epoch": position.epoch}


def _from_json(where: Mapping[str, Any]) -> Position:
    return Position(_number(where, "offset", _INT64_MAX), _number(where, "epoch", _INT32_MAX))


def _number(where: Mapping[str, Any], name: str, highest: int) -> int:
    value = where.get(name)
    if type(value) is not int or not 0 <= value <= highest:
        raise OffsetError(f"an offset has {name}={value!r}: allowed is a whole number from 0 to {highest}")
    return value


# The reader


class StretchPartition(InputPartition):
    """The input of one micro-batch."""

    def __init__(self, start: StreamOffset, end: StreamOffset) -> None:
        self.start = start
        self.end = end


class QuorumStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the committed metadata log of one cluster. Raises OptionError, OffsetError and FollowError."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = StreamOptions.parse(options)
        self._planner: Planner | None = None
        self._until: int | None = None
        """The exclusive end of a run with availableNow: the committed end when it started."""

    # On the driver

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name, as are the following
        """The start of a stream without a checkpoint."""
        config = self._options.admin_config()
        is_latest = self._options.initial_offset is InitialOffset.LATEST
        mark = fetch_committed_end(config) if is_latest else _BEGINNING
        return StreamOffset(cluster_id=fetch_cluster_id(config), mark=mark).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Spark accepts one limit; the limit in bytes is applied in addition."""
        return ReadMaxRows(self._options.records_max)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Read up to the current committed end."""
        self._until = fetch_committed_end(self._options.admin_config()).position.offset

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """The end of the next micro-batch; `start` if there is nothing new."""
        begin = StreamOffset.from_json(start)
        if self._planner is None:
            self._planner = Planner(self._open_feed(begin.cluster_id))
        try:
            end = self._planner.end_after(begin.mark, self._limit(limit))
        except HistoryLostError as lost:
            recreated = StreamOffset(cluster_id=begin.cluster_id, mark=_BEGINNING, parted_at=lost.leader_end)
            return recreated.to_json()
        return start if end == begin.mark else StreamOffset(cluster_id=begin.cluster_id, mark=end).to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """One partition, because a log is ordered."""
        return [StretchPartition(StreamOffset.from_json(start), StreamOffset.from_json(end))]

    def stop(self) -> None:
        """Close the connection."""
        planner, self._planner = self._planner, None
        if planner is not None:
            planner.close()

    def _limit(self, limit: ReadLimit) -> Limit:
        bytes_max = self._options.bytes_max
        if isinstance(limit, ReadMaxRows):
            return Limit(records_max=limit.max_rows, bytes_max=bytes_max, offset_max=self._until)
        if isinstance(limit, ReadMaxBytes):
            return Limit(bytes_max=limit.max_bytes, offset_max=self._until)
        return Limit(offset_max=self._until)

    def _open_feed(self, cluster_id: str) -> OpenFeed:
        def open_feed(position: Position, leader_epoch: int) -> QuorumFeed:
            return QuorumFeed(self._options.admin_config(), cluster_id, position, leader_epoch)

        return open_feed

    # On an executor

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Rows of one micro-batch, in the order of the log."""
        assert isinstance(partition, StretchPartition)
        start, end = partition.start, partition.end
        rows = _Rows(end.cluster_id, self._options)
        if end.parted_at is not None:
            yield from rows.of(parted(start.mark.position, end.parted_at))
            return
        for item in read_stretch(start.mark.position, end.mark, self._open_feed(end.cluster_id)):
            yield from rows.of(item)


class _Rows:
    """Converts items to rows, as for directories."""

    def __init__(self, cluster_id: str, options: StreamOptions) -> None:
        self._origin = Origin(cluster_id=cluster_id, source=options.source)
        self._selection = Selection(names=RECORD_NAMES if options.no_ops else RECORD_NAMES - {NO_OP})

    def of(self, item: Item) -> Iterator[pa.RecordBatch]:
        if isinstance(item, LogBatches):
            yield from self._of_records(item)
        elif isinstance(item, Snapshot):
            yield from self._of_snapshot(item)
        else:
            yield from gap_rows(self._origin, [item])

    def _of_records(self, item: LogBatches) -> Iterator[pa.RecordBatch]:
        first, last = item.batches[0].base_offset, item.batches[-1].last_offset
        reader = RowReader(
            self._origin, self._selection, BatchScanner(first_offset=first, end_offset=last + 1)
        )
        yield from reader.read(b"".join(map(encode_batch, item.batches)), is_end=True)[0]

    def _of_snapshot(self, item: Snapshot) -> Iterator[pa.RecordBatch]:
        origin = Origin(
            cluster_id=self._origin.cluster_id,
            source=self._origin.source,
            snapshot=(item.id.offset, item.id.epoch),
        )
        reader = RowReader(origin, self._selection, BatchScanner(first_offset=0))
        data, is_end = b"", False
        while not is_end:
            more = item.file.read(_SNAPSHOT_WINDOW_BYTES)
            is_end = not more
            batches, consumed = reader.read(data + more, is_end=is_end)
            data = (data + more)[consumed:]
            yield from batches
