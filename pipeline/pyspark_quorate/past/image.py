"""Replays the lines of a cluster's history into an image of the metadata at a moment. Pure."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final

from quorate_protocol.image import MetadataImage, Provenance, ReplayError
from quorate_protocol.records.generated import MetadataRecord

from pyspark_quorate import rows
from pyspark_quorate.past.entities import FieldsError, entity_of
from pyspark_quorate.tables.lines import Line

NOTES_MAX: Final = 20


@dataclass(slots=True)
class Past:
    """The metadata at a moment, and notes on what may be missing or wrong in it."""

    image: MetadataImage = field(default_factory=MetadataImage)
    notes: list[str] = field(default_factory=list)
    """At most NOTES_MAX notes, in the order of the offsets."""
    notes_dropped: int = 0

    def note(self, text: str) -> None:
        """Add a note; only the first NOTES_MAX are kept."""
        if len(self.notes) < NOTES_MAX:
            self.notes.append(text)
        else:
            self.notes_dropped += 1


@dataclass(frozen=True, slots=True)
class Moment:
    """A point in a history, given by an offset, a time or both. Without either, it is the end of the history."""

    offset: int | None = None
    """Lines below this offset are before the moment, and so is a snapshot at it."""
    time_us: int | None = None
    """In microseconds since 1970. The first later line ends the moment, even if lines after it have earlier times."""

    def is_before(self, line: Line) -> bool:
        """Whether the line is after the moment."""
        if self.offset is not None and line.placed >= self.offset:
            return True
        return self.time_us is not None and line.time_us is not None and line.time_us > self.time_us


class Playback:
    """Replays a history up to one moment, and on to later ones."""

    def __init__(self, lines: Iterable[Line]) -> None:
        self.past: Final = Past()
        self._lines = iter(lines)
        self._next = next(self._lines, None)

    def to(self, moment: Moment) -> Past:
        """Replay up to a moment, which must not be before the previous one.

        The next call changes the returned image.
        """
        replay(self.past, self._until(moment))
        return self.past

    def _until(self, moment: Moment) -> Iterator[Line]:
        while self._next is not None and not moment.is_before(self._next):
            line, self._next = self._next, next(self._lines, None)
            yield line


def replay(past: Past, lines: Iterable[Line]) -> None:
    """Replay lines into the image; they must follow the lines that were replayed before.

    A gap before a snapshot does no harm: the snapshot has the complete state. After any other gap, the image keeps
    what was known before, and a note is added. A record that does not fit or can't be read adds a note too.
    """
    for (kind, _), group in groupby(lines, _stretch_of):
        if kind == rows.SNAPSHOT:
            _restore(past, list(group))
        elif kind == rows.LOG:
            _follow(past, group)
        else:
            for line in group:
                past.note(f"records before offset {line.offset} are missing")


def _stretch_of(line: Line) -> tuple[str, int]:
    if line.is_snapshot:
        return rows.SNAPSHOT, line.offset
    return (rows.GAP if line.type == rows.GAP else rows.LOG), 0


def _restore(past: Past, lines: list[Line]) -> None:
    last = lines[-1]
    records = [record for line in lines if (record := _record_of(past, line)) is not None]
    try:
        past.image.restore(records, _place_after(last))
    except ReplayError as error:
        past.note(f"the snapshot at offset {last.offset} is not used: {error.message}")
        return
    # The complete state replaces everything before it, so earlier notes no longer apply.
    past.notes.clear()
    past.notes_dropped = 0


def _follow(past: Past, lines: Iterable[Line]) -> None:
    image = past.image
    for line in lines:
        record = _record_of(past, line)
        try:
            if record is not None:
                image.replay(record, line.offset)
        except ReplayError as error:
            past.note(error.message)
        after = _place_after(line)
        image.advance(end_offset=after.end_offset, epoch=after.epoch, timestamp_ms=after.timestamp_ms)
        image.commit(after.end_offset)


def _place_after(line: Line) -> Provenance:
    return Provenance(
        end_offset=line.placed + 1, epoch=line.epoch or 0, timestamp_ms=(line.time_us or 0) // 1000
    )


def _record_of(past: Past, line: Line) -> MetadataRecord | None:
    """Returns the metadata record of a line; None for a control record and, with a note, for a damaged record."""
    try:
        return entity_of(line.type, line.fields)
    except FieldsError as error:
        past.note(f"the record at offset {line.offset} can't be read: {error}")
        return None
