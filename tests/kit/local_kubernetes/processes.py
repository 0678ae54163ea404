"""Processes that serve others on this machine: started with a log of their own, and never left behind."""

import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

import psutil
from kit.local_kubernetes.errors import LocalKubernetesError

STOP_TIMEOUT_S = 20
POLL_S = 0.05
LINES_SHOWN = 20
WORDS_SHOWN = 12
# A killed test run takes its servers along; `setpriv` does what preexec_fn must not do beside threads.
DIE_WITH_PARENT = ("setpriv", "--pdeathsig", "KILL", "--")


def run(
    command: Sequence[str],
    timeout_s: float,
    *,
    environment: Mapping[str, str] | None = None,
    directory: Path | None = None,
    stdin: str = "",
) -> str:
    """Run it to its end: what it prints to stdout. Raises LocalKubernetesError, with its last lines if it fails."""
    shown = " ".join(Path(word).name if word.startswith("/") else word for word in command[:WORDS_SHOWN])
    try:
        ran = subprocess.run(
            command,
            cwd=directory,
            env=None if environment is None else dict(environment),
            input=stdin,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=timeout_s,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LocalKubernetesError(f"{shown} could not be run to its end: {error}") from error
    if ran.returncode:
        said = [*ran.stdout.splitlines(), *ran.stderr.splitlines()][-LINES_SHOWN:]
        raise LocalKubernetesError(
            "\n".join([f"{shown} failed ({ran.returncode}):", *(f"  {line}" for line in said)])
        )
    return ran.stdout


class Service:
    """A running process. `name` is for messages; its output goes to a file."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        environment: Mapping[str, str],
        *,
        dies_with_us: bool = True,
        inherited: Sequence[int] = (),
    ) -> None:
        """Start it. It keeps the file descriptors `inherited` open."""
        self.name = name
        self.log = log
        prefix = DIE_WITH_PARENT if dies_with_us else ()
        try:
            with log.open("wb") as output:
                self._process = subprocess.Popen(
                    [*prefix, *command],
                    env=dict(environment),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    pass_fds=inherited,
                    start_new_session=True,  # Ctrl-C is for the tests, which then stop their servers in order
                )
        except OSError as error:
            raise LocalKubernetesError(f"{name} can't be started: {error}") from error

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def wait_until(self, is_ready: Callable[[], bool], timeout_s: float) -> Self:
        """Wait until `is_ready`. Raises LocalKubernetesError with the end of the log if it ends or takes too long."""
        deadline = time.monotonic() + timeout_s
        while not is_ready():
            if self._process.poll() is not None:
                raise LocalKubernetesError(f"{self.name} ended ({self._process.returncode}):\n{self.tail()}")
            if time.monotonic() > deadline:
                raise LocalKubernetesError(f"{self.name} is not ready after {timeout_s} s:\n{self.tail()}")
            time.sleep(POLL_S)
        return self

    def tail(self) -> str:
        """The last lines of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-LINES_SHOWN:])

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End it, by force if it takes too long."""
        with suppress(ProcessLookupError):
            self._process.send_signal(number)
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def end_tree(self) -> None:
        """End it and its children by force, the children first: for `unshare`, whose child is all there is."""
        with suppress(psutil.NoSuchProcess):
            children = psutil.Process(self.pid).children()
            for child in children:
                child.kill()
            psutil.wait_procs(children, STOP_TIMEOUT_S)
        self.stop(signal.SIGKILL)
