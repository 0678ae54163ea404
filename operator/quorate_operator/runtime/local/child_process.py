"""A child process that ends with its supervisor, keeps its output in one bounded file, and is waited for."""

import asyncio
import ctypes
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil

from quorate_operator.runtime.last_error import last_error
from quorate_operator.runtime.local.errors import PlayError

LOG_SIZE_BYTES_MAX = 16 * 1024 * 1024
KILLED_TIMEOUT_S = 10
LAST_OUTPUT_BYTES_MAX = 16 * 1024
"""How much of the end of a log is searched for the error that ended its process."""

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


class ChildProcess:
    """A process started by `start`; exactly one call of `on_exit` follows, in the event loop."""

    def __init__(
        self,
        popen: subprocess.Popen[bytes],
        log: Path,
        on_exit: Callable[[], None],
        *,
        log_start_bytes: int = 0,
    ) -> None:
        self._popen = popen
        self._log = log
        self._log_start_bytes = log_start_bytes
        self._on_exit = on_exit
        self._exited = asyncio.Event()
        self._pidfd = os.pidfd_open(popen.pid)
        asyncio.get_running_loop().add_reader(self._pidfd, self._reap)

    @classmethod
    def start(
        cls, command: Sequence[str], *, directory: Path, log: Path, on_exit: Callable[[], None]
    ) -> "ChildProcess":
        """Start the command in `directory` and append its output to `log`. Raises OSError.

        It gets a process group of its own: Ctrl-C at the terminal reaches only the supervisor, which stops the
        nodes in order. The kernel kills it when the supervisor dies.
        """
        trim_log(log)
        with log.open("ab") as output:
            log_start_bytes = output.tell()
            popen = subprocess.Popen(  # noqa: S603 - commands that Quorate builds
                command,
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                process_group=0,
                preexec_fn=die_with_parent(signal.SIGKILL),  # noqa: PLW1509 - the supervisor has one thread
            )
        return cls(popen, log, on_exit, log_start_bytes=log_start_bytes)

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def runs(self) -> bool:
        return not self._exited.is_set()

    @property
    def succeeded(self) -> bool:
        """Whether the exit status is 0."""
        return self._popen.returncode == 0

    @property
    def exit_reason(self) -> str:
        """How it ended: `exit status 1`, `killed by SIGKILL`."""
        code = self._popen.returncode
        assert code is not None, "it still runs"
        return describe_exit(code)

    @property
    def last_error(self) -> str | None:
        """The last error in its log, as far as it could say why it ended; None if it ended well."""
        code = self._popen.returncode
        return None if code in (None, 0) else last_error(self._last_output(), marked_only=code < 0)

    def _last_output(self) -> str:
        """Return the end of what it wrote, empty if its log can't be read."""
        try:
            with self._log.open("rb") as log:
                size_bytes = log.seek(0, os.SEEK_END)
                # A log that was trimmed since is all its own.
                own_bytes = (
                    size_bytes - self._log_start_bytes if size_bytes >= self._log_start_bytes else size_bytes
                )
                log.seek(size_bytes - min(own_bytes, LAST_OUTPUT_BYTES_MAX))
                return log.read().decode(errors="replace")
        except OSError:
            return ""

    @property
    def rss_bytes(self) -> int | None:
        """Its resident memory; None if it has ended."""
        try:
            return int(psutil.Process(self.pid).memory_info().rss)
        except psutil.Error:
            return None

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal; does nothing if it has ended."""
        if self.runs:
            signal.pidfd_send_signal(self._pidfd, number)

    async def wait(self, timeout_s: float) -> bool:
        """Wait until it has ended; returns False after `timeout_s`."""
        try:
            await asyncio.wait_for(self._exited.wait(), timeout_s)
        except TimeoutError:
            return False
        return True

    async def stop(self, grace_ms: int) -> bool:
        """Send SIGTERM, and SIGKILL after `grace_ms`. Returns whether it ended by itself. Raises PlayError."""
        self.send_signal(signal.SIGTERM)
        self.send_signal(signal.SIGCONT)  # one that is suspended could not answer
        if await self.wait(grace_ms / 1000):
            return True
        self.send_signal(signal.SIGKILL)
        if not await self.wait(KILLED_TIMEOUT_S):
            raise PlayError(f"pid {self.pid} has not ended {KILLED_TIMEOUT_S} s after SIGKILL")
        return False

    def trim_log(self) -> None:
        trim_log(self._log)

    def _reap(self) -> None:
        self._popen.wait()  # returns at once: the pidfd became readable
        asyncio.get_running_loop().remove_reader(self._pidfd)
        self._exited.set()  # before the descriptor closes: from here on no signal is sent
        os.close(self._pidfd)
        self._on_exit()


def describe_exit(returncode: int) -> str:
    """Describe a return code of `subprocess`."""
    if returncode >= 0:
        return f"exit status {returncode}"
    try:
        return f"killed by {signal.Signals(-returncode).name}"
    except ValueError:
        return f"killed by signal {-returncode}"


def die_with_parent(number: signal.Signals) -> Callable[[], None]:
    """Return a function for a child, between fork and exec: it gets the signal when its parent dies."""
    parent = os.getpid()

    def arrange() -> None:
        _libc.prctl(_PR_SET_PDEATHSIG, number)
        if os.getppid() != parent:  # it died in between, and the signal will not come
            os._exit(1)

    return arrange


def trim_log(log: Path) -> None:
    """Move the content of a log that is too large to `<name>.1`.

    The file is copied, with its mode, and cut, because the writer keeps appending to it. What is written in between
    is lost.
    """
    if log.exists() and log.stat().st_size > LOG_SIZE_BYTES_MAX:
        shutil.copy(log, log.with_name(f"{log.name}.1"))
        os.truncate(log, 0)
