"""`quorate lake ingest`: reads new files of the sources, stores their rows, and builds the tables."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from pyspark_quorate import register
from pyspark_quorate.jobs import building, raw
from pyspark_quorate.jobs.lake import Change, Lake
from pyspark_quorate.jobs.progress import Steps
from pyspark_quorate.jobs.state import LakeError, Read, State
from pyspark_quorate.source.layout import (
    LayoutError,
    MetadataDirectory,
    Root,
    UnreadablePlace,
    find_directories,
    open_root,
)
from pyspark_quorate.tables.contract import Table

READS_MAX: Final = 4
"""The maximum number of reads with different first offsets per ingest; each is planned separately."""
UNREADABLE: Final = "unreadable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A directory with new files, or an unreadable place that is not yet recorded."""

    address: str
    start: int
    files: Mapping[str, str]
    """Address of each file in it -> size and modification time."""
    new_files: int
    new_bytes: int


@dataclass(frozen=True, slots=True)
class Ingested:
    """The result of an ingest. `files` and `bytes` count new and changed files."""

    directories: int
    changed_directories: int
    files: int
    bytes: int
    built: building.Built


def ingest(
    spark: SparkSession,
    lake: Lake,
    sources: Sequence[str],
    steps: Steps,
    *,
    tables: Sequence[Table],
    cluster_id: str | None = None,
    everything: bool = False,
) -> Ingested:
    """Update a lake from its sources. Call it within `Lake.writing`.

    Two commits: first the rows, then the tables. After a crash between the two, the next run builds the tables.
    `cluster_id` is for directories without meta.properties.

    Raises:
        LakeError: for a source that does not exist or has no metadata log.
    """
    steps.begin("listing the sources")
    places, count = find_places(sources, lake.state.files, cluster_id)
    if places:
        steps.begin(f"reading {sum(place.new_files for place in places)} files")
        _add_rows(spark, lake, places, cluster_id)
    built = building.build(spark, lake, tables, steps, everything=everything)
    return Ingested(
        directories=count,
        changed_directories=len(places),
        files=sum(place.new_files for place in places),
        bytes=sum(place.new_bytes for place in places),
        built=built,
    )


def _add_rows(spark: SparkSession, lake: Lake, places: Sequence[Place], cluster_id: str | None) -> None:
    register(spark)
    frames = [
        _read(spark, [place.address for place in group], group[0].start, cluster_id)
        for group in _groups(places)
    ]
    again = {address for place in places for address in place.files if address in lake.state.files}
    clusters = raw.stage_rows(spark, lake, reduce(DataFrame.unionByName, frames), again)
    lake.commit(Change(place=raw.staged_moves(lake)), _state(lake.state, places, clusters))


def _groups(places: Sequence[Place]) -> list[list[Place]]:
    """Group places that are read together. A group is read from the start of its first place, the lowest one."""
    ordered = sorted(places, key=lambda place: (place.start, place.address))
    first = [place for place in ordered if place.start == 0]
    later = [place for place in ordered if place.start > 0]
    size = -(-len(later) // (READS_MAX - 1)) or 1
    return [
        group for group in (first, *(later[at : at + size] for at in range(0, len(later), size))) if group
    ]


def _read(spark: SparkSession, addresses: Sequence[str], start: int, cluster_id: str | None) -> DataFrame:
    reader = spark.read.format("quorate").option("noOps", "true").option("startOffset", start)
    if cluster_id is not None:
        reader = reader.option("clusterId", cluster_id)
    return reader.load(list(addresses))


def _state(state: State, places: Sequence[Place], clusters: set[str]) -> State:
    commit = state.commit + 1
    reads = dict(state.reads)
    files = dict(state.files)
    for group in _groups(places):
        for place in group:
            reads[place.address] = remembered(reads.get(place.address, ()), commit, group[0].start)
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
        for one in found:
            if one.address in seen:
                continue
            seen.add(one.address)
            place = _news(root, one, known)
            if place is not None:
                places[one.address] = place
    return [places[address] for address in sorted(places)], len(seen)


def remembered(reads: Sequence[Read], commit: int, start: int) -> list[Read]:
    """The reads of a directory plus a new one, without those that it covers."""
    return [*(read for read in reads if read.start < start), Read(commit, start)]


def _news(root: Root, found: MetadataDirectory | UnreadablePlace, known: Mapping[str, str]) -> Place | None:
    if isinstance(found, UnreadablePlace):
        if known.get(found.address) == f"{UNREADABLE}: {found.detail}":
            return None
        marks = {found.address: f"{UNREADABLE}: {found.detail}"}
        return Place(address=found.address, start=0, files=marks, new_files=0, new_bytes=0)
    offsets = {one.address: one.base_offset for one in found.segments}
    offsets |= {one.address: one.end_offset for one in found.checkpoints}
    marks, sizes = {}, {}
    for address, mark, size in _marks(root, found):
        marks[address], sizes[address] = mark, size
    new = [address for address, mark in marks.items() if known.get(address) != mark]
    if not new:
        return None
    # The first read of a directory starts at 0, so that a missing start of its log becomes a gap.
    is_first = not any(address in known for address in marks)
    return Place(
        address=found.address,
        start=0 if is_first else min(offsets[address] for address in new),
        files=marks,
        new_files=len(new),
        new_bytes=sum(sizes[address] for address in new),
    )


def _marks(root: Root, found: MetadataDirectory) -> Iterator[tuple[str, str, int]]:
    addresses = [*(one.address for one in found.segments), *(one.address for one in found.checkpoints)]
    paths = [address.removeprefix(root.prefix) for address in addresses]
    for address, entry in zip(addresses, root.file_system.get_file_info(paths), strict=True):
        if entry.size is not None:  # otherwise it was just deleted
            yield address, f"{entry.size} {entry.mtime_ns}", entry.size
