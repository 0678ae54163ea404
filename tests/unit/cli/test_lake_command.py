"""`quorate lake`: wrong options are refused before Spark is started, which takes seconds."""

import json
from pathlib import Path

import pytest
from pyspark_quorate.jobs.lake import STATE, Lake
from quorate.main import app
from typer.testing import CliRunner

ROOT = Path(__file__).parents[3]
TAIL = ("--bootstrap-controller", "127.0.0.1:1", "--to")


@pytest.fixture(autouse=True)
def _no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*_: object, **__: object) -> None:
        pytest.fail("Spark is started")

    monkeypatch.setattr("pyspark_quorate.jobs.session.spark_session", start)


def refusal(*arguments: str) -> str:
    """The one line that `quorate lake` prints when it refuses its options."""
    ran = CliRunner().invoke(app, ["lake", *arguments], prog_name="quorate")
    assert (ran.exit_code, ran.stdout) == (1, "")
    (line,) = ran.stderr.splitlines()
    return line


@pytest.mark.parametrize("command", [("ingest", ".", "--to"), ("tail", *TAIL), ("compact",)])
def test_places_that_can_not_be_a_lake_are_refused_before_spark_starts(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    photos, newer = tmp_path / "photos", tmp_path / "newer"
    photos.mkdir()
    (photos / "cat.png").touch()
    with Lake.writing(str(newer)):
        pass
    state = json.loads((newer / STATE).read_text())
    (newer / STATE).write_text(json.dumps({**state, "layout": 99}))
    before = sorted(tmp_path.rglob("*"))
    for place, words in (
        (str(photos / "cat.png"), "is not a directory"),
        ("s3://bucket/lake", "a lake is a directory"),
        (str(photos), "is not a lake" if command == ("compact",) else "other files"),
        (str(newer), "layout 99"),
    ):
        assert words in refusal(*command, place)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_spark_that_is_too_old_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What pip installs is new enough, but spark-submit may bring another one."""
    monkeypatch.setattr("pyspark.version.__version__", "4.1.4")
    line = refusal("ingest", ".", "--to", str(tmp_path / "lake"))
    assert line.startswith("error: Spark 4.1.4 is too old: 4.2 or newer is needed")
    requirements = (ROOT / "pyproject.toml").read_text()
    assert requirements.count("pyspark[sql]>=4.2") == requirements.count("pyspark[sql]>=")


def test_sources_without_logs_are_refused_before_spark_starts(tmp_path: Path) -> None:
    lake = str(tmp_path / "lake")
    missing = CliRunner().invoke(app, ["lake", "ingest", "--to", lake], prog_name="quorate")
    assert missing.exit_code == 2
    assert "Missing argument 'SOURCE" in missing.stderr
    assert "not a directory" in refusal("ingest", str(tmp_path / "none"), "--to", lake)
    assert "no metadata log below it" in refusal("ingest", str(tmp_path), "--to", lake)
    assert not Path(lake).exists()


def test_formats_tables_and_writers_are_checked_before_spark_starts(tmp_path: Path) -> None:
    lake = str(tmp_path / "lake")
    with Lake.writing(lake, "delta"):
        ingest = ("ingest", ".", "--to", lake)
        assert "another process writes" in refusal(*ingest)
        assert "another process writes" in refusal("compact", lake)
    assert "--format parquet: the lake" in refusal(*ingest, "--format", "parquet")
    assert "--format csv: allowed are parquet, delta" in refusal(*ingest, "--format", "csv")
    assert "--tables nonsense: " in refusal(*ingest, "--tables", "nonsense")
    assert "--tables nonsense: " in refusal("tail", *TAIL, lake, "--tables", "nonsense")
