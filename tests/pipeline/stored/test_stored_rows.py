"""The rows that a lake stores: written bit by bit into any number of files, read in order."""

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from kit.lake.fold import COLUMNS, batches_of, by_cluster, summary_of
from kit.lake.oracle.quorums import make_quorum
from kit.lake.oracle.worlds import make_world, rows_of
from pyspark_quorate import rows
from pyspark_quorate.errors import LakeError
from pyspark_quorate.stored import files, row_reader, row_writer
from pyspark_quorate.stored.files import folder_name
from pyspark_quorate.stored.known_rows import without_known
from pyspark_quorate.stored.row_reader import StoredRows, valid_gaps
from pyspark_quorate.stored.row_writer import RowsWriter
from pyspark_quorate.tables.summary import Summary

CLUSTER = "4L6g3nShT-eMCtK--X86sw"
WORLDS = (make_quorum(3, 50).rows, rows_of(make_world(5, 60)), rows_of(make_world(7, 60)))
"""Rows of one cluster each: logs of several nodes, lost leaders, checkpoints, and gaps."""
Row = tuple[Any, ...]


def ordered(world: list[Row]) -> list[Row]:
    """The rows of a world, gaps first, then in the order of the timeline."""
    (of_cluster,) = by_cluster(world).values()
    return [tuple(row) for row in of_cluster]


def shown(batches: list[pa.RecordBatch]) -> list[dict[str, Any]]:
    """The rows of batches, without cluster and commit."""
    names = [name for name in COLUMNS if name != "cluster_id"]
    return [row for batch in batches for row in batch.select(names).to_pylist()]


def is_gap(row: Row) -> bool:
    """Whether a row of the source is one of a gap."""
    return bool(row[COLUMNS.index("kind")] == rows.GAP)


def write(where: Path, world: list[Row], chance: random.Random) -> Path:
    """Store the rows as several tasks do: each takes some sources, and batches of any size. Returns their folder."""
    source = COLUMNS.index("source")
    sources = sorted({row[source] for row in world})
    chance.shuffle(sources)
    tasks = max(1, chance.randrange(len(sources) + 1))
    for task in range(tasks):
        writer = RowsWriter(where / f"task-{task}", task + 1)
        for file in sources[task::tasks]:
            for batch in batches_of([row for row in world if row[source] == file], chance.randrange(1, 40)):
                writer.add(CLUSTER, batch)
        for written in writer.close():
            file = Path(written.path)
            assert file.stat().st_size == written.size_bytes
            target = where / folder_name(CLUSTER) / f"{task}-{file.name}"
            target.parent.mkdir(exist_ok=True)
            file.rename(target)
    return where / folder_name(CLUSTER)


@pytest.mark.parametrize("seed", range(6))
def test_rows_come_back_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Whatever was stored by whichever tasks is read once, in the order of the fold, with a summary of it."""
    chance = random.Random(seed)
    group_rows = chance.choice((3, 17, files.GROUP_ROWS))
    for module in (row_writer, row_reader):
        monkeypatch.setattr(module, "GROUP_ROWS", group_rows)
    world = WORLDS[seed % len(WORLDS)]
    stored = StoredRows(write(tmp_path, world, chance))
    expected = ordered(world)
    records = list(stored.records())
    assert shown(records) == shown(batches_of([row for row in expected if not is_gap(row)]))
    assert group_rows > 17 or len(records) > 1, "they came at once"
    gaps = sorted(shown([stored.gaps()]), key=repr)
    assert gaps == sorted(shown(batches_of([row for row in expected if is_gap(row)])), key=repr)
    assert comparable(stored.summary()) == comparable(summary_of(expected))


def comparable(summary: Summary) -> dict[str, Any]:
    """A summary, whatever the order of its parts."""
    reported = summary.as_json()
    assert Summary.from_json(reported).as_json() == reported
    return {name: sorted(map(repr, part)) for name, part in reported.items() if name != "reads"}


@pytest.mark.parametrize("seed", range(3))
def test_rows_that_are_known_are_left_out(seed: int) -> None:
    """A file that is read again after it had grown is not stored twice."""
    world = ordered(WORLDS[seed])
    chance = random.Random(seed)
    known = [row for row in world if chance.random() < 0.5]
    summary = summary_of([row for row in known if not is_gap(row)])
    left = [without_known(batch, summary) for batch in batches_of(world)]
    assert shown(left) == shown(batches_of([row for row in world if row not in known or is_gap(row)]))


def test_a_file_of_another_writer_is_named(tmp_path: Path) -> None:
    def foreign(metadata: dict[bytes, bytes] | None) -> bytes:
        file = tmp_path / "foreign"
        table = pa.table({"offset": [1]}).replace_schema_metadata(metadata)
        pq.write_table(table, file, store_schema=metadata is not None)
        return file.read_bytes()

    path = tmp_path / folder_name(CLUSTER) / "part-0.parquet"
    path.parent.mkdir()
    for content, reason in (
        (foreign(None), "its footer has no quorate.rows"),
        (foreign({b"other": b"1"}), "its footer has no quorate.rows"),
        (foreign({files.FOOTER: b"{}"}), "'summary'"),
        (foreign({files.FOOTER: b"[]"}), "list indices must be integers"),
        (foreign({files.FOOTER: b"nothing"}), "Expecting value"),
        (b"PAR1 and nothing else", "Parquet magic bytes not found"),
    ):
        path.write_bytes(content)
        with pytest.raises(LakeError) as raised:
            StoredRows(path.parent)
        assert str(raised.value).startswith(f"{path} is not a file that a lake wrote: ")
        assert reason in str(raised.value)
        assert "\n" not in str(raised.value)


def test_a_read_makes_older_gaps_void(tmp_path: Path) -> None:
    writer = RowsWriter(tmp_path, 5)
    gap = (CLUSTER, "/a/00000000000000000000.log", rows.GAP, 10, 0, None, None, rows.TORN_TAIL, None)
    writer.add(CLUSTER, *batches_of([(*gap, '{"endOffset":20,"detail":""}')]))
    writer.close()
    gaps = StoredRows(tmp_path / folder_name(CLUSTER)).gaps()
    assert len(gaps) == 1
    for reads in ({}, {"/a": [(5, 0)]}, {"/a": [(6, 20)]}, {"/b": [(6, 0)]}):
        assert len(valid_gaps(gaps, reads)) == 1
    for start in (0, 19):
        assert len(valid_gaps(gaps, {"/a": [(5, 0), (6, start)]})) == 0
