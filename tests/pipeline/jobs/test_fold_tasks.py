"""What the tasks of the fold write, without Spark around them."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from kit.lake.fold import batches_of, by_cluster, fold_rows, plain
from kit.lake.oracle.quorums import make_quorum
from kit.lake.oracle.worlds import make_world, rows_of
from pyspark.sql.types import StringType
from pyspark.sql.variant_utils import VariantUtils
from pyspark_quorate.jobs import fold_tasks
from pyspark_quorate.stored.files import folder_name, folders
from pyspark_quorate.stored.row_writer import RowsWriter
from pyspark_quorate.tables.contract import Table
from pyspark_quorate.tables.records import SCHEMA
from pyspark_quorate.tables.registry import TABLES

RAW = [*make_quorum(3, 50).rows, *rows_of(make_world(5, 60)), *rows_of(make_world(7, 60))]
"""Clusters that have rows of every table between them."""


@pytest.fixture(scope="module")
def lake_rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The rows as a lake stores them."""
    where = tmp_path_factory.mktemp("rows")
    writer = RowsWriter(where, 1)
    for cluster, reported in by_cluster(RAW).items():
        for batch in batches_of(reported, size=11):
            writer.add(cluster, batch)
    writer.close()
    return where


def fold(lake_rows: Path, where: Path, kind: str = "parquet") -> None:
    """All tasks, one after the other."""
    plan = fold_tasks.FoldPlan(rows=lake_rows, where=where, tables=TABLES, format=kind)
    for cluster in by_cluster(RAW):
        fold_tasks.fold_cluster(plan, cluster)


def stored(where: Path, table: Table) -> list[dict[str, Any]]:
    """The rows of a table that are below a directory, with the day of their folder."""
    found = []
    for cluster, folder in folders(where).items():
        if (folder / table.name).is_dir():
            days = ds.partitioning(pa.schema([("day", pa.string())]), flavor="hive")
            read = ds.dataset(folder / table.name, partitioning=days).to_table()
            found += [{"cluster_id": cluster, **_plain(row, table)} for row in read.to_pylist()]
    return found


def _plain(row: dict[str, Any], table: Table) -> dict[str, Any]:
    kinds = {field.name: field.dataType for field in table.schema.fields}
    if table.name == "records":
        payload = row["payload"]
        row["payload"] = _text(VariantUtils.to_python(payload["value"], payload["metadata"]))
        kinds["payload"] = StringType()
    reported = {name: plain(value, kinds[name]) if name in kinds else value for name, value in row.items()}
    assert reported.pop("day") == (str(reported[table.day].date()) if reported[table.day] else None)
    return reported


def _text(payload: Any) -> str:
    """JSON whatever the order of its fields."""
    return json.dumps(payload, sort_keys=True, default=float)


@pytest.mark.parametrize("waiting_rows_max", [fold_tasks.WAITING_ROWS_MAX, 10])
def test_a_task_writes_what_the_fold_makes(
    lake_rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waiting_rows_max: int
) -> None:
    """Files have the rows of the fold, below their days, whether they are written at once or bit by bit."""
    monkeypatch.setattr(fold_tasks, "WAITING_ROWS_MAX", waiting_rows_max)
    expected = fold_rows(RAW, TABLES)
    expected["records"] = [
        {name: row[name] for name in SCHEMA.names} | {"payload": _text(json.loads(row["payload"]))}
        for row in expected["records"]
    ]
    for _ in range(2):
        fold(lake_rows, tmp_path)
        assert {path.name for path in tmp_path.iterdir()} == set(map(folder_name, by_cluster(RAW)))
        for table in TABLES:
            wanted = sorted(map(repr, expected[table.name]))
            assert sorted(map(repr, stored(tmp_path, table))) == wanted, table.name
    assert all(expected.values()), "every table has rows"


def test_payloads_are_text_in_delta(lake_rows: Path, tmp_path: Path) -> None:
    fold(lake_rows, tmp_path, "delta")
    found = [
        ds.dataset(folder / "records").to_table().column("payload") for folder in folders(tmp_path).values()
    ]
    expected = [row["payload"] for row in fold_rows(RAW, TABLES)["records"]]
    assert sorted(text for column in found for text in column.to_pylist()) == sorted(expected)


def test_a_task_that_fails_leaves_no_cluster(
    lake_rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, count = fold_tasks.pq.write_table, 0

    def full(*arguments: Any, **options: Any) -> None:
        nonlocal count
        count += 1
        if count == 5:
            raise OSError("No space left on device")
        real(*arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(fold_tasks.pq, "write_table", full)
        with pytest.raises(OSError, match="No space left"):
            fold(lake_rows, tmp_path)
    assert folders(tmp_path) == {}
    fold(lake_rows, tmp_path)
    assert set(folders(tmp_path)) == set(by_cluster(RAW))


def test_a_second_attempt_does_not_vouch_for_the_files_of_the_first(lake_rows: Path, tmp_path: Path) -> None:
    """They may have been cut short since."""
    plan = fold_tasks.FoldPlan(rows=lake_rows, where=tmp_path, tables=TABLES, format="parquet")
    cluster = min(by_cluster(RAW))
    first = fold_tasks.fold_cluster(plan, cluster)
    cut = Path(first[0].path)
    cut.write_bytes(cut.read_bytes()[:-1])
    assert fold_tasks.fold_cluster(plan, cluster) == first


def test_folders_are_named_as_spark_names_them() -> None:
    assert folder_name("4L6g3nShT-eMCtK--X86sw") == "cluster_id=4L6g3nShT-eMCtK--X86sw"
    assert folder_name("a/b=c d%\n") == "cluster_id=a%2Fb%3Dc d%25%0A"
