"""Decides which of a cluster's rows took effect, where offsets are missing, and which snapshots bridge the gaps.

It is computed from the :class:`~pyspark_quorate.tables.summary.Summary` of all rows, before the fold begins: whether
a record counts depends on later rows, on the log of the next leader and on the end of its transaction.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from pyspark_quorate.tables.generations import directory_of, generations
from pyspark_quorate.tables.summary import ABORT, BEGIN, END, Copy, Stretch, Summary, joined

_OFFSET_MAX: Final = 2**63 - 1


class EpochSpan(NamedTuple):
    """First and last offset of an epoch in a file. A snapshot counts with the epoch and offset of its last record."""

    source: str
    generation: int
    """The number of the log of its directory, from 0."""
    is_current: bool
    """Whether the directory has this log now, as far as was read."""
    epoch: int
    first: int
    last: int


class Bridge(NamedTuple):
    """A snapshot that is needed because the log is incomplete."""

    copy: Copy
    size: int
    """The number of its lines."""
    time_us: int | None
    after_gap: bool
    """Whether offsets are missing right before it."""


class Run(NamedTuple):
    """A stretch of the timeline. A new one begins after each gap, and at each snapshot that bridges a gap."""

    first: int
    time_us: int | None
    """The time of its first line; if unknown, of the next run that has one; otherwise, of the previous one."""
    after_gap: bool
    is_based: bool
    """Whether the state at its first offset is known."""


class Lost(NamedTuple):
    """Records that did not take effect: the log of a later leader does not have them."""

    epoch: int
    first: int
    end: int
    records: int


@dataclass(frozen=True, slots=True)
class Evidence:
    """Which rows of a cluster take effect. Lists are ordered by offset."""

    epochs: dict[int, int | None] = field(default_factory=dict)
    """The result of :func:`effective_epochs`."""
    stretches: list[Stretch] = field(default_factory=list)
    """The offsets of the log that take effect and that some file has."""
    bridges: dict[int, Bridge] = field(default_factory=dict)
    """Offset of the snapshot -> snapshot."""
    runs: list[Run] = field(default_factory=list)
    void: list[tuple[int, int]] = field(default_factory=list)
    """First and last offset of transactions that were aborted, or whose end is unknown."""
    lost: list[Lost] = field(default_factory=list)
    copies: dict[tuple[int, int], str] = field(default_factory=dict)
    """(offset, epoch) of each snapshot -> the file whose copy is stored."""

    def last_record(self) -> tuple[int, int] | None:
        """Offset and epoch of the last record that took effect; None: no log has one."""
        if not self.stretches:
            return None
        offset = self.stretches[-1].end - 1
        # Of two epochs that may have this offset, the newer one has it: the older one ends below its first record.
        epochs = [epoch for epoch, until in self.epochs.items() if until is None or offset < until]
        return offset, max(epochs)

    def stretch_at(self, offset: int) -> Stretch | None:
        """The last stretch that begins at or before this offset. It may also end before the offset."""
        at = bisect_right(self.stretches, offset, key=lambda stretch: stretch.first)
        return self.stretches[at - 1] if at else None


def evidence_of(summary: Summary) -> Evidence:
    """Derive the evidence of a cluster from the summary of its rows."""
    epochs = effective_epochs(epoch_spans(summary))
    log = summary.of_epochs()
    stretches = joined(_cut(log, epochs))
    bridges = {bridge.copy.offset: bridge for bridge in _bridges(summary, stretches)}
    runs = _runs(stretches, list(bridges.values()))
    return Evidence(
        epochs=epochs,
        stretches=stretches,
        bridges=bridges,
        runs=runs,
        void=list(_void_transactions(summary, epochs, runs)),
        lost=list(_lost(log, epochs)),
        copies=_stored_copies(summary),
    )


# Epochs that won


def epoch_spans(summary: Summary) -> Iterator[EpochSpan]:
    """Yield the first and the last offset of each epoch in each file, in each log that its directory had.

    Snapshots have records that were committed: they count with the newest log.
    """
    logs = generations(summary.reads)
    for of_directory in logs.values():
        for number, generation in enumerate(of_directory):
            spans: dict[tuple[str, int], tuple[int, int]] = {}
            for first, end, epoch, source, _ in generation.segments:
                spans[source, epoch] = (spans.get((source, epoch), (first, end))[0], end)
            is_current = number == len(of_directory) - 1
            for (source, epoch), (first, end) in spans.items():
                yield EpochSpan(source, number, is_current, epoch, first, end - 1)
    for copy in summary.copies:
        if copy.offset > 0:
            newest = max(len(logs.get(directory_of(copy.source), ())) - 1, 0)
            yield EpochSpan(copy.source, newest, True, copy.epoch, copy.offset - 1, copy.offset - 1)


def effective_epochs(spans: Iterable[EpochSpan]) -> dict[int, int | None]:
    """Return epoch -> until: records of `epoch` count at offsets below `until` (None: all of them).

    Epochs without records that count are left out. A leader that lost may leave records that the next leaders never
    had, so that one offset exists with several epochs. The log of the newest epoch decides: records at the same
    offset and epoch are identical, and so is everything before them (Raft, "Log Matching"). The walk starts at the
    newest epoch and goes back: the record directly before the first record of an epoch, in the same file, has the
    epoch before it in that leader's log, and epochs between the two lost. If no file has that record, the newest
    earlier epoch is the one before. A log that was truncated and written again counts as two logs, as if two nodes
    had them. An epoch that was truncated wherever it was is not the newest one: a later leader did not have it.
    """
    known = list(spans)
    newest = max((span.epoch for span in known if span.is_current), default=-1)
    first_of: dict[int, int] = {}
    for span in known:
        first_of[span.epoch] = min(span.first, first_of.get(span.epoch, span.first))
    priors = _priors(known, first_of)
    kept: dict[int, int | None] = {}
    until: int | None = None
    prior: int | None = None
    for epoch in sorted(first_of, reverse=True):
        first = first_of[epoch]
        is_passed = epoch > newest or (prior is not None and epoch > prior)
        if is_passed or (until is not None and first >= until):
            continue
        kept[epoch] = until
        until, prior = first, priors.get(epoch)
    return kept


def _priors(spans: list[EpochSpan], first_of: dict[int, int]) -> dict[int, int]:
    """Return epoch -> the epoch of the record before its first one, as a file shows it, or otherwise a directory."""
    files, directories = defaultdict(list), defaultdict(list)
    for span in spans:
        files[span.source, span.generation].append(span)
        directories[directory_of(span.source), span.generation].append(span)
    priors: dict[int, int] = {}
    for groups in (directories, files):
        found: dict[int, int] = {}
        for group in groups.values():
            for span, before in _right_before(group):
                if span.first == first_of[span.epoch]:
                    found[span.epoch] = max(before, found.get(span.epoch, before))
        priors |= found
    return priors


def _right_before(group: list[EpochSpan]) -> Iterator[tuple[EpochSpan, int]]:
    """Yield each span that directly follows a span of an earlier epoch, and that epoch."""
    latest: tuple[int, int] | None = None
    for span in sorted(group, key=lambda span: (span.first, span.epoch)):
        if latest is not None and latest[0] == span.first - 1 and latest[1] < span.epoch:
            yield span, latest[1]
        latest = max((span.last, span.epoch), latest or (span.last, span.epoch))


# What follows from these epochs


def _cut(log: dict[int, list[Stretch]], epochs: dict[int, int | None]) -> Iterator[Stretch]:
    """Yield for each epoch the offsets that take effect."""
    for epoch, stretches in log.items():
        if epoch not in epochs:
            continue
        until = epochs[epoch]
        for stretch in stretches:
            if until is None or stretch.first < until:
                yield stretch if until is None else stretch._replace(end=min(stretch.end, until))


def _lost(log: dict[int, list[Stretch]], epochs: dict[int, int | None]) -> Iterator[Lost]:
    for epoch, stretches in log.items():
        until = epochs.get(epoch, 0)
        if until is None:
            continue
        cut = [(max(stretch.first, until), stretch.end) for stretch in stretches if stretch.end > until]
        if cut:
            yield Lost(epoch, cut[0][0], cut[-1][1], sum(end - first for first, end in cut))


def _stored_copies(summary: Summary) -> dict[tuple[int, int], str]:
    """Choose the copy of each snapshot to store: a complete one if there is one."""
    ordered = sorted(summary.copies, key=lambda copy: (not summary.is_complete(copy), copy.source))
    chosen: dict[tuple[int, int], str] = {}
    for copy in ordered:
        chosen.setdefault((copy.offset, copy.epoch), copy.source)
    return chosen


def _bridges(summary: Summary, stretches: list[Stretch]) -> Iterator[Bridge]:
    """Yield the complete snapshots that bridge gaps.

    A stretch that begins at offset 0 needs none; any other stretch needs only the first snapshot in it. Nodes write
    the same state in different orders, so copies are never mixed. The snapshot at offset 0 is left out: it is from
    formatting the directory, and the first leader appends the same records to the log.
    """
    complete = [copy for copy in summary.copies if copy.offset > 0 and summary.is_complete(copy)]
    chosen: dict[int, Copy] = {}
    for copy in sorted(complete, key=lambda copy: (copy.offset, -copy.epoch, copy.source)):
        chosen.setdefault(copy.offset, copy)
    reported: set[int] = set()
    for offset, copy in chosen.items():
        at = bisect_right(stretches, offset, key=lambda stretch: stretch.first)
        within = stretches[at - 1] if at and stretches[at - 1].end >= offset else None
        if within is not None and (within.first == 0 or within.first in reported):
            continue
        if within is not None:
            reported.add(within.first)
        times = [stretch.time_us for stretch in summary.copies[copy] if stretch.time_us is not None]
        after_gap = within is None or within.first == offset
        yield Bridge(copy, summary.size_of(copy), max(times, default=None), after_gap)


def _runs(stretches: list[Stretch], bridges: list[Bridge]) -> list[Run]:
    begins = [
        Run(stretch.first, stretch.time_us, stretch.first > 0, stretch.first == 0) for stretch in stretches
    ]
    begins += [Run(bridge.copy.offset, bridge.time_us, bridge.after_gap, is_based=True) for bridge in bridges]
    runs: list[Run] = []
    for run in sorted(begins, key=lambda run: run.first):
        if runs and runs[-1].first == run.first:
            before = runs[-1]
            times = [time_us for time_us in (before.time_us, run.time_us) if time_us is not None]
            runs[-1] = Run(
                run.first,
                max(times, default=None),
                before.after_gap or run.after_gap,
                before.is_based or run.is_based,
            )
        else:
            runs.append(run)
    earlier: int | None = None
    for at, run in enumerate(runs):
        later = next((following.time_us for following in runs[at:] if following.time_us is not None), None)
        earlier = run.time_us if run.time_us is not None else earlier
        runs[at] = run._replace(time_us=later if later is not None else earlier)
    return runs


def _void_transactions(
    summary: Summary, epochs: dict[int, int | None], runs: list[Run]
) -> Iterator[tuple[int, int]]:
    """Yield first and last offset of each transaction that was aborted or whose end is unknown.

    Transactions do not nest (KIP-868). An abort whose begin is missing voids its run up to the abort.
    """
    of_run: dict[int, list[tuple[int, str]]] = {}
    for offset, epoch, kind in sorted(summary.brackets):
        until = epochs.get(epoch, 0)
        if until is None or offset < until:
            number = bisect_right(runs, offset, key=lambda run: run.first) - 1
            of_run.setdefault(number, []).append((offset, kind))
    for number, brackets in of_run.items():
        end = runs[number + 1].first if number + 1 < len(runs) else None
        for at, (offset, kind) in enumerate(brackets):
            following = brackets[at + 1] if at + 1 < len(brackets) else None
            if kind == BEGIN and (following is None or following[1] != END):
                until_end = end - 1 if end is not None else _OFFSET_MAX
                yield offset, following[0] if following is not None else until_end
            elif kind == ABORT and at == 0 and not runs[number].is_based:
                yield runs[number].first, offset
