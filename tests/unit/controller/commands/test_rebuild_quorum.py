"""`quorate controller rebuild-quorum`: one voter is left, with all that its disk has."""

import json
from pathlib import Path

import pytest
from kit.controller_parts import BOOTSTRAP_SERVERS, write_controller_properties
from quorate_controller import commands
from quorate_controller.config import ControllerConfig, load_config
from quorate_controller.storage.controller_storage import ControllerStorage
from quorate_controller.storage.os_filesystem import OsFileSystem
from quorate_protocol.uuids import uuid_to_text
from typer.testing import CliRunner, Result

DIRECTORY_IDS = {
    3000: "CCCCCCCCCCCCCCCCCCCCAg",
    3001: "CCCCCCCCCCCCCCCCCCCCAw",
    3002: "CCCCCCCCCCCCCCCCCCCCBA",
}
TOOL = "quorate metadata-quorum --bootstrap-controller survivor:9093"
VOTERS = ",".join(
    f"{node_id}@h{node_id}:9093:{directory_id}" for node_id, directory_id in DIRECTORY_IDS.items()
)


def call(*arguments: object) -> Result:
    """Run the command."""
    return CliRunner().invoke(commands.app, [str(argument) for argument in arguments])


@pytest.fixture
def config_file(tmp_path: Path) -> Path:
    """The file of one controller of three."""
    advertised = {"advertised.listeners": "CONTROLLER://survivor:9093"}
    return write_controller_properties(tmp_path, {**BOOTSTRAP_SERVERS, **advertised}, node_id=3001)


@pytest.fixture
def config(config_file: Path) -> ControllerConfig:
    """The controller, formatted as one of three voters."""
    assert call("format", "-c", config_file, "-t", "abc", "-I", VOTERS).exit_code == 0
    return load_config(config_file)


def test_the_survivor_is_the_only_voter(config: ControllerConfig, config_file: Path) -> None:
    result = call("rebuild-quorum", "-c", config_file)
    assert result.exit_code == 0
    head, blank, title, *steps = result.stdout.splitlines()
    assert (head, blank, title) == (
        "Node 3001 is the only voter from offset 0 on, in epoch 1; the voters were 3000, 3001, 3002.",
        "",
        "What to do next:",
    )
    assert steps[0] == f"1. Start node 3001, and wait until it leads: {TOOL} describe --status."
    assert steps[1].startswith("2. Do not start 3000, 3002 with their old disks: ")
    assert "--cluster-id abc --no-initial-controllers, with survivor:9093 in " in steps[2]
    assert steps[3].endswith(f"{TOOL} --command-config FILE add-controller.")
    assert len(steps) == 4
    storage = ControllerStorage.open(OsFileSystem(), config.storage)
    try:
        (voter,) = storage.log_state().voters[-1].voters.voters
        assert (voter.node_id, uuid_to_text(voter.key.directory_id)) == (3001, DIRECTORY_IDS[3001])
        assert [(endpoint.host, endpoint.port) for endpoint in voter.endpoints] == [("survivor", 9093)]
        assert storage.hard_state.leader_epoch == storage.log_state().epochs[-1].epoch == 1
    finally:
        storage.close()


def test_rebuilding_twice_is_rebuilding(config_file: Path, config: ControllerConfig) -> None:
    del config
    call("rebuild-quorum", "-c", config_file)
    result = call("rebuild-quorum", "-c", config_file, "-o", "json")
    assert json.loads(result.stdout) == {
        "nodeId": 3001,
        "directoryId": DIRECTORY_IDS[3001],
        "formerVoters": [3001],
        "leaderEpoch": 2,
        "offset": 1,
        "nextSteps": [
            f"Start node 3001, and wait until it leads: {TOOL} describe --status",
        ],
    }


def test_the_new_epoch_is_above_each_that_was_seen(config_file: Path, config: ControllerConfig) -> None:
    """The survivor may have missed elections, whose leaders would have the same epoch with other records."""
    del config
    for above_epoch, expected in ((7, 8), (3, 9)):
        result = call("rebuild-quorum", "-c", config_file, "--above-epoch", above_epoch, "-o", "json")
        assert json.loads(result.stdout)["leaderEpoch"] == expected


def test_a_controller_that_runs_is_left_alone(config: ControllerConfig, config_file: Path) -> None:
    storage = ControllerStorage.open(OsFileSystem(), config.storage)
    try:
        result = call("rebuild-quorum", "-c", config_file)
    finally:
        storage.close()
    assert result.exit_code == 1
    assert result.stderr.startswith("error: ")
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("choice", ["static", "observer"])
def test_what_has_no_voters_is_refused(config_file: Path, choice: str) -> None:
    if choice == "static":
        text = config_file.read_text().replace("bootstrap.servers=localhost:9093", "voters=3001@h:9093")
        config_file.write_text(text)
    flags = ["-N"] if choice == "observer" else []
    assert call("format", "-c", config_file, "-t", "abc", *flags).exit_code == 0
    result = call("rebuild-quorum", "-c", config_file)
    assert result.exit_code == 1
    assert "has no voters" in result.stderr
    assert "controller.quorum.voters" in result.stderr
