"""Converts events to intervals: the events of a key become the intervals of its states.

If offsets are missing, a change may be hidden in the gap. The interval then starts or ends at the first offset
that shows the change, and is marked as not exact; table `gaps` has the earliest possible time.

- A snapshot after a gap is complete. Keys that it lacks end there, and keys that are new or have another state
  start there: both not exact. Keys with the same state as before the gap continue: whether they had another
  state in between is unknown.
- After a gap without a snapshot, every state continues until the next event of the key. If that event has another
  state, the old one ended somewhere after the gap began (to_exact is false), and the new one may have started
  before that event (from_exact is false).
- An interval that contains such a gap is marked: `through_gap`.
- A history that starts with a snapshot, or with a truncated log, starts after a gap.

A snapshot is the state after the last record in it, and is placed at that record: its own offset is that of the
next record, which may already change the same key. So every interval spans at least one offset, and no two of a key
start at the same one.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from pyspark.sql.types import BooleanType, LongType, StructField, TimestampType

from pyspark_quorate.rows import column, nullable
from pyspark_quorate.tables.contract import Cluster, Fold, GapEnds, Line

INTERVAL_COLUMNS: Final[tuple[StructField, ...]] = (
    column("valid_from", TimestampType(), "start: the time of the record or snapshot that shows it"),
    nullable(
        "valid_to",
        TimestampType(),
        "end: the time of the record or snapshot that shows it; null: it still holds",
    ),
    column(
        "from_offset",
        LongType(),
        "offset of the record at valid_from, or of the last record in that snapshot",
    ),
    nullable(
        "to_offset", LongType(), "the same for valid_to, always above from_offset; null: it still holds"
    ),
    column("from_exact", BooleanType(), "false: a gap hides the start, which may be before valid_from"),
    nullable(
        "to_exact",
        BooleanType(),
        "false: a gap hides the end, which may be before valid_to; null: it still holds",
    ),
    column(
        "through_gap",
        BooleanType(),
        "true: offsets are missing within the interval; the state was the same before and after",
    ),
)
"""The last columns of every table of intervals. Intervals are half open, and ordered by offset.

Intervals of a key do not overlap: (key, from_offset) is unique.
"""

CHANGE_COLUMNS: Final = (
    column("time", TimestampType(), "when the active controller appended the change"),
    column(
        "offset", LongType(), "offset of the record, or of the last one in the snapshot that shows the change"
    ),
)
"""Where a change is in the history."""
Key = tuple[Any, ...]
State = tuple[Any, ...]
"""The values that a table shows for a key.

