"""The prompt: reading lines, their history, and completion with the tab key."""

import shutil
import sys
from collections.abc import Callable, Iterable
from typing import Any

from quorate.tools.metadata_shell.calls import CommandLineError, completions, parse_call, words_of
from quorate.tools.metadata_shell.nodes import Node
from quorate.tools.metadata_shell.shell_builtins import ShellState

PROMPT = ">> "
HISTORY_MAX = 500
"""The same as in Kafka's shell."""


def run_shell(root: Node, refresh: Callable[[], Node], read_line: Callable[[str], str] = input) -> None:
    """Read lines and run them until `exit` or the end of the input.

    `refresh` returns the root of the current tree; it is called before each command.
    """
    history: list[str] = []
    state = ShellState(root, history=history)
    _set_up_readline(state)
    print_lines(["[ Kafka Metadata Shell ]"])
    while not state.is_done:
        try:
            line = read_line(PROMPT)
            remember(history, line)
            state.root = refresh()
            state.screen_width = shutil.get_terminal_size().columns
            print_lines(run_line(state, line))
        except KeyboardInterrupt:
            print_lines(["^C"])
        except EOFError:
            return


def run_line(state: ShellState, line: str) -> Iterable[str]:
    """The lines that a command line prints."""
    try:
        call = parse_call(words_of(line), is_interactive=True)
    except CommandLineError as error:
        return (str(error),)
    return call.command.run(state, call.arguments) if call is not None else ()


def remember(history: list[str], line: str) -> None:
    """Add a line to the history, unless it is blank or repeats the last one."""
    if line.strip() and history[-1:] != [line]:
        history.append(line)
        del history[:-HISTORY_MAX]


def print_lines(lines: Iterable[str]) -> None:
    """Write lines to stdout as they come."""
    sys.stdout.writelines(f"{line}\n" for line in lines)
    sys.stdout.flush()


def _set_up_readline(state: ShellState) -> None:
    try:
        import readline
    except ImportError:  # lines can be read without it
        return
    candidates: list[str] = []

    def complete(text: str, place: int) -> str | None:
        # Readline asks for one candidate after the other, starting with 0.
        if place == 0:
            candidates[:] = _candidates(state, readline, text)
        return candidates[place] if place < len(candidates) else None

    readline.set_completer_delims(" \t\n")
    readline.set_completer(complete)
    readline.set_history_length(HISTORY_MAX)
    is_editline = "libedit" in (readline.__doc__ or "")
    readline.parse_and_bind("bind ^I rl_complete" if is_editline else "tab: complete")


def _candidates(state: ShellState, readline: Any, text: str) -> list[str]:
    before = readline.get_line_buffer()[: readline.get_begidx()]
    return completions(state, [*before.split(), text])
