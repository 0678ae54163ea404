"""The files that an ingest reads, from the first new offset on."""

import os
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from kit.lake.directories import write_directory
from pyarrow import fs
from pyspark_quorate.errors import LakeError
from pyspark_quorate.jobs.ingest import Place, find_places, with_read
from pyspark_quorate.jobs.state import Read
from pyspark_quorate.jobs.tail import next_build_s
from pyspark_quorate.source import layout


def directory(where: Path, *names: str) -> Path:
    """A metadata log with files of some bytes."""
    return write_directory(where, dict.fromkeys(names, b"12345678"))


def known_of(places: list[Place]) -> dict[str, str]:
    """The files that are known after places were read."""
    return {address: mark for place in places for address, mark in place.files.items()}


def test_only_what_is_new_is_read_again(tmp_path: Path) -> None:
    first = directory(tmp_path / "a", f"{0:020}.log", f"{100:020}.log", f"{50:020}-{1:010}.checkpoint")
    directory(tmp_path / "b", f"{0:020}.log")
    places, count = find_places([str(tmp_path), str(tmp_path / "a")], {})
    assert count == 2
    assert [(place.start, place.new_files) for place in places] == [(0, 3), (0, 1)]
    known = known_of(places)
    assert find_places([str(tmp_path)], known) == ([], 2)
    # The active segment grows, and a checkpoint comes.
    (first / f"{100:020}.log").write_bytes(b"1234567890")
    (first / f"{120:020}-{1:010}.checkpoint").write_bytes(b"1")
    (place,), _ = find_places([str(tmp_path)], known)
    assert (place.address, place.start, place.new_files, place.new_bytes) == (str(first), 100, 2, 11)
    # A file that was truncated and has grown to the same size again has another time.
    known |= place.files
    os.utime(first / f"{0:020}.log", (1, 1))
    (place,), _ = find_places([str(tmp_path)], known)
    assert (place.start, place.new_files) == (0, 1)
    known |= place.files
    (first / f"{0:020}.log").unlink()
    assert find_places([str(tmp_path)], known) == ([], 2)


def test_reads_that_later_ones_cover_are_forgotten() -> None:
    reads: list[Read] = []
    for commit, start in ((1, 0), (2, 100), (3, 100), (4, 200)):
        reads = with_read(reads, commit, start)
    assert reads == [Read(1, 0), Read(3, 100), Read(4, 200)]
    assert with_read(reads, 5, 0) == [Read(5, 0)]


def test_wrong_sources_are_named(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name, words in (("missing", "not a directory"), ("empty", "no metadata log below it")):
        with pytest.raises(LakeError, match=words):
            find_places([str(tmp_path / name)], {})


def test_a_store_that_refuses_its_caller_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrow reports some failures of stores as errors of no other kind, in several lines."""

    class Refusing:
        def get_file_info(self, path: str) -> None:  # noqa: ARG002 - Arrow's interface
            raise pa.ArrowException("Unknown error: no token\naz: not found")

    def open_root(_: str) -> layout.Root:
        return layout.Root(Refusing(), "container/logs", "abfss://")

    monkeypatch.setattr("pyspark_quorate.jobs.ingest.open_root", open_root)
    with pytest.raises(LakeError) as raised:
        find_places(["abfss://container@account.dfs.core.windows.net/logs"], {})
    assert str(raised.value) == "source: abfss://container/logs: Unknown error: no token az: not found"


def test_stores_have_the_names_of_hadoop_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def from_uri(address: str) -> tuple[object, str]:
        return object(), address.removeprefix("s3://")

    names = SimpleNamespace(FileSystem=SimpleNamespace(from_uri=from_uri), LocalFileSystem=fs.LocalFileSystem)
    monkeypatch.setattr(layout, "fs", names)
    root = layout.open_root("s3a://bucket/logs")
    assert (root.path, root.address("bucket/logs/a")) == ("bucket/logs", "s3a://bucket/logs/a")


@pytest.mark.parametrize(("took_s", "wait_s"), [(0, 60), (1, 60), (15, 60), (16, 64), (600, 2400)])
def test_tables_of_a_long_history_are_built_less_often(took_s: float, wait_s: float) -> None:
    assert next_build_s(1_000, 1_000 + took_s, 60) == pytest.approx(1_000 + took_s + wait_s)
