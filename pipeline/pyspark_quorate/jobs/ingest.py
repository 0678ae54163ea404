"""`quorate lake ingest`: read what is new in the sources, keep it, and make the tables of it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from pyspark_quorate import register
from pyspark_quorate.jobs import building, raw
from pyspark_quorate.jobs.inventory import Place, find_places, remembered
from pyspark_quorate.jobs.lake import Change, Lake
from pyspark_quorate.jobs.progress import Steps
from pyspark_quorate.jobs.state import State
from pyspark_quorate.tables.contract import Table

READS_MAX: Final = 4
"""How many reads with their own first offset one ingest makes at most; each is planned on its own."""


@dataclass(frozen=True, slots=True)
class Ingested:
    """What an ingest did. `files` and `bytes` are those that were new or had changed."""

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
    """Bring a lake up to date with its sources. Within `Lake.writing`.

    Two commits: first the rows, then the tables made of them. After a crash between the two, the next run makes
    the tables. `cluster_id` is that of directories without meta.properties.
    """
    steps.begin("looking at the sources")
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
    """Places that are read together, from the first offset that any of them needs: the first place of each."""
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
