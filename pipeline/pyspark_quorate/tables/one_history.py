"""Whether the rows of a cluster are of one history. Pure.

A cluster that is formatted again with the same cluster id begins another history, at offset 0 and epoch 1. In one
history, an epoch has one leader, which began it at one offset and time.
"""

from collections.abc import Iterator
from typing import NamedTuple

from pyspark_quorate.tables.generations import generations
from pyspark_quorate.tables.summary import Stretch, Summary


class Start(NamedTuple):
    """The first record of an epoch, as a log shows it."""

    epoch: int
    offset: int
    time_us: int | None
    source: str


class Conflict(NamedTuple):
    """Two records of one cluster that can't be of one history."""

    known: Start
    found: Start


def find_conflict(summary: Summary) -> Conflict | None:
    """Find an epoch that began twice, a record of an epoch before its begin, or a record with two times."""
    first: dict[int, Start] = {}
    for start in _starts(summary):
        known = first.setdefault(start.epoch, start)
        if known.offset != start.offset or _is_another_time(known, start):
            return Conflict(known, start)
    at: dict[tuple[int, int], Start] = {}
    for (source, epoch), stretches in summary.log.items():
        for stretch in stretches:
            start = Start(epoch, stretch.first, stretch.time_us, source)
            if epoch in first and stretch.first < first[epoch].offset:
                return Conflict(first[epoch], start)
            known = at.setdefault((epoch, stretch.first), start)
            if _is_another_time(known, start):
                return Conflict(known, start)
    return None


def find_restart(stored: Summary, found: Summary, directory: str) -> Conflict | None:
    """Find records of a directory below those that are stored, which are newer than these.

    Kafka deletes the beginning of a log, and never writes it again. `directory` ends with a slash.
    """
    before, after = _lowest(stored, directory), list(_of_directory(found, directory))
    if before is None or before.time_us is None:
        return None
    for start, stretch in after:
        if stretch.end <= before.offset and start.time_us is not None and start.time_us > before.time_us:
            return Conflict(before, start)
    return None


def _is_another_time(known: Start, found: Start) -> bool:
    return None not in (known.time_us, found.time_us) and known.time_us != found.time_us


def _starts(summary: Summary) -> Iterator[Start]:
    """Yield the first record of each epoch in each log that has the record before it, or offset 0."""
    for of_directory in generations(summary.reads).values():
        for generation in of_directory:
            end, last = 0, -1
            for segment in generation.segments:
                if segment.first == end and segment.epoch > last:
                    yield Start(segment.epoch, segment.first, segment.time_us, segment.source)
                end, last = segment.end, segment.epoch


def _of_directory(summary: Summary, directory: str) -> Iterator[tuple[Start, Stretch]]:
    for (source, epoch), stretches in summary.log.items():
        if source.startswith(directory) and "/" not in source[len(directory) :]:
            for stretch in stretches:
                yield Start(epoch, stretch.first, stretch.time_us, source), stretch


def _lowest(summary: Summary, directory: str) -> Start | None:
    return min(
        (start for start, _ in _of_directory(summary, directory)),
        key=lambda start: start.offset,
        default=None,
    )
