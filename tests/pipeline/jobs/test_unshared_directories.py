"""Executors that do not have the lake's directory, and files that vanish between a task and its commit."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kit.lake.lakes import ingest_into
from kit.lake.logs import NodeLog, topic
from kit.lake.tasks import local_tasks
from pyspark_quorate.errors import LakeError
from pyspark_quorate.jobs import fold_tasks, store_tasks
from pyspark_quorate.jobs.compaction import compact
from pyspark_quorate.jobs.lake import COMMIT, Lake
from pyspark_quorate.jobs.progress import Steps
from pyspark_quorate.jobs.table_reader import count_rows

RECORDS = 3
LOG = NodeLog().elected(1).appended(topic("a"), topic("b"))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """The directory of a node."""
    LOG.write(tmp_path / "node")
    return tmp_path / "node"


def elsewhere(lake: Path, function: Callable[..., Any]) -> Callable[..., Any]:
    """A task on a machine whose directory of the lake is another one, with what it needs of it, and then gone."""

    def on_another_machine(*arguments: Any) -> Any:
        before = lake.with_name("of-the-driver")
        shutil.copytree(lake, before)
        try:
            return function(*arguments)
        finally:
            shutil.rmtree(lake)
            before.rename(lake)

    return on_another_machine


@pytest.mark.parametrize("task", ["_read_and_write", "_fold_listed"])
def test_files_that_the_driver_does_not_see_fail_the_job(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch, task: str
) -> None:
    """Nothing is recorded as read or built, and the next job makes up for it."""
    lake = tmp_path / "lake"
    module = store_tasks if hasattr(store_tasks, task) else fold_tasks
    with monkeypatch.context() as patched:
        patched.setattr(module, task, elsewhere(lake, getattr(module, task)))
        with pytest.raises(
            LakeError, match="is missing, although a task wrote it: all executors and the driver"
        ):
            ingest_into(local_tasks(), lake, source)
    assert not (lake / COMMIT).exists()
    assert "topics" not in Lake.open(str(lake)).state.tables
    ingest_into(local_tasks(), lake, source)
    assert count_rows(Lake.open(str(lake)), "records") == RECORDS


@pytest.mark.parametrize("task", ["_read_and_write", "_fold_listed"])
def test_executors_without_the_directory_fail_the_job(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch, task: str
) -> None:
    lake, module = tmp_path / "lake", store_tasks if hasattr(store_tasks, task) else fold_tasks
    real = getattr(module, task)

    def without_it(*arguments: Any) -> Any:
        lake.rename(tmp_path / "hidden")
        try:
            return real(*arguments)
        finally:
            shutil.rmtree(lake, ignore_errors=True)
            (tmp_path / "hidden").rename(lake)

    monkeypatch.setattr(module, task, without_it)
    with pytest.raises(LakeError, match="executors need the directory of the lake"):
        ingest_into(local_tasks(), lake, source)


def test_a_file_that_is_cut_short_fails_the_commit(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = store_tasks._read_and_write

    def cut(*arguments: Any) -> Any:
        stored = real(*arguments)
        for file in stored.files:
            Path(file.path).write_bytes(Path(file.path).read_bytes()[:-1])
        return stored

    monkeypatch.setattr(store_tasks, "_read_and_write", cut)
    with pytest.raises(LakeError, match=r"has \d+ bytes, but its task wrote \d+"):
        ingest_into(local_tasks(), tmp_path / "lake", source)


def test_a_task_that_does_not_see_all_rows_fails(tmp_path: Path, source: Path) -> None:
    """A directory that was copied instead of shared, or whose listing is old."""
    lake = tmp_path / "lake"
    ingest_into(local_tasks(), lake, source)
    (folder,) = Lake.open(str(lake)).rows.iterdir()
    listing = [*((path.name, path.stat().st_size) for path in folder.iterdir()), ("lacking.parquet", 10)]
    plan = fold_tasks.FoldPlan(rows=folder.parent, where=tmp_path / "staged", tables=(), format="parquet")
    cluster = folder.name.removeprefix("cluster_id=")
    with pytest.raises(LakeError, match=r"lacking.parquet is missing on .*, but has 10 bytes on the driver"):
        fold_tasks.fold_cluster(plan, cluster, listing)


def test_lost_rows_are_an_error_and_not_empty_tables(tmp_path: Path, source: Path) -> None:
    lake = tmp_path / "lake"
    ingest_into(local_tasks(), lake, source)
    (folder,) = Lake.open(str(lake)).rows.iterdir()
    shutil.rmtree(folder)
    with pytest.raises(LakeError, match="has no files, but the lake has rows of this cluster"):
        ingest_into(local_tasks(), lake, source, everything=True)
    assert count_rows(Lake.open(str(lake)), "records") == RECORDS


def test_merged_files_that_vanish_leave_the_rows_as_they_are(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark_quorate.jobs import compaction  # noqa: PLC0415 - patched

    lake = tmp_path / "lake"
    ingest_into(local_tasks(), lake, source)
    LOG.appended(topic("c")).write(source)
    ingest_into(local_tasks(), lake, source)
    real = compaction._merge
    monkeypatch.setattr(compaction, "_merge", elsewhere(lake, real))
    with pytest.raises(LakeError, match="is missing"), Lake.writing(str(lake)) as found:
        compact(local_tasks(), found, Steps())
    ingest_into(local_tasks(), lake, source, everything=True)
    assert count_rows(Lake.open(str(lake)), "records") == RECORDS + 1
