"""How a lake changes: as a whole or not at all, by one writer at a time, and never by an older version."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark_quorate.errors import LakeError
from pyspark_quorate.jobs.lake import COMMIT, STATE, Change, Lake
from pyspark_quorate.jobs.state import LAYOUT, LakeState, Read, TableState

STATE_AFTER = LakeState(
    format="parquet",
    files={"/a/0.log": "10 20"},
    reads={"/a": [Read(1, 0), Read(2, 17)]},
    clusters={"c": 1},
    tables={"topics": TableState("abc", {"c": 1})},
    streams={"s": 3},
)


class Killed(BaseException):
    """Stands for kill -9: nothing is tidied up."""


@contextmanager
def killed_at(step: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """End the process at the n-th rename or unlink; those before took place."""
    count = 0

    def counting(name: str) -> None:
        real = getattr(Path, name)

        def call(self: Path, *arguments: object, **options: object) -> object:
            nonlocal count
            count += 1
            if count > step:
                raise Killed
            return real(self, *arguments, **options)

        monkeypatch.setattr(Path, name, call)

    with monkeypatch.context() as patched:
        monkeypatch = patched
        counting("rename")
        counting("unlink")
        yield


def prepared(lake: Lake) -> Change:
    """A change of a lake with two clusters: one gets another content, one goes, one comes."""
    for folder, content in (("old=1", "before"), ("gone=1", "before")):
        file = lake.path / "topics" / folder / "part.parquet"
        file.parent.mkdir(parents=True)
        file.write_text(content)
    for folder in ("old=1", "new=1"):
        file = lake.staging / "tables" / "topics" / folder / "part.parquet"
        file.parent.mkdir(parents=True)
        file.write_text("after")
    staged = lake.staging.relative_to(lake.path)
    place = [(f"{staged}/tables/topics/{folder}", f"topics/{folder}") for folder in ("old=1", "new=1")]
    return Change(place=place, remove=["topics/gone=1"])


def content(lake: Lake) -> dict[str, str]:
    """Every file of a table."""
    table = lake.table("topics")
    return {str(file.relative_to(table)): file.read_text() for file in sorted(table.rglob("*.parquet"))}


@pytest.mark.parametrize("step", range(9))
def test_a_change_that_was_killed_is_whole_or_did_not_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    where = str(tmp_path / "lake")
    was_killed = False
    with Lake.writing(where) as lake:
        change = prepared(lake)
        before = content(lake)
        try:
            with killed_at(step, monkeypatch):
                lake.commit(change, STATE_AFTER)
        except Killed:
            was_killed = True
    with Lake.writing(where) as lake:
        found = content(lake)
        if found == before:
            assert was_killed
            assert lake.state == LakeState(format="parquet")
        else:
            assert found == {"new=1/part.parquet": "after", "old=1/part.parquet": "after"}
            assert lake.state == replace(STATE_AFTER, commit=1)
        assert not lake.staging.parent.exists()
        assert not (lake.path / COMMIT).exists()
    assert was_killed == (step < 7), "each step of the change was tried, and what comes after it"


def test_there_is_one_writer(tmp_path: Path) -> None:
    where = str(tmp_path / "lake")
    with (
        Lake.writing(where),
        pytest.raises(LakeError, match="another process writes"),
        Lake.writing(where),
    ):
        pass
    with Lake.writing(where):
        pass


def test_what_can_not_be_a_lake_is_refused(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.png").touch()
    for place, words in (
        (str(tmp_path / "photos"), "has other files"),
        (str(tmp_path / "photos" / "cat.png"), "is not a directory"),
        ("s3://bucket/lake", "a lake is a directory"),
    ):
        with pytest.raises(LakeError, match=words), Lake.writing(place):
            pass
        with pytest.raises(LakeError, match=words):
            Lake.check(place)
    with pytest.raises(LakeError, match="is not a lake"):
        Lake.open(str(tmp_path / "nothing"))
    with Lake.writing(str(tmp_path / "lake"), "delta"):
        pass
    with (
        pytest.raises(LakeError, match=r"--format parquet: .* has the format delta"),
        Lake.writing(str(tmp_path / "lake"), "parquet"),
    ):
        pass


def test_a_lake_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    with Lake.writing(str(tmp_path)):
        pass
    file = tmp_path / STATE
    file.write_text(json.dumps({**json.loads(file.read_text()), "layout": LAYOUT + 1}))
    with pytest.raises(LakeError, match=rf"layout {LAYOUT + 1}.*upgrade Quorate"):
        Lake.open(str(tmp_path))
    with (
        pytest.raises(LakeError, match=rf"layout {LAYOUT + 1}.*upgrade Quorate"),
        Lake.writing(str(tmp_path)),
    ):
        pass


@pytest.mark.parametrize("text", ["{", "[]", '{"layout": 1}', '{"layout": 1, "files": []}', "[" * 100_000])
def test_a_damaged_state_or_commit_of_a_lake_is_named(tmp_path: Path, text: str) -> None:
    with Lake.writing(str(tmp_path)):
        pass
    (tmp_path / COMMIT).write_text(text)
    with pytest.raises(LakeError, match=f"{COMMIT} is not a commit of a lake"), Lake.writing(str(tmp_path)):
        pass
    (tmp_path / STATE).write_text(text)
    with pytest.raises(LakeError, match=f"{STATE} is not the state of a lake"):
        Lake.open(str(tmp_path))


def test_what_is_stale_is_known() -> None:
    """A table is made again for clusters with news, and for all when its columns changed."""
    state = LakeState(
        format="parquet", clusters={"a": 4, "b": 2}, tables={"topics": TableState("s", {"a": 3, "b": 2})}
    )
    assert state.stale("topics", "s") == {"a"}
    assert state.stale("topics", "other columns") == {"a", "b"}
    assert state.stale("never made", "s") == {"a", "b"}


def test_successive_jobs_do_not_share_what_they_stage(tmp_path: Path) -> None:
    """A task of a killed job may still run while the next job stages its files."""
    staged = set()
    for _ in range(2):
        with Lake.writing(str(tmp_path)) as lake:
            staged.add(lake.staging)
            lake.commit(Change(), lake.state)
            staged.add(lake.staging)
    assert len(staged) == 4


def test_a_commit_whose_files_are_gone_is_not_completed_by_halves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = str(tmp_path)
    with Lake.writing(where) as lake, pytest.raises(Killed), killed_at(1, monkeypatch):
        lake.commit(prepared(lake), STATE_AFTER)
    (file,) = tmp_path.glob("_lake/staging/*/tables/topics/new=1")
    file.rename(tmp_path / "_lake" / "lost")
    with pytest.raises(LakeError, match=r"can't be completed: .*new=1 is missing"), Lake.writing(where):
        pass
    (tmp_path / "_lake" / "lost").rename(file)
    with Lake.writing(where) as lake:
        assert lake.state == replace(STATE_AFTER, commit=1)
