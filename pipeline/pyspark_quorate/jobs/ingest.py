"""`quorate lake ingest`: reads new files of the sources, stores their rows, and builds the tables."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pyspark.sql import SparkSession

from pyspark_quorate.errors import LakeError
from pyspark_quorate.jobs import store_tasks, table_build
from pyspark_quorate.jobs.lake import Change, Lake
from pyspark_quorate.jobs.progress import Steps
from pyspark_quorate.jobs.state import LakeState, Read
from pyspark_quorate.source.layout import (
    LayoutError,
    MetadataDirectory,
    Root,
    UnreadablePlace,
    find_directories,
    open_root,
)
from pyspark_quorate.source.options import ALL
from pyspark_quorate.source.pieces import Piece, plan_pieces
from pyspark_quorate.tables.contract import Table

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


@dataclass(frozen=True, slots=True)
class NewFiles:
    """What an ingest reads: the places with new files, ordered by address, of `directories` in all."""

    places: Sequence[Place]
    directories: int


def find_new_files(lake: Lake, sources: Sequence[str], cluster_id: str | None = None) -> NewFiles:
    """List the sources. `cluster_id` is for directories without meta.properties.

    Raises:
        LakeError: for a source that does not exist or has no metadata log.
    """
    return NewFiles(*find_places(sources, lake.state.files, cluster_id))


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
    if new.places:
        steps.begin(f"reading {sum(place.new_files for place in new.places)} files")
        _add_rows(spark, lake, new.places)
    return ingested(new, table_build.build(spark, lake, tables, steps, everything=everything))


def ingested(new: NewFiles, built: table_build.Built = table_build.NOTHING_BUILT) -> Ingested:
    """The result of an ingest that read this and built these tables."""
    return Ingested(
        directories=new.directories,
        changed_directories=len(new.places),
        files=sum(place.new_files for place in new.places),
        bytes=sum(place.new_bytes for place in new.places),
        built=built,
    )


def _add_rows(spark: SparkSession, lake: Lake, places: Sequence[Place]) -> None:
    pieces, starts = _pieces(places)
    again = {piece.origin.source for piece in pieces if piece.origin.source in lake.state.files}
    files = store_tasks.store_pieces(spark, store_tasks.store_plan(lake, again, starts), pieces)
    clusters = {cluster_id for cluster_id, _ in files}
    lake.commit(Change(place=store_tasks.staged_moves(lake, files)), _state(lake.state, places, clusters))


def _pieces(places: Sequence[Place]) -> tuple[list[Piece], dict[str, int]]:
    """Return what to read, and for each source that is not read from its start the first offset."""
    pieces, starts = [], {}
    for place in places:
        for piece in plan_pieces(place.found, store_tasks.selection_from(place.start), ALL):
            pieces.append(piece)
            if place.start:
                starts[piece.origin.source] = place.start
    return pieces, starts


def _state(state: LakeState, places: Sequence[Place], clusters: set[str]) -> LakeState:
    commit = state.commit + 1
    reads = dict(state.reads)
    files = dict(state.files)
    for place in places:
        reads[place.address] = with_read(reads.get(place.address, ()), commit, place.start)
        files |= place.files
    return replace(
        state, files=files, reads=reads, clusters={**state.clusters, **dict.fromkeys(clusters, commit)}
    )


# What is new in the sources


def find_places(
    sources: Sequence[str], known: Mapping[str, str], cluster_id: str | None = None
) -> tuple[list[Place], int]:
    """The places with new files, ordered by address, and the number of all directories.

    `known` has the files that were read before. Raises LakeError for a source that does not exist.
    """
    places: dict[str, Place] = {}
    seen: set[str] = set()
    for source in dict.fromkeys(sources):
        try:
            root = open_root(source)
            found = find_directories(root, cluster_id)
        except LayoutError as error:
            raise LakeError(str(error).replace("option path", "source")) from error
        except OSError as error:
            raise LakeError(f"source {source}: {error}") from error
        if not found:
            raise LakeError(
                f"source {source}: no metadata log below it: no directory __cluster_metadata-0, "
                "and no file like 00000000000000000000.log"
            )
        for directory in found:
            if directory.address in seen:
                continue
            seen.add(directory.address)
            place = _new_files(root, directory, known)
            if place is not None:
                places[directory.address] = place
    return [places[address] for address in sorted(places)], len(seen)


def with_read(reads: Sequence[Read], commit: int, start: int) -> list[Read]:
    """The reads of a directory plus a new one, without those that it covers."""
    return [*(read for read in reads if read.start < start), Read(commit, start)]


def _new_files(
    root: Root, found: MetadataDirectory | UnreadablePlace, known: Mapping[str, str]
) -> Place | None:
    if isinstance(found, UnreadablePlace):
        if known.get(found.address) == f"{UNREADABLE}: {found.detail}":
            return None
        marks = {found.address: f"{UNREADABLE}: {found.detail}"}
        return Place(found=found, start=0, files=marks, new_files=0, new_bytes=0)
    offsets = {segment.address: segment.base_offset for segment in found.segments}
    offsets |= {checkpoint.address: checkpoint.end_offset for checkpoint in found.checkpoints}
    marks, sizes = {}, {}
    for address, mark, size in _marks(root, found):
        marks[address], sizes[address] = mark, size
    new = [address for address, mark in marks.items() if known.get(address) != mark]
    if not new:
        return None
    # The first read of a directory starts at 0, so that a missing start of its log becomes a gap.
    is_first = not any(address in known for address in marks)
    return Place(
        found=found,
        start=0 if is_first else min(offsets[address] for address in new),
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
    for address, entry in zip(addresses, root.file_system.get_file_info(paths), strict=True):
        if entry.size is not None:  # otherwise it was just deleted
            yield address, f"{entry.size} {entry.mtime_ns}", entry.size
