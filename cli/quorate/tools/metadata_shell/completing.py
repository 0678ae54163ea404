"""What may follow in a line that is being typed. Pure."""

from collections.abc import Sequence

from quorate.tools.metadata_shell.paths import components_of
from quorate.tools.metadata_shell.shell_builtins import COMMANDS, ShellState
from quorate.tools.metadata_shell.tree import Directory, Node


def completions(state: ShellState, words: Sequence[str]) -> list[str]:
    """What the last of the words may become; a whole word ends with a blank, a directory with `/`."""
    if len(words) <= 1:
        return _commands(words[0] if words else "")
    command = COMMANDS.get(words[0])
    if command is None or command.completes is None:
        return []
    if command.completes == "command":
        return _commands(words[1]) if len(words) == 2 else []
    if command.name == "cd" and len(words) > 2:
        return []
    return complete_path(state, words[-1])


def _commands(prefix: str) -> list[str]:
    return [f"{name} " for name in COMMANDS if name.startswith(prefix)]


def complete_path(state: ShellState, prefix: str) -> list[str]:
    """The paths that begin with `prefix`, one component further at most."""
    head, slash, last = prefix.rpartition("/")
    above = (head or "/") if slash else ""
    node: Node | None = state.root
    for component in components_of(above, state.working_directory):
        node = node.child(component) if isinstance(node, Directory) else None
    if not isinstance(node, Directory):
        return []
    names = [name for name in node.sorted_names() if name.startswith(last)]
    return [f"{head}{slash}{name}{'/' if isinstance(node.child(name), Directory) else ' '}" for name in names]
