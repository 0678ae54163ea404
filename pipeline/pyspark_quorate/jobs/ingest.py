"""`quorate lake ingest`: reads new files of the sources, stores their rows, and builds the tables."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql import SparkSession

from pyspark_quorate.errors import LakeError
from pyspark_quorate.jobs import store_tasks, table_build
from pyspark_quorate.jobs.lake import Lake
from pyspark_quorate.jobs.progress import Steps
from pyspark_quorate.jobs.state import LakeState, Read
from pyspark_quorate.jobs.store_tasks import Stored
from pyspark_quorate.source.layout import (
    LayoutError,
    MetadataDirectory,
    Root,
    UnreadablePlace,
    find_directories,
    in_one_line,
    open_root,
)
from pyspark_quorate.source.options import ALL
from pyspark_quorate.source.pieces import Piece, plan_pieces
from pyspark_quorate.source.reader import Failure
from pyspark_quorate.stored.files import UNKNOWN_CLUSTER, folder_name
from pyspark_quorate.stored.known_rows import another_history, time_text
from pyspark_quorate.stored.row_reader import StoredRows, summary_of
from pyspark_quorate.tables.contract import Table
from pyspark_quorate.tables.generations import directory_of
from pyspark_quorate.tables.one_history import Conflict, find_conflict, find_restart
from pyspark_quorate.tables.summary import Summary

UNREADABLE: Final = "unreadable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A directory with new files, or an unreadable place that is not yet recorded."""

    found: MetadataDirectory | UnreadablePlace
    start: int
    """The offset from which on it is read."""
    files: Mapping[str, str]
    """Address of each file in it -> size and modification time."""
    new_files: int
    new_bytes: int

    @property
    def address(self) -> str:
        """Its path, or its address in a store."""
        return self.found.address


@dataclass(frozen=True, slots=True)
class Ingested:
    """The result of an ingest. `files` and `bytes` count new and changed files."""

    directories: int
    changed_directories: int
    files: int
    bytes: int
    built: table_build.Built
    unreadable: Sequence[str] = ()
    """The files and directories that could not be read, each with the reason. The next ingest reads them again."""


@dataclass(frozen=True, slots=True)
class NewFiles:
    """What an ingest reads: the places with new files, ordered by address, of `directories` in all."""

    places: Sequence[Place]
    directories: int
    unreadable: Sequence[str] = ()
    """The directories that could not be listed, each with the reason, whether they are new or not."""


def find_new_files(lake: Lake, sources: Sequence[str], cluster_id: str | None = None) -> NewFiles:
    """List the sources. `cluster_id` is for directories without meta.properties.

    Raises:
        LakeError: for a source that does not exist or has no metadata log.
    """
    return _list_sources(sources, lake.state.files, cluster_id)


def is_needed(lake: Lake, new: NewFiles, tables: Sequence[Table], *, everything: bool = False) -> bool:
    """Whether an ingest would change the lake."""
    return bool(new.places or table_build.stale_tables(lake, tables, everything=everything))


def ingest(
    spark: SparkSession,
    lake: Lake,
    new: NewFiles,
    steps: Steps,
    *,
    tables: Sequence[Table],
    everything: bool = False,
) -> Ingested:
    """Update a lake from its sources. Call it within `Lake.writing`.

    Two commits: first the rows, then the tables. After a crash between the two, the next run builds the tables.
    """
    failures: Sequence[Failure] = ()
    if new.places:
        steps.begin(f"reading {sum(place.new_files for place in new.places)} files")
        failures = _add_rows(spark, lake, new.places)
    return ingested(new, table_build.build(spark, lake, tables, steps, everything=everything), failures)


def ingested(
    new: NewFiles, built: table_build.Built = table_build.NOTHING_BUILT, failures: Sequence[Failure] = ()
) -> Ingested:
    """The result of an ingest that read this, but for the failures, and built these tables."""
    unread = {failure.source: failure.detail for failure in failures}
    return Ingested(
        directories=new.directories,
        changed_directories=len(new.places),
        files=sum(place.new_files for place in new.places),
        bytes=sum(place.new_bytes for place in new.places),
        built=built,
        unreadable=[*new.unreadable, *(f"{source} {detail}" for source, detail in unread.items())],
    )


def _add_rows(spark: SparkSession, lake: Lake, places: Sequence[Place]) -> Sequence[Failure]:
    """Store the rows of these places, in a commit. Returns what could not be read."""
    pieces, starts = _pieces(places)
    again = {piece.origin.source for piece in pieces if piece.origin.source in lake.state.files}
    stored = store_tasks.store_pieces(spark, store_tasks.store_plan(lake, again, starts), pieces)
    change = store_tasks.staged_change(lake, stored.files)
    lake.check_staged(change)  # before any of the files is read
    _check_histories(lake, stored)
    state = _state(lake.state, places, stored)
    if state.files == lake.state.files:
        lake.discard_staged()  # all of it failed as before: the gaps are stored already
    else:
        lake.commit(change, state)
    return stored.failures


def _check_histories(lake: Lake, stored: Stored) -> None:
    """Check that new rows continue the histories that the lake has. Raises LakeError."""
    new: dict[str, Summary] = {}
    for file in stored.files:
        new.setdefault(file.cluster_id, Summary()).add(summary_of(Path(file.path)))
    for cluster_id, found in new.items():
        before = StoredRows(lake.rows / folder_name(cluster_id)).summary()
        directories = sorted({directory_of(source) for source, _ in found.log})
        restarts = [find_restart(before, found, directory) for directory in directories]
        found.add(before)
        for conflict in (*restarts, find_conflict(found)):
            if conflict is not None:
                raise another_history(conflict.found.source, _conflict_text(conflict))


