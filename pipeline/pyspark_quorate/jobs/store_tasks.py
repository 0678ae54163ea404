"""Stores rows in a lake: Spark distributes what is read, and its Python workers read it and write the files.

A task writes into a folder of its own and returns its files. If Spark runs a task more than once, only the files of
the attempt whose result it uses become part of the lake.
"""

import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from pyspark_quorate.jobs.lake import Change, Lake
from pyspark_quorate.source.options import Options
from pyspark_quorate.source.pieces import Piece, pack
from pyspark_quorate.source.reader import Failure, cut_large, read_piece
from pyspark_quorate.source.selection import Selection, select
from pyspark_quorate.stored.durable import Written, check_shared
from pyspark_quorate.stored.files import UNKNOWN_CLUSTER, folder_name
from pyspark_quorate.stored.known_rows import KnownRows
from pyspark_quorate.stored.row_reader import StoredRows
from pyspark_quorate.stored.row_writer import RowsWriter

STAGED: Final = "rows"
"""The folder in staging for rows."""
TASK_BYTES_MIN: Final = 256 * 1024
"""Smaller pieces are read together, even if a core has nothing to do."""
TASK_BYTES_MAX: Final = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class StorePlan:
    """The input of all tasks that store rows."""

    where: Path
    """The directory for the folders of tasks."""
    commit: int
    """The number of the commit that adds the rows."""
    rows: Path
    """The rows that the lake has."""
    again: frozenset[str] = frozenset()
    """Files that were read before, some of whose rows the lake has."""
    starts: Mapping[str, int] = field(default_factory=dict)
    """Source -> the first offset to read, if that is not 0."""


def store_plan(lake: Lake, again: Collection[str] = (), starts: Mapping[str, int] | None = None) -> StorePlan:
    """The input of tasks that store rows with the next commit of a lake."""
    return StorePlan(
        where=lake.staging / STAGED,
        commit=lake.state.commit + 1,
        rows=lake.rows,
        again=frozenset(again),
        starts=starts or {},
    )


@dataclass(frozen=True, slots=True)
class Stored:
    """The files with new rows, and the files of the sources that could not be read."""

    files: Sequence[Written] = ()
    failures: Sequence[Failure] = ()


def store_pieces(spark: SparkSession, plan: StorePlan, pieces: Sequence[Piece]) -> Stored:
    """Read pieces of the sources and write their rows to staging, in one job of Spark."""
    cores = spark.sparkContext.defaultParallelism
    share_bytes = sum(piece.cost_bytes for piece in pieces) // cores + 1
    limit_bytes = max(TASK_BYTES_MIN, min(TASK_BYTES_MAX, share_bytes))
    tasks = pack((part for piece in pieces for part in cut_large(piece, TASK_BYTES_MAX)), limit_bytes)
    if not tasks:
        return Stored()
    plan.where.mkdir(parents=True)
    done = spark.sparkContext.parallelize(tasks, len(tasks)).map(partial(_read_and_write, plan)).collect()
    return Stored(
        [file for task in done for file in task.files],
        [failure for task in done for failure in task.failures],
    )


def store_frame(frame: DataFrame, plan: StorePlan) -> list[Written]:
    """Write the rows of a frame to staging, in one job of Spark. Returns the files."""
    plan.where.mkdir(parents=True)
    found = frame.mapInArrow(
        partial(_write, plan), "cluster_id string, path string, size_bytes bigint"
    ).collect()
    return [Written(*fields) for fields in found]


def staged_change(lake: Lake, files: Iterable[Written]) -> Change:
    """The change that adds staged files to the rows. File names contain the commit, so that repeating is safe."""
    moves, sizes = [], []
    for place, file in enumerate(files):
        name = f"{lake.state.commit + 1:010d}-{place:05d}.parquet"
        target = lake.rows / folder_name(file.cluster_id) / name
        moves.append((str(Path(file.path).relative_to(lake.path)), str(target.relative_to(lake.path))))
        sizes.append((file.path, file.size_bytes))
    return Change(place=moves, written=sizes)


def selection_from(start: int) -> Selection:
    """All rows from an offset on."""
    return select(Options(paths=(), no_ops=True, start_offset=start))


# In a task


def _read_and_write(plan: StorePlan, pieces: Sequence[Piece]) -> Stored:
    task = _Task(plan)
    failures: list[Failure] = []
    for piece in pieces:
        selection = selection_from(plan.starts.get(piece.origin.source, 0))
        for batch in read_piece(piece, selection, failures):
            task.add(piece.origin.cluster_id, piece.origin.source, batch)
    return Stored(task.writer.close(), failures)


def _write(plan: StorePlan, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    task = _Task(plan)
    for batch in batches:
        for (cluster_id, source), part in _by_source(batch):
            task.add(cluster_id, source, part)
    files = task.writer.close()
    kinds = {"cluster_id": pa.string(), "path": pa.string(), "size_bytes": pa.int64()}
    columns = [pa.array([getattr(file, name) for file in files], kind) for name, kind in kinds.items()]
    yield pa.RecordBatch.from_arrays(columns, names=list(kinds))


def _by_source(batch: pa.RecordBatch) -> Iterator[tuple[tuple[str, str], pa.RecordBatch]]:
    """Split a batch where the cluster or the source changes. Yields these two, and the rows."""
    columns = [batch.column(name) for name in ("cluster_id", "source")]
    ends = {end for column in columns for end in pc.run_end_encode(column).run_ends.to_pylist()}
    start = 0
    for end in sorted(ends):
        yield (columns[0][start].as_py(), columns[1][start].as_py()), batch.slice(start, end - start)
        start = end


class _Task:
    """Writes rows, except those that the lake already has."""

    def __init__(self, plan: StorePlan) -> None:
        check_shared(plan.where)
        self.writer = RowsWriter(plan.where / f"attempt-{uuid.uuid4()}", plan.commit)
        self._plan = plan
        self._known: tuple[str, KnownRows] | None = None

    def add(self, cluster_id: str, source: str, batch: pa.RecordBatch) -> None:
        """Add rows of one source."""
        cluster_id = cluster_id or UNKNOWN_CLUSTER
        if source in self._plan.again:
            batch, back = self._known_rows(cluster_id).divide(batch, source)
            self.writer.note_again(cluster_id, back)
        self.writer.add(cluster_id, batch)

    def _known_rows(self, cluster_id: str) -> KnownRows:
        if self._known is None or self._known[0] != cluster_id:
            self._known = (
                cluster_id,
                KnownRows(StoredRows(self._plan.rows / folder_name(cluster_id)).summary()),
            )
        return self._known[1]
