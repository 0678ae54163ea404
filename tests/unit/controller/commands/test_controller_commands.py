"""`quorate controller`: output, exit codes, messages without tracebacks."""

import json
import re
from pathlib import Path

import pytest
from kit.controller_parts import write_controller_properties
from quorate_controller import commands, process
from quorate_controller.config import ControllerConfig
from quorate_controller.storage.errors import StorageError
from quorate_protocol.uuids import uuid_from_text
from typer.testing import CliRunner, Result


@pytest.fixture
def config_file(tmp_path: Path) -> Path:
    """A controller's file."""
    return write_controller_properties(tmp_path)


@pytest.fixture(autouse=True)
def logs_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands run in this process, whose logs are not theirs: other tests would write to a closed stream."""
    monkeypatch.setattr(commands, "configure_logs", lambda **_: None)


def call(*arguments: object) -> Result:
    """Run the command."""
    return CliRunner().invoke(commands.app, [str(argument) for argument in arguments])


def test_format_prints_what_kafka_storage_does(config_file: Path, tmp_path: Path):
    """One line per directory; a second time is an error that says what to do, or skips."""
    arguments = ("format", "-c", config_file, "-t", "abc", "--standalone")
    result = call(*arguments)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == (
        f"Formatting dynamic metadata voter directory {tmp_path}/data with metadata.version 4.4-IV2.\n"
    )
    result = call(*arguments)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == (
        f"error: Log directory {tmp_path}/data is already formatted. "
        "Use --ignore-formatted to ignore this directory and format the others.\n"
    )
    result = call(*arguments, "--ignore-formatted")
    assert (result.exit_code, result.stdout) == (0, "All of the log directories are already formatted.\n")
    result = call("format", "-c", config_file, "-t", "other", "-s", "-g")
    assert result.exit_code == 1
    assert "belongs to cluster abc, not other" in result.stderr


def test_format_gives_json(config_file: Path, tmp_path: Path):
    """-o json is one document with everything that was decided."""
    result = call("format", "-c", config_file, "-t", "abc", "-N", "-r", "3.9", "-o", "json")
    document = json.loads(result.stdout)
    directory_id = document["directories"][0].pop("directoryId")
    assert uuid_from_text(directory_id)
    assert document == {
        "clusterId": "abc",
        "nodeId": 3000,
        "metadataVersion": {"level": 21, "name": "3.9-IV0"},
        "features": {},
        "directories": [{"path": f"{tmp_path}/data", "kind": "metadata directory", "formatted": True}],
    }


def test_format_writes_the_directory_id_to_a_file(config_file: Path, tmp_path: Path):
    file = tmp_path / "termination-log"
    arguments = ("format", "-c", config_file, "-t", "abc", "-s", "-g", "--directory-id-to")
    assert call(*arguments, file).exit_code == 0
    written = file.read_text()
    assert f"directory.id={written}\n" in (tmp_path / "data" / "meta.properties").read_text()
    file.write_text("")
    assert call(*arguments, file).exit_code == 0
    assert file.read_text() == written
    result = call(*arguments, tmp_path)
    assert (result.exit_code, result.stderr) == (1, f"error: --directory-id-to {tmp_path}: Is a directory\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ["format"],
        ["format", "-t", "abc"],
        ["format", "-c", "FILE", "-t", "abc", "-s", "-N"],
        ["format", "-c", "FILE", "-t", "abc", "-o", "yaml"],
        ["format", "-c", "FILE", "-t", "abc", "--add-user", "x"],
        ["run"],
        ["run", "-c", "FILE", "--log-level", "loud"],
        ["nonsense"],
    ],
)
def test_wrong_command_lines_exit_with_2(config_file: Path, arguments: list[str]):
    """Usage errors differ from failures."""
    result = call(*(config_file if argument == "FILE" else argument for argument in arguments))
    assert result.exit_code == 2


@pytest.mark.parametrize("command", [["format", "-t", "abc", "-s"], ["run"]])
def test_config_problems_exit_with_1_and_a_line_each(config_file: Path, command: list[str]):
    """All problems are reported, with the file's name, and no traceback."""
    config_file.write_text(config_file.read_text().replace("3000", "x") + "num.partitions=0\n")
    result = call(*command, "-c", config_file)
    assert result.exit_code == 1
    lines = result.stderr.splitlines()
    assert len(lines) == 2
    assert all(line.startswith(f"error: {config_file}: ") for line in lines)
    assert call(*command, "-c", config_file.parent / "nothing").exit_code == 1


def test_unusable_directory_exits_with_1(config_file: Path, tmp_path: Path):
    """A file where the directory should be: one line that says so."""
    (tmp_path / "data").write_text("in the way")
    result = call("format", "-c", config_file, "-t", "abc", "-s")
    assert result.exit_code == 1
    assert re.fullmatch(r"error: \S*/data\S*: cannot .*\n", result.stderr), result.stderr


def test_run_hands_the_config_over(config_file: Path, monkeypatch: pytest.MonkeyPatch):
    """The parsed file reaches the process, and its expected failures are reported in a line."""
    seen: list[ControllerConfig] = []
    failures: list[Exception] = []

    def run(config: ControllerConfig) -> None:
        seen.append(config)
        if failures:
            raise failures.pop()

    monkeypatch.setattr(process, "run", run)
    assert call("run", "-c", config_file).exit_code == 0
    assert seen[0].node_id == 3000
    for error in (StorageError(Path("/x"), "is not formatted"), process.StartError("cannot listen")):
        failures.append(error)
        result = call("run", "-c", config_file)
        assert (result.exit_code, result.stderr) == (1, f"error: {error}\n")


def test_random_uuid_is_one():
    """22 characters of base64 that do not look like an option."""
    text = call("random-uuid").stdout.strip()
    assert uuid_from_text(text)
    assert not text.startswith("-")
