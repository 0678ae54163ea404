"""Listeners on all interfaces, without advertised.listeners: the files of most compose projects."""

import subprocess
from pathlib import Path
from typing import Final

import pytest
from kit.kafka import stock_kafka_of
from kit.one_controller import NODE_ID, free_address, java_command, quorate_command, running, write_config
from kit.releases import RELEASES
from kit.waiting import eventually
from quorate_admin import AdminError, SyncAdminClient

pytestmark = pytest.mark.integration

CLUSTER_ID: Final = "4L6g3nShT-eMCtK--X86sw"
WAIT_S: Final = 90
STANDALONE: Final = ("--standalone",)
QUORATE: Final = "Quorate"
DYNAMIC: Final = "controller.quorum.bootstrap.servers=ADDRESS"
KINDS: Final = {
    "dynamic": (STANDALONE, [DYNAMIC]),
    "static": ((), [f"controller.quorum.voters={NODE_ID}@ADDRESS"]),
    "empty host": (STANDALONE, [DYNAMIC, "listeners=CONTROLLER://:PORT"]),
}


def commands(name: str, config: Path, *options: str) -> tuple[list[str], list[str]]:
    """The commands that format and run a controller, of stock Kafka if `name` is a release."""
    arguments = ("--config", config, "--cluster-id", CLUSTER_ID, *options)
    if name == QUORATE:
        return (
            quorate_command("controller", "format", *arguments),
            quorate_command("controller", "run", "--config", config),
        )
    kafka = stock_kafka_of(name)
    return (
        java_command(kafka, "kafka.tools.StorageTool", "format", *arguments),
        java_command(kafka, "kafka.Kafka", config),
    )


def ran(command: list[str]) -> subprocess.CompletedProcess[str]:
    """A command, run to its end."""
    return subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)


def advertised_host(name: str, directory: Path, kind: str) -> str:
    """The host in the registration of a controller, which is started for it."""
    directory.mkdir()
    address = free_address()
    port = address.rpartition(":")[2]
    options, lines = KINDS[kind]
    lines = [f"listeners=CONTROLLER://0.0.0.0:{port}", *(line.replace("PORT", port) for line in lines)]
    config = write_config(directory, *lines, address=address)
    format_command, run_command = commands(name, config, *options)
    formatted = ran(format_command)
    assert formatted.returncode == 0, formatted.stderr
    with running(run_command, directory / "log") as process:

        def host() -> str | None:
            assert process.poll() is None, (directory / "log").read_text()
            try:
                with SyncAdminClient(bootstrap_controllers=[address]) as admin:
                    nodes = admin.describe_cluster().nodes
            except AdminError:
                return None
            assert [node.port for node in nodes] in ([], [int(port)])
            return nodes[0].host if nodes else None

        return eventually(host, WAIT_S, f"{name} to be registered")


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("kind", KINDS)
def test_controllers_advertise_what_those_of_kafka_advertise(tmp_path: Path, kind: str, release: str) -> None:
    stock, ours = (advertised_host(name, tmp_path / name, kind) for name in (release, QUORATE))
    assert ours == stock


@pytest.mark.parametrize("name", [*RELEASES, QUORATE])
def test_all_interfaces_cannot_be_advertised(tmp_path: Path, name: str) -> None:
    """As in Kafka, neither tool takes advertised.listeners with 0.0.0.0."""
    lines = (DYNAMIC, "advertised.listeners=CONTROLLER://0.0.0.0:9093")
    config = write_config(tmp_path, *lines)
    for command in commands(name, config, *STANDALONE):
        refused = ran(command)
        assert refused.returncode == 1
        assert "advertised.listeners" in refused.stderr + refused.stdout
        assert "0.0.0.0" in refused.stderr + refused.stdout
    assert not (tmp_path / "data" / "meta.properties").exists()
