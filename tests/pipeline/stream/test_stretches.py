"""How far the next stretch of a log goes, and what is in it, whatever happened to the log in between."""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark_quorate.rows import MISSING_OFFSETS, TRUNCATED_EPOCH
from pyspark_quorate.source import batch_scanner
from pyspark_quorate.source.follow import (
    Item,
    Limit,
    LogBatches,
    Mark,
    Planner,
    Snapshot,
    parted,
    read_stretch,
)
from quorate_protocol.observer import (
    BEGINNING,
    Committed,
    Event,
    Gap,
    HistoryLostError,
    LeaderChanged,
    Position,
    SnapshotAbandoned,
    SnapshotBegun,
    SnapshotChunk,
    SnapshotLoaded,
)
from quorate_protocol.records.batch import Record, RecordBatch


@dataclass
class ModelLog:
    """The committed batches of a leader, where its log begins, and the newest snapshot."""

    batches: list[RecordBatch] = field(default_factory=list)
    begins_at: int = 0
    snapshot: Position | None = None
    epoch: int = 1
    batches_per_response: int = 3
    before_exchange: Callable[[], None] = lambda: None
    floors: list[int] = field(default_factory=list)
    """The lowest leader epoch that each feed accepts."""
    open_now: int = 0

    @property
    def end(self) -> Position:
        """Behind the last committed record."""
        return position_behind(self.batches[-1]) if self.batches else Position(0, 0)

    def append(self, records: int, size_bytes: int = 10) -> Position:
        """Commit one batch; where it ends."""
        base = self.end.offset
        self.batches.append(
            RecordBatch(
                base_offset=base,
                partition_leader_epoch=self.epoch,
                is_control=False,
                base_timestamp_ms=base,
                max_timestamp_ms=base,
                records=tuple(
                    Record(offset_delta=delta, timestamp_ms=base, key=None, value=bytes(size_bytes))
                    for delta in range(records)
                ),
            )
        )
        return self.end

    def clean(self, begin: int, newest: int) -> None:
        """Have snapshots at the ends of two batches, by index, and no log before the first of them."""
        ends = [position_behind(batch) for batch in self.batches]
        self.begins_at, self.snapshot = ends[begin].offset, ends[newest]

    def open(self, position: Position, leader_epoch: int) -> "ModelFeed":
        """A feed of this log."""
        assert leader_epoch >= position.epoch
        self.floors.append(leader_epoch)
        self.open_now += 1
        return ModelFeed(self, position, leader_epoch)


class ModelFeed:
    """One answer for each exchange, from the log as it is then."""

    def __init__(self, log: ModelLog, position: Position, epoch_min: int) -> None:
        self._log = log
        self._epoch_min = epoch_min
        self.position = position
        self.is_caught_up = False
        self.leader_epoch = log.epoch
        self._downloading: Position | None = None

    def close(self) -> None:
        self._log.open_now -= 1

    def exchange(self, max_wait_ms: int) -> tuple[Event, ...]:
        assert max_wait_ms >= 0
        self._log.before_exchange()
        log = self._log
        self.is_caught_up = False
        self.leader_epoch = log.epoch
        if self._downloading is not None:
            return self._download(self._downloading)
        if log.epoch < self._epoch_min:  # so does a majority that lost its disks
            raise HistoryLostError(self.position, BEGINNING)
        ends = {Position(0, 0), *map(position_behind, log.batches)}
        if self.position not in ends:
            same = max((end for end in ends if end.epoch <= self.position.epoch), default=Position(0, 0))
            raise HistoryLostError(self.position, same)
        if self.position.offset < log.begins_at:
            assert log.snapshot is not None
            self._downloading = log.snapshot
            is_gap = self.position.offset > 0
            return (Gap(start=self.position, end=log.snapshot),) if is_gap else ()
        ahead = [batch for batch in log.batches if batch.base_offset >= self.position.offset]
        taken = tuple(ahead[: log.batches_per_response])
        if taken:
            self.position = position_behind(taken[-1])
        self.is_caught_up = len(taken) == len(ahead)
        news: tuple[Event, ...] = (LeaderChanged(leader_id=1, epoch=log.epoch, endpoint=None),)
        return (*news, Committed(batches=taken, position=self.position)) if taken else news

    def _download(self, snapshot_id: Position) -> tuple[Event, ...]:
        self._downloading = None
        begun = SnapshotBegun(snapshot_id=snapshot_id, size_bytes=6)
        if snapshot_id != self._log.snapshot:
            return (begun, SnapshotChunk(data=b"sta"), SnapshotAbandoned(snapshot_id=snapshot_id))
        self.position = snapshot_id
        chunks = (SnapshotChunk(data=b"sta"), SnapshotChunk(data=b"te!"))
        return (begun, *chunks, SnapshotLoaded(position=snapshot_id))


