"""The archive of Spark's classes that local jobs keep."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from kit.cluster import DIE_WITH_PARENT
from pyspark_quorate.jobs.class_archive import ClassArchive, class_archive
from quorate_operator.runtime.local.layout import QUORATE

GOLDEN = Path(__file__).parents[2] / "golden" / "data" / "current"
JOB_TIMEOUT_S = 300


def java(where: Path, release: str = "17.0.1") -> dict[str, str]:
    """The environment of a Java that is never started."""
    program = where / "java" / "bin" / "java"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.touch()
    program.parents[1].joinpath("release").write_text(f'JAVA_VERSION="{release}"\n')
    return {"JAVA_HOME": str(program.parents[1]), "XDG_CACHE_HOME": str(where / "cache")}


def test_it_is_of_one_java_and_made_once(tmp_path: Path) -> None:
    """The first job writes an archive, the next ones use it, and another Java has its own."""
    archive = class_archive(java(tmp_path), tmp_path, "")
    assert archive is not None
    assert f"-XX:ArchiveClassesAtExit={tmp_path}/classes.jsa" in archive.options
    archive.cache()
    assert archive.cached is None, "the JVM wrote none"
    archive.draft.write_text("classes")
    archive.cache()
    again = class_archive(java(tmp_path), tmp_path, "")
    assert again == archive
    assert again.cached is not None
    assert f"-XX:SharedArchiveFile={tmp_path}/cache/quorate/class-archives/spark-" in again.options
    assert list(again.cached.parent.iterdir()) == [again.cached]
    again.cached.write_text("class")
    assert again.cached is None, "it was cut off"
    updated = class_archive(java(tmp_path, "17.0.2"), tmp_path, "")
    assert updated is not None
    assert updated.place != archive.place


def test_without_a_place_for_it_jobs_start_without(tmp_path: Path) -> None:
    environment = java(tmp_path)
    assert class_archive({**environment, "QUORATE_CLASS_ARCHIVE": "off"}, tmp_path, "") is None
    for option in ("-XX:SharedArchiveFile=/mine.jsa", "-Xshare:off"):
        assert class_archive(environment, tmp_path, f"-Xmx1g {option}") is None
    (tmp_path / "file").touch()
    assert class_archive({**environment, "XDG_CACHE_HOME": str(tmp_path / "file")}, tmp_path, "") is None
    assert class_archive({**environment, "XDG_CACHE_HOME": str(tmp_path / "a b")}, tmp_path, "") is None
    draft = tmp_path / "classes.jsa"
    draft.touch()
    ClassArchive(Path("/dev/full/archive.jsa"), draft).cache()


@pytest.mark.timeout(JOB_TIMEOUT_S)
def test_jobs_use_what_the_first_one_made(tmp_path: Path) -> None:
    assert 0 < shared_classes(tmp_path, "first") < 5_000, "those of Java's own archive"
    (archive,) = (tmp_path / "cache" / "quorate" / "class-archives").iterdir()
    assert shared_classes(tmp_path, "second") > 8_000
    archive.chmod(0o600)
    with archive.open("r+b") as file:
        file.seek(archive.stat().st_size // 2)
        file.write(b"damaged")
    assert 0 < shared_classes(tmp_path, "third") < 5_000


def shared_classes(where: Path, name: str) -> int:
    """Run an ingest. Returns the number of classes that its JVM took from an archive, Java's own included."""
    log = where / f"{name}.log"
    command = [
        *DIE_WITH_PARENT,
        *QUORATE,
        "lake",
        "ingest",
        str(GOLDEN),
        "--to",
        str(where / name),
        "-o",
        "json",
    ]
    command += ["--cluster-id", "4L6g3nShT-eMCtK--X86sw", "--tables", "leadership", "--master", "local[1]"]
    command += ["--conf", f"spark.driver.extraJavaOptions=-Xlog:class+load:file={log}"]
    ran = subprocess.run(
        command,
        env={**os.environ, "XDG_CACHE_HOME": str(where / "cache")},
        capture_output=True,
        text=True,
        timeout=JOB_TIMEOUT_S,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert json.loads(ran.stdout)["filesRead"] > 0
    return log.read_text().count("source: shared objects file")