def _conflict_text(conflict: Conflict) -> str:
    known, found = (
        f"offset {start.offset} of {time_text(start.time_us)}" for start in (conflict.known, conflict.found)
    )
    if conflict.known.epoch == conflict.found.epoch:
        return f"epoch {conflict.found.epoch} begins at {found}, and at {known} in {conflict.known.source}"
    return f"it has {found}, and had {known} before"


def _pieces(places: Sequence[Place]) -> tuple[list[Piece], dict[str, int]]:
    """Return what to read, and for each source that is not read from its start the first offset."""
    pieces, starts = [], {}
    for place in places:
        for piece in plan_pieces(place.found, store_tasks.selection_from(place.start), ALL):
            pieces.append(piece)
            if place.start:
                starts[piece.origin.source] = place.start
    return pieces, starts


def _state(state: LakeState, places: Sequence[Place], stored: Stored) -> LakeState:
    """The state after a commit of what was stored. A file that could not be read stays new."""
    commit = state.commit + 1
    reads = dict(state.reads)
    files = dict(state.files)
    clusters = {file.cluster_id for file in stored.files}
    for place in places:
        reads[place.address] = with_read(reads.get(place.address, ()), commit, place.start)
        if files.pop(place.address, None) is not None and UNKNOWN_CLUSTER in state.clusters:
            clusters.add(UNKNOWN_CLUSTER)  # the place was unreadable, and that gap is void now
        files |= place.files
    files |= {failure.source: unreadable_mark(failure.detail) for failure in stored.failures}
    return replace(
        state, files=files, reads=reads, clusters={**state.clusters, **dict.fromkeys(clusters, commit)}
    )


def unreadable_mark(detail: str) -> str:
    """The mark of a file or a place that could not be read, in place of its size and time."""
    return f"{UNREADABLE}: {detail}"


# What is new in the sources


def find_places(
    sources: Sequence[str], known: Mapping[str, str], cluster_id: str | None = None
) -> tuple[list[Place], int]:
    """The places with new files, ordered by address, and the number of all directories.

    `known` has the files that were read before. Raises LakeError for a source that does not exist.
    """
    found = _list_sources(sources, known, cluster_id)
    return list(found.places), found.directories


def _list_sources(sources: Sequence[str], known: Mapping[str, str], cluster_id: str | None) -> NewFiles:
    places: dict[str, Place] = {}
    seen: set[str] = set()
    unreadable: list[str] = []
    for source in dict.fromkeys(sources):
        try:
            root = open_root(source)
            found = find_directories(root, cluster_id)
        except LayoutError as error:
            raise LakeError(str(error).replace("option path", "source")) from error
        if not found:
            raise LakeError(
                f"source {source}: no metadata log below it: no directory __cluster_metadata-0, "
                "and no file like 00000000000000000000.log"
            )
        for directory in found:
            if directory.address in seen:
                continue
            seen.add(directory.address)
            if isinstance(directory, UnreadablePlace) and directory.is_error:
                unreadable.append(f"{directory.address} {directory.detail}")
            place = _new_files(root, directory, known)
            if place is not None:
                places[directory.address] = place
    return NewFiles([places[address] for address in sorted(places)], len(seen), unreadable)


def with_read(reads: Sequence[Read], commit: int, start: int) -> list[Read]:
    """The reads of a directory plus a new one, without those that it covers."""
    return [*(read for read in reads if read.start < start), Read(commit, start)]


def _new_files(
    root: Root, found: MetadataDirectory | UnreadablePlace, known: Mapping[str, str]
) -> Place | None:
    if isinstance(found, UnreadablePlace):
        marks = {found.address: unreadable_mark(found.detail)}
        if known.get(found.address) == marks[found.address]:
            return None
        return Place(found=found, start=0, files=marks, new_files=0, new_bytes=0)
    offsets = {segment.address: segment.base_offset for segment in found.segments}
    offsets |= {checkpoint.address: checkpoint.end_offset for checkpoint in found.checkpoints}
    marks, sizes = {}, {}
    for address, mark, size in _marks(root, found):
        marks[address], sizes[address] = mark, size
    new = [address for address, mark in marks.items() if known.get(address) != mark]
    if not new and found.address not in known:
        return None
    # If nothing is new but the directory was unreadable, its last file is read again, which makes that gap void.
    # The first read of a directory starts at 0, so that a missing start of its log becomes a gap.
    is_first = not any(address in known for address in marks)
    return Place(
        found=found,
        start=0
        if is_first
        else min((offsets[address] for address in new), default=max(offsets.values(), default=0)),
        files=marks,
        new_files=len(new),
        new_bytes=sum(sizes[address] for address in new),
    )


def _marks(root: Root, found: MetadataDirectory) -> Iterator[tuple[str, str, int]]:
    addresses = [
        *(segment.address for segment in found.segments),
        *(checkpoint.address for checkpoint in found.checkpoints),
    ]
    paths = [address.removeprefix(root.prefix) for address in addresses]
    try:
        entries = root.file_system.get_file_info(paths)
    except (OSError, pa.ArrowException) as error:
        raise LakeError(f"source {found.address}: {in_one_line(error)}") from error
    for address, entry in zip(addresses, entries, strict=True):
        if entry.size is not None:  # otherwise it was just deleted
            yield address, f"{entry.size} {entry.mtime_ns}", entry.size
