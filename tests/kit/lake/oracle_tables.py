"""The tables of brokers, topics and security as plain Python makes them, from :class:`oracle_replay.Replay`."""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, Final

from kit.lake.oracle_intervals import Life
from kit.lake.oracle_replay import REDACTED, Key, Replay

Line = tuple[Any, ...]
"""The columns of a table but cluster_id, in their order."""


def topics(replay: Replay) -> Iterator[Line]:
    """Topics in the order of their beginning, so that the one before is the last of the same name."""
    previous: dict[str, str] = {}
    every = [life for lives in replay.lives("topics") for life in lives]
    for life in sorted(every, key=lambda one: one.from_offset):
        (topic_id,), (name,) = life.key, life.state
        yield (name, topic_id, replay.partition_counts.get(topic_id), previous.get(name), *_span(life))
        previous[name] = topic_id


def _span(life: Life) -> Line:
    return life.line[-7:]


def _named(replay: Replay, life: Life) -> Line:
    topic_id, number = life.key
    return topic_id, replay.names.get(topic_id), number


def partition_leadership(replay: Replay) -> Iterator[Line]:
    """Partitions as they are told."""
    for lives in replay.lives("partitions"):
        for life in lives:
            yield (*_named(replay, life), *life.state, *_span(life))


_LEADER, _ISR, _REPLICAS, _ADDING = 0, 4, 5, 6


def isr_changes(replay: Replay) -> Iterator[Line]:
    """Neighbours compared."""
    for lives in replay.lives("partitions"):
        for before, after in pairwise(lives):
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
    for lives in replay.lives("partitions"):
        stretch: list[Life] = []
        for life in lives:
            if stretch and (_risk(stretch[-1]) != _risk(life) or stretch[-1].to_offset != life.from_offset):
                yield from _risky(stretch, _named(replay, life))
                stretch = []
            stretch.append(life)
        yield from _risky(stretch, _named(replay, stretch[0]))


def _counted(life: Life) -> list[int]:
    return [one for one in life.state[_REPLICAS] if one not in life.state[_ADDING]]


def _risk(life: Life) -> tuple[bool, bool]:
    return len(life.state[_ISR]) < len(_counted(life)), life.state[_LEADER] == -1


def _risky(stretch: list[Life], key: Key) -> Iterator[Line]:
    if not any(_risk(stretch[0])):
        return
    first, last = stretch[0], stretch[-1]
    missing = {one for life in stretch for one in _counted(life) if one not in life.state[_ISR]}
    yield (
        *(*key, *_risk(first)),
        min(len(life.state[_ISR]) for life in stretch),
        max(len(_counted(life)) for life in stretch),
        tuple(sorted(missing)),
        *(first.valid_from, last.valid_to, first.from_offset, last.to_offset),
        *(first.from_exact, last.to_exact),
        any(life.through_gap for life in stretch),
    )


def broker_sessions(replay: Replay) -> Iterator[Line]:
    """With the fencings of the last hour counted one by one."""
    for lives in replay.lives("brokers"):
        fencings = list(_fenced(lives))
        for life in lives:
            since = life.valid_from - timedelta(hours=1)
            count = sum(since < fencing.valid_from <= life.valid_from for fencing in fencings)
            yield (*life.key, *life.state, any(fencing is life for fencing in fencings), count, *_span(life))


def _fenced(lives: list[Life]) -> Iterator[Life]:
    for before, after in pairwise(lives):
        was_unfenced = before.state[2] in ("unfenced", "controlled-shutdown")
        if before.state[0] == after.state[0] and was_unfenced and after.state[2] == "fenced":
            yield after


def _boundaries(lives: list[Life]) -> Iterator[tuple[datetime, int, Any, Any, bool]]:
    for before, life, after in zip([None, *lives], lives, [*lives[1:], None], strict=False):
        follows = before is not None and before.to_offset == life.from_offset
        old = before.state if before is not None and follows else None
        yield life.valid_from, life.from_offset, old, life.state, life.from_exact
        if life.to_offset is not None and (after is None or after.from_offset != life.to_offset):
            assert life.valid_to is not None
            yield life.valid_to, life.to_offset, life.state, None, bool(life.to_exact)


def config_changes(replay: Replay) -> Iterator[Line]:
    """Each value and the one before it."""
    for lives in replay.lives("configs"):
        for time, offset, old, new, exact in _boundaries(lives):
            before, after = old and old[0], new and new[0]
            if before == after == REDACTED and new[1] is None:
                continue  # a checkpoint has the secret: the same, or another one
            yield (time, offset, *lives[0].key, before, after, exact)


def acl_changes(replay: Replay) -> Iterator[Line]:
    """Each entry that came or went."""
    for lives in replay.lives("acls"):
        for time, offset, old, new, exact in _boundaries(lives):
            if old:
                yield (time, offset, "removed", *lives[0].key, *old, exact)
            if new:
                yield (time, offset, "added", *lives[0].key, *new, exact)


def quotas(replay: Replay) -> Iterator[Line]:
    """Quotas as they are told."""
    for lives in replay.lives("quotas"):
        yield from (life.line for life in lives)


def producer_id_blocks(replay: Replay) -> Iterator[Line]:
    """Blocks as they are told."""
    yield from replay.blocks


ORACLES: Final[dict[str, Callable[[Replay], Iterator[Line]]]] = {
    one.__name__: one
    for one in (
        *(topics, partition_leadership, isr_changes, under_replicated, broker_sessions),
        *(config_changes, acl_changes, quotas, producer_id_blocks),
    )
}
