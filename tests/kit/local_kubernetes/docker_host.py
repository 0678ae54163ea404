"""Docker for tests: the one that runs on this machine, else a daemon of our own.

Our own lives in namespaces of its own: process ids, mounts and network. Its bridges and firewall rules are not the
machine's, its containers have no way out of the machine, and when its first process ends, however that happens, the
kernel ends every other and takes mounts and interfaces away. What is left to do is to remove files and cgroups. A
daemon may stay when the program that started it ends: a program that knows its directory finds it again.
"""

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Self

import psutil
from kit.local_kubernetes.errors import LocalKubernetesError
from kit.local_kubernetes.processes import STOP_TIMEOUT_S, Service

START_TIMEOUT_S = 60
QUESTION_TIMEOUT_S = 20
CGROUPS = Path("/sys/fs/cgroup")
_BASE = Path("/var/tmp")  # not in memory, as /tmp may be: it holds images
_PREFIX = "quorate-docker-"
_NEEDED = ("dockerd", "containerd", "runc", "docker", "iptables", "ip", "unshare", "nsenter", "setpriv")
_CAP_SYS_RESOURCE = 24
_RUNTIME = Path(__file__).with_name("runc_without_capability.py")
_INIT = Path(__file__).with_name("docker_init.py")
# Kubelets set these for the whole machine; they are set back at the end.
_SYSCTLS = ("vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops")
_STATE = "state.json"


@dataclass(frozen=True, slots=True)
class RunningDocker:
    """The Docker of this machine."""

    environment: Mapping[str, str]
    is_ours = False

    def inside(self, command: Sequence[str]) -> list[str]:
        """The command as it reaches ports that containers publish."""
        return [*command]

    def close(self) -> None:
        """It is not ours to stop."""


class OwnDocker:
    """A Docker daemon in namespaces of its own. Close it."""

    is_ours = True

    def __init__(self, directory: Path, environment: Mapping[str, str]) -> None:
        """The one of this directory; `start` and `find` make these."""
        self.directory = directory
        self.environment = {**environment, "DOCKER_HOST": f"unix://{directory}/docker.sock"}
        self._sysctls = {name: Path("/proc/sys", name).read_text() for name in _SYSCTLS}
        self._service: Service | None = None
        self._init: int | None = None

    @classmethod
    def start(cls, environment: Mapping[str, str], *, stays: bool = False) -> Self:
        """Start one, which ends with this process unless it `stays`. Raises LocalKubernetesError."""
        _sweep()
        docker = cls(Path(tempfile.mkdtemp(prefix=_PREFIX, dir=_BASE)), environment)
        try:
            with (docker.directory / "lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                docker._start(lock, environment, stays=stays)
        except BaseException:
            docker.close()
            raise
        return docker

    @classmethod
    def find(cls, directory: Path, environment: Mapping[str, str]) -> Self | None:
        """The one that stayed and has this directory; None if it runs no more."""
        if not _is_used(directory):
            return None
        docker = cls(directory, environment)
        state = json.loads((directory / _STATE).read_text())
        docker._init, docker._sysctls = state["init"], state["sysctls"]
        return docker

    def inside(self, command: Sequence[str]) -> list[str]:
        """The command as it reaches ports that containers publish, which are in the daemon's network."""
        return ["nsenter", f"--target={self._init}", "--net", *command]

    def close(self) -> None:
        """End everything in the namespaces, and remove what it left in files, cgroups and settings."""
        if self._service is not None:
            self._service.end_tree()
        elif self._init is not None:
            with suppress(psutil.NoSuchProcess):
                init = psutil.Process(self._init)
                init.kill()
                psutil.wait_procs([init], STOP_TIMEOUT_S)
        for name, value in self._sysctls.items():
            setting = Path("/proc/sys", name)
            if setting.read_text() != value:
                setting.write_text(value)
        _remove(self.directory)

    def _start(self, lock: IO[str], environment: Mapping[str, str], *, stays: bool) -> None:
        """Its first process inherits the lock, and holds it as long as it lives."""
        command = [
            *("unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"),
            *(sys.executable, f"{_INIT}", f"{self.directory}", self.directory.name, *self._runtime()),
        ]
        log = self.directory / "dockerd.log"
        self._service = Service(
            "dockerd", command, log, environment, dies_with_us=not stays, inherited=[lock.fileno()]
        )
        self._service.wait_until(lambda: is_running(self.environment), START_TIMEOUT_S)
        (init,) = psutil.Process(self._service.pid).children()
        self._init = init.pid
        (self.directory / _STATE).write_text(json.dumps({"init": self._init, "sysctls": self._sysctls}))

    def _runtime(self) -> list[str]:
        """Arguments that have containers made without CAP_SYS_RESOURCE where this machine lacks it."""
        bounding = next(
            int(line.split()[1], 16)
            for line in Path("/proc/self/status").read_text().splitlines()
            if line.startswith("CapBnd")
        )
        if bounding >> _CAP_SYS_RESOURCE & 1:
            return []
        wrapper = self.directory / "runc"
        wrapper.write_text(f'#!/bin/sh\nexec {sys.executable} -IS {_RUNTIME} {shutil.which("runc")} "$@"\n')
        wrapper.chmod(0o755)
        return [f"--add-runtime=adapted={wrapper}", "--default-runtime=adapted"]


DockerHost = RunningDocker | OwnDocker


def docker_host(environment: Mapping[str, str], *, stays: bool = False) -> DockerHost:
    """The Docker of this machine, else one of our own. Raises LocalKubernetesError, saying how to get one.

    With QUORATE_DOCKER=own, the machine's Docker is not used: for machines where it reaches no registry. Ours ends
    with this process unless it `stays`.
    """
    if environment.get("QUORATE_DOCKER") != "own" and is_running(environment):
        return RunningDocker(environment)
    search = environment.get("PATH", os.defpath)
    absent = [name for name in _NEEDED if shutil.which(name, path=search) is None]
    if os.geteuid() != 0 or absent:
        lack = f"{', '.join(absent)} to start one" if absent else "the rights of root to start one"
        raise LocalKubernetesError(
            f"no Docker answers, and there is no {lack}: start Docker, or, as root on Debian, "
            "apt-get install docker.io iptables iproute2"
        )
    return OwnDocker.start(environment, stays=stays)


def is_running(environment: Mapping[str, str]) -> bool:
    """Whether a Docker daemon can be asked."""
    with suppress(OSError, subprocess.TimeoutExpired):
        ran = subprocess.run(
            ["docker", "version", "--format", "{{.Server.Version}}"],
            env=dict(environment),
            capture_output=True,
            check=False,
            timeout=QUESTION_TIMEOUT_S,
        )
        return ran.returncode == 0
    return False


def _sweep() -> None:
    """Remove what daemons left that were killed with their owners."""
    for directory in _BASE.glob(f"{_PREFIX}*"):
        if (directory / "lock").is_file() and not _is_used(directory):
            _remove(directory)


def _is_used(directory: Path) -> bool:
    """Whether a daemon runs in this directory: its first process holds the lock."""
    try:
        with (directory / "lock").open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def _remove(directory: Path) -> None:
    """Remove a daemon's files, and its cgroups: directories that only the kernel fills."""
    for root in (CGROUPS, *CGROUPS.glob("*/")):
        for top, _, _ in os.walk(root / directory.name, topdown=False):
            with suppress(OSError):  # a directory that is not empty yet is removed by the next start
                Path(top).rmdir()
    shutil.rmtree(directory, ignore_errors=True)
