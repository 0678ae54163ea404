"""The prompt on a terminal: the real command, with a pseudo-terminal for its user."""

import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

CHECKPOINT = Path(__file__).parents[3] / "golden" / "metadata_shell" / "everything.checkpoint"
TIMEOUT_S = 30
AGAIN_S = 2
PROMPT = ">> "


class Terminal:
    """A user at a terminal of 80 columns, typing to the shell."""

    def __init__(self, *arguments: str) -> None:
        self._terminal, shells = pty.openpty()
        # Its controlling terminal: otherwise Ctrl-C would be no signal. A run in the background ignores Ctrl-C, and
        # what it starts would ignore it too.
        self._shell = subprocess.Popen(
            [
                "setsid",
                "--ctty",
                "env",
                "--default-signal=INT",
                sys.executable,
                "-m",
                "quorate",
                "metadata-shell",
                *arguments,
            ],
            stdin=shells,
            stdout=shells,
            stderr=shells,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "80", "INPUTRC": "/dev/null"},
        )
        os.close(shells)

    def type(self, keys: str, *, until: str = PROMPT) -> str:
        """Press keys; what appears, up to `until`."""
        self.press(keys)
        return self.read(until)

    def press(self, keys: str) -> None:
        """Press keys."""
        os.write(self._terminal, keys.encode())

    def interrupt(self) -> str:
        """Press Ctrl-C, and again if nothing appears, as a person does; what appears, up to the prompt.

        Python's readline looks for signals, then waits for a key: one that comes in between is seen with the next.
        """
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline:
            self.press("\x03")
            if select.select([self._terminal], [], [], AGAIN_S)[0]:
                return self.read()
        raise AssertionError(f"the shell does not heed Ctrl-C: {self._signals()}")

    def read(self, until: str = PROMPT) -> str:
        """What appears, up to `until`."""
        seen = b""
        deadline = time.monotonic() + TIMEOUT_S
        while until.encode() not in seen:
            readable, _, _ = select.select([self._terminal], [], [], deadline - time.monotonic())
            assert readable, f"{until!r} did not appear in {seen.decode()!r}"
            seen += os.read(self._terminal, 4096)
        return seen.decode().replace("\r\n", "\n")

    def end(self) -> int:
        """Wait for the end; the exit code."""
        with suppress(OSError):  # at the end of a pseudo-terminal Linux gives an error
            while self._is_readable() and os.read(self._terminal, 4096):
                pass
        return self._shell.wait(TIMEOUT_S)

    def close(self) -> None:
        """Kill the shell, if it has not ended."""
        self._shell.kill()
        self._shell.wait(TIMEOUT_S)
        os.close(self._terminal)

    def _signals(self) -> str:
        """What the shell blocks, ignores and handles, and whether it is in the terminal's foreground."""
        process = Path("/proc") / str(self._shell.pid)
        masks = [line for line in (process / "status").read_text().splitlines() if line.startswith("Sig")]
        group, _, _, foreground = (process / "stat").read_text().rpartition(") ")[2].split()[2:6]
        return f"{masks}, process group {group}, of the terminal {foreground}"

    def _is_readable(self) -> bool:
        readable, _, _ = select.select([self._terminal], [], [], TIMEOUT_S)
        assert readable, "the shell does not end"
        return True


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    """The shell at its first prompt; it has ended when the test has."""
    terminal = Terminal("--snapshot", str(CHECKPOINT))
    assert "[ Kafka Metadata Shell ]" in terminal.read()
    try:
        yield terminal
        terminal.press("exit\n")
        assert terminal.end() == 0
    finally:
        terminal.close()


def test_the_tab_key_completes_commands_and_paths(terminal: Terminal) -> None:
    terminal.type("tr\t", until="tree ")
    terminal.type("/im\t", until="/image/")
    terminal.type("top\tbyN\tt\tn\t", until="t.o_p-ic/name ")
    assert terminal.type("\n").endswith(f"t.o_p-ic\n{PROMPT}")


def test_lines_come_again_with_the_arrow_key(terminal: Terminal) -> None:
    assert "byId  byName\n" in terminal.type("ls /image/topics\n")
    assert "byId  byName\n" in terminal.type("\x1b[A\n")
    assert "    0  ls /image/topics\n    1  history\n" in terminal.type("history\n")


def test_an_interrupt_drops_the_line_and_not_the_shell(terminal: Terminal) -> None:
    terminal.type("cat /nowh", until="/nowh")
    assert "^C\n" in terminal.interrupt()
    assert "\n/\n" in terminal.type("pwd\n")


def test_the_end_of_the_input_ends_the_shell() -> None:
    terminal = Terminal("--snapshot", str(CHECKPOINT))
    try:
        terminal.read()
        terminal.press("\x04")
        assert terminal.end() == 0
    finally:
        terminal.close()
