"""Plays a cluster with the `quorate` command, as a user does."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from kit.cluster import environment_for, free_ports
from kit.kafka import jars_of
from kit.waiting import eventually
from quorate_admin.client import AdminClient
from quorate_operator.runtime.local import play_session
from quorate_operator.runtime.local.directory import PlayDirectory
from quorate_operator.runtime.local.errors import NotAnsweringError, NotRunningError
from quorate_protocol.kafka.releases import DEFAULT_RELEASE

QUORATE = str(Path(sys.executable).with_name("quorate"))
TIMEOUT_S = 600
EDIT_WAIT = "9m"
CONTROLLERS_ALONE = """\
apiVersion: quorate.dev/v1alpha1
kind: KafkaController
metadata: {name: quorum}
spec: {listeners: [{name: CONTROLLER, port: %d}]}
"""


class Player:
    """Plays a cluster in its own directory, and ensures that no process stays."""

    def __init__(self, path: Path, environment: dict[str, str]) -> None:
        self.path = path
        self.environment = environment
        self.directory = path / "cluster"
        self.manifest = path / "cluster.yaml"
        self.write(CONTROLLERS_ALONE % free_ports(3))

    def write(self, text: str) -> None:
        """Write the manifest."""
        self.manifest.write_text(text)

    def command(self, *arguments: str) -> list[str]:
        """The command line of `quorate play` in this directory; `arguments` begin with a subcommand, if any."""
        return [QUORATE, "play", *arguments, "--dir", str(self.directory)]

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run it to its end."""
        return subprocess.run(
            self.command(*arguments), **self.surroundings, capture_output=True, timeout=TIMEOUT_S, check=False
        )

    @property
    def surroundings(self) -> dict[str, Any]:
        """How every command is run."""
        return {"cwd": self.path, "env": self.environment, "text": True, "stdin": subprocess.DEVNULL}

    def play(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Play the manifest in the background; the cluster must become ready."""
        ran = self.run("-f", str(self.manifest), "--detach", *arguments)
        assert ran.returncode == 0, ran.stderr
        return ran

    def refusal(self) -> str:
        """The error of a manifest that can't be played."""
        ran = self.run("-f", str(self.manifest), "--detach")
        assert ran.returncode == 1, ran.stdout
        return ran.stderr

    def status(self) -> dict[str, Any]:
        """What `status -o json` says."""
        ran = self.run("status", "-o", "json")
        assert ran.returncode == 0, ran.stderr
        content: dict[str, Any] = json.loads(ran.stdout)
        return content

    def snapshot(self) -> dict[str, Any]:
        """The same without starting a process, for waits that ask again and again.

        Raises:
            ConnectionError: the supervisor is too busy to answer, and may be asked again.
        """
        try:
            snapshot = asyncio.run(play_session.ask_snapshot(PlayDirectory(self.directory)))
        except NotRunningError:
            return self.status()
        except NotAnsweringError as error:
            raise ConnectionError(f"{error}") from error
        reported: dict[str, Any] = json.loads(json.dumps(snapshot.status.as_json()))
        return reported

    def until_ready(self) -> dict[str, Any]:
        """The status once it says ready."""
        return self.until(lambda status: status["ready"], 60, "a ready cluster")

    def finalized_level(self) -> int:
        """The finalized level of metadata.version."""
        bootstrap_controllers = self.status()["bootstrapControllers"].split(",")

        async def ask() -> int:
            async with AdminClient(bootstrap_controllers=bootstrap_controllers) as client:
                return (await client.describe_features()).finalized["metadata.version"]

        return asyncio.run(ask())

    def processes(self) -> list[psutil.Process]:
        """Whatever runs with this directory on its command line: nodes and supervisors."""
        found = []
        for process in psutil.process_iter():
            try:
                if str(self.path) in " ".join(process.cmdline()) and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except psutil.Error:
                continue  # it ended meanwhile
        return found

    def close(self) -> None:
        """End what a failed test has left; a test that passed has left nothing."""
        left = self.processes()
        for process in left:
            process.kill()
        psutil.wait_procs(left, timeout=10)
        assert left == []

    def edit(self, text: str, *arguments: str) -> str:
        """Play another manifest in the running cluster, until it is applied. Returns stderr."""
        self.write(text)
        return self.play("--wait", EDIT_WAIT, *arguments).stderr

    def plan(self, text: str) -> dict[str, Any]:
        """What `quorate play plan` says would be done for another manifest, which is not played."""
        other = self.path / "other.yaml"
        other.write_text(text)
        ran = self.run("plan", "-f", str(other), "-o", "json")
        assert ran.returncode == 0, ran.stderr
        found: dict[str, Any] = json.loads(ran.stdout)
        return found

    def until(self, holds: Callable[[dict[str, Any]], object], timeout_s: float, what: str) -> dict[str, Any]:
        """The first status for which something holds."""

        def matching() -> dict[str, Any] | None:
            status = self.snapshot()
            return status if holds(status) else None

        return eventually(matching, timeout_s, what, self.status)

    def supervisor(self) -> psutil.Process:
        """The process that supervises the cluster in the background."""
        (found,) = [process for process in self.processes() if "supervise" in process.cmdline()]
        return found


@contextmanager
def playing(directory: Path, environment: dict[str, str]) -> Iterator[Player]:
    """A player in `directory`, which has ended when the context ends."""
    path = directory / "play"
    path.mkdir()
    player = Player(path, environment)
    try:
        yield player
        player.run("stop")
    finally:
        player.close()


@pytest.fixture
def player(tmp_path: Path) -> Iterator[Player]:
    """A player whose cluster is controllers alone, until the test writes another manifest.

    It has the default release, whatever the run has: examples name theirs.
    """
    with playing(tmp_path, environment_for(jars_of(DEFAULT_RELEASE), tmp_path)) as player:
        yield player
