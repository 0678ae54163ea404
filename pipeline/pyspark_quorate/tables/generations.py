"""The logs that a directory had, one after the other: a truncated log begins another generation.

A follower truncates what its leader lacks, and writes other records at these offsets. If a directory is read before
and after that, the rows of both reads are stored. Together they are the log of no leader, so which epoch precedes
which is decided within one generation: the newest read of an offset replaces older reads of it.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import NamedTuple

from pyspark_quorate.tables.summary import Stretch, joined

Reads = Mapping[tuple[str, int, int], Iterable[Stretch]]
"""(source, epoch, commit) -> the offsets that a read found, which this commit of the lake stored."""


class Segment(NamedTuple):
    """Consecutive offsets of an epoch in a file; `end` is exclusive."""

    first: int
    end: int
    epoch: int
    source: str
    time_us: int | None
    """The time of the record at `first`; None: unknown."""


class Generation(NamedTuple):
    """A log that a directory had. `until`: the last commit that read it."""

    until: int
    segments: list[Segment]
    """Ordered by offset, without overlaps."""


def directory_of(source: str) -> str:
    """The directory of a file, which ends with a slash. A stream is a directory of its own."""
    return source[: source.rfind("/") + 1] or source


def generations(reads: Reads) -> dict[str, list[Generation]]:
    """Return directory -> its generations, the newest last.

    A read whose offsets have other epochs than before begins a generation: what was before the lowest of these
    offsets, and what the read found.
    """
    found: dict[str, list[tuple[int, Segment]]] = defaultdict(list)
    for (source, epoch, commit), stretches in reads.items():
        found[directory_of(source)] += [
            (commit, Segment(stretch.first, stretch.end, epoch, source, stretch.time_us))
            for stretch in stretches
        ]
    return {directory: _in_turn(segments) for directory, segments in found.items()}


def collapsed(reads: Reads) -> dict[tuple[str, int, int], list[Stretch]]:
    """Return fewer reads with the same generations, whatever is read later."""
    made: dict[tuple[str, int, int], list[Stretch]] = defaultdict(list)
    for of_directory in generations(reads).values():
        for generation in of_directory:
            for first, end, epoch, source, time_us in generation.segments:
                made[source, epoch, generation.until].append(Stretch(first, end, time_us))
    return {key: joined(stretches) for key, stretches in made.items()}


def _in_turn(segments: list[tuple[int, Segment]]) -> list[Generation]:
    made: list[Generation] = []
    current: list[Segment] = []
    last = 0
    # An older version of Quorate did not store which read found what: then, newer epochs count as read later.
    for commit, segment in sorted(segments, key=lambda each: (each[0], each[1].epoch, each[1].first)):
        place = _divergence(current, segment)
        if place is not None:
            made.append(Generation(last, list(current)))
            _cut(current, place)
        _overlay(current, segment)
        last = commit
    return [*made, Generation(last, current)]


def _divergence(current: list[Segment], new: Segment) -> int | None:
    """The lowest offset at which both have a record, of different epochs."""
    for at in range(bisect_right(current, new.first, key=attrgetter("end")), len(current)):
        if current[at].first >= new.end:
            return None
        if current[at].epoch != new.epoch:
            return max(current[at].first, new.first)
    return None


def _cut(current: list[Segment], end: int) -> None:
    """Remove the offsets from `end` on."""
    at = bisect_left(current, end, key=attrgetter("end"))
    del current[at + (at < len(current) and current[at].first < end) :]
    if current and current[-1].end > end:
        current[-1] = current[-1]._replace(end=end)


def _overlay(current: list[Segment], new: Segment) -> None:
    """Add a segment, in place of what is at its offsets, which has the same epoch."""
    low = bisect_left(current, new.first, key=attrgetter("end"))
    high = bisect_right(current, new.end, key=attrgetter("first"))
    parts: list[Segment] = []
    for old in current[low:high]:
        if old[2:4] == new[2:4]:
            time_us = old.time_us if old.first <= new.first else new.time_us
            new = new._replace(first=min(old.first, new.first), end=max(old.end, new.end), time_us=time_us)
            continue
        if old.first < new.first:
            parts.append(old._replace(end=min(old.end, new.first)))
        if old.first >= new.end:
            parts.append(old)
        elif old.end > new.end:
            parts.append(old._replace(first=new.end, time_us=None))
    current[low:high] = sorted([*parts, new])
