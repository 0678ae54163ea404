"""Files of the sources that can't be read for a while: the job says so, and the next one reads them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kit.lake.lakes import ingest_into, stored_lines
from kit.lake.logs import NodeLog, topic
from kit.lake.tasks import local_tasks
from pyspark_quorate.jobs.ingest import find_new_files
from pyspark_quorate.jobs.lake import Lake
from pyspark_quorate.jobs.table_reader import count_rows, read_table
from pyspark_quorate.source import layout, reader

TABLES = "topics,leadership,gaps"
LOG = NodeLog().elected(1).appended(topic("a")).roll().appended(topic("b"), topic("c")).roll()
LOG = LOG.appended(topic("d"))


class BrokenFiles:
    """A file system on which opening some files fails."""

    def __init__(self, file_system: Any, is_broken: Callable[[str], bool]) -> None:
        self._file_system, self._is_broken = file_system, is_broken

    def open_input_file(self, path: str) -> Any:
        """Open a file for reading."""
        if self._is_broken(path):
            raise OSError(5, "Input/output error")
        return self._file_system.open_input_file(path)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file_system, name)


@contextmanager
def broken(monkeypatch: pytest.MonkeyPatch, is_broken: Callable[[str], bool]) -> Iterator[None]:
    """Make these files unreadable within the context."""
    from pyspark_quorate.jobs import ingest  # noqa: PLC0415 - patched

    def open_root(address: str) -> layout.Root:
        root = layout.open_root(address)
        return replace(root, file_system=BrokenFiles(root.file_system, is_broken))

    with monkeypatch.context() as patched:
        for module in (reader, ingest):
            patched.setattr(module, "open_root", open_root)
        yield


def rows_of(lake: Path, table: str) -> list[Any]:
    """All rows of a table."""
    read = read_table(Lake.open(str(lake)), table)
    assert read is not None
    return list(read.rows)


def files(lake: Path) -> dict[str, int]:
    """Every file of a lake with its time, but for the lock."""
    return {str(path): path.stat().st_mtime_ns for path in sorted(lake.rglob("*")) if path.is_file()}


def test_a_segment_that_could_not_be_read_is_read_by_the_next_ingest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    LOG.write(tmp_path / "node")
    lake, middle = tmp_path / "lake", f"{2:020d}.log"
    with broken(monkeypatch, lambda path: path.endswith(middle)):
        done = ingest_into(local_tasks(), lake, tmp_path / "node")
        assert [unread.endswith("Input/output error") for unread in done.unreadable] == [True]
        assert middle in done.unreadable[0]
        assert "unreadable-file" in repr(stored_lines(lake, "gaps"))
        before = files(lake)
        assert len(ingest_into(local_tasks(), lake, tmp_path / "node").unreadable) == 1
        assert files(lake) == before, "the same failure again, and nothing is written"
        LOG.appended(topic("e")).write(tmp_path / "node")
        assert len(ingest_into(local_tasks(), lake, tmp_path / "node").unreadable) == 1
    done = ingest_into(local_tasks(), lake, tmp_path / "node")
    assert (done.unreadable, done.files) == ([], 1)
    ingest_into(local_tasks(), tmp_path / "undisturbed", tmp_path / "node")
    assert stored_lines(lake, TABLES) == stored_lines(tmp_path / "undisturbed", TABLES)
    assert count_rows(Lake.open(str(lake)), "records") == LOG.end + 1
    with Lake.writing(str(lake)) as found:
        assert find_new_files(found, [str(tmp_path / "node")]).places == []


def test_a_directory_whose_cluster_could_not_be_read_is_read_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    LOG.write(tmp_path / "nodes" / "a")
    LOG.write(tmp_path / "nodes" / "b")
    lake = tmp_path / "lake"
    with broken(monkeypatch, lambda path: path.endswith("b/meta.properties")):
        for _ in range(2):
            (unread,) = ingest_into(local_tasks(), lake, tmp_path / "nodes").unreadable
            assert "b/__cluster_metadata-0 meta.properties: " in unread
        assert "unreadable-file" in repr(rows_of(lake, "gaps"))
    assert ingest_into(local_tasks(), lake, tmp_path / "nodes").unreadable == []
    assert stored_lines(lake, TABLES)["topics"]
    assert "unreadable-file" not in repr(rows_of(lake, "gaps"))


def test_a_known_directory_that_was_unreadable_leaves_no_gap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing in it is new when it is readable again."""
    LOG.write(tmp_path / "nodes" / "a")
    lake = tmp_path / "lake"
    ingest_into(local_tasks(), lake, tmp_path / "nodes")
    with broken(monkeypatch, lambda path: path.endswith("meta.properties")):
        assert ingest_into(local_tasks(), lake, tmp_path / "nodes").unreadable
    assert ingest_into(local_tasks(), lake, tmp_path / "nodes").unreadable == []
    assert rows_of(lake, "gaps") == []
    before = files(lake)
    ingest_into(local_tasks(), lake, tmp_path / "nodes")
    assert files(lake) == before
