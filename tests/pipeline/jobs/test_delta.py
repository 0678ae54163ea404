"""Delta tables, written without a JVM."""

from datetime import date
from pathlib import Path

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark_quorate.jobs.delta import compact, open_table, replace_clusters

SCHEMA = pa.schema([("cluster_id", pa.string()), ("name", pa.string()), ("day", pa.date32())])


def stage(where: Path, rows: dict[str, list[str]], schema: pa.Schema = SCHEMA) -> Path:
    """A staged table: by cluster, the names on one day."""
    where.mkdir()
    pq.write_metadata(schema, where / "_common_metadata")
    for cluster, names in rows.items():
        folder = where / f"cluster_id={cluster}" / "day=2026-03-14"
        folder.mkdir(parents=True)
        columns = {"name": names} | ({"rack": ["r"] * len(names)} if "rack" in schema.names else {})
        pq.write_table(pa.table(columns), folder / "part-0.parquet")
    return where


def content(table: Path) -> list[dict[str, object]]:
    """The rows, sorted."""
    found = open_table(table)
    assert found is not None
    rows = found.to_pyarrow_dataset().to_table().drop_columns(["day"]).to_pylist()
    return sorted(rows, key=lambda row: (row["cluster_id"], row["name"]))


def test_clusters_are_replaced_and_no_commit_is_made_twice(tmp_path: Path) -> None:
    """What a rerun writes is there once; other clusters stay; new columns are null in old rows."""
    table = tmp_path / "topics"
    replace_clusters(table, stage(tmp_path / "1", {"a": ["x"], "b'": ["y"]}), ["a", "b'"], commit=1)
    before = content(table)
    assert before == [{"cluster_id": "a", "name": "x"}, {"cluster_id": "b'", "name": "y"}]
    replace_clusters(table, stage(tmp_path / "2", {"a": ["other"]}), ["a"], commit=1)
    assert content(table) == before
    wider = SCHEMA.insert(2, pa.field("rack", pa.string()))
    replace_clusters(table, stage(tmp_path / "3", {"a": ["z"]}, wider), ["a", "gone"], commit=2)
    assert content(table) == [
        {"cluster_id": "a", "name": "z", "rack": "r"},
        {"cluster_id": "b'", "name": "y", "rack": None},
    ]
    replace_clusters(table, stage(tmp_path / "4", {}), ["a"], commit=3)
    assert [row["cluster_id"] for row in content(table)] == ["b'"]


def test_small_files_are_merged(tmp_path: Path) -> None:
    table = tmp_path / "topics"
    replace_clusters(table, stage(tmp_path / "1", {"a": ["x"]}), ["a"], commit=1)
    for name in ("y", "z"):
        row = pa.table({"cluster_id": ["a"], "name": [name], "day": [date(2026, 3, 14)]}, schema=SCHEMA)
        deltalake.write_deltalake(str(table), row, mode="append")
    before = content(table)
    assert [row["name"] for row in before] == ["x", "y", "z"]
    assert compact(table) == 1
    assert content(table) == before
