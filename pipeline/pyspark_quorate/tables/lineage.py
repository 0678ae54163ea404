"""Finds the records of several nodes' logs that belong to the log that the quorum kept.

A leader that lost may leave records that the next leaders never had, so that one offset exists with several epochs.
The log of the newest epoch decides: records at the same offset and epoch are identical, and so is everything before
them (Raft, "Log Matching"). The walk starts at the newest epoch and goes back: the record directly before the first
record of an epoch, in the same file, has the epoch before it in that leader's log, and epochs between the two lost.
If no file has that record, the newest earlier epoch is taken.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple


class Span(NamedTuple):
    """First and last offset of an epoch in a file. A snapshot counts with the epoch and offset of its last record."""

    source: str
    epoch: int
    first: int
    last: int


def effective_epochs(spans: Iterable[Span]) -> dict[int, int | None]:
    """Returns epoch -> until: records of `epoch` count at offsets below `until` (None: all of them).

    Epochs without records that count are left out.
    """
    known = list(spans)
    first_of: dict[int, int] = {}
    for span in known:
        first_of[span.epoch] = min(span.first, first_of.get(span.epoch, span.first))
    priors = _priors(known, first_of)
    kept: dict[int, int | None] = {}
    until: int | None = None
    prior: int | None = None
    for epoch in sorted(first_of, reverse=True):
        first = first_of[epoch]
        if (prior is not None and epoch > prior) or (until is not None and first >= until):
            continue
        kept[epoch] = until
        until, prior = first, priors.get(epoch)
    return kept


def _priors(spans: list[Span], first_of: dict[int, int]) -> dict[int, int]:
    """Returns epoch -> the epoch of the record before its first one, as a file shows it, or otherwise a directory."""
    files, directories = defaultdict(list), defaultdict(list)
    for span in spans:
        files[span.source].append(span)
        directories[span.source[: span.source.rfind("/") + 1]].append(span)
    priors: dict[int, int] = {}
    for groups in (directories, files):
        found: dict[int, int] = {}
        for group in groups.values():
            for span, before in _right_before(group):
                if span.first == first_of[span.epoch]:
                    found[span.epoch] = max(before, found.get(span.epoch, before))
        priors |= found
    return priors


def _right_before(group: list[Span]) -> Iterator[tuple[Span, int]]:
    """Yields each span that directly follows a span of an earlier epoch, and that epoch."""
    latest: tuple[int, int] | None = None
    for span in sorted(group, key=lambda one: (one.first, one.epoch)):
        if latest is not None and latest[0] == span.first - 1 and latest[1] < span.epoch:
            yield span, latest[1]
        latest = max((span.last, span.epoch), latest or (span.last, span.epoch))