def position_behind(batch: RecordBatch) -> Position:
    """The end of a batch."""
    return Position(batch.last_offset + 1, batch.partition_leader_epoch)


def mark(offset: int, epoch: int = 1, leader_epoch: int | None = None) -> Mark:
    """The end of a stretch, reported by a leader of the epoch of its last record, or a later one."""
    return Mark(Position(offset, epoch), epoch if leader_epoch is None else leader_epoch)


START = mark(0, 0)


def described(items: list[tuple[str, int, int]]) -> list[tuple[str, int, int]]:
    """Neighbours of the same kind joined."""
    joined: list[tuple[str, int, int]] = []
    for kind, begin, end in items:
        if joined and kind == "log" and joined[-1][0] == kind and joined[-1][2] == begin:
            joined[-1] = (kind, joined[-1][1], end)
        else:
            joined.append((kind, begin, end))
    return joined


def shape_of(item: Item) -> tuple[str, int, int]:
    """Kind or reason, and the offsets that it covers; of a snapshot, its offset and epoch."""
    if isinstance(item, LogBatches):
        for batch, following in pairwise(item.batches):
            assert batch.last_offset + 1 == following.base_offset
        return "log", item.batches[0].base_offset, item.batches[-1].last_offset + 1
    if isinstance(item, Snapshot):
        assert item.file.read() == b"state!"
        return "snapshot", item.id.offset, item.id.epoch
    return item.reason, item.offset, item.end_offset


def read(log: ModelLog, start: Mark, end: Mark) -> list[tuple[str, int, int]]:
    """What is in a stretch now."""
    open_before = log.open_now
    found = [shape_of(item) for item in read_stretch(start.position, end, log.open)]
    assert log.open_now == open_before, "a feed was not closed"
    return described(found)


def filled(*records: int, epoch: int = 1) -> ModelLog:
    """A log with batches of these numbers of records."""
    log = ModelLog(epoch=epoch)
    for count in records:
        log.append(count)
    return log


# Planning


def test_a_stretch_is_whole_batches_up_to_each_limit_and_one_at_least() -> None:
    log = filled(4, 3, 5, 20, 1, 1)
    cases = {
        Limit(): [33 + 1],
        Limit(records_max=8): [7, 12, 32, 34],
        Limit(bytes_max=75): [7, 12, 32, 34],
        Limit(records_max=8, bytes_max=45): [4, 7, 12, 32, 34],
        Limit(records_max=1): [4, 7, 12, 32, 33, 34],
        Limit(offset_max=12): [12],
        Limit(records_max=5, offset_max=7): [4, 7],
    }
    for limit, expected in cases.items():
        planner, at, ends = Planner(log.open), START, []
        while (end := planner.end_after(at, limit)) != at:
            ends.append(end.position.offset)
            at = end
        assert ends == expected, limit
        assert planner.end_after(at, limit) == at
        planner.close()
    assert log.open_now == 0


def test_planning_goes_on_over_one_connection_and_from_any_start() -> None:
    """No batch is fetched twice, and a restart may ask from anywhere."""
    log = filled(1, 1, 1, 1, 1, 1, 1)
    planner, limit = Planner(log.open), Limit(records_max=2)
    at = planner.end_after(START, limit)
    at = planner.end_after(at, limit)
    log.append(1)
    assert planner.end_after(at, Limit()) == mark(8, 1)
    assert len(log.floors) == 1
    assert planner.end_after(mark(2, 1), limit) == mark(4, 1)
    assert len(log.floors) == 2


def test_a_snapshot_that_stands_for_the_beginning_is_a_stretch_of_its_own() -> None:
    log = filled(2, 2, 2, 2, 2)
    log.clean(1, 2)
    planner = Planner(log.open)
    assert planner.end_after(START, Limit(offset_max=5)) == START, "it would end behind the limit"
    first = planner.end_after(START, Limit(records_max=2))
    assert first == mark(6, 1)
    assert planner.end_after(first, Limit(records_max=2)) == mark(8, 1)
    assert read(log, START, first) == [(MISSING_OFFSETS, 0, 6), ("snapshot", 6, 1)]


