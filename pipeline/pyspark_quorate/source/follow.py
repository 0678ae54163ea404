"""Following a metadata log in stretches that can be read again: how far the next stretch goes, and what is in it.

A stretch is everything from one position to another. Positions lie between batches of the log. What is in a stretch
depends on the two positions alone as long as the log still has it: only what is committed is ever in one, so that
another leader has the same. When the log no longer has it, a snapshot stands for what is missing:

    the log begins        offered snapshot    the stretch [start, end) is
    at or before start    none                the records
    behind start          up to end           a gap up to the snapshot, the snapshot, and the records behind it
    behind start          beyond end          a gap up to end; the snapshot too if the log goes on at end, because
                                              nothing else would tell the state there. Else the next stretch begins
                                              with it.

A log that contradicts a position was lost and made anew: that is told as a truncated epoch, and the log is then
read from its beginning.
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
from pyspark_quorate.source.scanning import Gap

POLL_MS: Final = 500
"""How long a leader without news may hold a request."""

_SNAPSHOT_MEMORY_BYTES_MAX: Final = 8 * 1024 * 1024
"""Of a snapshot that is being fetched; what is more goes to the disk."""


class Feed(Protocol):
    """The events of a log from a position on, one request at a time."""

    @property
    def position(self) -> Position:
        """The end of what was handed out."""

    @property
    def is_caught_up(self) -> bool:
        """Whether the last answer was of a leader that has nothing committed behind `position`."""

    @property
    def leader_epoch(self) -> int:
        """Of the leader that gave the last answer that was of use."""

    def exchange(self, max_wait_ms: int) -> tuple[Event, ...]:
        """What one request leads to. Raises HistoryLostError, and others when going on is of no use."""

    def close(self) -> None:
        """Let go of the connection."""


OpenFeed = Callable[[Position, int], Feed]
"""A feed from a position on, which listens to no leader of an epoch below the given one."""


class Mark(NamedTuple):
    """The end of a stretch."""

    position: Position
    leader_epoch: int
    """Of the leader that told that everything before is committed: each later one has it too."""


# How far the next stretch goes


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """How much goes into one stretch: whole batches, and one at least. None: no limit."""

    records_max: int | None = None
    bytes_max: int | None = None
    """Of keys and values."""
    offset_max: int | None = None
    """No stretch ends behind it."""


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
    """Finds the ends of stretches, one after another, in what is committed. Close it."""

    def __init__(self, open_feed: OpenFeed) -> None:
        self._open_feed = open_feed
        self._feed: Feed | None = None
        self._at: Position | None = None
        """The end of the last stretch: what follows is in `_ahead`, and then in the feed."""
        self._leader_epoch = 0
        self._ahead: deque[_Sizes] = deque()
        """Batches that were looked at and are in no stretch yet: no more than one answer holds."""

    def close(self) -> None:
        """Let go of the connection."""
        feed, self._feed, self._at = self._feed, None, None
        self._ahead.clear()
        if feed is not None:
            feed.close()

    def end_after(self, mark: Mark, limit: Limit) -> Mark:
        """The end of the stretch that begins at `mark`; `mark` when there is nothing new.

        Raises HistoryLostError when the log contradicts it.
        """
        start = mark.position
        if self._at != start:
            self.close()
            self._leader_epoch = mark.leader_epoch
        taken, offered, is_done, max_wait_ms = _Sizes(start), None, False, POLL_MS
        try:
            while True:
                taken = self._take(taken, limit)
                if self._ahead or is_done:
                    break
                offered, is_done = self._look(taken.end, max_wait_ms)
                max_wait_ms = 0 if self._ahead else POLL_MS
        except HistoryLostError:
            self.close()
            if taken.end == start:
                raise
            # What was told as committed before belongs to a stretch all the same; the next call tells the loss.
        if offered is not None:
            self.close()
            is_allowed = limit.offset_max is None or offered.offset <= limit.offset_max
            if taken.end == start and is_allowed:
                taken = _Sizes(offered)
        self._at = taken.end
        return mark if taken.end == start else Mark(taken.end, self._leader_epoch)

    def _take(self, taken: _Sizes, limit: Limit) -> _Sizes:
        while self._ahead:
            more = taken.plus(self._ahead[0])
            if limit.offset_max is not None and more.end.offset > limit.offset_max:
                break
            if taken.records and not more.is_within(limit):
                break
            self._ahead.popleft()
            taken = more
        return taken

    def _look(self, at: Position, max_wait_ms: int) -> tuple[Position | None, bool]:
        """Ask once: the snapshot that is offered instead of records, and whether nothing more is to be had now."""
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
class Records:
    """Batches of the log, control batches among them."""

    batches: tuple[RecordBatch, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A whole checkpoint, open for reading until the next item is asked for."""

    id: Position
    file: BinaryIO