A change of them ends an interval. None instead: the key does not exist.
"""
_NO_END: Final = 2**63 - 1


class Interval(NamedTuple):
    """An interval in which a key has the same state: `INTERVAL_COLUMNS`, with times in microseconds."""

    key: Key
    state: State
    valid_from: int | None
    valid_to: int | None
    from_offset: int
    to_offset: int | None
    from_exact: bool
    to_exact: bool | None
    through_gap: bool

    @property
    def span(self) -> tuple[Any, ...]:
        """The `INTERVAL_COLUMNS`."""
        return self[2:]

    @property
    def end(self) -> int:
        """`to_offset`; a number above all offsets if the interval is open."""
        return _NO_END if self.to_offset is None else self.to_offset


OnEnd = Callable[[Interval, Interval | None, bool], None]
"""Arguments: a complete interval; the interval that ends where it begins, or None; whether another one follows."""


@dataclass(slots=True)
class _Entry:
    """The current state of a key, since when the key has it, and the record that showed it."""

    state: State | None
    valid_from: int | None
    from_exact: bool
    from_offset: int
    time_us: int | None
    """The time of the record at from_offset, and `exact` whether a gap is right before it."""
    exact: bool
    seen: int
    """The number of gaps up to the last line that showed whether the key exists."""
    previous: Interval | None = None
    """The interval that ends where this one begins."""


class IntervalTracker:
    """Turns states of keys into intervals. Passes each interval to `on_end`, those of a key in order.

    It keeps the keys that exist, and those that were removed after a gap that no snapshot has bridged.
    """

    def __init__(self, gap_ends: GapEnds, on_end: OnEnd) -> None:
        self._gap_ends = gap_ends
        self._on_end = on_end
        self._entries: dict[Key, _Entry] = {}
        self._base = 0
        """The number of gaps up to the last complete state. Keys that it lacked did not exist then."""
        self._header: Line | None = None
        self._in_snapshot: set[Key] = set()

    def __contains__(self, key: Key) -> bool:
        entry = self._entries.get(key)
        return entry is not None and entry.state is not None

    def known(self) -> list[Key]:
        """The keys with an entry, including those of which only their absence is known."""
        return list(self._entries)

    def set_state(self, key: Key, state: State | None, line: Line, seen: int = 0) -> None:
        """Set the state of a key from this line on; None: the key does not exist.

        `seen` is for a key without an entry, if its absence is known from elsewhere: the number of gaps up to there.
        """
        if self._header is not None:
            self._in_snapshot.add(key)
        self._observe(key, state, line, seen)

    def begin_snapshot(self, header: Line) -> None:
        """Begin a complete state: all keys that exist are set before `end_snapshot`."""
        self._header = header
        self._in_snapshot = set()

    def end_snapshot(self) -> None:
        """Remove the keys that the snapshot lacks."""
        header, self._header = self._header, None
        if header is None:
            return
        for key in self.known():
            if key not in self._in_snapshot:
                self._observe(key, None, header, 0)
        self._in_snapshot = set()
        self.complete()

    def complete(self) -> None:
        """Note that all existing keys were just set, so that no other key exists."""
        self._base = self._gap_ends.count
        for key in [key for key, entry in self._entries.items() if entry.state is None]:
            del self._entries[key]

    def finish(self) -> None:
        """Pass on the open intervals, without an end."""
        for key, entry in self._entries.items():
            if entry.state is not None:
                self._on_end(self._ended(key, entry, None, None, None), entry.previous, False)
        self._entries = {}

    def _observe(self, key: Key, state: State | None, line: Line, seen: int) -> None:
        count = self._gap_ends.count
        entry = self._entries.get(key)
        exact = not line.is_snapshot and max(self._base, seen, entry.seen if entry else 0) == count
        if entry is not None:
            entry.seen = count
        if state == (entry.state if entry is not None else None):
            if entry is None and count > self._base:
                self._entries[key] = _Entry(
                    None, None, from_exact=False, from_offset=-1, time_us=None, exact=False, seen=count
                )
            return
        offset = line.placed
        begun = _Entry(state, line.time_us, exact, offset, line.time_us, exact, count)
        if entry is not None and entry.from_offset == offset:
            # The snapshot right after a partial record has the complete state, which holds from that record on.
            begun = replace(begun, valid_from=entry.time_us, from_exact=entry.exact, previous=entry.previous)
        elif entry is not None and entry.state is not None:
            ended = self._ended(key, entry, line.time_us, offset, exact)
            self._on_end(ended, entry.previous, state is not None)
            begun.previous = ended
        if state is None and count == self._base:
            self._entries.pop(key, None)
        else:
            self._entries[key] = begun

    def _ended(
        self, key: Key, entry: _Entry, valid_to: int | None, to_offset: int | None, to_exact: bool | None
    ) -> Interval:
        assert entry.state is not None
        through = self._gap_ends.is_within(entry.from_offset, to_offset)
        return Interval(
            key=key,
            state=entry.state,
            valid_from=entry.valid_from,
            valid_to=valid_to,
            from_offset=entry.from_offset,
            to_offset=to_offset,
            from_exact=entry.from_exact,
            to_exact=to_exact,
            through_gap=through,
        )


class KeyedFold(Fold):
    """A part of the fold that makes intervals of keys. The lines of a snapshot name all keys that exist.

    `step` adds states to `intervals`; `end_interval` gets each interval when it ends, those of a key in order.
    """

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self.intervals = IntervalTracker(cluster.gap_ends, self.end_interval)

    def end_interval(self, interval: Interval, previous: Interval | None, is_followed: bool) -> None:
        """Receive a complete interval.

        `previous` is the interval that ends where this one begins, if any. `is_followed`: another begins at its end.
        """
        raise NotImplementedError

    def begin_snapshot(self, line: Line) -> None:
        """Begin a snapshot, whose lines name all keys that exist."""
        self.intervals.begin_snapshot(line)

    def end_snapshot(self) -> None:
        """End the keys that the snapshot lacks."""
        self.intervals.end_snapshot()

    def finish(self) -> None:
        """End the open intervals."""
        self.intervals.finish()


class IntervalList(KeyedFold):
    """Keeps all intervals, for tables that compare them after the last line."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self.ended: list[Interval] = []
        """The intervals that have ended. After `finish`, also those that were still open."""

    def end_interval(self, interval: Interval, previous: Interval | None, is_followed: bool) -> None:  # noqa: ARG002
        """Add the interval to `ended`."""
        self.ended.append(interval)


class Boundary(NamedTuple):
    """A change of a key. `before` and `after` are its states; None: the key does not exist."""

    time_us: int | None
    offset: int
    before: State | None
    after: State | None
    exact: bool


def boundaries(interval: Interval, previous: Interval | None, is_followed: bool) -> Iterator[Boundary]:
    """The changes at the start of an interval, and at its end unless the next one begins there."""
    before = previous.state if previous is not None else None
    yield Boundary(interval.valid_from, interval.from_offset, before, interval.state, interval.from_exact)
    if interval.to_offset is not None and not is_followed:
        yield Boundary(interval.valid_to, interval.to_offset, interval.state, None, bool(interval.to_exact))


def merge_adjacent(intervals: Iterable[Interval], gap_ends: GapEnds) -> list[Interval]:
    """Merge intervals of the same key that overlap or touch, with the state of the first."""
    merged: dict[Key, list[Interval]] = {}
    # If several begin at the same offset, an exact one comes first and gives the start.
    for interval in sorted(intervals, key=lambda interval: (interval.from_offset, not interval.from_exact)):
        of_key = merged.setdefault(interval.key, [])
        if not of_key or interval.from_offset > of_key[-1].end:
            of_key.append(interval)
        elif interval.end > of_key[-1].end:
            of_key[-1] = of_key[-1]._replace(
                valid_to=interval.valid_to, to_offset=interval.to_offset, to_exact=interval.to_exact
            )
    return [
        interval._replace(through_gap=gap_ends.is_within(interval.from_offset, interval.to_offset))
        for of_key in merged.values()
        for interval in of_key
    ]


def overlap(left: Interval, right: Interval) -> Interval | None:
    """The part of the left interval that is within the right one, or None.

    `through_gap` is taken from the left one.
    """
    if right.from_offset >= left.end or left.from_offset >= right.end:
        return None
    begins = right if right.from_offset > left.from_offset else left
    ends = right if right.end < left.end else left
    return left._replace(
        valid_from=begins.valid_from,
        from_offset=begins.from_offset,
        from_exact=begins.from_exact,
        valid_to=ends.valid_to,
        to_offset=ends.to_offset,
        to_exact=ends.to_exact,
    )