def test_a_log_that_begins_later_in_the_middle_of_planning_ends_the_stretch() -> None:
    """What was seen before the log start passed is read as records."""
    log = filled(1, 1, 1, 1, 1, 1, 1, 1)
    responses = iter(range(10))
    log.before_exchange = lambda: log.clean(5, 6) if next(responses) == 1 else None
    planner = Planner(log.open)
    assert planner.end_after(START, Limit()) == mark(3, 1)
    assert planner.end_after(mark(3, 1), Limit()) == mark(7, 1)
    assert planner.end_after(mark(7, 1), Limit()) == mark(8, 1)


def test_a_log_that_contradicts_the_start_is_reported_and_not_skipped() -> None:
    log = filled(3, 3, epoch=2)
    for start in (mark(7, 2), mark(4, 1), mark(3, 9)):
        with pytest.raises(HistoryLostError) as raised:
            Planner(log.open).end_after(start, Limit())
        gap = parted(start.position, raised.value.leader_end)
        assert gap.reason == TRUNCATED_EPOCH
        assert 0 <= gap.offset < gap.end_offset == start.position.offset
    log.clean(0, 0)
    with pytest.raises(HistoryLostError):
        Planner(log.open).end_after(mark(3, 1), Limit(offset_max=2))


def test_a_loss_behind_what_was_seen_is_reported_with_the_next_stretch() -> None:
    log = filled(1, 1, 1, 1, 1, epoch=3)
    other = filled(2, 2, epoch=2).batches
    responses = iter(range(10))

    def exchange_the_log() -> None:
        if next(responses) == 1:
            log.batches = other

    log.before_exchange = exchange_the_log
    planner = Planner(log.open)
    end = planner.end_after(START, Limit())
    assert end == mark(3, 3)
    with pytest.raises(HistoryLostError):
        planner.end_after(end, Limit())


def test_leaders_that_may_lack_committed_records_are_ignored() -> None:
    """A leader that was replaced and does not know it can't make a record look lost."""
    log = filled(2, 2, epoch=3)
    log.epoch = 7
    planner = Planner(log.open)
    end = planner.end_after(START, Limit(records_max=2))
    assert end == mark(2, 3, leader_epoch=7)
    read(log, START, end)
    planner.close()
    assert planner.end_after(end, Limit()) == mark(4, 3, leader_epoch=7)
    assert log.floors == [0, 7, 7]


# Reading


def test_a_stretch_is_read_the_same_whatever_was_appended() -> None:
    log = filled(2, 3, 4)
    start, end = mark(2, 1), mark(9)
    before = read(log, start, end)
    log.epoch = 5
    log.append(7)
    assert before == read(log, start, end) == [("log", 2, 9)]


@pytest.mark.parametrize(
    ("begin", "newest", "expected"),
    [
        (0, 1, [(MISSING_OFFSETS, 2, 4), ("snapshot", 4, 1), ("log", 4, 6)]),
        (1, 2, [(MISSING_OFFSETS, 2, 6), ("snapshot", 6, 1)]),
        (1, 4, [(MISSING_OFFSETS, 2, 6), ("snapshot", 10, 1)]),
        (2, 4, [(MISSING_OFFSETS, 2, 6), ("snapshot", 10, 1)]),
        (3, 4, [(MISSING_OFFSETS, 2, 6)]),
    ],
    ids=["within", "at the end", "beyond, log within", "beyond, log at the end", "beyond, log beyond"],
)
def test_a_stretch_whose_records_were_cleaned_is_a_gap_and_the_state_behind_it(
    begin: int, newest: int, expected: list[tuple[str, int, int]]
) -> None:
    """Nothing lost or doubled when the log start passes between planning and reading."""
    log = filled(2, 2, 2, 2, 2)
    start, end = mark(2, 1), mark(6, 1)
    if (begin, newest) == (0, 1):
        start, expected = mark(0, 0), [(MISSING_OFFSETS, 0, 4), *expected[1:]]
    log.clean(begin, newest)
    assert read(log, start, end) == expected
    rest = Planner(log.open).end_after(end, Limit())
    is_reported = any(kind == "snapshot" for kind, _, _ in expected)
    assert read(log, end, rest) == (
        [("log", 6, 10)] if is_reported else [(MISSING_OFFSETS, 6, 10), ("snapshot", 10, 1)]
    )


def test_a_snapshot_that_goes_away_while_it_is_fetched_is_replaced() -> None:
    log = filled(2, 2, 2, 2, 2)
    log.clean(0, 1)
    responses = iter(range(10))
    log.before_exchange = lambda: log.clean(1, 2) if next(responses) == 1 else None
    assert read(log, START, mark(10)) == [(MISSING_OFFSETS, 0, 6), ("snapshot", 6, 1), ("log", 6, 10)]


