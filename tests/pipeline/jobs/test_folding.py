"""What a task of the fold writes and returns, without Spark around it."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from kit.lake.folding import batches_of, by_cluster, fold_rows, instant, plain
from kit.lake.oracle import make_quorum
from kit.lake.oracle_worlds import make_world, rows_of
from pyspark_quorate.jobs import folding, raw
from pyspark_quorate.tables.contract import Table
from pyspark_quorate.tables.evidence import evidence_of
from pyspark_quorate.tables.registry import TABLES
from pyspark_quorate.tables.summary import summarize

RAW = [*make_quorum(3, 50).rows, *rows_of(make_world(5, 60)), *rows_of(make_world(7, 60))]
"""Clusters that have rows of every table between them."""


def task(where: Path) -> list[dict[str, Any]]:
    """One task over all clusters. Returns the rows of `records`."""
    evidence = {cluster: evidence_of(one) for cluster, one in summarize(batches_of(RAW)).items()}
    plan = folding.Plan(where, TABLES, evidence)
    told = [row for _, of_cluster in sorted(by_cluster(RAW).items()) for row in of_cluster]
    made = folding._fold(plan, batches_of(told, size=11))
    return [row | {"time": instant(row["time"])} for batch in made for row in batch.to_pylist()]


def stored(where: Path, table: Table) -> list[dict[str, Any]]:
    """The rows of a table that are below a directory, with the day of their folder."""
    found = []
    for cluster, folder in raw.folders(where).items():
        if (folder / table.name).is_dir():
            days = ds.partitioning(pa.schema([("day", pa.string())]), flavor="hive")
            read = ds.dataset(folder / table.name, partitioning=days).to_table()
            found += [{"cluster_id": cluster, **_plain(row, table)} for row in read.to_pylist()]
    return found


def _plain(row: dict[str, Any], table: Table) -> dict[str, Any]:
    kinds = {field.name: field.dataType for field in table.schema.fields}
    told = {
        name: plain(_tuples(value), kinds[name]) if name in kinds else value for name, value in row.items()
    }
    assert told.pop("day") == (str(told[table.day].date()) if told[table.day] else None)
    return told


def _tuples(value: Any) -> Any:
    """Structs as tuples."""
    if isinstance(value, list):
        return [_tuples(one) for one in value]
    return tuple(value.values()) if isinstance(value, dict) else value


@pytest.mark.parametrize("waiting_rows_max", [folding.WAITING_ROWS_MAX, 10])
def test_a_task_writes_what_the_fold_makes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waiting_rows_max: int
) -> None:
    """Goal: files have the rows of the fold, below their days, whether they are written at once or bit by bit.

    Method: a task over all clusters; then once more, as Spark repeats one: nothing changes, nothing is left over.
    """
    monkeypatch.setattr(folding, "WAITING_ROWS_MAX", waiting_rows_max)
    expected = fold_rows(RAW, TABLES)
    records = expected.pop("records")
    for _ in range(2):
        assert sorted(map(repr, task(tmp_path))) == sorted(map(repr, records))
        assert {one.name for one in tmp_path.iterdir()} == set(map(raw.folder_name, by_cluster(RAW)))
        for table in TABLES:
            if table.name in expected:
                wanted = sorted(map(repr, expected[table.name]))
                assert sorted(map(repr, stored(tmp_path, table))) == wanted, table.name
    assert all(expected.values()), "every table has rows"


def test_a_task_that_fails_leaves_no_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: half a cluster never counts. Method: the disk is full at a file; then another attempt succeeds."""
    real, count = folding.pq.write_table, 0

    def full(*arguments: Any, **options: Any) -> None:
        nonlocal count
        count += 1
        if count == 5:
            raise OSError("No space left on device")
        real(*arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(folding.pq, "write_table", full)
        with pytest.raises(OSError, match="No space left"):
            task(tmp_path)
    assert raw.folders(tmp_path) == {}
    task(tmp_path)
    assert set(raw.folders(tmp_path)) == set(by_cluster(RAW))


def test_folders_are_named_as_spark_names_them() -> None:
    """Goal: tables that Spark writes and those that a task writes have the same folders. Method: odd cluster ids."""
    assert raw.folder_name("4L6g3nShT-eMCtK--X86sw") == "cluster_id=4L6g3nShT-eMCtK--X86sw"
    assert raw.folder_name("a/b=c d%\n") == "cluster_id=a%2Fb%3Dc d%25%0A"
