"""Intervals of keys, event after event."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

Key = tuple[Any, ...]
State = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Interval:
    """An interval."""

    key: Key
    state: State
    valid_from: datetime
    valid_to: datetime | None
    from_offset: int
    to_offset: int | None
    from_exact: bool
    to_exact: bool | None
    through_gap: bool

    @property
    def line(self) -> tuple[Any, ...]:
        """The line of the table."""
        instants = (self.valid_from, self.valid_to, self.from_offset, self.to_offset)
        return (*self.key, *self.state, *instants, self.from_exact, self.to_exact, self.through_gap)

    def holds(self, offset: int) -> bool:
        """Whether the state held after the record at an offset."""
        return self.from_offset <= offset and (self.to_offset is None or offset < self.to_offset)


@dataclass(slots=True)
class Book:
    """The intervals of keys, one event after the other."""

    gaps: list[int] = field(default_factory=list)
    intervals: list[Interval] = field(default_factory=list)
    open: dict[Key, tuple[State, datetime, int, bool]] = field(default_factory=dict)
    seen: dict[Key, int] = field(default_factory=dict)
    """How many gaps there were when a record or snapshot last described a key."""
    base: int = 0
    """The same for keys that were never described."""

    def gap(self, offset: int) -> None:
        """Offsets are missing before this one."""
        self.gaps.append(offset)

    def set_state(
        self, key: Key, state: State | None, time: datetime, offset: int, *, is_snapshot: bool = False
    ) -> None:
        """A key has this state now; None: it is gone. Of a snapshot, `offset` is that of the last record in it."""
        exact = not is_snapshot and self.seen.get(key, self.base) == len(self.gaps)
        self.seen[key] = len(self.gaps)
        now = self.open.get(key)
        if state == (now[0] if now else None):
            return
        if (
            now and now[2] == offset
        ):  # a record had a part of the state, and the snapshot right after it all of it
            _, time, _, exact = self.open.pop(key)
        elif now:
            self._close(key, time, offset, exact)
        if state is not None:
            self.open[key] = (state, time, offset, exact)

    def restate(self, states: dict[Key, State], time: datetime, end: int) -> None:
        """A snapshot of the state before `end` has these keys and no others."""
        offset = end - 1
        if self.gaps and self.gaps[-1] == end:
            self.gaps[-1] = offset
        for key in {*self.open, *self.seen} - set(states):
            self.set_state(key, None, time, offset, is_snapshot=True)
        for key, state in states.items():
            self.set_state(key, state, time, offset, is_snapshot=True)
        self.base = len(self.gaps)

    def _close(self, key: Key, time: datetime | None, offset: int | None, exact: bool | None) -> None:
        state, since, first, from_exact = self.open.pop(key)
        through = any(first < gap and (offset is None or gap <= offset) for gap in self.gaps)
        self.intervals.append(Interval(key, state, since, time, first, offset, from_exact, exact, through))

    def finish(self) -> list[Interval]:
        """All intervals; those that are open have no end."""
        for key in tuple(self.open):
            self._close(key, None, None, None)
        return self.intervals