def test_a_log_that_was_exchanged_after_planning_is_reported() -> None:
    """A lost stretch is a row, and reading ends."""
    start, end = mark(2, 3), mark(6, 3)
    shorter = filled(2, 2, epoch=3)
    assert read(shorter, start, end) == [("log", 2, 4), (TRUNCATED_EPOCH, 4, 6)]
    cut = filled(2, 3, 3, epoch=3)
    assert read(cut, start, end) == [("log", 2, 5), (TRUNCATED_EPOCH, 5, 6)]
    older = filled(1, 1, 9, epoch=2)
    assert read(older, start, end) == [(TRUNCATED_EPOCH, 0, 6)]
    later = filled(2, epoch=3)
    later.epoch = 4
    later.append(4)
    assert read(later, start, end) == [("log", 2, 6), (TRUNCATED_EPOCH, 5, 6)]


# Both, over time

ACTIONS = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 5)),
    st.tuples(st.just("elect"), st.just(0)),
    st.tuples(st.just("clean"), st.integers(0, 10**6)),
    st.tuples(st.just("plan"), st.integers(1, 8)),
    st.tuples(st.just("read"), st.just(0)),
    st.tuples(st.just("restart"), st.just(0)),
)


class Streaming:
    """A stream whose stretches are planned, and read later."""

    def __init__(self) -> None:
        self.log = ModelLog()
        self.planner = Planner(self.log.open)
        self.at = START
        self.unread: list[tuple[Mark, Mark]] = []
        self.seen: list[tuple[str, int, int]] = []

    def append(self, number: int) -> None:
        self.log.append(number)

    def elect(self, _: int) -> None:
        self.log.epoch += 1

    def clean(self, number: int) -> None:
        """What only grows: where the log begins, and the newest snapshot."""
        ends = [position_behind(batch).offset for batch in self.log.batches]
        if not ends:
            return
        newest = number % len(ends)
        begin = number // len(ends) % (newest + 1)
        before = self.log.snapshot or BEGINNING
        if ends[begin] >= self.log.begins_at and ends[newest] >= before.offset:
            self.log.clean(begin, newest)

    def plan(self, number: int | None) -> None:
        end = self.planner.end_after(self.at, Limit(records_max=number))
        if end != self.at:
            self.unread.append((self.at, end))
            self.at = end

    def read(self, _: int) -> None:
        if self.unread:
            self.seen += read(self.log, *self.unread.pop(0))

    def restart(self, _: int) -> None:
        self.planner.close()

    def finish(self) -> None:
        """Plan and read until nothing is new."""
        is_new = True
        while is_new:
            before = self.at
            self.plan(None)
            is_new = self.at != before
            while self.unread:
                self.read(0)
        self.planner.close()


@given(st.lists(ACTIONS, max_size=40))
def test_stretches_hold_each_record_once_or_tell_that_it_is_missing(actions: list[tuple[str, int]]) -> None:
    """Over time, all stretches together are the log, each record once or in a gap, and the state is known."""
    stream = Streaming()
    for action, number in actions:
        getattr(stream, action)(number)
    stream.finish()
    seen, end = stream.seen, stream.log.end.offset
    covered = [item for item in seen if item[0] != "snapshot"]
    assert all(end == begin for (*_, end), (_, begin, _) in pairwise(covered)), seen
    assert (covered[0][1], covered[-1][2]) == (0, end) if covered else end == 0
    _assert_state_is_known(seen)
    assert stream.log.open_now == 0


def _assert_state_is_known(seen: list[tuple[str, int, int]]) -> None:
    """Behind the last gap there is a snapshot, once."""
    gaps = [place for place, item in enumerate(seen) if item[0] == MISSING_OFFSETS]
    if gaps:
        ends_at = seen[gaps[-1]][2]
        snapshots = [offset for kind, offset, _ in seen[gaps[-1] :] if kind == "snapshot"]
        assert len(snapshots) == 1
        assert snapshots[0] >= ends_at
    snapshots = [item for item in seen if item[0] == "snapshot"]
    assert len(snapshots) == len(set(snapshots))


def test_a_gap_names_what_it_covers() -> None:
    log = filled(2, 2)
    log.clean(1, 1)
    (gap, *_) = list(read_stretch(BEGINNING, mark(4), log.open))
    assert isinstance(gap, batch_scanner.Gap)
    assert "snapshot of offset 4, epoch 1" in gap.detail
    assert "diverges at offset 3, epoch 2" in parted(Position(9, 4), Position(3, 2)).detail