Item = Records | Snapshot | Gap


def parted(start: Position, leader_end: Position) -> Gap:
    """That the log up to `start` was lost, because the leader's parts from it at `leader_end`."""
    return Gap(
        reason=TRUNCATED_EPOCH,
        # Where both logs end epochs differently, the record before `start` is another one at least.
        offset=min(leader_end.offset, start.offset - 1),
        end_offset=start.offset,
        detail=f"what was committed up to {start} is no longer in the log of the leader, which parts from it at "
        f"{leader_end}: records were lost, or it is another log",
    )


def read_stretch(start: Position, mark: Mark, open_feed: OpenFeed) -> Iterator[Item]:
    """What is from a position up to a mark that a planner has given.

    Nobody is listened to but the leader that told the mark, and later ones: they have all of the stretch, or their
    log is another one. So what they lack is lost, and there is no use in waiting for it.
    """
    end = mark.position
    with (
        closing(open_feed(start, mark.leader_epoch)) as feed,
        closing(_Reading(start, mark, feed, open_feed)) as stretch,
    ):
        try:
            while stretch.at.offset < end.offset:
                yield from stretch.look()
        except HistoryLostError as lost:
            yield parted(end, lost.leader_end)
        else:
            if stretch.at.offset == end.offset and stretch.at.epoch != end.epoch:
                yield parted(end, stretch.at)


class _Reading:
    """The reading of one stretch: where it is, and the snapshot that it is fetching."""

    def __init__(self, start: Position, mark: Mark, feed: Feed, open_feed: OpenFeed) -> None:
        self.at = start
        self._end = mark.position
        self._leader_epoch = mark.leader_epoch
        self._feed = feed
        self._open_feed = open_feed
        self._snapshot: SpooledTemporaryFile[bytes] | None = None

    def close(self) -> None:
        """Throw away a snapshot that is being fetched."""
        snapshot, self._snapshot = self._snapshot, None
        if snapshot is not None:
            snapshot.close()

    def look(self) -> Iterator[Item]:
        """What one request leads to. Raises HistoryLostError."""
        for event in self._feed.exchange(POLL_MS):
            if isinstance(event, Committed):
                yield from self._records(event.batches)
            elif isinstance(event, SnapshotBegun):
                self.close()
                if event.snapshot_id.offset <= self.at.offset:
                    raise HistoryLostError(self._end, event.snapshot_id)
                if event.snapshot_id.offset > self._end.offset and not self._goes_on_at_end():
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
            yield Records(batches=inside)
        if self.at.offset < self._end.offset and len(inside) < len(batches):
            # The end of a stretch is the end of a batch: these are not the batches that were planned.
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
            detail=f"the log of the leader begins later; its snapshot of {snapshot_id} stands for these records",
        )
        self.at = end
        return gap

    def _goes_on_at_end(self) -> bool:
        """Whether the leader still has the records behind the stretch, so that no snapshot will be offered there."""
        with closing(self._open_feed(self._end, self._leader_epoch)) as behind:
            while True:
                try:
                    events = behind.exchange(POLL_MS)
                except HistoryLostError:
                    return False  # the next stretch begins with telling that
                if any(isinstance(event, SnapshotBegun) for event in events):
                    return False
                if behind.is_caught_up or any(isinstance(event, Committed) for event in events):
                    return True
