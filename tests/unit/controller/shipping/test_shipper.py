"""Shipping from one directory of a real file system to another."""

import json
import os
import time
from pathlib import Path

import pytest
from quorate_controller import commands
from quorate_controller.shipping import shipper as shell
from quorate_controller.shipping.shipper import NotFormattedError, ShipError, Shipper, StoppedError
from quorate_protocol.records.batch import build_batch
from quorate_protocol.records.framing import encode_record
from quorate_protocol.records.generated import NoOpRecord
from typer.testing import CliRunner

PARTITION = "__cluster_metadata-0"
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
PROPERTIES = f"version=1\ncluster.id={CLUSTER_ID}\nnode.id=3000\ndirectory.id=JEXY6aqzQY-32P5TStzaFg\n"
CHECKPOINT = "00000000000000000003-0000000001.checkpoint"


def batch(offset: int, epoch: int = 1) -> bytes:
    """A batch of one record."""
    record = encode_record(NoOpRecord(), 0)
    return build_batch([record], offset, epoch, 1_000)


class Directory:
    """A log directory, and where its log is shipped to."""

    def __init__(self, path: Path) -> None:
        self.log_dir = path / "data"
        self.partition = self.log_dir / PARTITION
        self.partition.mkdir(parents=True)
        (self.log_dir / "meta.properties").write_text(PROPERTIES)
        self.history = path / "history"
        self.home = self.history / CLUSTER_ID / "3000"
        self.target = self.home / PARTITION

    def write(self, base_offset: int, *contents: bytes) -> Path:
        """A segment with this content."""
        path = self.partition / f"{base_offset:020d}.log"
        path.write_bytes(b"".join(contents))
        return path

    def shipped(self) -> dict[str, bytes]:
        """What is at the target, temporary files included."""
        return {path.name: path.read_bytes() for path in self.target.iterdir()}

    def shipper(self, **options: object) -> Shipper:
        """A new process, so to say."""
        return Shipper(log_dir=self.log_dir, history=self.history, **options)  # type: ignore[arg-type]


@pytest.fixture
def directory(tmp_path: Path) -> Directory:
    """A log of two closed segments and an active one, with a checkpoint."""
    made = Directory(tmp_path)
    made.write(0, batch(0), batch(1))
    made.write(2, batch(2), batch(3))
    made.write(4, batch(4))
    (made.partition / CHECKPOINT).write_bytes(b"state")
    return made


def test_copies_are_as_closed_as_their_files(directory: Directory):
    segment, checkpoint = directory.partition / f"{0:020d}.log", directory.partition / CHECKPOINT
    segment.chmod(0o400)
    checkpoint.chmod(0o640)
    (directory.log_dir / "meta.properties").chmod(0o600)
    for umask in (0o000, 0o077):
        before = os.umask(umask)
        try:
            directory.shipper().ship()
        finally:
            os.umask(before)
        modes = {path.name: path.stat().st_mode & 0o777 for path in directory.target.iterdir()}
        assert (modes[segment.name], modes[CHECKPOINT]) == (0o400, 0o640)
        assert (directory.home / "meta.properties").stat().st_mode & 0o777 == 0o600
        segment.chmod(0o600)
        directory.write(0, batch(0, epoch=7), batch(1, epoch=7))
        segment.chmod(0o400)


@pytest.mark.parametrize("name", [f"{0:020d}.log", CHECKPOINT])
def test_links_are_not_shipped(directory: Directory, tmp_path: Path, name: str):
    secret = tmp_path / "secret"
    secret.write_bytes(batch(0))
    (directory.partition / name).unlink()
    (directory.partition / name).symlink_to(secret)
    done = directory.shipper().ship()
    assert name not in directory.shipped()
    assert len(done.shipped) == 2
    (problem,) = done.problems
    assert f"{name}: cannot open: Too many levels of symbolic links" in problem


def test_a_link_to_the_properties_is_refused(directory: Directory, tmp_path: Path):
    (directory.log_dir / "meta.properties").rename(tmp_path / "elsewhere")
    (directory.log_dir / "meta.properties").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ShipError, match=r"meta\.properties: cannot read: Too many levels of symbolic links"):
        directory.shipper().ship()


def test_what_is_no_file_is_not_shipped(directory: Directory):
    content = directory.log_dir / "meta.properties"
    content.unlink()
    os.mkfifo(content)
    with pytest.raises(ShipError, match=r"meta\.properties: .*it is not a regular file"):
        directory.shipper()._ship_properties(directory.home)


def test_a_history_is_laid_out_as_a_log_directory_is(directory: Directory):
    done = directory.shipper().ship()
    assert (directory.home / "meta.properties").read_text() == PROPERTIES
    assert directory.shipped() == {
        f"{0:020d}.log": batch(0) + batch(1),
        f"{2:020d}.log": batch(2) + batch(3),
        CHECKPOINT: b"state",
    }
    for name in directory.shipped():
        assert (directory.target / name).stat().st_mtime_ns == (directory.partition / name).stat().st_mtime_ns
    assert (done.properties.node_id, len(done.shipped), done.problems) == (3000, 3, ())


def test_the_second_time_nothing_is_read_or_written(directory: Directory, monkeypatch: pytest.MonkeyPatch):
    first = directory.shipper()
    first.ship()

    def refuse(*_: object) -> None:
        raise AssertionError("nothing is to be done")

    monkeypatch.setattr(Shipper, "_copy", refuse)
    monkeypatch.setattr(Shipper, "_compare", refuse)
    assert first.ship().shipped == ()
    assert directory.shipper().ship().shipped == ()


