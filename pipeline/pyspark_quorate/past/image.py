"""Reads a cluster's history from a lake, and replays it into an image of the metadata at a moment. Without Spark."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import TYPE_CHECKING, Final

from quorate_protocol.image import Provenance, ReplayError
from quorate_protocol.image.loading import NotedImage
from quorate_protocol.records.generated import MetadataRecord

from pyspark_quorate import rows
from pyspark_quorate.errors import LakeError
from pyspark_quorate.past.entities import FieldsError, entity_of
from pyspark_quorate.tables.contract import Line

if TYPE_CHECKING:
    from pyspark_quorate.jobs.lake import Lake
    from pyspark_quorate.stored.history_end import HistoryEnd

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def choose_cluster(lake: "Lake", cluster_id: str | None) -> str:
    """Return this cluster id, or without one the id of the only cluster. Raises LakeError, which lists the ids."""
    known = sorted(lake.state.clusters)
    if cluster_id is not None and cluster_id not in known:
        raise LakeError(f"--cluster-id {cluster_id}: {lake.path} has {', '.join(known) or 'no clusters'}")
    if cluster_id is None and len(known) != 1:
        raise LakeError(
            f"{lake.path} has {'several clusters' if known else 'no clusters'}"
            + (f": give --cluster-id with one of {', '.join(known)}" if known else "")
        )
    return cluster_id if cluster_id is not None else known[0]


def read_history(lake: "Lake", cluster_id: str) -> Iterator[Line]:
    """Yield the lines of a cluster's timeline, of all record types."""
    from pyspark_quorate.stored.files import folder_name  # noqa: PLC0415 - half a second
    from pyspark_quorate.stored.row_reader import StoredRows  # noqa: PLC0415
    from pyspark_quorate.tables.evidence import evidence_of  # noqa: PLC0415
    from pyspark_quorate.tables.timeline import Timeline  # noqa: PLC0415

    stored = StoredRows(lake.rows / folder_name(cluster_id))
    timeline = Timeline(evidence_of(stored.summary()))
    for batch in stored.records():
        yield from timeline.choose(batch).lines
    yield from timeline.finish()


def read_end(lake: "Lake", cluster_id: str) -> "HistoryEnd | None":
    """Find the end of a cluster's history; None without any."""
    from pyspark_quorate.stored.files import folder_name  # noqa: PLC0415 - half a second
    from pyspark_quorate.stored.history_end import history_end  # noqa: PLC0415
    from pyspark_quorate.stored.row_reader import StoredRows  # noqa: PLC0415

    return history_end(StoredRows(lake.rows / folder_name(cluster_id)))


@dataclass(frozen=True, slots=True)
class Moment:
    """A point in a history, given by an offset, a time or both. Without either, it is the end of the history."""

    offset: int | None = None
    """Lines below this offset are before the moment, and so is a snapshot at it."""
    time_us: int | None = None
    """In microseconds since 1970. The first later line ends the moment, even if lines after it have earlier times."""

    def is_after(self, end: "HistoryEnd") -> bool:
        """Whether the moment is after the end of a history."""
        if self.offset is not None and self.offset > end.offset:
            return True
        return (
            self.time_us is not None
            and end.time is not None
            and self.time_us > (end.time - _EPOCH) // timedelta(microseconds=1)
        )

    def is_before(self, line: Line) -> bool:
        """Whether the line is after the moment."""
        if self.offset is not None and line.placed >= self.offset:
            return True
        return self.time_us is not None and line.time_us is not None and line.time_us > self.time_us


class Playback:
    """Replays a history up to one moment, and on to later ones."""

    def __init__(self, lines: Iterable[Line], end: "HistoryEnd | None" = None) -> None:
        """`end`: of the history, to note moments that are later."""
        self.past: Final = NotedImage()
        self._end = end
        self._lines = iter(lines)
        self._next = next(self._lines, None)

    def to(self, moment: Moment) -> NotedImage:
        """Replay up to a moment, which must not be before the previous one.

        A moment after the end of the history adds a note. The next call changes the returned image.
        """
        replay(self.past, self._until(moment))
        if self._end is not None and moment.is_after(self._end):
            time = (
                "an unknown time"
                if self._end.time is None
                else f"{self._end.time:%Y-%m-%dT%H:%M:%S.%f}"[:-3] + "Z"
            )
            self.past.note(
                f"the history ends at offset {self._end.offset}, {time}: what changed after that is not in the lake"
            )
        return self.past

    def _until(self, moment: Moment) -> Iterator[Line]:
        while self._next is not None and not moment.is_before(self._next):
            line, self._next = self._next, next(self._lines, None)
            yield line


def replay(past: NotedImage, lines: Iterable[Line]) -> None:
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


def _restore(past: NotedImage, lines: list[Line]) -> None:
    last = lines[-1]
    records = [record for line in lines if (record := _record_of(past, line)) is not None]
    try:
        past.image.restore(records, _place_after(last))
    except ReplayError as error:
        past.note(f"the snapshot at offset {last.offset} is not used: {error.message}")
        return
    past.forget_notes()


def _follow(past: NotedImage, lines: Iterable[Line]) -> None:
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


def _record_of(past: NotedImage, line: Line) -> MetadataRecord | None:
    """Return the metadata record of a line; None for a control record and, with a note, for a damaged record."""
    try:
        return entity_of(line.type, line.fields)
    except FieldsError as error:
        past.note(f"the record at offset {line.offset} can't be read: {error}")
        return None
