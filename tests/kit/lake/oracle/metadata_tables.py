"""The tables of brokers, topics and security, from a :class:`~kit.lake.oracle.replay.Replay`."""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, Final

from kit.lake.oracle.intervals import Interval
from kit.lake.oracle.replay import REDACTED, Key, Replay

Line = tuple[Any, ...]
"""The columns of a table but cluster_id, in their order."""


def topics(replay: Replay) -> Iterator[Line]:
    """Topics in the order of their beginning, so that the one before is the last of the same name."""
    previous: dict[str, str] = {}
    every = [interval for intervals in replay.intervals("topics") for interval in intervals]
    for interval in sorted(every, key=lambda interval: interval.from_offset):
        (topic_id,), (name,) = interval.key, interval.state
        yield (name, topic_id, replay.partition_counts.get(topic_id), previous.get(name), *_span(interval))
        previous[name] = topic_id


def _span(interval: Interval) -> Line:
    return interval.line[-7:]


def _named(replay: Replay, interval: Interval) -> Line:
    topic_id, number = interval.key
    return topic_id, replay.names.get(topic_id), number


def partition_leadership(replay: Replay) -> Iterator[Line]:
    """Each state of a partition."""
    for intervals in replay.intervals("partitions"):
        for interval in intervals:
            yield (*_named(replay, interval), *interval.state, *_span(interval))


_LEADER, _ISR, _REPLICAS, _ADDING = 0, 4, 5, 6


def isr_changes(replay: Replay) -> Iterator[Line]:
    """Neighbours compared."""
    for intervals in replay.intervals("partitions"):
        for before, after in pairwise(intervals):
            old, new = set(before.state[_ISR]), set(after.state[_ISR])
            if before.to_offset != after.from_offset or old == new:
                continue
            leaders = (before.state[_LEADER], after.state[_LEADER])
            yield (
                *(*_named(replay, after), after.valid_from, after.from_offset),
                "shrink" if new < old else "expand" if new > old else "swap",
                *(tuple(sorted(old - new)), tuple(sorted(new - old))),
                *(after.state[_ISR], after.state[_REPLICAS]),
                *(*leaders, leaders[0] != leaders[1], after.from_exact),
            )


def under_replicated(replay: Replay) -> Iterator[Line]:
    """Neighbours at the same risk put together."""
    for intervals in replay.intervals("partitions"):
        stretch: list[Interval] = []
        for interval in intervals:
            if stretch and (
                _risk(stretch[-1]) != _risk(interval) or stretch[-1].to_offset != interval.from_offset
            ):
                yield from _risky(stretch, _named(replay, interval))
                stretch = []
            stretch.append(interval)
        yield from _risky(stretch, _named(replay, stretch[0]))


def _counted(interval: Interval) -> list[int]:
    return [replica for replica in interval.state[_REPLICAS] if replica not in interval.state[_ADDING]]


def _risk(interval: Interval) -> tuple[bool, bool]:
    return len(interval.state[_ISR]) < len(_counted(interval)), interval.state[_LEADER] == -1


def _risky(stretch: list[Interval], key: Key) -> Iterator[Line]:
    if not any(_risk(stretch[0])):
        return
    first, last = stretch[0], stretch[-1]
    missing = {
        replica
        for interval in stretch
        for replica in _counted(interval)
        if replica not in interval.state[_ISR]
    }
    yield (
        *(*key, *_risk(first)),
        min(len(interval.state[_ISR]) for interval in stretch),
        max(len(_counted(interval)) for interval in stretch),
        tuple(sorted(missing)),
        *(first.valid_from, last.valid_to, first.from_offset, last.to_offset),
        *(first.from_exact, last.to_exact),
        any(interval.through_gap for interval in stretch),
    )


def broker_sessions(replay: Replay) -> Iterator[Line]:
    """With the fencings of the last hour counted one by one."""
    for intervals in replay.intervals("brokers"):
        fencings = list(_fenced(intervals))
        for interval in intervals:
            since = interval.valid_from - timedelta(hours=1)
            count = sum(since < fencing.valid_from <= interval.valid_from for fencing in fencings)
            yield (
                *interval.key,
                *interval.state,
                any(fencing is interval for fencing in fencings),
                count,
                *_span(interval),
            )


def _fenced(intervals: list[Interval]) -> Iterator[Interval]:
    for before, after in pairwise(intervals):
        was_unfenced = before.state[2] in ("unfenced", "controlled-shutdown")
        if before.state[0] == after.state[0] and was_unfenced and after.state[2] == "fenced":
            yield after


def _boundaries(intervals: list[Interval]) -> Iterator[tuple[datetime, int, Any, Any, bool]]:
    for before, interval, after in zip([None, *intervals], intervals, [*intervals[1:], None], strict=False):
        follows = before is not None and before.to_offset == interval.from_offset
        old = before.state if before is not None and follows else None
        yield interval.valid_from, interval.from_offset, old, interval.state, interval.from_exact
        if interval.to_offset is not None and (after is None or after.from_offset != interval.to_offset):
            assert interval.valid_to is not None
            yield interval.valid_to, interval.to_offset, interval.state, None, bool(interval.to_exact)


def config_changes(replay: Replay) -> Iterator[Line]:
    """Each value and the one before it."""
    for intervals in replay.intervals("configs"):
        for time, offset, old, new, exact in _boundaries(intervals):
            before, after = old and old[0], new and new[0]
            if before == after == REDACTED and new[1] is None:
                continue  # a checkpoint has the secret: the same, or another one
            yield (time, offset, *intervals[0].key, before, after, exact)


def acl_changes(replay: Replay) -> Iterator[Line]:
    """Each entry that came or went."""
    for intervals in replay.intervals("acls"):
        for time, offset, old, new, exact in _boundaries(intervals):
            if old:
                yield (time, offset, "removed", *intervals[0].key, *old, exact)
            if new:
                yield (time, offset, "added", *intervals[0].key, *new, exact)


def quotas(replay: Replay) -> Iterator[Line]:
    """Each value of a quota."""
    for intervals in replay.intervals("quotas"):
        yield from (interval.line for interval in intervals)


def producer_id_blocks(replay: Replay) -> Iterator[Line]:
    """Blocks in the order of the log."""
    yield from replay.blocks


TABLES: Final[dict[str, Callable[[Replay], Iterator[Line]]]] = {
    table.__name__: table
    for table in (
        *(topics, partition_leadership, isr_changes, under_replicated, broker_sessions),
        *(config_changes, acl_changes, quotas, producer_id_blocks),
    )
}
