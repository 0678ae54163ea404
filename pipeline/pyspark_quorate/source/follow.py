"""Follows a metadata log in repeatable stretches: finds the end of the next stretch, and reads its content.

A stretch is the part of a log between two positions, which lie between batches. Its content depends only on the two
positions as long as the log still has it: it contains only committed records, which every later leader has too. When
the log no longer has it, a snapshot replaces the missing records:

    the log starts        offered snapshot    the stretch [start, end) is
    at or before start    none                the records
    after start           up to end           a gap up to the snapshot, the snapshot, and the records after it
    after start           after end           a gap up to end; also the snapshot, if the log continues at end, because
                                              no other row has the state there. Otherwise the next stretch starts
                                              with the snapshot.

A log that contradicts a position was lost and recreated: this is reported as a truncated epoch, and the log is then
read from its start.
"""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from tempfile import SpooledTemporaryFile
from typing import BinaryIO, Final, NamedTuple, Protocol, cast

from quorate_protocol.observer import (
    Committed,
    Event,
    HistoryLostError,
    Position,
    SnapshotAbandoned,
    SnapshotBegun,
    SnapshotChunk,
    SnapshotLoaded,
)
from quorate_protocol.records.batch import RecordBatch

from pyspark_quorate.rows import MISSING_OFFSETS, TRUNCATED_EPOCH
from pyspark_quorate.source.batch_scanner import Gap

POLL_MS: Final = 500
"""How long a leader without new records may hold a request."""

_SNAPSHOT_MEMORY_BYTES_MAX: Final = 8 * 1024 * 1024
"""The part of a fetched snapshot that is kept in memory; the rest is written to disk."""


class Feed(Protocol):
    """Events of a log from a position on, one request at a time."""

    @property
    def position(self) -> Position:
        """The end of the returned events."""

    @property
    def is_caught_up(self) -> bool:
        """Whether the last response was from a leader without committed records after `position`."""

    @property
    def leader_epoch(self) -> int:
        """The epoch of the leader that sent the last useful response."""

    def exchange(self, max_wait_ms: int) -> tuple[Event, ...]:
        """The events of one request. Raises HistoryLostError, and other errors if continuing is useless."""

    def close(self) -> None:
        """Close the connection."""


OpenFeed = Callable[[Position, int], Feed]
"""Opens a feed from a position on, which ignores leaders of epochs below the given one."""


class Mark(NamedTuple):
    """The end of a stretch."""

    position: Position
    leader_epoch: int
    """The epoch of the leader that reported everything before as committed; every later leader has it too."""


# How far the next stretch goes


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """The size of a stretch, in whole batches, at least one. None: no limit."""

    records_max: int | None = None
    bytes_max: int | None = None
    """Of keys and values."""
    offset_max: int | None = None
    """No stretch ends after it."""


class _Sizes(NamedTuple):
    end: Position
    records: int = 0
    size_bytes: int = 0

    def plus(self, other: "_Sizes") -> "_Sizes":
        return _Sizes(other.end, self.records + other.records, self.size_bytes + other.size_bytes)

    def is_within(self, limit: Limit) -> bool:
        return (limit.records_max is None or self.records <= limit.records_max) and (
            limit.bytes_max is None or self.size_bytes <= limit.bytes_max
        )


class Planner:
    """Finds the ends of consecutive stretches in the committed log. Close it."""

    def __init__(self, open_feed: OpenFeed) -> None:
        self._open_feed = open_feed
        self._feed: Feed | None = None
        self._at: Position | None = None
        """The end of the last stretch: the next batches are in `_ahead`, and then in the feed."""
        self._leader_epoch = 0
        self._ahead: deque[_Sizes] = deque()
        """Batches that were received and are in no stretch yet: at most those of one response."""

    def close(self) -> None:
        """Close the connection."""
        feed, self._feed, self._at = self._feed, None, None
        self._ahead.clear()
        if feed is not None:
            feed.close()

    def end_after(self, mark: Mark, limit: Limit) -> Mark:
        """The end of the stretch that starts at `mark`; `mark` if there is nothing new.

        Raises HistoryLostError if the log contradicts it.
        """
        start = mark.position
        if self._at != start:
            self.close()
            self._leader_epoch = mark.leader_epoch
        stretch, offered, is_done, max_wait_ms = _Sizes(start), None, False, POLL_MS
        try:
            while True:
                stretch = self._extend(stretch, limit)
                if self._ahead or is_done:
                    break
                offered, is_done = self._request(stretch.end, max_wait_ms)
                max_wait_ms = 0 if self._ahead else POLL_MS
        except HistoryLostError:
            self.close()
            if stretch.end == start:
                raise
            # Records committed before the loss still belong to this stretch; the next call reports the loss.
        if offered is not None:
            self.close()
            is_allowed = limit.offset_max is None or offered.offset <= limit.offset_max
            if stretch.end == start and is_allowed:
                stretch = _Sizes(offered)
        self._at = stretch.end
        return mark if stretch.end == start else Mark(stretch.end, self._leader_epoch)

    def _extend(self, stretch: _Sizes, limit: Limit) -> _Sizes:
        while self._ahead:
            more = stretch.plus(self._ahead[0])
            if limit.offset_max is not None and more.end.offset > limit.offset_max:
                break
            if stretch.records and not more.is_within(limit):
                break
            self._ahead.popleft()
            stretch = more
        return stretch

    def _request(self, at: Position, max_wait_ms: int) -> tuple[Position | None, bool]:
        """Send one request. Returns a snapshot offered instead of records, and whether nothing more is available."""
        if self._feed is None:
            self._feed = self._open_feed(at, self._leader_epoch)
        for event in self._feed.exchange(max_wait_ms):
            if isinstance(event, Committed | SnapshotBegun):
                self._leader_epoch = self._feed.leader_epoch
            if isinstance(event, Committed):
                self._ahead.extend(map(_sizes_of, event.batches))
            elif isinstance(event, SnapshotBegun):
                if event.snapshot_id.offset <= at.offset:
                    raise HistoryLostError(at, event.snapshot_id)
                return event.snapshot_id, True
        return None, self._feed.is_caught_up