def test_an_active_segment_is_shipped_up_to_its_last_whole_batch(directory: Directory):
    whole, half = batch(4), batch(5)[:30]
    path = directory.write(4, whole, half)
    directory.shipper(include_active=True).ship()
    assert directory.shipped()[path.name] == whole
    directory.write(4, whole, batch(5))
    directory.write(6, b"")
    directory.shipper().ship()
    assert directory.shipped()[path.name] == whole + batch(5)
    assert not (directory.home / "superseded").exists()


def test_what_a_log_lost_stays(directory: Directory):
    path = directory.write(2, batch(2), batch(3))
    shipper = directory.shipper()
    shipper.ship()
    before = directory.shipped()[path.name]
    directory.write(2, batch(2))
    assert shipper.ship().shipped == ()
    assert directory.shipped()[path.name] == before
    directory.write(2, batch(2), batch(3, epoch=2))
    assert [file.name for file in shipper.ship().shipped] == [path.name]
    assert directory.shipped()[path.name] == batch(2) + batch(3, epoch=2)
    (kept,) = (directory.home / "superseded").iterdir()
    assert kept.name.startswith(path.name)
    assert kept.read_bytes() == before
    for name in (f"{0:020d}.log", f"{2:020d}.log", CHECKPOINT):
        (directory.partition / name).unlink()
    shipper.ship()
    assert len(directory.shipped()) == 3


def test_a_file_that_is_deleted_or_written_to_meanwhile_is_no_error(
    directory: Directory, monkeypatch: pytest.MonkeyPatch
):
    listed = shell._listed

    def then_changes(path: Path) -> object:
        found = listed(path)
        if path == directory.partition:
            (directory.partition / f"{0:020d}.log").unlink()
            directory.write(2, batch(2))
        return found

    monkeypatch.setattr(shell, "_listed", then_changes)
    done = directory.shipper().ship()
    assert set(directory.shipped()) == {CHECKPOINT}
    assert done.problems == ()


def test_only_old_temporary_files_are_removed(directory: Directory):
    """No litter of killed processes, and no harm to living ones."""
    directory.target.mkdir(parents=True)
    old, young = (directory.target / f"{0:020d}.log.{name}.part" for name in ("old", "young"))
    for path in (old, young):
        path.write_bytes(b"half")
    yesterday = time.time() - 25 * 3600
    os.utime(old, (yesterday, yesterday))
    directory.shipper().ship()
    assert not old.exists()
    assert young.exists()


def test_stopping_leaves_nothing_half_done(directory: Directory):
    with pytest.raises(StoppedError):
        directory.shipper(is_stopping=lambda: True).ship()
    assert directory.shipped() == {}
    directory.shipper().ship()
    assert len(directory.shipped()) == 3


def test_one_file_that_cannot_be_read_does_not_keep_the_others(directory: Directory):
    path = directory.partition / f"{0:020d}.log"
    path.unlink()
    path.mkdir()
    done = directory.shipper().ship()
    assert set(directory.shipped()) == {f"{2:020d}.log", CHECKPOINT}
    assert done.problems == (f"{path}: cannot open: it is not a regular file",)


def test_faults_are_told_with_the_path(directory: Directory, tmp_path: Path):
    with pytest.raises(NotFormattedError, match=r"nowhere: has no meta\.properties; it is not a formatted"):
        Shipper(log_dir=tmp_path / "nowhere", history=tmp_path / "history").ship()
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "meta.properties").write_text(PROPERTIES)
    with pytest.raises(NotFormattedError, match="__cluster_metadata-0: there is no metadata log yet"):
        Shipper(log_dir=tmp_path / "new", history=tmp_path / "history").ship()
    assert not (tmp_path / "history").exists()
    directory.history.write_text("a file")
    with pytest.raises(ShipError, match="__cluster_metadata-0: cannot ship: Not a directory"):
        directory.shipper().ship()
    (directory.log_dir / "meta.properties").write_text("version=1\ncluster.id=../x\nnode.id=1\n")
    with pytest.raises(ShipError, match=r"cluster\.id: '\.\./x': is not a valid directory name"):
        directory.shipper().ship()


def test_the_command_prints_what_it_did(directory: Directory, tmp_path: Path):
    def call(*options: object) -> tuple[int, str, str]:
        arguments = ["ship", "--to", directory.history, *options]
        result = CliRunner().invoke(commands.app, [str(argument) for argument in arguments])
        return result.exit_code, result.stdout, result.stderr

    code, output, _ = call("--log-dir", directory.log_dir, "-o", "json")
    assert code == 0
    assert json.loads(output) == {
        "clusterId": CLUSTER_ID,
        "nodeId": 3000,
        "to": str(directory.home),
        "shipped": [f"{0:020d}.log", f"{2:020d}.log", CHECKPOINT],
    }
    assert call("--log-dir", directory.log_dir) == (
        0,
        f"Shipped 0 files of node 3000 to {directory.home}.\n",
        "",
    )
    code, output, errors = call("--log-dir", tmp_path / "nowhere")
    assert (code, output) == (1, "")
    assert errors.startswith(f"error: {tmp_path}/nowhere: has no meta.properties")
    code, _, errors = call("--log-dir", directory.log_dir, "--interval", "soon")
    assert code == 2
    assert "'soon': must be a number and a unit of s, m, h" in " ".join(errors.split())