def _sizes_of(batch: RecordBatch) -> _Sizes:
    return _Sizes(
        _end_of(batch),
        len(batch.records),
        sum(len(record.key or b"") + len(record.value or b"") for record in batch.records),
    )


def _end_of(batch: RecordBatch) -> Position:
    return Position(batch.last_offset + 1, batch.partition_leader_epoch)


# What is in a stretch


@dataclass(frozen=True, slots=True, kw_only=True)
class LogBatches:
    """Batches of the log, including control batches."""

    batches: tuple[RecordBatch, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A complete checkpoint, open for reading until the next item is requested."""

    id: Position
    file: BinaryIO


Item = LogBatches | Snapshot | Gap


def parted(start: Position, leader_end: Position) -> Gap:
    """The gap of a log that was lost up to `start`, because the leader's log diverges at `leader_end`."""
    return Gap(
        reason=TRUNCATED_EPOCH,
        # If the logs end epochs differently, at least the record before `start` differs.
        offset=min(leader_end.offset, start.offset - 1),
        end_offset=start.offset,
        detail=f"records that were committed up to {start} are not in the leader's log, which diverges at "
        f"{leader_end}: records were lost, or it is another log",
    )


def read_stretch(start: Position, mark: Mark, open_feed: OpenFeed) -> Iterator[Item]:
    """Read from a position up to a mark of a planner.

    Only the leader that reported the mark and later leaders are accepted: they have the whole stretch, or another
    log. So records that they lack are lost, and waiting for them is useless.
    """
    end = mark.position
    with (
        closing(open_feed(start, mark.leader_epoch)) as feed,
        closing(_StretchReader(start, mark, feed, open_feed)) as reader,
    ):
        try:
            while reader.at.offset < end.offset:
                yield from reader.exchange()
        except HistoryLostError as lost:
            yield parted(end, lost.leader_end)
        else:
            if reader.at.offset == end.offset and reader.at.epoch != end.epoch:
                yield parted(end, reader.at)


class _StretchReader:
    """The state of reading one stretch: its position, and the snapshot being fetched."""

    def __init__(self, start: Position, mark: Mark, feed: Feed, open_feed: OpenFeed) -> None:
        self.at = start
        self._end = mark.position
        self._leader_epoch = mark.leader_epoch
        self._feed = feed
        self._open_feed = open_feed
        self._snapshot: SpooledTemporaryFile[bytes] | None = None

    def close(self) -> None:
        """Discard a snapshot that is being fetched."""
        snapshot, self._snapshot = self._snapshot, None
        if snapshot is not None:
            snapshot.close()

    def exchange(self) -> Iterator[Item]:
        """The items of one request. Raises HistoryLostError."""
        for event in self._feed.exchange(POLL_MS):
            if isinstance(event, Committed):
                yield from self._records(event.batches)
            elif isinstance(event, SnapshotBegun):
                self.close()
                if event.snapshot_id.offset <= self.at.offset:
                    raise HistoryLostError(self._end, event.snapshot_id)
                if event.snapshot_id.offset > self._end.offset and not self._continues_at_end():
                    yield self._gap(self._end, event.snapshot_id)
                    return
                self._snapshot = SpooledTemporaryFile(max_size=_SNAPSHOT_MEMORY_BYTES_MAX)  # noqa: SIM115
            elif isinstance(event, SnapshotChunk):
                assert self._snapshot is not None
                self._snapshot.write(event.data)
            elif isinstance(event, SnapshotAbandoned):
                self.close()
            elif isinstance(event, SnapshotLoaded):
                yield from self._loaded(event.position)
        if self._feed.is_caught_up and self.at.offset < self._end.offset:
            raise HistoryLostError(self._end, self.at)

    def _records(self, batches: tuple[RecordBatch, ...]) -> Iterator[Item]:
        inside = tuple(batch for batch in batches if batch.last_offset < self._end.offset)
        if inside:
            self.at = _end_of(inside[-1])
            yield LogBatches(batches=inside)
        if self.at.offset < self._end.offset and len(inside) < len(batches):
            # A stretch ends at the end of a batch: these are not the planned batches.
            raise HistoryLostError(self._end, self.at)

    def _loaded(self, snapshot_id: Position) -> Iterator[Item]:
        assert self._snapshot is not None
        self._snapshot.seek(0)
        yield self._gap(min(snapshot_id, self._end), snapshot_id)
        yield Snapshot(id=snapshot_id, file=cast("BinaryIO", self._snapshot))
        self.at = snapshot_id
        self.close()

    def _gap(self, end: Position, snapshot_id: Position) -> Gap:
        gap = Gap(
            reason=MISSING_OFFSETS,
            offset=self.at.offset,
            end_offset=end.offset,
            detail=f"the leader's log starts later; its snapshot of {snapshot_id} replaces these records",
        )
        self.at = end
        return gap

    def _continues_at_end(self) -> bool:
        """Whether the leader still has the records after the stretch, so that it will not offer a snapshot there."""
        with closing(self._open_feed(self._end, self._leader_epoch)) as behind:
            while True:
                try:
                    events = behind.exchange(POLL_MS)
                except HistoryLostError:
                    return False  # the next stretch reports that
                if any(isinstance(event, SnapshotBegun) for event in events):
                    return False
                if behind.is_caught_up or any(isinstance(event, Committed) for event in events):
                    return True
